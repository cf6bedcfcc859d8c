"""A training run put together on a rank: model, weights, text, optimizer, and where it goes on from."""
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp.comm import Communicator
from minitp.commands.session import ModelOptions, find_model, open_tokenizer
from minitp.config import ModelConfig
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.progress import bytes_bar
from minitp.tokenizer import ByteTokenizer
from minitp.train import run_folder
from minitp.train.config import TrainConfig
from minitp.train.data import Corpus, open_corpus
from minitp.train.initial import InitialWeights, make_learner, working_dtype
from minitp.train.loop import Training, check_prompt
from minitp.weights import Source, load_weights

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Run:
    """One rank's part of a run. `tokenizer` is on rank 0 only."""
    config: TrainConfig
    training: Training
    corpus: Corpus
    placement: Placement
    folder: Path
    tokenizer: ByteTokenizer | None
    resumed: bool = False

    def start_row(self) -> dict[str, Any]:
        """What the log says first."""
        from minitp import __version__
        group, settings = self.training.group, self.config.train
        sizes = {split: len(self.corpus.part(split)) for split in ("train", "validation")}
        return {"kind": "resume" if self.resumed else "start", "step": self.training.done, "model": self.config.name,
                "parameters": sum(p.size for p in self.placement.parameters), "ranks": group.size,
                "world": group.transport.world, "dtype": settings.dtype, "batch": settings.batch,
                "tokens": settings.tokens, "steps": settings.steps, "text": self.corpus.facts["text"],
                "tokenizer": self.corpus.facts["tokenizer"], "train_tokens": sizes["train"],
                "validation_tokens": sizes["validation"], "folder": str(self.folder), "version": __version__,
                "settings": self.config.to_dict(), "model_config": self.placement.config.to_dict()}


def open_run(group: Communicator, config: TrainConfig, resume: bool, trace: bool, trace_steps: int | None) -> Run:
    """The run on this rank. What can't be is refused on all ranks alike, and before a folder is made."""
    console = _console() if group.rank == 0 else None
    model_config, source, own = _model(group, config)
    corpus, tokenizer = open_corpus(group, config.data.text, _tokenizer(config, own), config.data.validation, console)
    corpus.check(config.train.tokens, model_config.vocab)
    prompt = group.on_root(lambda: _prompt(config, tokenizer, model_config.positions), site="prompt",
                           reason="tell every rank how a sample begins")
    placement = Placement(model_config, group.size, config.cut.embedding, config.cut.cut)      # type: ignore[arg-type]
    model = Transformer(model_config, placement, group)
    with bytes_bar(console, f"loading {config.name}") as progress:
        weights = load_weights(source, placement, group, dtype=working_dtype(config), progress=progress)
    folder = Path(config.run.folder).expanduser()
    training = Training(config, make_learner(config, model, weights), corpus, lambda done: "", tuple(prompt),
                        None if tokenizer is None else tokenizer.decode,
                        traced=_traced(trace, trace_steps, 0, config.train.steps))
    if group.rank == 0:
        run_folder.create(folder, config)
    return Run(config, training, corpus, placement, folder, tokenizer, resume)


def _model(group: Communicator, config: TrainConfig) -> tuple[ModelConfig, Source | None, ByteTokenizer | None]:
    """The model, where its weights come from, and on rank 0 the tokenizer that it brings."""
    if config.model.from_ is None:
        made = config.model.config(config.data.vocab or 256, config.train.tokens)
        return made, InitialWeights(made, config.train.seed), None
    options = ModelOptions(config.model.from_, config.cut.embedding, config.cut.cut)           # type: ignore[arg-type]
    found, source, _ = find_model(group, options)
    made = ModelConfig.from_dict(found["config"])
    config.check_model(made)
    return made, source, open_tokenizer(source) if group.rank == 0 and source is not None else None


def _tokenizer(config: TrainConfig, own: ByteTokenizer | None) -> Callable[..., ByteTokenizer]:
    """How rank 0 gets the tokenizer once it has the text."""
    from minitp.errors import ConfigError
    from minitp.train.text import train_bpe
    if config.tokenizer == "bpe":
        return lambda text, progress: train_bpe(text, config.data.vocab or 0, progress)
    if config.tokenizer == "bytes":
        return lambda text, progress: ByteTokenizer()

    def of_model(text: Any, progress: Any) -> ByteTokenizer:
        if own is None:
            raise ConfigError(f"{config.model.from_} brings no tokenizer: --tokenizer bytes, if it was trained so")
        return own
    return of_model


def _prompt(config: TrainConfig, tokenizer: ByteTokenizer | None, positions: int) -> list[int]:
    if tokenizer is None or not config.run.sample_every:
        return []
    text = config.run.sample_prompt
    return list(check_prompt(tokenizer.prompt(text), positions, text))


def _traced(trace: bool, steps: int | None, first: int, last: int) -> tuple[int, int]:
    """(first, last + 1) step of which the trace is to be."""
    if not trace:
        return 0, 0
    if steps is None:
        return first, last
    return (first, first + steps) if steps > 0 else (max(first, last + steps), last)


def _console() -> "Console":
    from rich.console import Console
    return Console(stderr=True)
