"""Steps that judges of code share: run it on ranks, and hold what came out and what it sent against what is needed."""
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Verdict
from minitp.lesson.runs import Run
from minitp.trace.schema import Event
from minitp.trace.wording import count

_ENDLESS = "Code that goes on for so long has a loop that doesn't end, or works on far more than it was given."


def on_ranks(fn: Callable[..., Any], ranks: int, hint: str | Callable[[str], str] = "",
             deadline: float | None = None) -> Run | Verdict:
    """The run of fn(tp); where it has none the verdict: blank, or the error and a `hint`, which may depend on it."""
    tried = attempt(fn, ranks, deadline)
    if tried.blank:
        return BLANK
    if tried.run is None:
        words = hint if isinstance(hint, str) else hint(tried.error)
        if tried.late and "computing" in tried.error:
            words = _ENDLESS
        return Verdict(False, f"{tried.error}\n{words}".rstrip())
    return tried.run


def answers(fn: Callable[..., Any], cases: Iterable[tuple[Any, ...]], hint: str = "") -> list[Any] | Verdict:
    """fn(*case) for each of them, for a function that knows no ranks; the verdict where it fails or is blank."""
    found = on_ranks(lambda tp: [fn(*case) for case in cases], 1, hint)
    if isinstance(found, Verdict):
        return found
    return BLANK if all(one is None for one in found.results[0]) else found.results[0]


def has_shape(found: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is a NumPy array of this shape."""
    return isinstance(found, np.ndarray) and found.shape == shape


def is_near(found: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
    """Whether it is an array of the truth's shape with its numbers, to `rtol` of each or `atol`."""
    wanted = np.asarray(wanted)
    return (has_shape(found, wanted.shape) and found.dtype.kind not in "cOSUmM"
            and np.allclose(found.astype(np.float64), wanted, rtol=rtol, atol=atol))


def meetings(run: Run) -> int:
    """How often the rank that did so most met others, whatever plane it gave: collectives and messages. A message sent
    while another is received is one meeting: both began at the same ns."""
    return max(len({event.enter for event in mine}) for mine in _by_rank(run))


def met(run: Run) -> str:
    """The meetings in words: 1 sync point; or 4 meetings (receive, send) where some are none."""
    number = meetings(run)
    if number == run.sync_points:
        return count(number, "sync point")
    return f"{count(number, 'meeting')} ({', '.join(sorted({event.op for event in run.trace}))})"


def bytes_sent(run: Run) -> int:
    """Of the rank with most: the whole arrays of its collectives, and what it sent in messages, on every plane."""
    return max(sum(event.payload for event in mine if event.op != "receive") for mine in _by_rank(run))


def _by_rank(run: Run) -> list[list[Event]]:
    return [[event for event in run.trace if event.rank == rank] for rank in range(run.ranks)]


def sent_too_much(run: Run, enough: int, payload: int, because: str) -> Verdict | None:
    """The verdict on a right answer that meets or sends more than it has to; None where it doesn't."""
    if meetings(run) > enough:
        return Verdict(False, f"the result is right, with {met(run)} where {enough} will do: {because}")
    if (sent := bytes_sent(run)) > payload:
        return Verdict(False, f"the result is right, and {sent:,} bytes are sent where {payload:,} will do: {because}")
    return None
