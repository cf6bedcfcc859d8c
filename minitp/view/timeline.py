"""The Timeline page's numbers: every pass in one overview, some passes in detail, and who kept the others waiting.

A pass of a generation is a token to its reader; those of a training step are forward, backward and optimizer.
"""
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minitp.trace.failed import waiting_lines
from minitp.trace.file import Trace
from minitp.trace.schema import Unfinished
from minitp.trace.summary import arrivals
from minitp.trace.timeline import Spent, Timeline
from minitp.trace.wording import STEP, count, duration, plain, share
from minitp.view.passes import Pass, Passes
from minitp.view.replay import Replay
from minitp.view.steps import Steps

MOST_BARS = 5_000                  # that a chart in a browser can take
MOST_LANES = 32                    # ranks drawn below one another
KINDS = ("computing", "waiting", "moving")
COMPUTING, WAITING, MOVING, ENDLESS = range(4)     # the last one: a call that never ended
ENDLESS_WORD = "never ended"
_MOST_ENDLESS = 200                # that are drawn, and the share of the picture's width that they have to themselves
_EDGE = 0.3
_IN_BETWEEN = {"prefill": "sample", "decode": "sample", "evaluate": "evaluation"}      # phases of a training run


@dataclass(frozen=True)
class Group(Spent):
    """One bar of the overview: a pass, or several in a row where there are too many; ns per pass."""
    name: str
    first: int                      # index among the passes but for loading
    last: int
    word: str
    phase: str                      # "": of several
    begin: int


class Block(NamedTuple):
    """A pass of the detail; ns since the detail's begin. `label` is short: the phase and the micro-batch."""
    name: str
    label: str
    phase: str
    start: int
    length: int


class Bars(NamedTuple):
    """The detail, one entry per bar; times in ns since `begin`.

    event is the number of the event that the bar belongs to, or leads to; -1: its pass ends; -2 - n: call n of those
    that never ended. blocks are the passes, of a generation none: its passes are all of one kind.
    """
    begin: int
    lanes: list[int]
    rank: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    length: np.ndarray
    event: np.ndarray
    notes: list[str]
    blocks: list[Block]

    def __len__(self) -> int:
        return len(self.rank)


