"""A training run put together on a rank: model, weights, text, optimizer, and where it goes on from."""
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from minitp.comm import Communicator
from minitp.commands.session import ModelOptions, find_model, open_tokenizer
from minitp.commands.train_display import schedule_in_words
from minitp.config import ModelConfig
from minitp.errors import ConfigError
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.progress import bytes_bar
from minitp.tokenizer import ByteTokenizer
from minitp.train import run_folder
from minitp.train.checkpoint import save
from minitp.train.config import BYTES, TrainConfig
from minitp.train.data import Corpus, open_corpus
from minitp.train.initial import InitialWeights, make_learner, schedule_of, working_dtype
from minitp.train.loop import Learner, Training, check_prompt
from minitp.train.prepared import bpe
from minitp.train.resume import TrainingCheckpoint, holding, latest
from minitp.train.text import Progress, Text
from minitp.weights import Source, load_weights

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Run:
    """One rank's part of a run."""
    config: TrainConfig
    training: Training
    corpus: Corpus
    placement: Placement
    folder: Path
    resumed: bool = False
    tokenizer: ByteTokenizer | None = None                       # on rank 0

    def start_row(self) -> dict[str, Any]:
        """What the log says first."""
        from minitp import __version__
        group, settings = self.training.group, self.config.train
        sizes = {split: len(self.corpus.part(split)) for split in ("train", "validation")}
        return {"kind": "resume" if self.resumed else "start", "step": self.training.done, "model": self.config.name,
                "parameters": sum(p.size for p in self.placement.parameters), "ranks": group.size,
                "world": group.transport.world, "dtype": settings.dtype, "batch": settings.batch,
                "tokens": settings.tokens, "steps": settings.steps, "text": self.corpus.facts["text"],
                "tokenizer": self.config.tokenizer, "train_tokens": sizes["train"],
                "validation_tokens": sizes["validation"], "folder": str(self.folder), "version": __version__,
                "kv_copies": any(p.gradient == "partial" for p in self.placement.parameters),
                "settings": self.config.to_dict(), "model_config": self.placement.config.to_dict()}


@contextmanager
def opened(group: Communicator, config: TrainConfig, resume: bool, traced: Callable[[int, int], tuple[int, int]],
           ) -> Iterator[Run]:
    """The run on this rank; its folder is this run's alone inside. What can't be is refused on all ranks alike, and of
    a new run before its folder is made.

    `traced` gives from the run's first step and its number of steps those (first, last + 1) of which a trace is to be.
    """
    folder, console = config.folder, _console() if group.rank == 0 else None
    with ExitStack() as stack:
        checkpoint = None
        if resume:
            stack.enter_context(holding(folder, group, _say))
            checkpoint = _newest(group, config)
        model, source, own = _model(group, config, checkpoint)
        corpus, tokenizer = _corpus(group, config, model, own, console)
        if checkpoint is not None:
            corpus.check_same(checkpoint.state.get("data", {}))
        prompt = group.on_root(lambda: _prompt(config, tokenizer, model.positions), site="prompt",
                               reason="tell every rank how a sample begins")
        if not resume:
            stack.enter_context(holding(folder, group, _say))
        done = 0 if checkpoint is None else checkpoint.step
        group.on_root(lambda: run_folder.create(folder, config, resume, done), site="folder",
                      reason="every rank begins when the run has its folder")
        learner = _learner(group, config, model, source, checkpoint, console)
        training = Training(config, learner, corpus, _saver(config, folder, learner, corpus, tokenizer), tuple(prompt),
                            None if tokenizer is None else tokenizer.decode, done, traced(done, config.train.steps))
        yield Run(config, training, corpus, learner.model.placement, folder, resume, tokenizer)


def _newest(group: Communicator, config: TrainConfig) -> TrainingCheckpoint | None:
    """Where the run goes on from. Rank 0 tells where it takes other rates than it was to take."""
    checkpoint = latest(config.folder, group, _say)
    if checkpoint is not None:
        run_folder.check_steps(config.folder, checkpoint.step, config.train.steps)
        before = schedule_of(TrainConfig.from_dict(checkpoint.state.get("settings", config.to_dict())))
        now = schedule_of(config)
        if group.rank == 0 and before != now and checkpoint.step < now.steps:
            _say(schedule_in_words(checkpoint.step, before, now))
    return checkpoint


