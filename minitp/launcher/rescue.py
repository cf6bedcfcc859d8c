"""The trace of a run that failed, on its way to whoever asked for it: launch(…, rescued=…)."""
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minitp.errors import without_number

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator
    from minitp.trace.file import Trace

Rescued = Callable[["Trace"], str]
"""Takes the trace up to the failure, returns what is told beside the error: where it is now."""

FETCH_SECONDS, WRITE_SECONDS = 10.0, 30.0
"""Once a run has failed: for the ranks' recordings to come, and for whoever wants them to write them."""


def written_to(path: str | None) -> Rescued | None:
    """Who writes the trace of a run that fails to the file `path`; None for no file."""
    if path is None:
        return None

    def write(trace: "Trace") -> str:
        trace.write(Path(path).expanduser())
        return f"the trace up to there is in {path}"
    return write


def recording_of(group: "Communicator | None") -> str | None:
    """What the rank of this communicator has recorded, packed; None where it hasn't begun, or where that can't be: the
    run has failed of something else, which is to be told."""
    from minitp.trace.failed import recorded_so_far
    try:
        return None if group is None else recorded_so_far(group)
    except Exception:
        return None


def handed_over(rescued: Rescued, group: "Communicator", parts: Sequence[str | None], why: str, refusal: bool) -> str:
    """What `rescued` says of the ranks' recordings, joined; "" where there are none, or, of a run that was refused for
    what was asked (`refusal`), none but the program's own messages.

    The run has failed of something else: that this fails, too, is told in its place.
    """
    from minitp.trace.failed import joined_so_far
    try:
        trace = joined_so_far(group, parts, why)
        if trace is None or (refusal and (trace.words("plane") == "control").all()):
            return ""
        return rescued(trace)
    except Exception as error:
        return f"the trace up to there could not be kept: {without_number(error)}"
