"""The recorder: one per rank, inside the communicator, so that whatever moves is on record.

It keeps tuples in a list and nothing else while the model runs; files, sums and pictures are made from them afterwards.
"""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from minitp.trace.schema import Event, Mark

if TYPE_CHECKING:
    from minitp.comm.messages import Messages
    from minitp.comm.transport import Call


class Clock(NamedTuple):
    """For each rank, how far its clock is ahead of rank 0's, and how well that is known (`minitp.trace.merge`)."""
    offset_ns: tuple[int, ...]
    error_ns: tuple[int, ...]


class Recorder:
    """Events and marks of one rank.

    keep_events  False: count and call the listener, but keep nothing (long runs without a trace)
    keep_values  also keep the arrays that the collectives saw (small ones whole, large ones as block maxima)
    listener     is called with every event as it happens: live displays
    """

    def __init__(self, rank: int = 0, *, keep_events: bool = True, keep_values: bool = False,
                 listener: Callable[[Event], None] | None = None):
        self.rank = rank
        self.keep_events, self.keep_values, self.listener = keep_events, keep_values, listener
        self.clock: Clock | None = None
        self.events: list[Event] = []
        self.marks: list[Mark] = []
        self.values: list[dict[str, Any]] = []
        self._phase: str = ""
        self._step: int | None = None
        self._micro_batch: int | None = None

    @contextmanager
    def mark(self, phase: str, step: int | None = None, micro_batch: int | None = None) -> Iterator[None]:
        """Everything recorded inside belongs to this phase and step. Loops call it; layers know no step."""
        outer = self._phase, self._step, self._micro_batch
        self._phase, self._step, self._micro_batch = phase, step, micro_batch
        enter = time.perf_counter_ns()
        try:
            yield
        finally:
            if self.keep_events:
                self.marks.append(Mark(self.rank, phase, step, micro_batch, enter, time.perf_counter_ns()))
            self._phase, self._step, self._micro_batch = outer

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing inside is recorded or listened to: for what collects the recording itself."""
        outer = self.keep_events, self.keep_values, self.listener
        self.keep_events, self.keep_values, self.listener = False, False, None
        try:
            yield
        finally:
            self.keep_events, self.keep_values, self.listener = outer

    def add(self, group: "Messages", call: "Call", op: str, plane: str, reason: str, states: tuple[str, ...],
            shape: tuple[int, ...], dtype: str, payload: int, enter: int, leave: int, caller: str, *,
            peer: int | None = None, chunk: int | None = None, wire: int | None = None) -> None:
        """One collective or message, as the communicator saw it; times are this process's clock."""
        event = Event(self.rank, group.axis, group.first, call.sequence, plane, op, call.root, peer, chunk, call.site,
                      reason, self._phase, self._step, self._micro_batch, None, states[0], states[1], shape, dtype,
                      payload, enter, leave, None, None, None, wire, False, caller)
        if self.keep_events:
            self.events.append(event)
        if self.listener is not None:
            self.listener(event)

    def _keeps(self, plane: str) -> bool:
        return self.keep_values and self.keep_events and plane != "control"

    def snapshot(self, array: Any, plane: str = "data") -> Any:
        """The input of a collective, kept before it is overwritten; None unless values are kept."""
        if array is None or not self._keeps(plane):
            return None
        from minitp.trace.values import keep
        return keep(array)

    def keep(self, before: Any, after: Any, plane: str = "data") -> None:
        """The values of the event just added: `before` from `snapshot`, `after` the array it returned, if any."""
        if not self._keeps(plane):
            return
        from minitp.trace.values import keep
        self.values.append({"event": len(self.events) - 1, "before": before, "after": keep(after)})
