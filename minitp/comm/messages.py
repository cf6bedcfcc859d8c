"""Messages between two ranks: the part of the communicator from which collectives can be built by hand.

A send may wait until it is received. Where both sides send at once (rings, doubling) that would be for ever, so
`exchange` does both in one call, as MPI's Sendrecv does.
"""
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minitp.arrays import Arrays
from minitp.comm.caller import caller
from minitp.comm.checks import movable
from minitp.comm.states import WHOLE, State
from minitp.comm.transport import Call, Transport
from minitp.errors import CollectiveError
from minitp.trace.recorder import Recorder

name_of = cache(str)             # of a dtype: NumPy takes several µs to spell one


class Half(NamedTuple):
    """One end of a message, as it will be recorded: `op` is send or receive."""
    op: str
    peer: int
    host: np.ndarray
    chunk: int | None


class Messages:
    """Send, receive and exchange; what they need of the communicator that they are a part of."""

    axis: str
    first: int
    transport: Transport
    recorder: Recorder
    arrays: Arrays
    rank: int
    size: int
    pending: tuple[Call, int] | None                      # what this rank is in, and since when: for the watchdog
    latest: Call | None                                   # the call it made last, whatever came of it
    _messages: dict[tuple[str, int], int]                 # sent to and received from each rank so far

    def send(self, array: Any, *, to: int, site: str, reason: str, plane: str = "data", state: State = WHOLE,
             chunk: int | None = None) -> None:
        """A copy of `array` to rank `to`, which must `receive` it; may wait until then. Afterwards it may be reused."""
        host, _ = self.stage(movable(array, "send"))
        self._message([Half("send", to, host, chunk)], site, reason, plane, state,
                      lambda: self.transport.send(host, to))

    def receive(self, *, shape: tuple[int, ...], dtype: Any, source: int, site: str, reason: str, plane: str = "data",
                state: State = WHOLE, chunk: int | None = None) -> Any:
        """What rank `source` sends; messages from one rank arrive in the order in which it sent them."""
        host = np.empty(shape, dtype)
        self._message([Half("receive", source, host, chunk)], site, reason, plane, state,
                      lambda: self.transport.receive(host, source))
        return self.arrays.from_host(host)

    def exchange(self, array: Any, *, to: int, shape: tuple[int, ...], dtype: Any, source: int, site: str, reason: str,
                 plane: str = "data", state: State = WHOLE, chunk: int | None = None,
                 received_chunk: int | None = None) -> Any:
        """Send `array` to rank `to` and return what rank `source` sends (maybe the same rank), both at once.

        Recorded as a send and a receive. When the send ended can't be told apart, so the receive has the time of both
        and the send is noted at the moment it was handed over.
        """
        host, _ = self.stage(movable(array, "exchange"))
        into = np.empty(shape, dtype)
        self._message([Half("send", to, host, chunk), Half("receive", source, into, received_chunk)], site, reason,
                      plane, state, lambda: self.transport.exchange(host, to, into, source))
        return self.arrays.from_host(into)

    def _message(self, halves: list[Half], site: str, reason: str, plane: str, state: State,
                 move: Callable[[], None]) -> None:
        """Move and record. Messages are numbered by direction, so a send and its receive have the same number."""
        for half in halves:
            if not 0 <= half.peer < self.size or half.peer == self.rank:
                raise CollectiveError(f"{half.op} at {site}: rank {self.rank} of {self.size} has no message for rank "
                                      f"{half.peer}; a message goes to another rank of the group")
        calls = [self._numbered(half, site) for half in halves]
        kept = [self.recorder.snapshot(half.host if half.op == "send" else None, plane) for half in halves]
        enter = time.perf_counter_ns()
        self.latest, self.pending = calls[-1], (calls[-1], enter)
        try:
            move()
            leave = time.perf_counter_ns()
        except BaseException:
            self.recorder.lose(self, calls[-1], enter)
            raise
        finally:
            self.pending = None
        for half, call, before in zip(halves, calls, kept, strict=True):
            self.recorder.add(self, call, half.op, plane, reason, (str(state), str(state)), half.host.shape, call.dtype,
                              half.host.nbytes, enter, leave if half is halves[-1] else enter, caller(),
                              chunk=half.chunk, wire=half.host.nbytes if half.op == "send" else 0)
            self.recorder.keep(before, half.host if half.op == "receive" else None, plane)

    def _numbered(self, half: Half, site: str) -> Call:
        number = self._messages.get((half.op, half.peer), 0)
        self._messages[half.op, half.peer] = number + 1
        return Call(number, half.op, site, name_of(half.host.dtype), half.host.shape, peer=half.peer)

    def stage(self, array: Any) -> tuple[np.ndarray, bool]:
        """(a C-contiguous host array, whether the answer goes back to a device)."""
        if self.arrays.is_device(array):
            return np.ascontiguousarray(self.arrays.to_host(array)).reshape(array.shape), True
        return np.ascontiguousarray(array).reshape(array.shape), False          # (ascontiguousarray makes 0-d 1-d)

    def unstage(self, array: np.ndarray | None, on_device: bool) -> Any:
        return self.arrays.from_host(array) if on_device and array is not None else array
