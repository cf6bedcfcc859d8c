"""The world of threads: ranks that are threads of one process. No MPI needed; notebooks, the app and fast tests.

Every collective is the same two steps: each rank lays its array on its slot, all meet, each reads what it needs, all
meet again so that the slots can be used anew. Sums are taken in rank order, so results are the same bits every time.
"""
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty, SimpleQueue

import numpy as np

from minitp.comm.packing import join
from minitp.comm.transport import Call, check_agreement
from minitp.errors import CollectiveError

_LOOK_UP = 0.05                        # seconds: how often one that waits for a message looks whether all has stopped


Mail = tuple[np.ndarray, threading.Event]
"""A message: the array, and what is set once it has been received."""


class RankStoppedError(Exception):
    """Raised on the other ranks once one has failed; the failure itself is reported by its own rank."""


class ThreadWorld:
    """What the ranks of one job share."""

    def __init__(self, size: int, deadline: float = 300.0):
        self.size, self.deadline = size, deadline
        self.met = 0                                     # meetings to which all ranks have come
        self.meeting = threading.Barrier(size, self._all_are_here)
        self.waiting_since: list[int | None] = [None] * size       # perf_counter_ns, by rank: for another one
        self.slots: list = [None] * size
        self.calls: list[Call | None] = [None] * size
        self.returned = [False] * size
        self.mail: dict[tuple[int, int], SimpleQueue] = {
            (a, b): SimpleQueue() for a in range(size) for b in range(size)}
        self.stopped = False

    def _all_are_here(self) -> None:
        """Called by the last to come, before the others are let go: from now on none of them waits for another, also
        where a busy machine takes its time to let it go on."""
        self.met += 1
        self.waiting_since[:] = [None] * self.size

    def stop(self) -> None:
        """Free every rank that waits: one has failed."""
        self.stopped = True
        self.meeting.abort()


