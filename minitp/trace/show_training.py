"""What `minitp trace show` says of a training run: the closed form of a step, and where a step's time went."""
import numpy as np

from minitp.errors import FileFormatError
from minitp.trace.file import Trace
from minitp.trace.predict import Steps, TrainingPlan, plan_from_run
from minitp.trace.predict_training import step_in_words
from minitp.trace.summary import Row
from minitp.trace.timeline import Timeline
from minitp.trace.wording import STEP, count, duration, share, size


def step_lines(timeline: Timeline, phases: list[Row], ranks: int) -> list[str]:
    """Sentences, none for a trace without training steps; `phases`: its summary by phase, of `ranks` ranks."""
    rows = [row for row in phases if row.key in STEP]
    steps = _steps(timeline.trace)
    if not rows or not steps:
        return []
    time = sum(row.time for row in rows)
    parts = ", ".join(f"{row.key} {share(row.time, time)}" for row in rows)
    moved = sum(row.payload for row in rows) // steps
    met = sum(row.sync_points for row in rows) / steps
    return [line for line in (
        closed_form(timeline.trace),
        f"{count(steps, 'training step')}: {met:,.4g} sync points, {size(moved)} of payload and "
        f"{duration(time / steps / max(ranks, 1))} each ({parts}).") if line]


def closed_form(trace: Trace) -> str:
    """forward 2L + 1 = 5, …: of the first steps that the header tells of; "" where it tells of none."""
    try:
        plan = plan_from_run(trace.run)
    except FileFormatError:
        return ""
    if not isinstance(plan, TrainingPlan):
        return ""
    first = next((segment for segment in plan.segments if isinstance(segment, Steps)), None)
    return "" if first is None else step_in_words(plan.placement, len(first.micro_batches), plan.recompute)


def _steps(trace: Trace) -> int:
    """How many different training steps are in the trace."""
    inside = np.isin(trace.words("phase"), STEP) & (trace.words("plane") != "control")
    return len(np.unique(trace.events["step"][inside]))
