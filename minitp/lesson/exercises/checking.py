"""Steps that judges of code share: run it on ranks, and hold what it sent against what is needed."""
from collections.abc import Callable
from typing import Any

from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Verdict
from minitp.lesson.runs import Run


def on_ranks(fn: Callable[..., Any], ranks: int, hint: str = "") -> Run | Verdict:
    """The run of fn(tp); where it has none the verdict, blank or with the error and a `hint`."""
    tried = attempt(fn, ranks)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, f"{tried.error} {hint}".rstrip())
    return tried.run


def sent_too_much(run: Run, sync_points: int, payload: int, because: str) -> Verdict | None:
    """The verdict on a right answer that sends more than it has to, samples counted in; None where it doesn't."""
    sent = sum(event.payload for event in run.events)
    if run.sync_points > sync_points:
        return Verdict(False, f"the result is right, with {run.sync_points} sync points where {sync_points} will do: "
                              f"{because}")
    if sent > payload:
        return Verdict(False, f"the result is right, and {sent:,} bytes are sent where {payload:,} will do: {because}")
    return None