def new_learner(group: Communicator, config: TrainConfig) -> tuple[Learner, Corpus]:
    """What takes the steps of a new run, and on what, without the run's folder: for a look at a few steps."""
    console = _console() if group.rank == 0 else None
    model, source, own = _model(group, config, None)
    corpus, _ = _corpus(group, config, model, own, console)
    return _learner(group, config, model, source, None, console), corpus


def _corpus(group: Communicator, config: TrainConfig, model: ModelConfig, own: ByteTokenizer | None,
            console: "Console | None") -> tuple[Corpus, ByteTokenizer | None]:
    """The text as this model reads it, and on rank 0 the tokenizer."""
    corpus, tokenizer = open_corpus(group, config.data.text, _tokenizer(config, own), config.data.validation, console)
    corpus.check(config.train.tokens, model.vocab)
    return corpus, tokenizer


def _learner(group: Communicator, config: TrainConfig, model: ModelConfig, source: Source,
             checkpoint: TrainingCheckpoint | None, console: "Console | None") -> Learner:
    """Weights and optimizer, new ones or those of a checkpoint."""
    placement = Placement(model, group.size, config.cut.embedding, config.cut.cut)             # type: ignore[arg-type]
    with bytes_bar(console, f"loading {config.name}") as progress:
        weights = load_weights(source, placement, group, dtype=working_dtype(config), progress=progress)
    learner = make_learner(config, Transformer(model, placement, group), weights)
    if checkpoint is not None:
        checkpoint.restore(learner.optimizer, placement, group)
    return learner


def _saver(config: TrainConfig, folder: Path, learner: Learner, corpus: Corpus, tokenizer: ByteTokenizer | None
           ) -> Callable[[int], str]:
    """What writes a checkpoint; every rank calls it."""
    placement = learner.model.placement
    state = {"data": corpus.record(), "settings": config.to_dict()}

    def extra(path: Path) -> None:
        if tokenizer is not None:
            tokenizer.save(path)

    return lambda done: str(save(folder, done, placement, learner.weights, learner.optimizer, learner.model.group,
                                 state=state, extra=extra, keep=config.run.keep))


def _model(group: Communicator, config: TrainConfig, checkpoint: TrainingCheckpoint | None
           ) -> tuple[ModelConfig, Source, ByteTokenizer | None]:
    """The model, its weights, and on rank 0 the tokenizer that it brings."""
    if checkpoint is not None:
        return checkpoint.config, checkpoint.model, open_tokenizer(checkpoint.model) if group.rank == 0 else None
    if config.model.from_ is None:
        made = config.model.config(config.data.vocab or BYTES, config.train.tokens)
        return made, InitialWeights(made, config.train.seed), None
    options = ModelOptions(config.model.from_, config.cut.embedding, config.cut.cut)           # type: ignore[arg-type]
    source = cast(Source, find_model(group, options)[1])       # None only where rank 0 scatters: here each rank reads
    config.check_model(source.config)
    return source.config, source, open_tokenizer(source) if group.rank == 0 else None


def _tokenizer(config: TrainConfig, own: ByteTokenizer | None) -> Callable[[Text, Progress], ByteTokenizer]:
    """How rank 0 gets the tokenizer once it has the text. `own`: the model's, or the one that a checkpoint kept."""
    def made(text: Text, progress: Progress) -> ByteTokenizer:
        if config.tokenizer == "bytes":
            return ByteTokenizer()
        if own is not None:
            return own
        if config.tokenizer == "bpe":
            return bpe(text, config.data.vocab or 0, progress)
        raise ConfigError(f"{config.model.from_} brings no tokenizer: --tokenizer bytes, if it was trained so")
    return made


def _prompt(config: TrainConfig, tokenizer: ByteTokenizer | None, positions: int) -> list[int]:
    if tokenizer is None or not config.run.sample_every:
        return []
    text = config.run.sample_prompt
    return list(check_prompt(tokenizer.prompt(text), positions, text))


def _say(text: str) -> None:
    _console().print(f"minitp: {text}", highlight=False, markup=False, soft_wrap=True)


def _console() -> "Console":
    from rich.console import Console
    return Console(stderr=True)
