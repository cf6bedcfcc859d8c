"""Where the time went: computing, waiting for another rank, moving data.

A trace knows when each rank entered and left a collective. What lies between is parted by one rule per kind: a rank
waits until what it depends on is there, and the rest is moving (with MPI's own work and the scheduler in it).

    all_reduce, all_reduce_max, all_gather,
    reduce_scatter, all_to_all, barrier                           until the last rank arrives
    scatter, broadcast                                            until the root arrives
    gather, reduce                                                the root until the last rank arrives; others never
    receive                                                       until the sender arrives; a send never
    what was broken on purpose                                    never: nobody came to it

Waiting is never negative and never longer than the event, also where clocks are a little apart. Where only some ranks
of a group were recorded, those count. With more ranks than cores a wait shows the scheduler, not the network.
"""
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.schema import CHECK, MESSAGES, Mark, Unfinished

_UNTIL_LAST = ("all_reduce", "all_reduce_max", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_UNTIL_ROOT = ("scatter", "broadcast")
_ROOT_UNTIL_LAST = ("gather", "reduce")


@dataclass(frozen=True, kw_only=True)
class Spent:
    """How time was spent, in ns."""
    computing: float
    waiting: float
    moving: float

    @property
    def time(self) -> float:
        return self.computing + self.waiting + self.moving


class Span(NamedTuple):
    """What a rank computes between two events, or between one and the begin or end of its mark."""
    rank: int
    phase: str
    step: int | None
    micro_batch: int | None
    after: int                      # number of the event before it, -1: the mark begins, or a call never ended
    before: int                     # number of the event after it, -1: the mark ends, an inner one begins, or a call
                                    # that never ended
    enter: int
    leave: int


class Sync(NamedTuple):
    """One collective, or one message, over all ranks that took part."""
    events: np.ndarray              # their numbers, by rank
    first_arrival: int
    last_arrival: int
    last_rank: int                  # the straggler: whom the others waited for


@dataclass(frozen=True)
class Timeline:
    """Parts of every event of `trace`, in ns: waiting + moving = leave - enter. `sync`: which sync it belongs to."""
    trace: Trace
    waiting: np.ndarray
    moving: np.ndarray
    sync: np.ndarray

    @classmethod
    def of(cls, trace: Trace) -> "Timeline":
        sync = sync_numbers(trace)
        enter, leave = trace.events["enter"], trace.events["leave"]
        waiting = np.clip(_ready(trace, sync) - enter, 0, leave - enter)
        return cls(trace, waiting, leave - enter - waiting, sync)

    @cached_property
    def syncs(self) -> list[Sync]:
        """The syncs by number, in the order in which they first appear in the trace."""
        order = np.lexsort((self.trace.events["rank"], self.sync))
        edges = np.flatnonzero(np.diff(self.sync[order], prepend=-1))
        enter, rank = self.trace.events["enter"], self.trace.events["rank"]
        made = []
        for events in np.split(order, edges[1:]) if len(order) else []:
            arrivals = enter[events]
            last = int(np.argmax(arrivals))
            made.append(Sync(events, int(arrivals.min()), int(arrivals[last]), int(rank[events[last]])))
        return made

    def sync_of(self, event: int) -> Sync:
        return self.syncs[int(self.sync[event])]

    @cached_property
    def spans(self) -> list[Span]:
        """The compute spans of all ranks: every gap inside a mark, named by the innermost one."""
        marks: dict[int, list[Mark]] = {}
        for mark in self.trace.mark_rows():
            marks.setdefault(mark.rank, []).append(mark)
        lost: dict[int, list[Unfinished]] = {}
        for call in self.trace.unfinished_rows():
            lost.setdefault(call.rank, []).append(call)
        order = np.argsort(self.trace.events["rank"], kind="stable")
        edges = np.searchsorted(self.trace.events["rank"][order], [(rank, rank + 1) for rank in self.trace.ranks])
        return [span for rank, (first, last) in zip(self.trace.ranks, edges.reshape(-1, 2).tolist(), strict=True)
                for span in _spans(self.trace, rank, marks.get(rank, []), lost.get(rank, []), order[first:last])]

    @cached_property
    def never_ended(self) -> dict[tuple[int, int], Unfinished]:
        """The calls that never ended, by their rank and when it entered: what it computed before led to them."""
        return {(call.rank, call.enter): call for call in self.trace.unfinished_rows()}

    @cached_property
    def _behind_lost(self) -> dict[tuple[int, int], Unfinished]:
        """The same by when their rank was freed."""
        return {(call.rank, call.leave): call for call in self.never_ended.values()}

    def name_of(self, span: Span) -> str:
        """The sites a compute span lies between: layers.0.attention.out → layers.0.mlp.down."""
        def site(event: int, lost: Unfinished | None, edge: str) -> str:
            if event >= 0:
                return self.trace.strings[self.trace.events["site"][event]]
            return f"{edge} of {span.phase}" if lost is None else lost.site

        return (f"{site(span.after, self._behind_lost.get((span.rank, span.enter)), 'begin')} → "
                f"{site(span.before, self.never_ended.get((span.rank, span.leave)), 'end')}")


def sync_numbers(trace: Trace) -> np.ndarray:
    """For each event the number of its sync: equal for the events that are one collective or one message."""
    events = trace.events
    op = trace.words("op")
    send, receive = op == MESSAGES[0], op == MESSAGES[1]
    me, peer = rank_in_group(trace), events["peer"]
    source = np.where(send, me, np.where(receive, peer, -1))
    target = np.where(send, peer, np.where(receive, me, -1))
    check = trace.where(reason=CHECK).astype(np.int64)            # has the number of the collective that it checks
    key = codes(events["axis"], events["group"], source, target, check, events["sequence"])
    _, first, sync = np.unique(key, return_index=True, return_inverse=True)
    in_order = np.empty(len(first), np.int64)
    in_order[np.argsort(first)] = np.arange(len(first))
    return in_order[sync]


def codes(*columns: np.ndarray) -> np.ndarray:
    """One number for each entry, equal where the entries of all columns are equal, and in their order.

    Column by column: `np.unique` of several at once sorts bytes, which takes ten times as long.
    """
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        if len(values) > 1:
            code = np.unique(code * len(values) + place, return_inverse=True)[1]
    return code


def rank_in_group(trace: Trace) -> np.ndarray:
    """Each event's rank as its group numbers it: what `root` and `peer` refer to."""
    group = codes(trace.events["axis"], trace.events["group"])
    member = codes(group, trace.events["rank"])
    first = np.full(int(group.max(initial=-1)) + 1, len(group))
    np.minimum.at(first, group, member)                           # members are in order: a group's ranks lie together
    return member - first[group]


NOBODY, LAST, ROOT, SENDER = range(4)
"""Whom an event waits for."""


def waits_for(trace: Trace) -> np.ndarray:
    """For each event NOBODY, LAST, ROOT or SENDER: the rule by which waiting is parted from moving."""
    op = trace.words("op")
    until_last = np.isin(op, _UNTIL_LAST) | (np.isin(op, _ROOT_UNTIL_LAST) & is_root(trace))
    return np.select([trace.events["broken"], until_last, np.isin(op, _UNTIL_ROOT), op == MESSAGES[1]],
                     [NOBODY, LAST, ROOT, SENDER], NOBODY)


def is_root(trace: Trace) -> np.ndarray:
    """For each event whether its rank is the root of the collective."""
    return trace.events["root"] == rank_in_group(trace)


def _ready(trace: Trace, sync: np.ndarray) -> np.ndarray:
    """When what each event depends on is there; 0 where it depends on nothing."""
    enter, number = trace.events["enter"], int(sync.max(initial=-1)) + 1
    last, root, sent = np.zeros((3, number), np.int64)
    np.maximum.at(last, sync, enter)
    at_root, sends = is_root(trace), trace.words("op") == MESSAGES[0]
    np.maximum.at(root, sync[at_root], enter[at_root])
    np.maximum.at(sent, sync[sends], enter[sends])
    rule = waits_for(trace)
    return np.select([rule == LAST, rule == ROOT, rule == SENDER], [last[sync], root[sync], sent[sync]], 0)


def _spans(trace: Trace, rank: int, marks: list[Mark], lost: list[Unfinished], mine: np.ndarray) -> list[Span]:
    """One sweep over the events (by number: `mine`), marks and unfinished calls of a rank, outer before inner."""
    rows = [(mark.enter, -mark.leave, 0, number) for number, mark in enumerate(marks)]
    rows += [(call.enter, -call.leave, 1, -1) for call in lost]                        # -1: no event that has a number
    rows += [(enter, -leave, 1, number) for enter, leave, number in
             zip(*(column.tolist() for column in (trace.events["enter"][mine], trace.events["leave"][mine], mine)),
                 strict=True)]
    spans: list[Span] = []
    inside: list[Mark] = []                                       # the marks that are open, innermost last
    now, after = 0, -1

    def gap(until: int, before: int) -> None:
        if inside and until > now:
            mark = inside[-1]
            spans.append(Span(rank, mark.phase, mark.step, mark.micro_batch, after, before, now, until))

    def close(until: int) -> None:
        """End the marks that end before `until`."""
        nonlocal now, after
        while inside and inside[-1].leave <= until:
            gap(inside[-1].leave, -1)
            now, after = max(now, inside.pop().leave), -1

    for enter, minus_leave, is_event, number in sorted(rows):
        close(enter)
        gap(enter, number if is_event else -1)
        if is_event:
            now, after = max(now, -minus_leave), number
        else:
            now, after = max(now, enter), -1
            inside.append(marks[number])
    close(max((-row[1] for row in rows), default=0))
    return spans
