"""What an attempt spends: sync points and bytes from its trace, memory from the allocator.

A rank's memory is measurable because only one rank computes at a time: whoever waits for others gives the turn on, so
all that is allocated between two waits belongs to one rank. That makes the number the same every time, on any machine.
"""
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.lesson.puzzles.base import Budget
from minitp.lesson.runs import Run
from minitp.plan.network.collectives import cost, has_model
from minitp.trace.schema import MESSAGES, Event

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

ALLOWANCE = 16 * 1024        # bytes that Python's own objects may take beside a budget's arrays: frames, events, names
_BUFFER = 512                # numbers of NumPy's buffers for mixed operands: its own 8,192 would outweigh small arrays
_LOOK_UP = 0.05              # seconds: how often a rank that waits for its turn can be interrupted


@dataclass(frozen=True)
class Spent:
    """Of the rank that spent most of each. memory: bytes, beyond what the rank was given; `hungriest` had that much.

    ring: bytes that a rank sends for its collectives on a ring; what has no cost model counts with its payload.

    unseen: some rank met the others in a way that isn't on record, so the rest can't be trusted.
    """
    sync_points: int
    payload: int
    messages: int
    sent: int
    memory: int
    hungriest: int
    ring: int
    unseen: bool

    @property
    def is_silent(self) -> bool:
        """Whether the ranks moved no byte, of a measured run: where they met off the record, who knows."""
        return not (self.payload or self.sent or self.unseen)

    def within(self, budget: Budget) -> dict[str, bool]:
        """Which parts of the budget are kept."""
        return {"sync points": not self.unseen and self.sync_points <= budget.sync_points
                and self.messages <= budget.messages,
                "bytes": not self.unseen and self.payload <= budget.payload and self.sent <= budget.sent
                and (budget.ring is None or self.ring <= budget.ring),
                "memory": self.memory <= budget.memory + ALLOWANCE}


class Meter:
    """Gives the ranks of one run their turns, and notes what each allocates during its own."""

    def __init__(self, ranks: int):
        self.peak = [0] * ranks                  # the most it held at once, bytes
        self.waits = [0] * ranks                 # how often it gave its turn on
        self._held = [0] * ranks                 # that it has allocated and not freed, as of its last turn
        self._together = threading.Barrier(ranks)
        self._turn = threading.Lock()
        self._owner: int | None = None
        self._before = 0                         # bytes traced when the turn began

    @contextmanager
    def measured(self, tp: "Communicator") -> Iterator[None]:
        """What this rank does inside, it does in its turn. All begin when all are there, and leave when all are done:
        what a run does before and after has no turns and would be added to somebody's."""
        rank = tp.rank
        tp.transport.idle = lambda: self._given_on(rank)                 # type: ignore[attr-defined]
        np.setbufsize(_BUFFER)                                           # of this thread alone
        try:
            self._together.wait()
            self._begin(rank)
            yield
            self._end(rank)
            self._together.wait()
        except BaseException:
            self._together.abort()
            raise
        finally:
            self._end(rank)

    @contextmanager
    def _given_on(self, rank: int) -> Iterator[None]:
        if self._owner != rank:                  # the run's own messages, before and after: nobody's turn
            yield
            return
        self.waits[rank] += 1
        self._end(rank)
        try:
            yield
        finally:
            self._begin(rank)

    def _begin(self, rank: int) -> None:
        while not self._turn.acquire(timeout=_LOOK_UP):
            pass
        self._owner = rank
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    def _end(self, rank: int) -> None:
        if self._owner != rank:                  # it was stopped while it waited for its turn
            return
        now, peak = tracemalloc.get_traced_memory()
        self.peak[rank] = max(self.peak[rank], self._held[rank] + peak - self._before)
        self._held[rank] += now - self._before
        self._owner = None
        self._turn.release()


_tracing = threading.Lock()                      # the allocator is the process's: one measurement at a time


def measured(go: "Callable[[Callable[[Communicator], Any]], Run]", ranks: int, body: "Callable[[Communicator], Any]"
             ) -> tuple[Run, Spent]:
    """Let `go` run body(tp) on every rank, and measure it. Do it once without measuring before: imports count, too."""
    meter = Meter(ranks)

    def on_rank(tp: "Communicator") -> Any:
        with meter.measured(tp):
            return body(tp)

    with _tracing:
        was = tracemalloc.is_tracing()
        if not was:
            tracemalloc.start()
        try:
            ran = go(on_rank)
        finally:
            if not was:
                tracemalloc.stop()
    on_record = [len(mine) + sum(event.op not in MESSAGES for event in mine)          # a collective waits twice
                 for mine in _by_rank(ran)]
    return ran, replace(said(ran), memory=max(meter.peak), hungriest=meter.peak.index(max(meter.peak)),
                        unseen=meter.waits != on_record)


def said(ran: Run) -> Spent:
    """What is on record of a run; its memory isn't."""
    events = _by_rank(ran)
    collectives = [[event for event in mine if event.op not in MESSAGES] for mine in events]
    sends = [[event for event in mine if event.op == MESSAGES[0]] for mine in events]
    return Spent(sync_points=max(map(len, collectives)), payload=max(map(_bytes, collectives)),
                 messages=max(map(len, sends)), sent=max(map(_bytes, sends)), memory=0, hungriest=0,
                 ring=max(ring_bytes(((event.op, event.payload) for event in met), ran.ranks) for met in collectives),
                 unseen=False)


def of_all(first: Spent, measurements: Sequence[Spent]) -> Spent:
    """Of several runs the most that each said, and the least memory that one was measured to take: a cache of Python's
    own that outgrows its place does so in one of them, and is not the attempt's."""
    said_most = {part: max(getattr(one, part) for one in (first, *measurements))
                 for part in ("sync_points", "payload", "messages", "sent", "ring", "unseen")}
    return replace(min(measurements, key=lambda one: one.memory), **said_most)


def _by_rank(ran: Run) -> list[list[Event]]:
    return [[event for event in ran.trace if event.rank == rank] for rank in range(ran.ranks)]


def ring_bytes(collectives: Iterable[tuple[str, int]], ranks: int) -> int:
    """What a rank of a ring sends for collectives (op, payload)."""
    return int(sum(payload * (cost(op, "ring", ranks).volume if has_model(op) else 1) for op, payload in collectives))


def _bytes(events: list[Event]) -> int:
    return sum(event.payload for event in events)
