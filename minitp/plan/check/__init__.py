"""Predicted beside measured, for a trace of our own: what existing calculators never do.

How often the ranks met and how many bytes they moved is exact or wrong: the closed form of `minitp.trace.predict`. What
a collective takes is a model, the machine's tables or α + nβ, and has an error that the calibration states. What was
measured is the lower quartile of the moving part of its events (`plan.durations`), as the calibration took it, and the
median, in which the machine's other work shows.
"""
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.calibrate.durations import Kind, durations
from minitp.plan.calibrate.messages import LAYER_BYTES
from minitp.plan.check.held import Held, memory
from minitp.plan.check.pass_times import PassCompared, passes
from minitp.plan.machine import Machine
from minitp.plan.modeled import Stated, modeled, stated
from minitp.trace.check import compare, recorded_by_rank
from minitp.trace.failed import is_failed, no_whole_run
from minitp.trace.file import Trace
from minitp.trace.predict import Plan, plan_from_run, predict
from minitp.trace.schema import Expected
from minitp.trace.summary import crowded
from minitp.trace.wording import plain, size

STRETCHED = 1.5                         # median over lower quartile: from here on other work on the machine shows
GOAL = 0.25


@dataclass(frozen=True)
class Compared:
    """Collectives of one kind: of an op on `ranks` ranks with this payload (bytes of the whole array).

    predicted, recorded   how many there are of them on each rank; where ranks differ, on the one that is farthest off
    modeled_s             None where nothing is known: no model of the op, or a group of one rank, which moves nothing
    measured_s, median_s  lower quartile and median; None where none was recorded
    by                    the table, or the algorithm of the model
    """
    op: str
    ranks: int
    payload: int
    predicted: int
    recorded: int
    modeled_s: float | None
    by: str
    stated: Stated | None
    measured_s: float | None
    median_s: float | None

    @property
    def exact(self) -> bool:
        """Whether count and bytes are as predicted: the payload is a part of the kind."""
        return self.predicted == self.recorded

    @property
    def predicted_bytes(self) -> int:
        return self.predicted * self.payload

    @property
    def recorded_bytes(self) -> int:
        return self.recorded * self.payload

    @property
    def ratio(self) -> float | None:
        """Modeled over measured; None where one of them is missing."""
        return self.modeled_s / self.measured_s if self.modeled_s is not None and self.measured_s else None

    def to_plain(self) -> dict[str, Any]:
        return {"op": self.op, "ranks": self.ranks, "payload": self.payload,
                "predicted": {"count": self.predicted, "bytes": self.predicted_bytes},
                "recorded": {"count": self.recorded, "bytes": self.recorded_bytes}, "exact": self.exact,
                "modeled_s": self.modeled_s, "by": self.by,
                "stated_error": None if self.stated is None else vars(self.stated),
                "measured_s": self.measured_s, "measured_median_s": self.median_s, "ratio": self.ratio}


@dataclass(frozen=True)
class Comparison:
    """A trace beside its prediction. `differences` are those of `minitp trace check`: order, shapes, states too."""
    rows: tuple[Compared, ...]
    passes: tuple[PassCompared, ...]
    memory: tuple[Held, ...]
    differences: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def within(self) -> tuple[int, int]:
        """(kinds whose time is within the error or spread stated for them, kinds that have both)."""
        covered = [row.stated.covers(row.modeled_s, row.measured_s) for row in self.rows
                   if row.stated and row.modeled_s and row.measured_s]
        return sum(covered), len(covered)

    @property
    def exact(self) -> bool:
        """Counts, bytes and order as predicted, and memory to the byte where the trace knows it."""
        return not self.differences and all(row.exact for row in self.rows) and all(row.exact for row in self.memory)

    def to_plain(self) -> dict[str, Any]:
        return {"exact": self.exact, "differences": list(self.differences), "notes": list(self.notes),
                "within_stated_error": list(self.within),
                "collectives": [row.to_plain() for row in self.rows],
                "passes": [row.to_plain() for row in self.passes],
                "memory": [row.to_plain() for row in self.memory]}


