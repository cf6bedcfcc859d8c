"""The closed form of a training run: its steps, evaluations and samples in the order in which they were run.

A step over M micro-batches of a model with L layers and shards of the logits has

    M × (forward 2L + 1, loss 3, backward 2L + 1), then optimizer 1: the norm of all gradients

sync points: full recomputation adds 2L to the backward, copied kv heads one to the optimizer, and a tied table that is
cut along hidden one each to forward and backward (`step_form` counts them). Checkpoints are the program's own: control.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from minitp.placement import Placement
from minitp.trace.predict_generation import GenerationPlan
from minitp.trace.predict_header import DTYPES, check_numbers, described, one_of, placed, told
from minitp.trace.predict_pass import RECOMPUTE, Pass, loading
from minitp.trace.schema import Expected

Batches = tuple[tuple[int, int], ...]
"""(sequences, tokens of each) of every micro-batch, or of every batch of an evaluation."""

PER_LAYER = 6                      # events of a micro-batch: 2 forward, 2 backward, 2 recomputed


@dataclass(frozen=True)
class Steps:
    """Training steps `first` … `first + count - 1`, each over these micro-batches."""
    first: int
    count: int
    micro_batches: Batches

    def events(self, plan: "TrainingPlan") -> Iterator[Expected]:
        for step in range(self.first, self.first + self.count):
            for m, (batch, tokens) in enumerate(self.micro_batches):
                one = Pass(plan.placement, plan.dtype, batch, tokens, "forward", step, m)
                yield from one.forward(gathered=False)
                yield from one.loss()
                yield from replace(one, phase="backward").backward(plan.recompute)
            yield from optimizer(plan.placement, plan.dtype, step)

    def to_plain(self) -> dict[str, Any]:
        return {"steps": [self.first, self.count], "micro_batches": [list(m) for m in self.micro_batches]}


@dataclass(frozen=True)
class Evaluation:
    """Forward passes and their loss, before step `step`: batch n is micro-batch n of the phase `evaluate`."""
    step: int
    batches: Batches

    def events(self, plan: "TrainingPlan") -> Iterator[Expected]:
        for n, (batch, tokens) in enumerate(self.batches):
            one = Pass(plan.placement, plan.dtype, batch, tokens, "evaluate", self.step, n)
            yield from one.forward(gathered=False)
            yield from one.loss()

    def to_plain(self) -> dict[str, Any]:
        return {"evaluate": self.step, "batches": [list(m) for m in self.batches]}


@dataclass(frozen=True)
class Sample:
    """A text written in between: the passes of a generation, its steps counted from 0 (see `GenerationPlan`)."""
    batch: int
    passes: tuple[tuple[str, int], ...]
    choices: int
    gathered: bool = True
    candidates: int = 2

    def events(self, plan: "TrainingPlan") -> Iterator[Expected]:
        return GenerationPlan(plan.placement, "slice", plan.dtype, self.batch, self.passes, self.choices,
                              self.gathered, candidates=self.candidates).events()

    def to_plain(self) -> dict[str, Any]:
        return {"sample": {"batch": self.batch, "passes": [list(p) for p in self.passes], "choices": self.choices,
                           "gathered": self.gathered, "candidates": self.candidates}}


Segment = Steps | Evaluation | Sample


@dataclass(frozen=True)
class TrainingPlan:
    """What of a training run decides its collectives.

    dtype      of the computing: float32 (also where weights are rounded to bfloat16) or float64
    segments   what was done, in order; steps that follow one another and are alike become one segment
    recompute  none, selective or full: only full has sync points of its own
    load       scatter: the root read the weights and handed them out; anything else moves nothing
    """
    placement: Placement
    dtype: str
    segments: Sequence[Segment]
    recompute: str = "none"
    load: str = "slice"

    def __post_init__(self):
        object.__setattr__(self, "segments", _joined(self.segments))

    @classmethod
    def from_run(cls, run: dict[str, Any]) -> "TrainingPlan":
        """From a trace's header. FileFormatError where it doesn't say, or what can't be."""
        with told():
            what = run["training"]
            segments = [_segment(plain) for plain in what["segments"]]
            return cls(placed(run, sum(map(_passes, segments)), PER_LAYER), one_of(what["dtype"], DTYPES, "dtype"),
                       segments, one_of(what["recompute"], RECOMPUTE, "recomputation"), what["load"])

    def to_run(self) -> dict[str, Any]:
        """The inverse, for a trace's header."""
        return {**described(self.placement),
                "training": {"load": self.load, "dtype": self.dtype, "recompute": self.recompute,
                             "segments": [segment.to_plain() for segment in self.segments]}}

    def events(self) -> Iterator[Expected]:
        """Every event of the planes data and sample, in order."""
        if self.load == "scatter":
            yield from loading(self.placement, self.dtype)
        for segment in self.segments:
            yield from segment.events(self)


