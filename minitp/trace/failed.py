"""A run that failed: its recordings brought together without the ranks' help, and what views say of it.

A run that ends well brings its recordings together by collectives (`minitp.trace.merge.collect`). One that failed
can't: each rank's is packed as it stands, by `recorded_so_far`, and whoever can still get them joins what there is.
"""
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.info import run_info
from minitp.trace.merge import joined, pack
from minitp.trace.schema import Event, Unfinished
from minitp.trace.wording import count, dimensions, duration, plain

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

_LONGEST = 2_000                   # characters of an error
_MOST_LINES, _NAMED, _MOST_RANKS = 12, 16, 4096        # of calls told, ranks named in one, ranks looked for
_ROOT = r"(?<![\w./~\\-])(?:~|\.{1,2}|[A-Za-z]:|file:/*)?(?:/|\\{1,4})"            # how a path with folders begins
_QUOTED = re.compile(rf"(['\"]){_ROOT}(?:[^/\\'\"\n]+[/\\]+)*([^/\\'\"\n]+)\1")             # its names may have blanks
_FOLDERS = re.compile(rf"{_ROOT}(?:[^\s/\\'\":]+[/\\]+)*([^\s/\\'\":]+)")


def recorded_so_far(group: "Communicator") -> str:
    """What this rank has recorded, packed: also the marks it is in, and the call, as if both ended now.

    It may be called from another thread, while the rank waits or goes on.
    """
    if (pending := group.pending) is not None:
        group.recorder.lose(group, *pending)
    return pack(group.recorder, cut_off=True)


def joined_so_far(group: "Communicator", parts: Sequence[str | None], why: str) -> Trace | None:
    """The trace of a run that failed of `why`; None where nothing was recorded.

    parts: by rank, what `recorded_so_far` gave; None of a rank that doesn't answer any more. `group`: of any rank.
    """
    words = "; ".join(line.strip() for line in why.splitlines()).replace(":; ", ": ")
    run = run_info(group) | {"failed": _without_folders(words)[:_LONGEST]}
    trace = joined(parts, group.recorder.clock, run)
    return trace if trace.ranks else None


def _without_folders(text: str) -> str:
    """Of paths only the last name: a folder's may be that of its owner. Blanks are known to be part of one inside
    quotes, and in the names of the folders that this process works in."""
    for folder in (Path.home, Path.cwd):
        with suppress(OSError, RuntimeError):              # there is none, or it is gone
            text = text if folder().parent == folder() else text.replace(f"{folder()}{os.sep}", f".{os.sep}")
    return _FOLDERS.sub(r"\1", _QUOTED.sub(r"\1\2\1", text))


# --- in words ----------------------------------------------------------------------------------------------------


def is_failed(run: dict[str, Any]) -> bool:
    return isinstance(run.get("failed"), str)


def failed_line(run: dict[str, Any]) -> str:
    """What every view of such a trace says first: This run failed: … ; "" where the run ended well."""
    if not is_failed(run):
        return ""
    words = plain(run["failed"], 300).rstrip(".")
    return f"This run failed: {words}{'' if words.endswith('…') else '.'} What had ended until then is shown."


def no_whole_run(to: str) -> str:
    """Why what needs a whole run, `to` do something with it, doesn't take one that failed."""
    return ("this run failed, and what it recorded is cut off where its ranks were then: there is no whole run to "
            f"{to}")


def left_out_line(trace: Trace) -> str:
    """What sums of a trace's times say of the calls that never ended; "" where all did."""
    calls = len(trace.unfinished["rank"])
    return f"The time in {count(calls, 'call')} that never ended is in none of these numbers." if calls else ""


def waiting_lines(trace: Trace) -> list[str]:
    """Who was in which call when a run failed, who was in none, and who has said nothing:

    Ranks 0 and 2 were in all_reduce at mlp.down, call 1, for 0.3 s.
    Rank 1 was in no call; its last one was all_reduce at mlp.down, call 0.
    Of rank 3 there is no recording.
    """
    calls: dict[str, dict[str, list[Unfinished]]] = {}
    for call in trace.unfinished_rows() if is_failed(trace.run) else ():
        what = f", of {dimensions(call.shape)} {plain(call.dtype, 20)}"
        calls.setdefault(_named(call), {}).setdefault(what, []).append(call)
    if not calls:
        return []
    lines = [_waiting(one, name + what * (len(kinds) > 1)) for name, kinds in calls.items()
             for what, one in kinds.items()] + _elsewhere(trace)
    more = len(lines) - _MOST_LINES
    return lines if more <= 1 else [*lines[:_MOST_LINES], f"… and {more:,} more."]


def _waiting(calls: list[Unfinished], name: str) -> str:
    longest = duration(max(call.leave - call.enter for call in calls))
    return f"{_ranks_were(sorted({call.rank for call in calls}))} in {name}, for {longest}."


def _elsewhere(trace: Trace) -> list[str]:
    """The ranks that were in no call, by the last one that they had been in; of a rank that didn't answer any more, as
    one that is stopped, nobody knows. A control message is named only where there was nothing else."""
    inside, known = set(trace.unfinished["rank"].tolist()), set(trace.ranks)
    silent = [rank for rank in range(min(trace.run["ranks"], _MOST_RANKS)) if rank not in known]
    others: dict[str, list[int]] = {}
    ranks, control = trace.events["rank"], trace.where(plane="control")
    last = {ranks[number].item(): number for which in (control, ~control) for number in np.flatnonzero(which).tolist()}
    for rank in range(min(trace.run["ranks"], _MOST_RANKS)):
        if rank in known and rank not in inside:
            told = f"; the last one was {_named(trace.event(last[rank]))}" if rank in last else ""
            others.setdefault(told, []).append(rank)
    return [f"{_ranks_were(ranks)} in no call{told or ', and had been in none'}." for told, ranks in others.items()] + (
        [f"Of {_ranks(silent)} there is no recording."] if silent else [])


def _named(call: Unfinished | Event) -> str:
    """all_reduce at mlp.down, call 1; send to rank 2 at ring, call 0."""
    to = "" if call.peer is None else f" {'to' if call.op == 'send' else 'from'} rank {call.peer}"
    return f"{plain(call.op, 40)}{to} at {plain(call.site, 60)}, call {call.sequence}"


def _ranks_were(ranks: list[int]) -> str:
    """Rank 1 was; Ranks 0 and 2 were."""
    return f"R{_ranks(ranks)[1:]} {'was' if len(ranks) == 1 else 'were'}"


def _ranks(ranks: list[int]) -> str:
    """rank 1; ranks 0 and 2; of many only the first are named."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _NAMED:
        return f"ranks {', '.join(map(str, ranks[:_NAMED]))} and {len(ranks) - _NAMED:,} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