def overview(rows: list[Pass], unit: str = "token") -> tuple[list[Group], str]:
    """A bar of three parts per pass, and a note where some had to share one."""
    each = -(-len(rows) * len(KINDS) // MOST_BARS) or 1
    groups = [_group(rows[first:first + each], first) for first in range(0, len(rows), each)]
    note = "" if each == 1 else (f"{count(len(rows), unit)} are more than one chart can show: each bar is the mean of "
                                 f"{count(each, unit)} in a row.")
    return groups, note


def _group(passes: list[Pass], first: int) -> Group:
    one = passes[0]
    name = one.name if len(passes) == 1 else f"{one.name} to {passes[-1].name}"
    means = {kind: sum(getattr(row, kind) for row in passes) / len(passes) for kind in KINDS}
    return Group(name, first, first + len(passes) - 1, " ".join(row.word for row in passes[:8]).strip(),
                 one.phase if len({row.phase for row in passes}) == 1 else "", one.begin, **means)


def fits(passes: Passes, first: int) -> int:
    """How many passes from the one at index `first` on fit into one detailed picture; at least one."""
    lanes = min(len(passes.trace.ranks), MOST_LANES)
    bars = np.cumsum([len(KINDS) * (row.sync_points + 1) * lanes for row in passes.work[first:]])
    return max(int(np.searchsorted(bars, MOST_BARS, side="right")), 1)


def step_from(passes: Passes, first: int) -> int:
    """How many passes from index `first` on are of the same training step; 1 for any other pass."""
    rows = passes.work[first:]
    others = (n for n, row in enumerate(rows) if row.phase not in STEP or row.step != rows[0].step)
    return max(next(others, len(rows)), 1)


def detail(passes: Passes, first: int, last: int) -> Bars:
    """Every compute, wait and move of the passes at index first … last, of the first MOST_LANES ranks.

    More than MOST_BARS bars are thinned: the shortest are left out, with a note that says so. Calls that never ended
    are drawn in their pass, or in the last one where nothing of theirs has ended, and to the right edge, however long
    they were. Without any pass it is all that there is, loading too.
    """
    chosen, at_end = passes.work[first:last + 1] if passes.work else passes.rows, last + 1 >= len(passes.work)
    lanes = passes.trace.ranks[:MOST_LANES]
    wanted = np.zeros(len(passes.rows) + 1, bool)                  # the last place is for "no pass", number -1
    wanted[[row.number for row in chosen]] = True
    spans, events, timeline, lost = passes.spans, passes.trace.events, passes.timeline, passes.trace.unfinished
    homeless = ~np.isin(passes.unfinished, [row.number for row in passes.work])
    mine = np.flatnonzero((wanted[spans.in_pass] | (passes.cut_off & at_end)) & np.isin(spans.rank, lanes))
    met = np.flatnonzero(wanted[passes.of_event] & np.isin(events["rank"], lanes))
    endless = np.flatnonzero((wanted[passes.unfinished] | (homeless & at_end)) & np.isin(lost["rank"], lanes))
    begin = min((int(times.min()) for times in (spans.enter[mine], events["enter"][met], lost["enter"][endless])
                 if len(times)), default=0)
    enter, waiting, moving = events["enter"][met], timeline.waiting[met], timeline.moving[met]
    columns = [np.concatenate(parts) for parts in (
        (spans.rank[mine], events["rank"][met], events["rank"][met]),
        (np.full(len(mine), COMPUTING), np.full(len(met), WAITING), np.full(len(met), MOVING)),
        (spans.enter[mine] - begin, enter - begin, enter + waiting - begin),
        (spans.leave[mine] - spans.enter[mine], waiting, moving),
        (spans.before[mine], met, met))]
    endless = endless[:_MOST_ENDLESS]
    keep, notes = _thinned(columns[3], MOST_BARS - len(endless))
    if len(lanes) < len(passes.trace.ranks):
        notes.append(f"The first {len(lanes)} of {count(len(passes.trace.ranks), 'rank')} are drawn.")
    columns = [column[keep] for column in columns]
    if len(endless):
        columns = _to_the_edge(columns, passes.trace, endless, begin)
        notes.append("Outlined in red is what never ended: it is drawn to the edge, however long it was.")
    rank, kind, start, length, event = columns
    until = int((start + length).max(initial=0)) if len(endless) else np.iinfo(np.int64).max
    blocks = [Block(row.name, row.phase + ("" if row.micro_batch is None else f" {row.micro_batch + 1}"), row.phase,
                    row.begin - begin, min(row.end - begin, until) - (row.begin - begin))
              for row in (chosen if passes.unit == "pass" else ())]
    return Bars(begin, lanes, rank, kind, start, length, event, notes, blocks)


def _to_the_edge(columns: list[np.ndarray], trace: Trace, endless: np.ndarray, begin: int) -> list[np.ndarray]:
    """The columns of a detail, with bars for these unfinished calls. Each is the last bar of its rank, for what that
    does while the run is ended is left out; but a rank that has caught the error, and goes on to other calls, is drawn
    so."""
    lost, (rank, _, start, length, _) = trace.unfinished, columns
    owner, enter = lost["rank"][endless], lost["enter"][endless]
    calls = [np.concatenate([trace.events[name], lost[name]]) for name in ("rank", "enter")]
    ends = {one: int(calls[1][calls[0] == one].max()) for one in set(owner.tolist())}       # enter of each rank's last
    last = enter == [ends[one] for one in owner.tolist()]
    keep = np.array([one not in ends or begin + at < ends[one] or not last[owner == one].any()
                     for one, at in zip(rank.tolist(), start.tolist(), strict=True)], bool)
    enter, seen = enter - begin, (lost["leave"] - lost["enter"])[endless]
    until = max(int((start + length)[keep].max(initial=0)), int(enter.max()))
    edge = until + max(int(until * _EDGE / (1 - _EDGE)), 1) if until else max(int(seen.max()), 1)
    bars = owner, np.full(len(endless), ENDLESS), enter, np.where(last, edge - enter, seen), -2 - endless
    return [np.concatenate([column[keep], more]) for column, more in zip(columns, bars, strict=True)]


def _thinned(length: np.ndarray, most: int = MOST_BARS) -> tuple[np.ndarray, list[str]]:
    """Which bars to draw: all that last, or the longest where they are too many."""
    keep = np.flatnonzero(length > 0)
    if len(keep) <= most:
        return keep, []
    longest = np.sort(keep[np.argsort(-length[keep], kind="stable")[:most]])
    return longest, [f"{most:,} of {len(keep):,} bars are drawn: those shorter than "
                     f"{duration(int(length[longest].min()))} are left out. The numbers count all of them."]


def modeled_groups(replay: Replay) -> list[Group]:
    """The overview of a replay: the same passes, with the model's waiting and moving."""
    return overview(replay.passes)[0]


def mean_of(replay: Replay) -> Group:
    """All passes of a replay as one bar: means over the passes."""
    return _group(replay.passes, 0)


def modeled_detail(passes: Passes, replay: Replay, index: int) -> Bars:
    """The pass at `index` as the replay has it, in lanes like `detail`.

    What a rank does by itself before a sync is drawn as one bar, from its sync before on.
    """
    events, lanes = passes.trace.events, passes.trace.ranks[:MOST_LANES]
    owner = events["rank"][replay.event]
    before = np.where(np.diff(owner, prepend=-1) == 0, np.concatenate([[0.0], replay.leave[:-1]]), 0.0)
    number = passes.work[index].number
    mine = np.flatnonzero((passes.of_event[replay.event] == number) & np.isin(owner, lanes))
    begin = float(before[mine].min(initial=np.inf)) if len(mine) else 0.0
    enter, ready, leave = (column[mine] for column in (replay.enter, replay.ready, replay.leave))
    columns = [np.tile(owner[mine], 3), np.repeat([COMPUTING, WAITING, MOVING], len(mine)),
               np.concatenate([before[mine], enter, ready]) - begin,
               np.concatenate([enter - before[mine], ready - enter, leave - ready]), np.tile(replay.event[mine], 3)]
    keep, notes = _thinned(columns[3])
    rank, kind, start, length, event = (column[keep] for column in columns)
    return Bars(int(begin), lanes, rank, kind, start, length, event, notes, [])


def hover_texts(passes: Passes, bars: Bars, modeled: bool = False) -> list[str]:
    """What each bar says: who, what, how long, where; in a replay others may come last than were measured to."""
    trace, timeline = passes.trace, passes.timeline
    at = np.maximum(bars.event, 0)
    columns: list[list[Any]] = [[plain(word, 60) for word in np.append(trace.words(name), "")[at].tolist()]
                                for name in ("site", "op")]
    calls = trace.unfinished_rows() if (bars.kind == ENDLESS).any() else []
    verbs = ("computes", "waits", "moves data for")
    texts = []
    for rank, kind, start, length, event, site, op in zip(
            bars.rank.tolist(), bars.kind.tolist(), bars.start.tolist(), bars.length.tolist(), bars.event.tolist(),
            *columns, strict=True):
        if kind == ENDLESS:
            texts.append(_never_ended(calls[-2 - event]))
            continue
        where = f"until {op} at {site}" if kind == COMPUTING else f"in {op} at {site}"
        if event < 0:
            then = timeline.never_ended.get((rank, bars.begin + start + length))
            where = "until its pass ends" if then is None else f"until {plain(then.op, 60)} at {plain(then.site, 60)}"
        last = f"; rank {timeline.sync_of(event).last_rank} came last" if kind == WAITING and not modeled else ""
        texts.append(f"rank {rank} {verbs[kind]} {duration(length)} {where}{last}")
    return texts


def _never_ended(call: Unfinished) -> str:
    return (f"rank {call.rank} was in {plain(call.op, 60)} at {plain(call.site, 60)}, call {call.sequence}, for "
            f"{duration(call.leave - call.enter)}: it {ENDLESS_WORD}")


def lanes_alt(passes: Passes, bars: Bars, first: int, last: int) -> str:
    """The lanes in words; of a run that failed also who was in what then."""
    shown = passes.work[first:last + 1]
    of = f" for {shown[0].name}{f' to {shown[-1].name}' if last > first else ''}" if shown else ""
    lost = waiting_lines(passes.trace) if (bars.kind == ENDLESS).any() else []
    return " ".join([f"One lane per rank{of}: {count(len(bars), 'bar')} of computing, waiting and moving.", *lost])


def place_in_watch(steps: Steps, event: int) -> tuple[int, int]:
    """By what Watch knows the event of a bar, also a call that never ended: the number of its pass, and of its sync in
    that pass; (0, 0) where it doesn't."""
    if event < -1:                                                 # to Watch they are events behind all others
        event = len(steps.trace) - len(steps.trace.unfinished["rank"]) - 2 - event
    found = np.argwhere(steps.cell == event)
    if not len(found):
        return 0, 0
    sync = int(found[0, 0])
    number = int(steps.pass_of[sync])
    return number, sync - int(steps.passes.first[number])


# --- words --------------------------------------------------------------------------------------------------------


class Straggler(NamedTuple):
    """How often a rank came last, and how long the others waited for it then, ns on average."""
    rank: int
    times: int
    waited: float


def came_last(timeline: Timeline) -> list[Straggler]:
    """One row per rank that came last at a sync point of more than one rank, most often first."""
    rank_of, times, waited = timeline.trace.events["rank"], dict[int, int](), dict[int, list[float]]()
    for sync in arrivals(timeline):
        others = sync.events[rank_of[sync.events] != sync.last_rank]
        times[sync.last_rank] = times.get(sync.last_rank, 0) + 1
        waited.setdefault(sync.last_rank, []).append(float(timeline.waiting[others].mean()) if len(others) else 0.0)
    rows = [Straggler(rank, n, float(np.mean(waited[rank]))) for rank, n in times.items()]
    return sorted(rows, key=lambda row: (-row.times, row.rank))


def straggler_line(rows: list[Straggler]) -> str:
    """The straggler in words: "Rank 2 came last at 41 % of the sync points; …"."""
    if not rows:
        return "No rank waited for another: this run has one rank, or no sync points."
    syncs, first = sum(row.times for row in rows), rows[0]
    line = (f"Rank {first.rank} came last at {share(first.times, syncs)} of the sync points; the others waited "
            f"{duration(first.waited)} for it on average.")
    costly = max(rows, key=lambda row: row.times * row.waited)
    if costly.rank != first.rank:
        line += (f" Rank {costly.rank} came last less often ({share(costly.times, syncs)}) but cost the others more: "
                 f"{duration(costly.waited)} each time.")
    return line


def share_line(passes: Passes) -> str:
    """How the time of all passes was spent; in training also by phase: of a step's, and of what ran in between."""
    rows, by_phase = passes.work, dict[str, float]()
    whole = sum(row.time for row in rows)
    for row in rows:
        phase = _IN_BETWEEN.get(row.phase, plain(row.phase, 20) or "no phase")
        by_phase[phase] = by_phase.get(phase, 0.0) + row.time
    parts = [f"{kind} {share(sum(getattr(row, kind) for row in rows), whole)}" for kind in KINDS]
    training = any(row.phase in STEP for row in rows)
    phases = [f"{phase} {share(time, whole)}" for phase, time in by_phase.items()] if training else []
    return (f"{count(len(rows), 'pass')} on {count(len(passes.trace.ranks), 'rank')}: {', '.join(parts)} of the time."
            + (f" By phase: {', '.join(phases)}." if phases else ""))