class ThreadTransport:
    """One thread's end of a ThreadWorld."""

    world = "threads"

    def __init__(self, shared: ThreadWorld, rank: int):
        self.shared, self.rank, self.size = shared, rank, shared.size
        self._checked, self.patient = True, False
        self._meetings = 0                               # to which this rank has come
        self.idle: Callable[[], AbstractContextManager[None]] = nullcontext       # entered while it waits for others

    def announce(self, call: Call, checked: bool) -> int:
        self.shared.calls[self.rank] = call              # rides in the deposit: no extra meeting
        self._checked = checked
        return 0

    def _meet(self) -> None:
        self.shared.waiting_since[self.rank] = time.perf_counter_ns()
        self._meetings += 1
        try:
            with self.idle():
                self.shared.meeting.wait(None if self.patient else self.shared.deadline)
        except threading.BrokenBarrierError:
            if self.shared.met >= self._meetings:
                return                        # all had come; one was quick to fail before this one had looked up
            if self.shared.stopped:
                raise RankStoppedError from None
            raise self._nobody_came() from None
        finally:
            self.shared.waiting_since[self.rank] = None

    def _nobody_came(self) -> CollectiveError:
        mine = self.shared.calls[self.rank]
        behind = [f"rank {r} has returned" if self.shared.returned[r] else
                  f"rank {r} has come to {'no call yet' if c is None else c}" for r, c in enumerate(self.shared.calls)
                  if r != self.rank and (self.shared.returned[r] or c is None or mine is None
                                         or c.sequence < mine.sequence)]
        return CollectiveError(f"rank {self.rank} waited {self.shared.deadline:g} s in {mine} and not every rank came: "
                               + ("; ".join(behind) or "the others left"))

    def _exchange(self, array: np.ndarray | None) -> list:
        """Lay `array` down, meet, check that all mean the same call, and see what every rank laid down."""
        if array is not None and not array.flags.c_contiguous:
            raise CollectiveError("a transport takes C-contiguous arrays only")
        if self.size == 1:
            return [array]
        self.shared.slots[self.rank] = array
        self._meet()
        self._agree()
        return self.shared.slots

    def _agree(self) -> None:
        """In checked mode, that all ranks announced the same call."""
        if self._checked:
            try:
                check_agreement(self.shared.calls)
            except CollectiveError:
                self._meet()                  # nobody goes on and announces anew before all have read the calls
                raise

    def _done(self) -> None:
        """All have read: what this rank laid down isn't kept alive by the slot."""
        if self.size > 1:
            self._meet()
            self.shared.slots[self.rank] = None

    # --- the collectives ----------------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, in_place: bool) -> np.ndarray:
        in_place = in_place and array.flags.writeable
        if in_place and self.size == 1:
            return array
        total = _sum_in_rank_order(self._exchange(array))
        self._done()
        if not in_place:
            return total
        array[...] = total              # as MPI does: who kept the array that was handed over meets the sum here, too
        return array

    def all_reduce_max(self, array: np.ndarray) -> np.ndarray:
        largest = np.asarray(np.maximum.reduce(self._exchange(array)))          # of 0-d arrays it is a number
        self._done()
        return largest

    def reduce(self, array: np.ndarray, root: int) -> np.ndarray | None:
        slots = self._exchange(array)
        total = _sum_in_rank_order(slots) if self.rank == root else None
        self._done()
        return total

    def reduce_scatter(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        start = sum(counts[:self.rank])
        stop = start + counts[self.rank]
        mine = _sum_in_rank_order([slot.reshape(-1)[start:stop] for slot in self._exchange(array)])
        self._done()
        return mine

    def all_gather(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        gathered = join([slot.reshape(-1) for slot in self._exchange(array)], array.dtype)
        self._done()
        return gathered

    def gather(self, array: np.ndarray, counts: Sequence[int], root: int) -> np.ndarray | None:
        slots = self._exchange(array)
        gathered = join([slot.reshape(-1) for slot in slots], array.dtype) if self.rank == root else None
        self._done()
        return gathered

    def scatter(self, array: np.ndarray | None, counts: Sequence[int], dtype: np.dtype, root: int) -> np.ndarray:
        whole = self._exchange(array)[root].reshape(-1)
        start = sum(counts[:self.rank])
        mine = whole[start:start + counts[self.rank]].copy()
        self._done()
        return mine

    def broadcast(self, array: np.ndarray, root: int) -> None:
        slots = self._exchange(array)
        if self.rank != root:
            array[...] = slots[root]
        self._done()

    def all_to_all(self, array: np.ndarray, send: Sequence[int], receive: Sequence[int]) -> np.ndarray:
        starts = np.concatenate([[0], np.cumsum(send)])
        pieces = [array.reshape(-1)[starts[r]:starts[r + 1]] for r in range(self.size)]
        self.shared.slots[self.rank] = pieces
        self._meet()
        self._agree()
        mine = join([slot[self.rank] for slot in self.shared.slots], array.dtype)
        self._done()
        return mine

    def send(self, array: np.ndarray, to: int) -> None:
        """Waits until it is received, as MPI does with large arrays: what hangs there must not pass here."""
        self._until_received(self._post(array, to), array, to)

    def exchange(self, array: np.ndarray, to: int, into: np.ndarray, source: int) -> None:
        received = self._post(array, to)
        self.receive(into, source)
        self._until_received(received, array, to)

    def _post(self, array: np.ndarray, to: int) -> threading.Event:
        received = threading.Event()
        self.shared.mail[self.rank, to].put((array, received))
        return received

    def _until_received(self, received: threading.Event, array: np.ndarray, to: int) -> None:
        self._wait(lambda: received.wait(_LOOK_UP), f"send {array.size} × {array.dtype} to rank {to}")

    def receive(self, array: np.ndarray, source: int) -> None:
        mail, found = self.shared.mail[source, self.rank], list[Mail]()
        self._wait(lambda: _came(mail, found), f"receive {array.size} × {array.dtype} from rank {source}")
        sent, received = found[0]
        fits = sent.dtype == array.dtype and sent.size == array.size
        if fits:
            array[...] = sent.reshape(array.shape)
        received.set()
        if not fits:
            raise CollectiveError(f"rank {self.rank} expects {array.size} × {array.dtype} from rank {source}, "
                                  f"which sent {sent.size} × {sent.dtype}")

    def _wait(self, look: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + self.shared.deadline
        self.shared.waiting_since[self.rank] = time.perf_counter_ns()
        try:
            with self.idle():
                self._look_until(look, give_up, what)
        finally:
            self.shared.waiting_since[self.rank] = None

    def _look_until(self, look: Callable[[], bool], give_up: float, what: str) -> None:
        while not look():
            if self.shared.stopped:
                raise RankStoppedError
            if time.monotonic() > give_up:
                raise CollectiveError(f"rank {self.rank} waited {self.shared.deadline:g} s to {what}: it never came")

    def barrier(self) -> None:
        self._exchange(None)
        self._done()


def _came(mail: SimpleQueue, found: list[Mail]) -> bool:
    """Whether something is there, after a moment; `found` has it then."""
    with suppress(Empty):
        found.append(mail.get(timeout=_LOOK_UP))
    return bool(found)


def _sum_in_rank_order(arrays: Sequence[np.ndarray]) -> np.ndarray:
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return total