def optimizer(placement: Placement, dtype: str, step: int) -> Iterator[Expected]:
    """Once a step, whatever its micro-batches: what copied kv heads owe each other, in one buffer, then the norm.

    The norm is always met for: it is logged, and decides on clipping and on skipping a step that isn't finite.
    """
    owed = sum(parameter.size for parameter in placement.parameters if parameter.gradient == "partial")
    if owed:
        size = owed * np.dtype(dtype).itemsize
        yield Expected("all_reduce", "gradients.copies", "data", "optimizer", step, None, dtype, (owed,), size,
                       "partial", "whole")
    yield Expected("all_reduce", "gradients.norm", "data", "optimizer", step, None, "float64", (1,), 8, "partial",
                   "whole")


def _joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Without empty segments, and with like steps that follow one another as one."""
    made: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Steps):
            last = made[-1] if made else None
            if (isinstance(last, Steps) and last.first + last.count == segment.first
                    and last.micro_batches == segment.micro_batches):
                made[-1] = replace(last, count=last.count + segment.count)
            elif segment.count:
                made.append(segment)
        else:
            made.append(segment)
    return tuple(made)


# --- from a header ------------------------------------------------------------------------------------------------


def _segment(plain: dict[str, Any]) -> Segment:
    if "steps" in plain:
        first, count = plain["steps"]
        check_numbers([first, count])
        return Steps(first, count, _batches(plain["micro_batches"]))
    if "evaluate" in plain:
        check_numbers([plain["evaluate"]])
        return Evaluation(plain["evaluate"], _batches(plain["batches"]))
    what = plain["sample"]
    passes = tuple((str(phase), tokens) for phase, tokens in what["passes"])
    check_numbers([what["batch"], what["choices"], what["candidates"], *(tokens for _, tokens in passes)])
    return Sample(what["batch"], passes, what["choices"], bool(what["gathered"]), what["candidates"])


def _batches(plain: list[list[int]]) -> Batches:
    batches = tuple((batch, tokens) for batch, tokens in plain)
    check_numbers([number for batch in batches for number in batch])
    return batches


def _passes(segment: Segment) -> int:
    """Forward passes; of steps and evaluations never less than one each: the optimizer has events too."""
    if isinstance(segment, Steps):
        return segment.count * max(len(segment.micro_batches), 1)
    return len(segment.passes if isinstance(segment, Sample) else segment.batches)


# --- the form that people quote -----------------------------------------------------------------------------------


class Count(NamedTuple):
    """Sync points of one part of a step: `per_layer` in each of `layers`, and `spare` outside of them."""
    per_layer: int
    layers: int
    spare: int

    @property
    def total(self) -> int:
        return self.per_layer * self.layers + self.spare

    def __str__(self) -> str:
        """2L + 1 = 61, or 3 where the layers have none."""
        if not self.per_layer:
            return str(self.total)
        factor = "" if self.per_layer == 1 else str(self.per_layer)
        spare = f" + {self.spare}" if self.spare else ""
        return f"{factor}L{spare} = {self.total:,}"


def step_form(placement: Placement, recompute: str = "none") -> dict[str, Count]:
    """How often the ranks meet in each part of a step: forward, loss and backward of every micro-batch; optimizer."""
    one = Pass(placement, "float32", 1, 1, "forward", 0, 0)
    parts = {"forward": one.forward(gathered=False), "loss": one.loss(), "backward": one.backward(recompute),
             "optimizer": optimizer(placement, "float32", 0)}
    return {name: _count(events, placement.config.layers) for name, events in parts.items()}


def _count(events: Iterator[Expected], layers: int) -> Count:
    inside = [event.site.startswith("layers.") for event in events]
    return Count(sum(inside) // layers, layers, len(inside) - sum(inside))


def sync_points(placement: Placement, micro_batches: int = 1, recompute: str = "none") -> int:
    """Of one training step."""
    form = step_form(placement, recompute)
    last = form.pop("optimizer").total
    return micro_batches * sum(part.total for part in form.values()) + last


def step_in_words(placement: Placement, micro_batches: int = 1, recompute: str = "none") -> str:
    """A step meets at 30 sync points: forward 2L + 1 = 5, loss 3 and backward 2L + 1 = 5 of each of 2 …"""
    form = step_form(placement, recompute)
    each = f" of each of {micro_batches:,} micro-batches" if micro_batches != 1 else ""
    return (f"A training step meets at {sync_points(placement, micro_batches, recompute):,} sync points: forward "
            f"{form['forward']}, loss {form['loss']} and backward {form['backward']}{each}, optimizer "
            f"{form['optimizer']}.")
