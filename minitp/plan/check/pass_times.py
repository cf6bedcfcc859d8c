"""A token, a prompt or a training step: what it took beside what the model says, part by part.

Modeled are reading the weights and their products (`plan.decode`, `plan.flops`), the collectives (`plan.modeled`), and
what a calibration measured of norms, softmax and Python: an overhead of a layer and of a pass. Of a training step that
overhead isn't known, nor is the optimizer, so its model is a lower bound. Waiting for a late rank is never modeled.
"""
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.calibrate.durations import Kind, per_sync
from minitp.plan.calibrate.whole_passes import known_overhead
from minitp.plan.job import Inference, Recompute
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.modeled import TOKEN, Stated, modeled, stated_for
from minitp.plan.speed import decode, flops
from minitp.trace.file import Trace
from minitp.trace.predict import GenerationPlan, Plan, TrainingPlan
from minitp.trace.predict_training import Steps
from minitp.trace.schema import Expected
from minitp.trace.timeline import Timeline

UNITS = {"prefill": ("prefill",), "decode": ("decode",), "training step": ("forward", "backward", "optimizer")}
"""What is looked at → its phases. A step of the trace is one of them."""


@dataclass(frozen=True)
class PassCompared:
    """Seconds of one token, prompt or step: of `count` of them the lower quartile, as of collectives.

    modeled   computing: reading and products (None where nothing is known of them); overhead: norms and Python, as
              calibrated (None where they weren't: then all of it is a lower bound); collectives
    stated    the calibration's error of a token; None for all else
    measured  all of it; computing of the rank that computes longest; collectives; waiting: what is left; and the
              median of all of it, in which the machine's other work shows
    """
    unit: str
    count: int
    modeled_computing_s: float | None
    modeled_collectives_s: float
    measured_s: float
    measured_computing_s: float
    measured_collectives_s: float
    measured_median_s: float
    modeled_overhead_s: float | None = None
    stated: Stated | None = None

    @property
    def modeled_busy_s(self) -> float | None:
        """What the measured computing stands beside: all that the rank does between collectives."""
        return None if self.modeled_computing_s is None else self.modeled_computing_s + (self.modeled_overhead_s or 0.0)

    @property
    def modeled_s(self) -> float | None:
        return None if self.modeled_busy_s is None else self.modeled_busy_s + self.modeled_collectives_s

    @property
    def lower_bound(self) -> bool:
        """Whether something of every such pass is known to be missing from the model."""
        return self.modeled_overhead_s is None

    @property
    def waiting_s(self) -> float:
        """Measured: ranks waited for one another. Never modeled."""
        return max(0.0, self.measured_s - self.measured_computing_s - self.measured_collectives_s)

    @property
    def ratio(self) -> float | None:
        """Modeled over measured."""
        return None if self.modeled_s is None or not self.measured_s else self.modeled_s / self.measured_s

    def to_plain(self) -> dict[str, Any]:
        return {**vars(self), "stated": None if self.stated is None else vars(self.stated), "modeled_s": self.modeled_s,
                "lower_bound": self.lower_bound, "measured_waiting_s": self.waiting_s, "ratio": self.ratio}


def passes(trace: Trace, plan: Plan, machine: Machine, expected: Iterable[Expected]) -> tuple[PassCompared, ...]:
    """Of a generation its prompt and its tokens, of a training its steps; what the trace has none of is left out."""
    expected, found = list(expected), []
    for unit, phases in UNITS.items():
        if (unit == "training step") != isinstance(plan, TrainingPlan):
            continue
        times = measured(trace, phases)
        if len(times):
            (whole, computing, collectives), (median, *_) = np.percentile(times, (25, 50), axis=0).tolist()
            found.append(PassCompared(unit, len(times), _computing(plan, unit, machine),
                                      _collectives(expected, phases, plan.placement.ranks, machine), whole, computing,
                                      collectives, median, _overhead(plan, machine),
                                      stated_for(TOKEN, plan.placement.ranks, machine) if unit == "decode" else None))
    return tuple(found)


