"""What a training step is charged for: the closed form of each of its parts, beside what the run recorded."""
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minitp.trace.predict import Plan, Steps, TrainingPlan
from minitp.trace.predict_training import step_form, step_in_words, sync_points
from minitp.trace.wording import count

PARTS = ("forward", "loss", "backward", "optimizer")


class Item(NamedTuple):
    """One part of the steps: sync points of one rank, of all steps together; recorded: the least and most of any rank.

    form    the closed form of once: 2L + 1 = 5
    times   how often the steps of the run do it: once per micro-batch, or per step
    """
    part: str
    form: str
    times: int
    predicted: int
    recorded: tuple[int, int]
    recorded_bytes: tuple[int, int]

    def same(self, cut_off: bool) -> bool | None:
        """Whether every rank met as often as predicted; None where a run that failed is cut off before it."""
        same = self.recorded == (self.predicted, self.predicted)
        return None if cut_off and not same and self.recorded[1] <= self.predicted else same


class Met(NamedTuple):
    """How often the ranks met under a phase and site, and with how many bytes: the least and most of any rank."""
    phase: str
    site: str
    times: tuple[int, int]
    payload: tuple[int, int]


def bill(plan: Plan | None, recorded: Iterable[Met]) -> list[Item]:
    """An item per part of a training step; none where the run has no training steps."""
    steps = _steps(plan)
    if not isinstance(plan, TrainingPlan) or not steps:
        return []
    found = {part: [(0, 0), (0, 0)] for part in PARTS}
    for phase, site, times, payload in recorded:
        part = "loss" if phase == "forward" and site.startswith("loss.") else phase
        if part in found:
            found[part] = [(old[0] + new[0], old[1] + new[1])
                           for old, new in zip(found[part], (times, payload), strict=True)]
    often = {"optimizer": sum(segment.count for segment in steps)}
    micro_batches = sum(segment.count * len(segment.micro_batches) for segment in steps)
    return [Item(part, str(form), often.get(part, micro_batches), form.total * often.get(part, micro_batches),
                 *found[part]) for part, form in step_form(plan.placement, plan.recompute).items()]


def in_words(plan: TrainingPlan, cut_off: bool = False) -> str:
    """What a step meets at, and what all steps of the run came to; "" without steps. `cut_off`: the run failed in one.
    """
    steps = _steps(plan)
    if not steps:
        return ""
    each = [(segment.count, sync_points(plan.placement, len(segment.micro_batches), plan.recompute))
            for segment in steps]
    made, met = sum(n for n, _ in each), sum(n * points for n, points in each)
    came_to = came_to_words(count(made, "training step"), count(met, "sync point"), cut_off)
    return f"{step_in_words(plan.placement, len(steps[0].micro_batches), plan.recompute)} {came_to}."


def came_to_words(passes: str, sync_points: str, cut_off: bool) -> str:
    """This run made 3 passes: 18 sync points; of one that failed: had begun them, which would have come to these."""
    return (f"This run had begun {passes}, which would have come to {sync_points}" if cut_off else
            f"This run made {passes}: {sync_points}")


def _steps(plan: Plan | None) -> Sequence[Steps]:
    segments = plan.segments if isinstance(plan, TrainingPlan) else ()
    return [segment for segment in segments if isinstance(segment, Steps)]
