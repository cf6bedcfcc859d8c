"""The loop of a training run on one rank: steps, and in between evaluations, samples of its text, checkpoints.

Iterate over a `Training`: it gives the rows of the log (see `log`), the same on every rank but for the times. What the
ranks decide (skip a step, save, end) follows from numbers that all of them have.
"""
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from jaxtyping import Int

from minitp.comm import Communicator
from minitp.errors import ConfigError, NumericsError
from minitp.generate import Generation, Request
from minitp.gradients import Gradients
from minitp.layers import VocabParallelCrossEntropy
from minitp.layers.loss import Loss
from minitp.model import Transformer
from minitp.sampling import Sampling
from minitp.trace.predict_training import Evaluation, Sample, Segment, Steps
from minitp.trace.schema import Event
from minitp.train.config import TrainConfig
from minitp.train.data import Corpus
from minitp.train.memory import Held, every_rank, fullest
from minitp.train.optimizer import AdamW
from minitp.train.schedule import Schedule
from minitp.train.step import Passes, StepResult, evaluate, split_batch, train_step
from minitp.weights import Weights

Row = dict[str, Any]

PATIENCE = 10
"""Steps that may be skipped in a row: where so many batches give no finite gradient, the weights are to blame."""


class StepCounter:
    """A recorder's listener: the sync points of this rank, and their bytes of payload, since it was last asked.

    `then` hears of every event too: who prints them as they happen.
    """

    def __init__(self, then: Callable[[Event], None] | None = None) -> None:
        self.then = then
        self.sync_points = self.payload = 0

    def __call__(self, event: Event) -> None:
        if self.then is not None:
            self.then(event)
        if event.plane == "data":
            self.sync_points, self.payload = self.sync_points + 1, self.payload + event.payload

    def take(self) -> tuple[int, int]:
        counted = self.sync_points, self.payload
        self.sync_points = self.payload = 0
        return counted


@dataclass
class Learner:
    """What learns on this rank, and what every step of it has in common."""
    model: Transformer
    weights: Weights
    gradients: Gradients
    optimizer: AdamW
    schedule: Schedule
    loss: VocabParallelCrossEntropy
    passes: Passes
    micro_batches: int = 1
    limit: float = inf

    def step(self, step: int, windows: Int[np.ndarray, "B T_1"]) -> StepResult:
        """Step number `step`, from 0, on a batch of windows."""
        with np.errstate(over="ignore", invalid="ignore"):       # such a step is skipped, and says so
            return self._step(step, windows)

    def _step(self, step: int, windows: Int[np.ndarray, "B T_1"]) -> StepResult:
        return train_step(self.model, self.loss, self.weights, self.gradients, self.optimizer,
                          split_batch(windows, self.micro_batches, step * len(windows)), self.schedule.rate(step),
                          step=step, limit=self.limit, passes=self.passes)

    def evaluate(self, step: int, batches: Iterable[Int[np.ndarray, "B T_1"]]) -> Loss:
        """The plain loss, without label smoothing, of batches of windows."""
        plain = VocabParallelCrossEntropy(self.model.group, self.model.placement.vocab)
        parts = (part for windows in batches for part in split_batch(windows, 1))
        with np.errstate(over="ignore", invalid="ignore"):
            return evaluate(self.model, plain, self.weights, parts, step=step, passes=self.passes)


