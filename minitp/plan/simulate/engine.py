"""The engine of every simulation: each rank is a SimPy process that computes, arrives, waits for whom it must, goes on.

What ranks do is a `Program`: per event the rank's own work before it, the sync that it belongs to, whom it waits for
(the rules of `minitp.trace.timeline`) and what the sync then takes. When each event is entered and left follows. The
same engine replays a measured run on another link or machine and runs a schedule that nobody ran yet.

A message is sent without waiting for its receiver; its sender is busy for as long as it takes. All of it is a model.
"""
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import simpy

from minitp.errors import ConfigError
from minitp.trace.timeline import LAST, NOBODY, ROOT, SENDER

TOLD = 4096                        # events between two reports of progress
_UNTIL_MET = (LAST, SENDER)        # until the sync has ended; ROOT too, unless the root was there before


@dataclass(frozen=True)
class Program:
    """One entry per event; a rank's events lie together and in the order in which it comes to them.

    rank    any number for each rank
    own     ns of the rank's own work before the event
    sync    number of the sync, 0 … syncs - 1: equal for the events that are one collective or one message
    rule    LAST, ROOT, SENDER or NOBODY: whom the event waits for
    gives   whether it is the event that ROOT and SENDER wait for
    price   ns from when what it waits for is there until it is left
    late    ns by which the last of the ranks that it stands for comes after it; None: all come with it
    ports   sync → the ports (by name) and how many of each the transfer holds; without any there is no queue
    free    how many of each port there are
    """
    rank: np.ndarray
    own: np.ndarray
    sync: np.ndarray
    rule: np.ndarray
    gives: np.ndarray
    price: np.ndarray
    late: np.ndarray | None = None
    ports: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    free: Mapping[int, int] = field(default_factory=dict)


class Times(NamedTuple):
    """Per event, ns since the first rank began: it is entered, what it waits for is there, it is left."""
    enter: np.ndarray
    ready: np.ndarray
    leave: np.ndarray


class _Meeting:
    """One sync as it happens: how many are still missing, when it began to move, and the event of its end."""
    __slots__ = ("begun", "done", "missing")

    def __init__(self, members: int):
        self.missing, self.begun = members, -1.0
        self.done: simpy.Event | None = None


