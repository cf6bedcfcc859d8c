"""Predicted beside measured for a page: one run's collectives, passes and memory. Two kinds of numbers, never mixed."""
from dataclasses import dataclass
from typing import Any

from minitp.plan.catalogue import THIS, machine, this_file
from minitp.plan.check import GOAL, Comparison, comparison
from minitp.plan.machine import Machine
from minitp.plan.modeled import Stated
from minitp.plan.units import duration, percent
from minitp.trace.file import Trace
from minitp.trace.wording import plain, size

STAND_IN = "laptop"                    # whose times aren't shown: counts and bytes need no machine


@dataclass(frozen=True)
class Point:
    """Collectives of one kind, with a time that was measured and one that a model gives. Seconds."""
    op: str
    payload: int
    measured: float
    modeled: float
    count: int
    by: str

    @property
    def ratio(self) -> float:
        return self.modeled / self.measured


def calibrated() -> Machine | None:
    """This machine's description; None where `minitp plan calibrate` hasn't written one. ConfigError for a bad one."""
    return machine(THIS) if this_file() else None


def calibration() -> int:
    """When the description was written, in ns; 0: there is none. A key for what was worked out with it."""
    file = this_file()
    return file.stat().st_mtime_ns if file else 0


def compared(trace: Trace, this: Machine | None) -> Comparison:
    """The run beside its prediction. Without a calibration only counts and bytes mean something. FileFormatError for a
    trace whose header doesn't say what was run, ConfigError for a simulated one or one of a run that failed."""
    return comparison(trace, machine(STAND_IN) if this is None else this)


def points(found: Comparison) -> list[Point]:
    """What can be drawn: kinds that have both times."""
    return [Point(row.op, row.payload, row.measured_s, row.modeled_s, row.recorded, row.by) for row in found.rows
            if row.measured_s and row.modeled_s]


def count_rows(found: Comparison) -> list[dict[str, Any]]:
    """Counts and bytes, exact or not."""
    return [{"collective": plain(row.op, 30), "payload": size(row.payload), "predicted": row.predicted,
             "recorded": row.recorded, "bytes predicted": row.predicted_bytes, "bytes recorded": row.recorded_bytes,
             "exact": row.exact} for row in found.rows]


def time_rows(found: Comparison) -> list[dict[str, Any]]:
    """Times of each kind: what the model says and what was measured in columns of their own."""
    return [{"collective": plain(row.op, 30), "payload": size(row.payload), "model": _time(row.modeled_s),
             "model: by": plain(row.by, 40),
             "model: stated error": _stated(row.stated),
             "measured": _time(row.measured_s), "measured, median": _time(row.median_s),
             "ratio of both": "" if row.ratio is None else f"{row.ratio:.2f}"} for row in found.rows]


def pass_rows(found: Comparison) -> list[dict[str, Any]]:
    """A token, a prompt, a training step."""
    return [{"": f"{row.unit} (of {row.count:,})",
             "model": ("≥ " if row.lower_bound and row.modeled_s is not None else "") + _time(row.modeled_s),
             "model: stated error": _stated(row.stated), "model: weights and products": _time(row.modeled_computing_s),
             "model: norms and Python": "not modeled" if row.modeled_overhead_s is None else _time(
                 row.modeled_overhead_s), "model: collectives": _time(row.modeled_collectives_s),
             "measured": _time(row.measured_s), "measured: computing": _time(row.measured_computing_s),
             "measured: collectives": _time(row.measured_collectives_s), "measured: waiting": _time(row.waiting_s)}
            for row in found.passes]


def memory_rows(found: Comparison) -> list[dict[str, Any]]:
    """Bytes planned beside bytes that each rank counted in its own arrays."""
    return [{"rank": row.rank, "kind": plain(row.kind, 30), "planned bytes": row.planned, "held bytes": row.held,
             "exact": row.exact} for row in found.memory]


def exact_line(found: Comparison) -> str:
    """Whether counts, bytes and order are as predicted."""
    events = sum(row.predicted for row in found.rows)
    held = ", and the memory of every rank to the byte" if found.memory else ""
    if found.exact:
        return f"All {events:,} collectives of each rank are as predicted, in order and to the byte{held}."
    wrong = [row for row in found.rows if not row.exact]
    return (f"The run differs from what was predicted: {len(wrong)} of {len(found.rows)} kinds of collectives by "
            f"count, {len(found.differences)} differences in all, {sum(not row.exact for row in found.memory)} of "
            "memory.")


def times_line(shown: list[Point], took_turns: bool = False) -> str:
    """How far apart the two are; nothing of that for ranks that took turns on fewer cores, which no model is of."""
    if took_turns:
        return ("This run had more ranks than cores, so what its collectives took is how long the scheduler let a rank "
                "wait: far longer than any model of a network says. To compare times, open a run with a core for each "
                "rank (`minitp generate --ranks 2 --trace run.json`). Counts and bytes are exact all the same.")
    if not shown:
        return "No kind of collective has both a model and a measured time."
    near = sum(1 for point in shown if abs(point.ratio - 1) <= GOAL)
    far = max(shown, key=lambda point: max(point.ratio, 1 / point.ratio))
    return (f"{near} of {len(shown)} kinds are within {percent(GOAL)}. The farthest off: {far.op.replace('_', '-')} of "
            f"{size(far.payload)}, modeled {far.ratio:.2g} times as long as measured.")


def _stated(error: Stated | None) -> str:
    return "" if error is None else f"{percent(error.median)}, at most {percent(error.worst)}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)