@dataclass
class Training:
    """A run on this rank, ready to go on from step `done`.

    save      (steps done) → the checkpoint's folder as a text: called on every rank
    prompt    token ids that samples begin with; None: no samples
    decode    token ids → text, on rank 0 (the others have no tokenizer)
    traced    (first, last + 1) step that the recorder keeps
    segments  what was recorded, for the closed form
    skipped   how many of the latest steps in a row were skipped
    """
    config: TrainConfig
    learner: Learner
    corpus: Corpus
    save: Callable[[int], str]
    prompt: tuple[int, ...] = ()
    decode: Callable[[list[int]], str] | None = None
    done: int = 0
    traced: tuple[int, int] = (0, 0)
    segments: list[Segment] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)            # of the recorded steps
    held: Held | None = None
    activations: int = 0
    skipped: int = 0

    @property
    def group(self) -> Communicator:
        return self.learner.model.group

    def __iter__(self) -> Iterator[Row]:
        """The rows. NumericsError, on all ranks alike, where the weights give no finite gradient any more."""
        first, last = self.done, self.config.train.steps
        for step in range(first, last):
            self._keep_events(step)
            yield self._step(step)
            self.done = step + 1
            if step == first:
                yield self._memory()
            yield from self._between(self.done, self.done == last)
            if self.skipped == PATIENCE or (self.skipped and self.done == last):
                self.group.on_root(self._give_up, site="step", reason="a rank that ended at once would stop rank 0 "
                                   "before it has written the rows of this step")

    def _keep_events(self, step: int) -> None:
        """A trace of some steps keeps what happens in and right after them."""
        self.group.recorder.keep_events = self.traced[0] <= step < self.traced[1]

    def _recorded(self, segment: Segment) -> None:
        if self.group.recorder.keep_events:
            self.segments.append(segment)

    # --- the parts of a run ------------------------------------------------------------------------------------------

    def _step(self, step: int) -> Row:
        settings, begin = self.config.train, time.perf_counter()
        self._take_counts()
        windows = self.corpus.batch(step, settings.batch, settings.tokens, settings.seed)
        if self.group.recorder.keep_events:           # before the step: should it fail, its trace is foretold, too
            parts = split_batch(windows, settings.micro_batches)
            self.segments.append(Steps(step, 1, tuple(part.ids.shape for part in parts)))     # type: ignore[misc]
        result = self.learner.step(step, windows)
        seconds = time.perf_counter() - begin
        sync_points, payload = self._take_counts()
        self.activations = max(self.activations, result.activations)
        self.skipped = self.skipped + 1 if result.skipped else 0
        if self.group.recorder.keep_events:
            self.losses.append(result.loss)
        return {"kind": "step", "step": step + 1, "loss": result.loss, "tokens": result.tokens,
                "rate": self.learner.schedule.rate(step), "norm": result.norm, "skipped": result.skipped,
                "seconds": seconds, "tokens_per_second": result.tokens / seconds, "sync_points": sync_points,
                "payload": payload}

    def _take_counts(self) -> tuple[int, int]:
        counter = self.group.recorder.listener
        return counter.take() if isinstance(counter, StepCounter) else (0, 0)

    def _memory(self) -> Row:
        """After the first step all is there that will be held."""
        rank, self.held = fullest(every_rank(self.holds(), self.group))
        return {"kind": "memory", "step": self.done, "rank": rank, **self.held.to_row()}

    def holds(self) -> Held:
        """This rank's own share; its activations are the most of the steps so far."""
        learner = self.learner
        return Held.of(learner.weights, learner.gradients, learner.optimizer, self.activations)

    def _between(self, done: int, last: bool) -> Iterator[Row]:
        """What is due when so many steps are done; the checkpoint comes last, so that none lacks what lies before.

        While steps are skipped there is none: weights that may be spoilt would take the place of good ones.
        """
        run = self.config.run

        def due(every: int) -> bool:
            return every > 0 and (last or done % every == 0)

        if due(run.evaluate_every) and self.corpus.validation:
            yield self._evaluate(done)
        if due(run.sample_every) and self.prompt:
            yield self._sample(done)
        if due(run.save_every) and not self.skipped:
            begin = time.perf_counter()
            folder = self.save(done)
            yield {"kind": "checkpoint", "step": done, "folder": folder, "seconds": time.perf_counter() - begin}

    def _evaluate(self, done: int) -> Row:
        """The loss of the first batches of the part that isn't learned from: the same ones each time, each once."""
        settings = self.config.train
        many = min(self.config.run.evaluate_batches,
                   self.corpus.batches(settings.batch, settings.tokens, "validation"))
        loss = self.learner.evaluate(done, (
            self.corpus.batch(n, settings.batch, settings.tokens, settings.seed, "validation") for n in range(many)))
        self._recorded(Evaluation(done, ((settings.batch, settings.tokens),) * many))
        return {"kind": "evaluation", "step": done, "loss": loss.total / loss.tokens, "tokens": loss.tokens}

    def _sample(self, done: int) -> Row:
        run = self.config.run
        request = Request((self.prompt,), run.sample_tokens, Sampling(run.sample_temperature, seed=done))
        learner = self.learner
        generation = Generation(learner.model, learner.weights, request, dtype=learner.passes.dtype,
                                arrays=self.group.arrays)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                for _ in generation:
                    pass
            text = None if self.decode is None else self.decode(generation.tokens[0])
        except NumericsError:                            # on every rank alike; that the loss isn't finite is told
            text = None
        self._recorded(Sample(1, tuple(generation.passes), len(generation.tokens[0])))
        return {"kind": "sample", "step": done, "prompt": run.sample_prompt, "text": text}

    def _give_up(self) -> None:
        raise NumericsError(self._diverged())

    def _diverged(self) -> str:
        """Why there is no going on, and what would work."""
        first, rate = self.done - self.skipped, self.config.optimizer.rate
        kept = ("no checkpoint was written since, and those of before are as they were" if self.config.run.save_every
                else "it keeps no checkpoints")
        return (f"the gradient wasn't finite in any of the steps {first + 1}-{self.done}, so they were skipped: what "
                f"step {first} made of the weights gives none. Of this run {kept}. A lower --rate (it is {rate:g}), a "
                "longer --warmup or a lower optimizer.clip may help, in a new run or from a checkpoint: --model "
                "CHECKPOINT --out FOLDER")


def check_prompt(ids: list[int], positions: int, prompt: str) -> tuple[int, ...]:
    """The ids of a sample's beginning, shorter than the model's context."""
    if not 0 < len(ids) < positions:
        raise ConfigError(f"[run] sample_prompt {prompt!r:.40} has {len(ids)} tokens; a sample needs from 1 to "
                          f"{positions - 1}, fewer than the model has positions")
    return tuple(np.asarray(ids, int).tolist())
