"""Somebody's own code on ranks: what came out, what it said and sent, or what went wrong. Nothing is raised."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minitp.errors import OutOfTimeError
from minitp.launcher.telling import words_of
from minitp.lesson.runs import Run, run
from minitp.trace.file import Trace

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

DEADLINE = 20.0                                  # seconds that one attempt may take


class AttemptError(Exception):
    """A rank's way out that is neither a result nor an error."""


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
        done = run(answering(fn), ranks, threads=True, deadline=DEADLINE if deadline is None else deadline,
                   rescued=keep)
        return Attempt(done, trace=done.trace)
    except (Exception, SystemExit) as error:  # what a reader's code may raise is anybody's guess
        notes = getattr(error, "__notes__", None)
        text = "\n".join([told(error), *(map(str, notes) if isinstance(notes, list) else ())])
        return Attempt(None, text, isinstance(error, OutOfTimeError), kept[0] if kept else None)


def answering(fn: "Callable[[Communicator], Any]") -> "Callable[[Communicator], Any]":
    """fn(tp) for a rank, where every way out but a result is an error.

    A KeyboardInterrupt in here is the function's own: the user's Ctrl-C reaches the main thread alone, never a rank's.
    And sys.exit() ends a rank as a blank does, but is none.
    """
    def on_rank(tp: "Communicator") -> Any:
        try:
            return fn(tp)
        except SystemExit as end:
            if end.code:
                raise
            raise AttemptError("sys.exit() ends a rank without a result; a function answers with return") from end
        except Exception:
            raise
        except BaseException as error:
            raise AttemptError(f"the function itself raised {told(error)}") from error
    return on_rank


def told(error: BaseException) -> str:
    """An error in one text; its own words may fail as well."""
    return f"{type(error).__name__}: {words_of(error)}"