def measured(trace: Trace, phases: tuple[str, ...]) -> np.ndarray:
    """(n, 3) s of each step that has marks of these phases: all, computing of the busiest rank, collectives."""
    marks, events = trace.marks, trace.events
    mine = np.isin(trace.words("phase", "marks"), phases) & (marks["step"] >= 0)
    steps, place = np.unique(marks["step"][mine], return_inverse=True)
    begin, end = np.full(len(steps), 2**62), np.zeros(len(steps), np.int64)
    np.minimum.at(begin, place, marks["enter"][mine])
    np.maximum.at(end, place, marks["leave"][mine])
    ranks = int(trace.run["ranks"])                      # a pair of step and rank is one number: few of all there are
    pairs, pair = np.unique(place * ranks + marks["rank"][mine], return_inverse=True)
    busy = np.bincount(pair, (marks["leave"] - marks["enter"])[mine], len(pairs))
    inside = np.flatnonzero(np.isin(trace.words("phase"), phases) & np.isin(events["step"], steps))
    key = np.searchsorted(steps, events["step"][inside]) * ranks + events["rank"][inside]
    inside, key = inside[np.isin(key, pairs)], key[np.isin(key, pairs)]
    busy -= np.bincount(np.searchsorted(pairs, key), (events["leave"] - events["enter"])[inside], len(pairs))
    computing, moving = np.zeros((2, len(steps)))
    np.maximum.at(computing, pairs // ranks, busy)
    syncs = per_sync(Timeline.of(trace))
    counted = np.isin(syncs.event, inside)
    np.add.at(moving, np.searchsorted(steps, events["step"][syncs.event[counted]]), syncs.seconds[counted])
    return np.stack([(end - begin) / 1e9, computing / 1e9, moving], axis=1)


def _collectives(expected: list[Expected], phases: tuple[str, ...], ranks: int, machine: Machine) -> float:
    """s of one of them: all of the run by kind, over the number of steps they are in."""
    mine = [event for event in expected if event.phase in phases and not event.broken]
    kinds = Counter(Kind(event.op, ranks, event.payload) for event in mine)
    steps = len({event.step for event in mine})
    return sum(count * (modeled(kind, machine)[0] or 0.0) for kind, count in kinds.items()) / max(steps, 1)


def _overhead(plan: Plan, machine: Machine) -> float | None:
    """s beside products and collectives that a pass takes, as calibrated; None where they aren't known."""
    known = known_overhead(machine.measured)
    if known is None or not isinstance(plan, GenerationPlan):
        return None
    return plan.placement.config.layers * known[0] + known[1]


def _computing(plan: Plan, unit: str, machine: Machine) -> float | None:
    """s that reading weights and the products take on the slowest rank; None where the machine's rate isn't known."""
    try:
        return _roofline(plan, unit, machine)
    except ConfigError:
        return None


def _roofline(plan: Plan, unit: str, machine: Machine) -> float | None:
    placement, model = plan.placement, PlannedModel(plan.placement.config)
    layout = Layout(tp=placement.ranks, embedding=placement.embedding, cut=placement.cut)
    if isinstance(plan, GenerationPlan):
        if not plan.passes or not plan.passes[0][1] or not plan.batch:
            return None
        prompt, new = plan.passes[0][1], len(plan.passes) - 1
        asked = Inference(plan.batch, prompt, new, plan.dtype, plan.dtype, plan.dtype, plan.every_row)
        one = (decode.prefill(model, layout, asked, machine) if unit == "prefill" else
               decode.token(model, layout, asked, machine, context=prompt + new // 2))
        return one.memory_s + one.compute_s
    steps = next((segment for segment in plan.segments if isinstance(segment, Steps) and segment.micro_batches), None)
    if steps is None:
        return None
    operations = 0.0
    for batch, tokens in steps.micro_batches:
        if batch and tokens:
            forward = flops.on_stage(model, layout, 0, tokens).times(batch * tokens)
            operations += flops.passes(forward, cast(Recompute, plan.recompute)).hardware
    device = machine.device
    return operations / (device.peak(plan.dtype) * device.flops_reached)
