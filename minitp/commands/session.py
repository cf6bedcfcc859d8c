"""A model ready to run on this rank: found, checked, cut, loaded. Shared by the verbs that compute."""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from minitp.comm import Communicator
from minitp.commands.prompts import PromptSource, read_prompts
from minitp.config import ModelConfig
from minitp.errors import ConfigError, FileFormatError
from minitp.generate import Request
from minitp.model import Transformer
from minitp.models import Bundled, resolve
from minitp.placement import Placement
from minitp.progress import bytes_bar
from minitp.weights import RandomSource, Source, Weights, load_weights

if TYPE_CHECKING:
    from minitp.checkpoint import Checkpoint
    from minitp.tokenizer import ByteTokenizer


@dataclass(frozen=True)
class ModelOptions:
    """Which model, how it is cut, and how its weights reach the ranks."""
    model: str = "smollm2-135m"
    embedding: Literal["vocab", "hidden"] = "vocab"
    cut: Literal["even", "balanced"] = "even"
    load: Literal["slice", "scatter"] = "slice"
    dtype: str = "float32"
    parallel_block: bool = False

    def __post_init__(self):
        if self.dtype not in ("float32", "float64"):
            raise ConfigError(f"--dtype is float32 or float64, not {self.dtype!r}")


@dataclass
class Session:
    """One rank's model. `tokenizer` is on rank 0 only: the others need ids, not text."""
    group: Communicator
    config: ModelConfig
    placement: Placement
    model: Transformer
    weights: Weights
    name: str
    tokenizer: "ByteTokenizer | None" = None
    broken: tuple[str, ...] = ()         # sites whose all-reduce is skipped on purpose


def find_model(group: Communicator, options: ModelOptions, prompts: PromptSource | None = None,
               ) -> "tuple[dict[str, Any], Source | None, ByteTokenizer | None]":
    """Rank 0 resolves the model, opens it and reads the prompts; all ranks learn what they need, or the same error.

    Returns (what was found, the source of this rank's weights, rank 0's tokenizer). With `--load scatter` only rank 0
    ever touches a file.
    """
    held: dict[str, Any] = {}

    def look() -> dict[str, Any]:
        where = resolve(options.model, console=_console())
        source: Source = open_source(where)
        for note in getattr(source, "notes", ()):
            _console().print(f"minitp: {note}", highlight=False, markup=False, soft_wrap=True)
        tokenizer = None if prompts is None else _tokenizer_for(prompts, source)
        config = source.config
        if options.parallel_block:
            config = _side_by_side(config, where)
            source = RandomSource(config)
        held.update(source=source, tokenizer=tokenizer)
        return {"path": None if isinstance(where, Bundled) else str(where), "name": _name(options),
                "config": config.to_dict(),
                "prompts": None if prompts is None else read_prompts(prompts, tokenizer, config.end_tokens)}

    found = group.on_root(look, site="model", reason="tell every rank which model and which prompts")
    if group.rank == 0 or options.load == "scatter":
        return found, held.get("source"), held.get("tokenizer")
    if options.parallel_block:
        return found, RandomSource(ModelConfig.from_dict(found["config"])), None
    return found, open_source(Bundled(options.model) if found["path"] is None else Path(found["path"])), None


def open_session(group: Communicator, options: ModelOptions) -> Session:
    """The model on this rank."""
    return _loaded(group, options, *find_model(group, options))


def open_generation(group: Communicator, options: ModelOptions, prompts: PromptSource, breaks: Sequence[str] = (),
                    **wanted: Any) -> tuple[Session, Request]:
    """The model on this rank and what to generate, which is refused before any weight is read.

    `breaks` are the sites that a BrokenCommunicator is to skip, as `broken_sites` takes them.
    """
    found, source, tokenizer = find_model(group, options, prompts)
    config, read = ModelConfig.from_dict(found["config"]), found["prompts"]
    request = Request(prompts=_ids(read["ids"]), end_tokens=tuple(read["end"]), **wanted)
    request.check(config.vocab, config.positions)
    broken = _break(group, breaks, Placement(config, group.size, options.embedding, options.cut), request.gathered)
    session = _loaded(group, options, found, source, tokenizer)
    session.broken = broken
    return session, request


def _break(group: Communicator, breaks: Sequence[str], placement: Placement, gathered: bool) -> tuple[str, ...]:
    """From now on `group` skips what `breaks` name."""
    if not breaks:
        return ()
    from minitp.comm.broken import BrokenCommunicator
    from minitp.commands.breaks import broken_sites
    broken = broken_sites(breaks, placement, gathered)
    if not isinstance(group, BrokenCommunicator):
        raise ConfigError("only a BrokenCommunicator skips a sum: launch(…, kind=BrokenCommunicator)")
    group.broken = frozenset(broken)
    return broken


def _loaded(group: Communicator, options: ModelOptions, found: dict[str, Any], source: Source | None,
            tokenizer: "ByteTokenizer | None") -> Session:
    config = ModelConfig.from_dict(found["config"])
    placement = Placement(config, group.size, options.embedding, options.cut)
    model = Transformer(config, placement, group)
    with bytes_bar(_console() if group.rank == 0 else None, f"loading {found['name']}") as progress:
        weights = load_weights(source, placement, group, mode=options.load, dtype=np.dtype(options.dtype),
                               progress=progress)
    return Session(group, config, placement, model, weights, found["name"], tokenizer)


def _name(options: ModelOptions) -> str:
    """What to call the model: its catalog name, or the last part of its path or Hub id."""
    name = Path(options.model).name
    return f"{name}, parallel block" if options.parallel_block else name


def _ids(prompts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(prompt) for prompt in prompts)


def open_source(where: "Path | Bundled") -> "Checkpoint":
    """The weights: a checkpoint (a quantized one through its float32 copy); a bundled one lies in minitp's folder."""
    from minitp.checkpoint import open_checkpoint
    if isinstance(where, Bundled):
        return open_checkpoint(where.folder)
    with bytes_bar(_console(), f"dequantizing {where.name}, once") as progress:
        return open_checkpoint(where, cache=True, progress=progress)


def open_tokenizer(source: Source) -> "ByteTokenizer | None":
    """The tokenizer that a checkpoint brings, None where it brings none."""
    from minitp.tokenizer import Tokenizer
    found = getattr(source, "tokenizer_source", None)
    if found is None:
        return None
    return Tokenizer.from_folder(found.path) if found.metadata is None else Tokenizer.from_gguf(found.metadata)


def _tokenizer_for(prompts: PromptSource, source: Source) -> "ByteTokenizer | None":
    """None also where the tokenizer can't be read and no text needs it: ids in, ids out."""
    try:
        return open_tokenizer(source)
    except FileFormatError as error:
        if prompts.has_text:
            raise
        _console().print(f"minitp: token ids only: {error}", highlight=False, markup=False, soft_wrap=True)
        return None


def _side_by_side(config: ModelConfig, where: "Path | Bundled") -> ModelConfig:
    if not isinstance(where, Bundled):
        raise ConfigError("--parallel-block rewires the model, and trained weights were trained for their own wiring: "
                          "use it with --model tiny, whose weights are drawn at random then")
    return replace(config, parallel_block=True)


def _console():
    from rich.console import Console
    return Console(stderr=True)
