"""A run that failed: its recordings brought together without the ranks' help, and what views say of it.

A run that ends well brings its recordings together by collectives (`minitp.trace.merge.collect`). One that failed
can't: each rank's is packed as it stands, by `recorded_so_far`, and whoever can still get them joins what there is.
"""
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minitp.trace.file import Trace
from minitp.trace.info import run_info
from minitp.trace.merge import joined, pack
from minitp.trace.schema import Unfinished
from minitp.trace.wording import duration, plain

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

_LONGEST = 2_000                   # characters of an error
_FOLDERS = re.compile(r"(?<![\w./~\\-])(?:~|\.{1,2}|[A-Za-z]:)?[/\\](?:[^\s/\\'\":]+[/\\])*([^\s/\\'\":]+)")


def recorded_so_far(group: "Communicator") -> str:
    """What this rank has recorded, packed: also the marks it is in, and the call, as if both ended now.

    It may be called from another thread while the rank waits, for the last time.
    """
    recorder = group.recorder
    if (pending := group.pending) is not None:
        recorder.lose(group, *pending)
    try:
        about = recorder.about()
    except Exception:                  # it looks at a run that was broken off; the recording must not be lost by that
        about = {}
    return pack(recorder, open_marks=recorder.open_marks(), about=about)


def joined_so_far(group: "Communicator", parts: Sequence[str | None], why: str) -> Trace | None:
    """The trace of a run that failed of `why`; None where nothing was recorded.

    parts: by rank, what `recorded_so_far` gave; None of a rank that doesn't answer any more. `group`: of any rank.
    """
    words = "; ".join(line.strip() for line in why.splitlines()).replace(":; ", ": ")
    run = run_info(group) | {"failed": _FOLDERS.sub(r"\1", words)[:_LONGEST]}
    trace = joined(parts, group.recorder.clock, run)
    return trace if trace.ranks else None


# --- in words ----------------------------------------------------------------------------------------------------


def is_failed(run: dict[str, Any]) -> bool:
    return isinstance(run.get("failed"), str)


def failed_line(run: dict[str, Any]) -> str:
    """What every view of such a trace says first: This run failed: … ; "" where the run ended well."""
    if not is_failed(run):
        return ""
    return f"This run failed: {plain(run['failed'], 300)}. What had ended until then is shown."


def waiting_lines(trace: Trace) -> list[str]:
    """Who was in which call when a run failed: Ranks 0 and 2 were in all_reduce at mlp.down, call 1, for 0.3 s."""
    if not is_failed(trace.run):
        return []
    calls: dict[tuple[str, str, int, int | None], list[Unfinished]] = {}
    for call in trace.unfinished_rows():
        calls.setdefault((call.op, call.site, call.sequence, call.peer), []).append(call)
    return [_waiting(list(one)) for one in calls.values()]


def _waiting(calls: list[Unfinished]) -> str:
    first = calls[0]
    ranks = ", ".join(str(call.rank) for call in calls)
    who = f"Rank {ranks} was" if len(calls) == 1 else f"Ranks {' and '.join(ranks.rsplit(', ', 1))} were"
    other = "" if first.peer is None else f" {'to' if first.op == 'send' else 'from'} rank {first.peer}"
    longest = duration(max(call.leave - call.enter for call in calls))
    return f"{who} in {plain(first.op, 40)}{other} at {plain(first.site, 60)}, call {first.sequence}, for {longest}."
