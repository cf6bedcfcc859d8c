"""A measured run as a program for the engine: every rank's own work as it was, the syncs to be priced anew.

Own work is all of a rank's time that lies in no event. Control messages are the program's own and are left out; the
time in them counts as nobody's work.
"""
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from minitp.plan.simulate.engine import Program
from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES
from minitp.trace.timeline import codes, is_root, sync_numbers, waits_for


class Kind(NamedTuple):
    """What decides the price of a sync: the op, the ranks that take part, and the payload in bytes."""
    op: str
    ranks: tuple[int, ...]
    payload: int
    broken: bool

    @property
    def size(self) -> int:
        return len(self.ranks)


@dataclass(frozen=True)
class OwnWork:
    """How long each rank has worked by itself up to a time, ns since `start`: a clock that stands still in events."""
    trace: Trace
    start: int
    _ranks: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(init=False, default_factory=dict)

    def __post_init__(self):
        events = self.trace.events
        order = np.lexsort((events["enter"], events["rank"]))
        edges = np.searchsorted(events["rank"][order], [(rank, rank + 1) for rank in self.trace.ranks])
        for rank, (first, last) in zip(self.trace.ranks, edges.reshape(-1, 2).tolist(), strict=True):
            mine = order[first:last]
            left = np.maximum(np.concatenate([[self.start], events["leave"][mine]]), self.start)
            left = np.maximum.accumulate(left)
            gaps = np.maximum(np.append(events["enter"][mine], np.iinfo(np.int64).max) - left, 0)[:-1]
            self._ranks[rank] = events["enter"][mine], left, np.concatenate([[0], np.cumsum(gaps)])

    def until(self, rank: int, times: np.ndarray) -> np.ndarray:
        """ns that `rank` has worked by each of the times."""
        enter, left, done = self._ranks[rank]
        after = np.searchsorted(enter, times, side="left")            # events entered before
        return done[after] + np.maximum(times - left[after], 0)


@dataclass(frozen=True)
class Script:
    """What of a run stays the same on every machine; one entry per replayed event, ordered by rank and by time.

    event  its number in the trace        own   ns of own work before it
    kinds  the different syncs            kind  which of them each event's is
    """
    trace: Trace
    event: np.ndarray
    own: np.ndarray
    sync: np.ndarray
    kinds: list[Kind]
    kind: np.ndarray
    rule: np.ndarray
    gives: np.ndarray

    @classmethod
    def of(cls, trace: Trace, chosen: np.ndarray, start: int, sync: np.ndarray | None = None) -> "Script":
        """Of the events with these numbers. `start`: ns at which the ranks begin; one begins as far behind as it did.

        sync    of all events of the trace, where it is known already
        """
        events = trace.events
        chosen = chosen[np.lexsort((events["enter"][chosen], events["rank"][chosen]))]
        rank, enter = events["rank"][chosen], events["enter"][chosen]
        clock, own = OwnWork(trace, start), np.zeros(len(chosen))
        for one in np.unique(rank).tolist():
            mine = rank == one
            own[mine] = np.diff(clock.until(one, enter[mine]), prepend=0)
        number = (sync_numbers(trace) if sync is None else sync)[chosen]
        _, number = np.unique(number, return_inverse=True)
        gives = (is_root(trace) | trace.where(op=MESSAGES[0]))[chosen]
        return cls(trace, chosen, own, number, *_kinds(trace, chosen, number), waits_for(trace)[chosen], gives)

    def program(self, prices: np.ndarray, speed: float = 1.0) -> Program:
        """prices: ns of each of `kinds`; speed: how many times as fast as measured the ranks compute."""
        return Program(self.trace.events["rank"][self.event], self.own / speed, self.sync, self.rule, self.gives,
                       prices[self.kind])


def _kinds(trace: Trace, chosen: np.ndarray, sync: np.ndarray) -> tuple[list[Kind], np.ndarray]:
    """The different syncs of the chosen events, and which of them each event's is."""
    rank, op, payload, broken = (trace.events[name][chosen] for name in ("rank", "op", "payload", "broken"))
    order = np.lexsort((rank, sync))
    members = np.split(rank[order], np.flatnonzero(np.diff(sync[order])) + 1) if len(order) else []
    who: dict[tuple[int, ...], int] = {}
    group = np.array([who.setdefault(tuple(some.tolist()), len(who)) for some in members], np.int64)
    speaker = np.empty(len(members), np.int64)
    speaker[sync[::-1]] = np.arange(len(chosen))[::-1]                # the first event of each sync
    send = np.isin(op, [number for number, word in enumerate(trace.strings) if word in MESSAGES])
    code = codes(op[speaker], group, payload[speaker], broken[speaker].astype(np.int64))
    _, one, kind = np.unique(code, return_index=True, return_inverse=True)
    names = list(who)
    return [Kind("send" if send[speaker[i]] else trace.strings[op[speaker[i]]], names[group[i]],
                 int(payload[speaker[i]]), bool(broken[speaker[i]])) for i in one.tolist()], kind[sync]