def comparison(trace: Trace, machine: Machine) -> Comparison:
    """All of it. FileFormatError where the header doesn't say what was run, ConfigError for a simulated trace, and for
    one of a run that failed."""
    if "simulated" in trace.run:
        raise ConfigError("this trace was simulated: its times are a model's, and nothing in it was measured")
    if is_failed(trace.run):
        raise ConfigError(no_whole_run("hold against a prediction") + ". `minitp trace check` says of its beginning "
                          "whether it was as foretold")
    plan = plan_from_run(trace.run)
    expected = predict(plan)
    rows = tuple(of_kinds(durations(trace), machine, _counts(expected), _recorded(trace), trace.run["ranks"]))
    return Comparison(rows, passes(trace, plan, machine, expected), memory(trace.run),
                      tuple(compare(trace, expected)), (*notes(trace, machine, rows), *cached(plan)))


def _counts(events: Iterable[Expected]) -> Counter[tuple[str, int]]:
    return Counter((event.op, event.payload) for event in events if event.plane != "control" and not event.broken)


def _recorded(trace: Trace) -> list[Counter[tuple[str, int]]]:
    """Of each rank that recorded anything, and nothing once for all that didn't."""
    by_rank = recorded_by_rank(trace)
    silent = [Counter[tuple[str, int]]()] if len(by_rank) < trace.run["ranks"] else []
    return [_counts(events) for events in by_rank.values()] + silent


def of_kinds(times: Mapping[Kind, np.ndarray], machine: Machine, predicted: Mapping[tuple[str, int], int],
             recorded: list[Counter[tuple[str, int]]], ranks: int) -> Iterable[Compared]:
    """A row for each op and payload that was predicted or recorded, by op, then payload."""
    for op, payload in sorted({*predicted, *(kind for counts in recorded for kind in counts)}):
        want = predicted.get((op, payload), 0)
        have = max((counts[op, payload] for counts in recorded), key=lambda count: abs(count - want), default=0)
        yield row(Kind(op, ranks, payload), want, have, times.get(Kind(op, ranks, payload)), machine)


def row(kind: Kind, predicted: int, recorded: int, times: np.ndarray | None, machine: Machine) -> Compared:
    """One kind's counts and times beside the machine's."""
    seconds, by = modeled(kind, machine)
    low, middle = (None, None) if times is None or not len(times) else np.percentile(times, (25, 50)).tolist()
    return Compared(kind.op, kind.ranks, kind.payload, predicted, recorded, seconds, by, stated(kind, machine), low,
                    middle)


def cached(plan: Plan) -> Iterable[str]:
    """A caveat where a rank's weights are fewer than what the calibration computes between two collectives."""
    weights = plan.placement.elements(0) * np.dtype(plan.dtype).itemsize
    if plan.placement.ranks > 1 and weights < LAYER_BYTES:
        yield (f"a rank's weights ({size(weights)}) stay in the caches, and MPI's code beside them: small collectives "
               "are up to twice as quick as in a model of more weights, which a calibration stands for")


def notes(trace: Trace, machine: Machine, rows: Sequence[Compared] = ()) -> Iterable[str]:
    """What whoever compares must know: where trace and calibration differ, and what disturbed them."""
    measured, run = machine.measured, trace.run
    if not measured:
        yield f"{plain(machine.name, 40)} wasn't calibrated here: its times are another machine's"
    for name in ("world", "cores", "hosts"):
        if name in measured and name in run and measured[name] != run[name]:
            yield f"{name}: {plain(run[name], 30)} in the trace, {plain(measured[name], 30)} in the calibration"
    theirs, ours = (part.get("versions") for part in (run, measured))
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping) and theirs.get("mpi") != ours.get("mpi"):
        yield f"MPI: {plain(theirs.get('mpi'), 60)} in the trace, {plain(ours.get('mpi'), 60)} in the calibration"
    if crowded(trace):
        yield f"{run['ranks']} ranks took turns on {run['cores']} cores: their times show the scheduler, not a network"
    if machine.note:
        yield f"of the calibration: {plain(machine.note, 300)}"
    unknown = sorted({row.op for row in rows if row.by not in ("", "table")})
    if measured and unknown:
        yield (f"no table of {', '.join(unknown)} on {run['ranks']} ranks: α + nβ of one message stands in. Calibrate "
               f"with --ranks {run['ranks']}")
    stretched = [row for row in rows if row.measured_s and (row.median_s or 0) > STRETCHED * row.measured_s]
    if stretched:
        worst = max(stretched, key=lambda row: (row.median_s or 0) / (row.measured_s or 1))
        yield (f"other work was on the machine during the run: half of the {worst.op} of {worst.payload:,} B took "
               f"{(worst.median_s or 0) / (worst.measured_s or 1):.1f} times as long as the quickest quarter, or more")
