"""Somebody's own code on ranks: what came out, what it said and sent, or what went wrong. Nothing is raised."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minitp.errors import OutOfTimeError
from minitp.lesson.runs import Run, run
from minitp.trace.file import Trace

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

DEADLINE = 20.0                                  # seconds that one attempt may take


@dataclass(frozen=True)
class Attempt:
    """run: None where it failed; error: why, in the words of whoever refused it; late: because its time was up.
    trace: also that of a run that failed, up to there; None where nothing was recorded.
    blank: every rank returned None."""
    run: Run | None
    error: str = ""
    late: bool = False
    trace: Trace | None = None

    @property
    def blank(self) -> bool:
        return self.run is not None and all(result is None for result in self.run.results)


def attempt(fn: "Callable[[Communicator], Any]", ranks: int, deadline: float | None = None) -> Attempt:
    """fn(tp) on `ranks` threads, for `deadline` seconds at most (None: DEADLINE); an error of the reader's code is an
    answer, too."""
    kept: list[Trace] = []

    def keep(trace: Trace) -> str:
        kept.append(trace)
        return ""

    try:
        done = run(fn, ranks, threads=True, deadline=DEADLINE if deadline is None else deadline, rescued=keep)
        return Attempt(done, trace=done.trace)
    except (Exception, SystemExit) as error:  # what a reader's code may raise is anybody's guess
        notes = getattr(error, "__notes__", None)
        text = "\n".join([told(error), *(map(str, notes) if isinstance(notes, list) else ())])
        return Attempt(None, text, isinstance(error, OutOfTimeError), kept[0] if kept else None)


def told(error: BaseException) -> str:
    """An error in one text; its own words may fail as well."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text can't be made)"
    return f"{type(error).__name__}: {text}"
