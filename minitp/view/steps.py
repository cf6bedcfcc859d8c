"""The sync points of a trace in the order in which they happened, as columns: who came when, who was last, what waited.

A sync is one collective or one message over all ranks, also one that never ended since the run failed; control
messages are left out. In checked mode on MPI the ranks meet before each collective to compare it: there they arrive and
there they wait, so that check counts as a part of its collective. Passes are those of `minitp.trace.passes`, one after
the other; of passes that are in flight at once, each one's syncs lie together.
"""
from dataclasses import dataclass, fields, replace

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.passes import PassNumbers
from minitp.trace.schema import CHECK, MESSAGES
from minitp.trace.timeline import Timeline, codes, is_root
from minitp.view.unfinished import with_unfinished

MOST_RANKS = 64                    # lanes that a picture can show


@dataclass(frozen=True)
class PassColumns:
    """The passes, a load, …: `first` and `count` name a pass's syncs; times in ns since the run's start."""
    phase: np.ndarray              # numbers of the trace's strings
    step: np.ndarray               # -1: none
    micro_batch: np.ndarray        # -1: none
    first: np.ndarray
    count: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class Steps:
    """n syncs over `ranks` lanes; times in ns since the run's start, 0 where a rank took no part.

    event    (n,) the event that speaks for the sync: the sender's of a message, else the lowest rank's
    cell     (n, ranks) the number of each rank's event, -1 where it took no part
    begin    (n, ranks) when the rank began to compute towards it: the end of its event before, or of its pass's begin
    enter, ready, leave   (n, ranks) begin ≤ enter ≤ ready ≤ leave; what lies before `ready` is waiting
    last     (n,) the rank that arrived last
    lost     (n, ranks) whether the rank's call never ended: its `leave` is when the run had failed
    root     (n,) the rank of the run that holds the data before or after; the sender of a message; -1: none
    """
    timeline: Timeline
    ranks: int
    event: np.ndarray
    cell: np.ndarray
    begin: np.ndarray
    enter: np.ndarray
    ready: np.ndarray
    leave: np.ndarray
    last: np.ndarray
    lost: np.ndarray
    root: np.ndarray
    pass_of: np.ndarray
    passes: PassColumns
    checks: int                    # checks that count as a part of their collective
    control: int                   # control messages left out, of one rank

    @property
    def trace(self) -> Trace:
        return self.timeline.trace

    def __len__(self) -> int:
        return len(self.event)

    def part(self, first: int, count: int, most: int) -> "Steps":
        """The passes first … first + count - 1, of at most `most` syncs: the last passes lose what is beyond."""
        chosen = slice(first, first + count)
        start = int(self.passes.first[first]) if len(self.passes) else 0
        stop = min(start + int(self.passes.count[chosen].sum()), start + most)
        some = slice(start, stop)
        columns = {name: getattr(self, name)[some] for name in (
            "event", "cell", "begin", "enter", "ready", "leave", "last", "lost", "root")}
        passes = PassColumns(*(getattr(self.passes, field.name)[chosen] for field in fields(PassColumns)))
        firsts = np.minimum(passes.first - start, stop - start)
        passes = replace(passes, first=firsts, count=np.minimum(passes.count, stop - start - firsts))
        return replace(self, **columns, pass_of=self.pass_of[some] - first, passes=passes)

    @classmethod
    def of(cls, timeline: Timeline) -> "Steps":
        ended, timeline = len(timeline.trace), with_unfinished(timeline)
        trace = timeline.trace
        events = trace.events
        lanes = min(int(trace.run["ranks"]), MOST_RANKS)
        numbers = PassNumbers.of(timeline)
        number, kept = _ordered(timeline, numbers, ended)
        n = int(number.max(initial=-1)) + 1
        arrive, waiting, checks = _arrivals(timeline, kept)
        cell = np.full((n, lanes), -1)
        shown = np.flatnonzero(events["rank"][kept] < lanes)[::-1]             # backwards: the first of two stays
        cell[number[shown], events["rank"][kept][shown]] = kept[shown]
        last, root = _last_and_root(trace, number, kept, arrive, n)
        event = np.empty(n, np.int64)
        event[number] = numbers.speaker[timeline.sync[kept]]
        pass_of = numbers.of_event[event]
        begins, passes = _passes(trace, numbers, pass_of, cell, arrive)
        there = cell >= 0
        enter, leave = (np.where(there, column[cell], 0) for column in (arrive, events["leave"]))
        ready = np.where(there, np.minimum(enter + waiting[cell], leave), 0)
        before = _ends_before(trace, arrive, checks)[cell]
        begin = np.where(there, np.minimum(np.maximum(before, begins[pass_of]), enter), 0)
        is_control = trace.where(plane="control")
        control = int(np.bincount(events["rank"][is_control], minlength=1).max()) - int(
            np.bincount(events["rank"][checks], minlength=1).max())
        return cls(timeline, lanes, event, cell, begin, enter, ready, leave, last, cell >= ended, root, pass_of, passes,
                   len(checks), control)


