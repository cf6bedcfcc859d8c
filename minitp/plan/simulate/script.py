"""A measured run as a program for the engine: every rank's own work as it was, the syncs to be priced anew.

Replayed are the passes alone. Own work is a rank's time inside a mark of one, in no event: what every page counts as
computing. Start-up, clock alignment, loading (by scatter too), checkpoints and the gaps between passes are left out,
and so is what control messages took: they are the program's own.
"""
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from minitp.plan.simulate.engine import Program
from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES
from minitp.trace.timeline import Timeline, codes, is_root, waits_for


class Kind(NamedTuple):
    """What decides the price of a sync: the op, the ranks that take part, and the payload in bytes."""
    op: str
    ranks: tuple[int, ...]
    payload: int
    broken: bool

    @property
    def size(self) -> int:
        return len(self.ranks)


def of_passes(trace: Trace) -> np.ndarray:
    """The events that are replayed, by number: where the model's data moved, but for loading."""
    return np.flatnonzero((trace.words("plane") != "control") & (trace.words("phase") != "load"))


@dataclass(frozen=True)
class OwnWork:
    """How long each rank has worked by itself up to a time, ns: a clock that stands still in events and outside of the
    passes that `phases` name."""
    timeline: Timeline
    phases: frozenset[str]
    _ranks: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(init=False, default_factory=dict)

    def __post_init__(self):
        spans: dict[int, list[tuple[int, int]]] = {rank: [] for rank in self.timeline.trace.ranks}
        for span in self.timeline.spans:
            if span.phase in self.phases:
                spans[span.rank].append((span.enter, span.leave))
        for rank, mine in spans.items():
            enter, leave = np.array(sorted(mine), np.int64).reshape(-1, 2).T
            self._ranks[rank] = enter, leave, np.concatenate([[0], np.cumsum(leave - enter)])

    def until(self, rank: int, times: np.ndarray) -> np.ndarray:
        """ns that `rank` has worked by each of the times."""
        enter, leave, done = self._ranks[rank]
        after = np.searchsorted(enter, times, side="left")            # spans begun before
        still = np.maximum(np.append(leave, 0)[after - 1] - times, 0)
        return done[after] - np.where(after > 0, still, 0)


@dataclass(frozen=True)
class Script:
    """What of a run stays the same on every machine; one entry per replayed event, ordered by rank and by time.

    work   of the ranks by themselves     event  its number in the trace        own  ns of own work before it
    kinds  the different syncs            kind   which of them each event's is
    """
    trace: Trace
    work: OwnWork
    event: np.ndarray
    own: np.ndarray
    sync: np.ndarray
    kinds: list[Kind]
    kind: np.ndarray
    rule: np.ndarray
    gives: np.ndarray

    @classmethod
    def of(cls, timeline: Timeline) -> "Script":
        """Of all passes of a run."""
        trace = timeline.trace
        events, chosen = trace.events, of_passes(trace)
        chosen = chosen[np.lexsort((events["enter"][chosen], events["rank"][chosen]))]
        rank, enter = events["rank"][chosen], events["enter"][chosen]
        work, own = OwnWork(timeline, frozenset(trace.words("phase")[chosen].tolist())), np.zeros(len(chosen))
        for one in np.unique(rank).tolist():
            mine = rank == one
            own[mine] = np.diff(work.until(one, enter[mine]), prepend=0)
        _, number = np.unique(timeline.sync[chosen], return_inverse=True)
        gives = (is_root(trace) | trace.where(op=MESSAGES[0]))[chosen]
        return cls(trace, work, chosen, own, number, *_kinds(trace, chosen, number), waits_for(trace)[chosen], gives)

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
