"""The trace of a run that failed, on its way to whoever asked for it: launch(…, rescued=…)."""
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator
    from minitp.trace.file import Trace

Rescued = Callable[["Trace"], str]
"""Takes the trace up to the failure, returns what is told beside the error: where it is now."""


def recording_of(group: "Communicator | None") -> str | None:
    """What the rank of this communicator has recorded, packed; None where it hasn't begun."""
    from minitp.trace.failed import recorded_so_far
    return None if group is None else recorded_so_far(group)


def handed_over(rescued: Rescued, group: "Communicator", parts: Sequence[str | None], why: str) -> str:
    """What `rescued` says of the ranks' recordings, joined; "" where there are none.

    The run has failed of something else: that this fails, too, is told in its place.
    """
    from minitp.trace.failed import joined_so_far
    try:
        trace = joined_so_far(group, parts, why)
        return "" if trace is None else rescued(trace)
    except Exception as error:
        return f"the trace up to there could not be kept: {error}"