def _ordered(timeline: Timeline, passes: PassNumbers, ended: int) -> tuple[np.ndarray, np.ndarray]:
    """For every event that isn't control: the number of its sync, by pass and first arrival; and their own numbers.

    What never ended, the events from `ended` on, comes at the end of its pass.
    """
    events = timeline.trace.events
    kept = np.flatnonzero(~timeline.trace.where(plane="control"))
    _, one, sync = np.unique(timeline.sync[kept], return_index=True, return_inverse=True)
    arrival = np.full(int(sync.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(arrival, sync, events["enter"][kept])
    lost = np.zeros(len(arrival), bool)
    lost[sync[kept >= ended]] = True
    place = np.empty(len(arrival), np.int64)
    place[np.lexsort((arrival, lost, passes.of_event[kept][one]))] = np.arange(len(arrival))
    return place[sync], kept


def _arrivals(timeline: Timeline, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When each event's rank arrived and how long it waited, both with the check before it; and those checks."""
    events = timeline.trace.events
    arrive, waiting = events["enter"].copy(), timeline.waiting.copy()
    is_check = timeline.trace.where(reason=CHECK, plane="control")
    checks = np.flatnonzero(is_check)
    if not len(checks):
        return arrive, waiting, checks
    call = codes(*(events[name] for name in ("axis", "group", "rank", "sequence")))
    checked_by = np.full(int(call.max()) + 1, -1)
    checked_by[call[checks]] = checks
    pairs = checked_by[call[kept]]
    fits = (pairs >= 0) & (events["leave"][pairs] <= events["enter"][kept])
    event, check = kept[fits], pairs[fits]
    arrive[event] = events["enter"][check]
    waiting[event] += timeline.waiting[check]
    return arrive, waiting, check


def _last_and_root(trace: Trace, number: np.ndarray, kept: np.ndarray, arrive: np.ndarray,
                   n: int) -> tuple[np.ndarray, np.ndarray]:
    """The rank that came last (of two at once the lower), and the one that holds the data alone, or sends it."""
    rank = trace.events["rank"][kept]
    last, root = np.full((2, n), -1)
    order = np.lexsort((-rank, arrive[kept], number))
    last[number[order]] = rank[order]                                          # the last assignment stays
    holds = is_root(trace)[kept] | trace.where(op=MESSAGES[0])[kept]
    root[number[holds]] = rank[holds]
    return last, root


def _passes(trace: Trace, numbers: PassNumbers, pass_of: np.ndarray, cell: np.ndarray,
            arrive: np.ndarray) -> tuple[np.ndarray, PassColumns]:
    """When each rank began each pass, (passes, ranks); and the passes."""
    first = np.flatnonzero(np.diff(pass_of, prepend=-1))
    count = np.diff(first, append=len(pass_of))
    n, lanes = len(first), cell.shape[1]
    latest = np.iinfo(np.int64).max
    begins, ends = np.full((n, lanes), latest), np.zeros(n, np.int64)
    there, ranks = np.nonzero(cell >= 0)
    np.minimum.at(begins, (pass_of[there], ranks), arrive[cell[there, ranks]])
    np.maximum.at(ends, pass_of[there], trace.events["leave"][cell[there, ranks]])
    marks = trace.marks
    if n and len(marks["rank"]):
        owner = numbers.owner(marks["phase"], marks["step"], marks["micro_batch"], marks["leave"])
        fits = (owner >= 0) & (marks["rank"] < lanes)
        np.minimum.at(begins, (owner[fits], marks["rank"][fits]), marks["enter"][fits])
        np.maximum.at(ends, owner[fits], marks["leave"][fits])
    begin = begins.min(axis=1, initial=latest)
    begin = np.where(begin == latest, 0, begin)
    begins = np.where(begins == latest, begin[:, None], begins)
    return begins, PassColumns(numbers.phase, numbers.step, numbers.micro_batch, first, count, begin,
                               np.maximum(ends, begin))


def _ends_before(trace: Trace, arrive: np.ndarray, checks: np.ndarray) -> np.ndarray:
    """For every event, when its rank's event or mark before it ended, or its mark began; 0: it is the first.

    What lies between two marks is nobody's computing. Checks belong to their collective.
    """
    rank, leave = trace.events["rank"], trace.events["leave"]
    alone = np.ones(len(rank), bool)
    alone[checks] = False
    order = np.flatnonzero(alone)
    order = order[np.lexsort((arrive[order], rank[order]))]
    ends = np.zeros(len(rank), np.int64)
    same = rank[order[1:]] == rank[order[:-1]]
    ends[order[1:][same]] = leave[order[:-1][same]]
    return np.maximum(ends, _edges_before(trace, arrive))


def _edges_before(trace: Trace, arrive: np.ndarray) -> np.ndarray:
    """For every event, its rank's last begin or end of a mark that is not later than `arrive`; 0: there is none."""
    marks, rank = trace.marks, trace.events["rank"]
    edges = np.concatenate([marks["enter"], marks["leave"]])
    if not len(edges):
        return np.zeros(len(rank), np.int64)
    ranks = np.concatenate([marks["rank"], marks["rank"]])
    place = codes(np.concatenate([ranks, rank]), np.concatenate([edges, arrive]))
    order = np.argsort(place[:len(edges)], kind="stable")
    found = order[np.maximum(np.searchsorted(place[order], place[len(edges):], side="right") - 1, 0)]
    fits = (ranks[found] == rank) & (edges[found] <= arrive)
    return np.where(fits, edges[found], 0)
