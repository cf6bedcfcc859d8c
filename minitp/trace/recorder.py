"""The recorder: one per rank, inside the communicator, so that whatever moves is on record.

It keeps tuples in a list and nothing else while the model runs; files, sums and pictures are made from them afterwards.
"""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minitp.trace.schema import Event, Mark

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator
    from minitp.comm.transport import Call


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

    def add(self, group: "Communicator", call: "Call", op: str, plane: str, reason: str, states: tuple[str, ...],
            shape: tuple[int, ...], dtype: str, payload: int, enter: int, leave: int, caller: str) -> None:
        """One collective, as the communicator saw it; times are this process's clock."""
        event = Event(self.rank, group.axis, 0, call.sequence, plane, op, call.root, None, None, call.site, reason,
                      self._phase, self._step, self._micro_batch, None, states[0], states[1], shape, dtype, payload,
                      enter, leave, None, None, None, None, False, caller)
        if self.keep_events:
            self.events.append(event)
        if self.listener is not None:
            self.listener(event)

    def snapshot(self, array: Any) -> Any:
        """The input of a collective, kept before it is overwritten; None unless values are kept."""
        if not self.keep_values or array is None:
            return None
        from minitp.trace.values import keep
        return keep(array)

    def keep(self, before: Any, after: Any) -> None:
        """The values of the event just added."""
        from minitp.trace.values import keep
        self.values.append({"event": len(self.events) - 1, "before": before, "after": keep(after)})