def run(program: Program, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Times:
    """Let all ranks go. ConfigError where they wait for one another for ever.

    What a rank does at syncs where it is the only simulated one hangs on nobody: it is added up, and SimPy's processes
    meet at the others alone.

    progress    called now and then with (events done, events in all), of those where ranks meet
    """
    members = np.bincount(program.sync)
    alone = (members[program.sync] == 1) & (program.rule == LAST) & ~np.isin(program.sync, list(program.ports))
    late = np.zeros(len(program.own)) if program.late is None else program.late
    passed = np.where(alone, late + program.price, 0.0)
    edges = np.flatnonzero(np.diff(program.rank, prepend=-1, append=-1))
    by_itself = np.concatenate([[0.0], *(np.cumsum((program.own + passed)[first:last])
                                         for first, last in pairwise(edges))])[1:]
    before = _met_before(alone, edges)                                 # -1: the rank has met nobody yet
    since = by_itself - np.where(before < 0, 0.0, by_itself[before]) - passed
    met = _Run(_part(program, ~alone, since), progress).times()
    enter, ready, leave = (np.zeros(len(alone)) for _ in Times._fields)
    for column, found in zip((enter, ready, leave), met, strict=True):
        column[~alone] = found
    begin = np.where(before < 0, 0.0, leave[before]) + since
    return Times(np.where(alone, begin, enter), np.where(alone, begin + late, ready),
                 np.where(alone, begin + late + program.price, leave))


def _met_before(alone: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For each event the last one before it at which its rank meets others; -1 for none."""
    at = np.where(alone, -1, np.arange(len(alone)))
    found = [np.concatenate([[-1], np.maximum.accumulate(at[first:last])[:-1]]) for first, last in pairwise(edges)]
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)


def _part(program: Program, some: np.ndarray, own: np.ndarray) -> Program:
    """Some of the events, with this own work before them (of all)."""
    _, sync = np.unique(program.sync[some], return_inverse=True)
    number = dict(zip(program.sync[some].tolist(), sync.tolist(), strict=True))
    return Program(program.rank[some], own[some], sync, program.rule[some], program.gives[some], program.price[some],
                   None if program.late is None else program.late[some],
                   {number[old]: held for old, held in program.ports.items()}, program.free)


class _Run:
    """One run of a program. Columns are lists: SimPy's processes take one number at a time."""

    def __init__(self, program: Program, progress: Callable[[int, int], None]):
        self.env, self.progress, self.done = simpy.Environment(), progress, 0
        gives = program.gives & (program.rule != LAST)
        self.given = np.isin(np.arange(int(program.sync.max(initial=-1)) + 1), program.sync[gives]).tolist()
        self.own, self.sync, self.rule, self.gives, self.price = (
            column.tolist() for column in (program.own, program.sync, program.rule, gives, program.price))
        self.late = [0.0] * len(self.own) if program.late is None else program.late.tolist()
        self.meetings = list(map(_Meeting, np.bincount(program.sync).tolist()))
        self.held = program.ports
        self.ports = {name: simpy.Container(self.env, capacity=n, init=n) for name, n in program.free.items()}
        edges = [*np.flatnonzero(np.diff(program.rank, prepend=-1)).tolist(), len(program.rank)]
        self.ranks = list(pairwise(edges))
        self.enter, self.ready, self.leave = ([0.0] * len(self.own) for _ in range(3))

    def times(self) -> Times:
        ranks = [self.env.process(self._rank(first, last)) for first, last in self.ranks]
        self.env.run()
        stuck = sum(rank.is_alive for rank in ranks)
        if stuck:
            raise ConfigError(f"{stuck:,} of {len(ranks):,} ranks wait for one another for ever: they call the same "
                              "collectives in different orders, so this can't be run on another machine")
        return Times(*(np.array(column) for column in (self.enter, self.ready, self.leave)))

    def _rank(self, first: int, last: int) -> Generator[simpy.Event, Any, None]:
        env = self.env
        for event in range(first, last):
            if self.own[event]:
                yield env.timeout(self.own[event])
            now = self.enter[event] = env.now
            meeting, rule = self.meetings[self.sync[event]], self.rule[event]
            if self.late[event]:
                env.timeout(self.late[event]).callbacks.append(partial(self._comes_late, event))
            else:
                self._arrive(event)
            if rule in _UNTIL_MET or self.gives[event] or (rule == ROOT and meeting.begun < 0):
                if meeting.done is None:
                    meeting.done = env.event()
                yield meeting.done
            elif self.price[event]:
                yield env.timeout(self.price[event])
            self.ready[event] = now if rule == NOBODY or meeting.begun < now else meeting.begun
            self.leave[event] = env.now
            self.done += 1
            if not self.done % TOLD:
                self.progress(self.done, len(self.own))

    def _comes_late(self, event: int, _timeout: simpy.Event) -> None:
        self._arrive(event)

    def _arrive(self, event: int) -> None:
        """One more of its sync is there; the sync begins with the last, or with the one that gives."""
        sync = self.sync[event]
        meeting = self.meetings[sync]
        meeting.missing -= 1
        if self.gives[event] if self.given[sync] else not meeting.missing:
            meeting.begun = self.env.now
            if sync in self.held:
                self._ends(meeting, self.env.process(self._queued(sync, self.price[event])))
            else:
                self._ends(meeting, self.env.timeout(self.price[event]))

    def _ends(self, meeting: _Meeting, end: simpy.Event) -> None:
        if meeting.done is None:
            meeting.done = end
        else:                                                          # ranks wait already
            end.callbacks.append(meeting.done.trigger)

    def _queued(self, sync: int, price: float) -> Generator[simpy.Event, Any, None]:
        """A transfer that holds ports while it moves. All take them in one order, so that none waits in a circle."""
        for name, number in sorted(self.held[sync]):
            yield self.ports[name].get(number)
        yield self.env.timeout(price)
        for name, number in self.held[sync]:
            yield self.ports[name].put(number)
