"""The recorder: one per rank, inside the communicator, so that whatever moves is on record.

It keeps tuples in a list and nothing else while the model runs; files, sums and pictures are made from them afterwards.
With values on it keeps copies of arrays beside them, which are condensed between the passes.
"""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from minitp.trace.schema import Event, Inner, Mark, Unfinished, Weight

if TYPE_CHECKING:
    from minitp.arrays import Arrays
    from minitp.comm.messages import Messages
    from minitp.comm.transport import Call
    from minitp.trace.inner import InnerArrays


class Clock(NamedTuple):
    """For each rank, how far its clock is ahead of rank 0's, and how well that is known (`minitp.trace.merge`)."""
    offset_ns: tuple[int, ...]
    error_ns: tuple[int, ...]


class Recorder:
    """Events and marks of one rank.

    keep_events  False: count and call the listener, but keep nothing (long runs without a trace)
    keep_values  also keep the arrays that the collectives saw, those inside the layers, and the weights (small ones
                 whole, large ones as block maxima)
    listener     is called with every event as it happens: live displays

    `row` is the token of the first sequence's prompt that values are kept of; -1: the last token of each pass.
    """

    def __init__(self, rank: int = 0, *, keep_events: bool = True, keep_values: bool = False,
                 listener: Callable[[Event], None] | None = None):
        self.rank = rank
        self.keep_events, self.keep_values, self.listener = keep_events, keep_values, listener
        self.clock: Clock | None = None
        self.events: list[Event] = []
        self.marks: list[Mark] = []
        self.delays: set[float] = set()               # seconds by which an emulated link held up messages
        self.unfinished: list[Unfinished] = []        # calls that failed
        self.about: Callable[[], dict[str, Any]] = dict        # what the header is to say, should the run fail
        self._open: list[tuple[str, int | None, int | None, int]] = []      # begun marks, outer first; last: `enter`
        self.row = -1
        self.values: list[list[Any]] = []             # [number of the event, before, after]
        self.inner: list[tuple[Inner, Any]] = []
        self.weights: list[tuple[Weight, Any]] = []
        self._condensed = 0, 0                        # how many of `values` and `inner` are no plain copies any more
        self._phase: str = ""
        self._step: int | None = None
        self._micro_batch: int | None = None

    @contextmanager
    def mark(self, phase: str, step: int | None = None, micro_batch: int | None = None) -> Iterator[None]:
        """Everything recorded inside belongs to this phase and step. Loops call it; layers know no step."""
        outer = self._phase, self._step, self._micro_batch
        self._phase, self._step, self._micro_batch = phase, step, micro_batch
        enter = time.perf_counter_ns()
        self._open.append((phase, step, micro_batch, enter))
        try:
            yield
        finally:
            if self.keep_events:
                self.marks.append(Mark(self.rank, phase, step, micro_batch, enter, time.perf_counter_ns()))
            self._open.pop()                          # behind that: who looks from another thread misses no mark
            self._phase, self._step, self._micro_batch = outer
            if self.keep_values and not outer[0]:
                self._condense()                      # outside all marks: this time is nobody's computing

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing inside is recorded or listened to: for what collects the recording itself."""
        outer = self.keep_events, self.keep_values, self.listener
        self.keep_events, self.keep_values, self.listener = False, False, None
        try:
            yield
        finally:
            self.keep_events, self.keep_values, self.listener = outer

    @contextmanager
    def without_values(self) -> Iterator[None]:
        """Events inside are recorded, their arrays are not: for what is kept under another name."""
        outer, self.keep_values = self.keep_values, False
        try:
            yield
        finally:
            self.keep_values = outer

    def add(self, group: "Messages", call: "Call", op: str, plane: str, reason: str, states: tuple[str, ...],
            shape: tuple[int, ...], dtype: str, payload: int, enter: int, leave: int, caller: str, *,
            chunk: int | None = None, wire: int | None = None, broken: bool = False) -> None:
        """One collective or message, as the communicator saw it; times are this process's clock."""
        event = Event(self.rank, group.axis, group.first, call.sequence, plane, op, call.root, call.peer, chunk,
                      call.site, reason, self._phase, self._step, self._micro_batch, None, states[0], states[1], shape,
                      dtype, payload, enter, leave, None, None, None, wire, broken, caller)
        if self.keep_events:
            self.events.append(event)
        if self.listener is not None:
            self.listener(event)

    def held_up(self, seconds: float) -> None:
        """An emulated link takes so much longer for the collective or message that is about to be added."""
        if self.keep_events:
            self.delays.add(seconds)

    # --- a run that fails --------------------------------------------------------------------------------------------

    def lose(self, group: "Messages", call: "Call", enter: int) -> None:
        """A call that this rank has been in since `enter`, and that gives it no result any more."""
        if self.keep_events:
            self.unfinished.append(Unfinished(
                self.rank, group.axis, group.first, call.sequence, call.op, call.root, call.peer, call.site,
                self._phase, self._step, self._micro_batch, call.shape, call.dtype, enter, time.perf_counter_ns()))

    def marks_so_far(self) -> list[Mark]:
        """The marks that have ended, and those that the rank is in, as if they ended now. It may go on meanwhile."""
        still, ended = list(self._open), list(self.marks)      # in this order: what ends in between isn't missed …
        now, over = time.perf_counter_ns(), {mark[1:-1] for mark in ended}
        return ended + [Mark(self.rank, *mark, now) for mark in still
                        if self.keep_events and mark not in over]                  # … and isn't there twice

    # --- values ------------------------------------------------------------------------------------------------------

    def _keeps(self, plane: str = "data") -> bool:
        return self.keep_values and self.keep_events and plane != "control"

    def snapshot(self, array: Any, plane: str = "data") -> Any:
        """The input of a collective, kept before it is overwritten; None unless values are kept."""
        if array is None or not self._keeps(plane):
            return None
        from minitp.trace.values import copy_of
        return copy_of(array, self.row)

    def keep(self, before: Any, after: Any, plane: str = "data") -> None:
        """The values of the event just added: `before` from `snapshot`, `after` the array it returned, if any."""
        if not self._keeps(plane):
            return
        from minitp.trace.values import copy_of
        self.values.append([len(self.events) - 1, before, copy_of(after, self.row)])

    def observer(self) -> "InnerArrays | None":
        """Who is to observe the passes of a run: None unless values are kept."""
        if not self._keeps():
            return None
        from minitp.trace.inner import InnerArrays
        return InnerArrays(self)

    def keep_inner(self, site: str, name: str, copy: Any) -> None:
        """A copy of an array inside a layer, in the phase and step that are running."""
        self.inner.append((Inner(self.rank, self._phase, self._step, site, name, self._micro_batch), copy))

    def keep_weight(self, name: str, part: Any, arrays: "Arrays") -> None:
        """This rank's part of the parameter `name`, a matrix in the memory of `arrays`."""
        if self._keeps():
            from minitp.trace.values import matrix
            self.weights.append((Weight(self.rank, name), matrix(arrays.to_host(part))))

    @property
    def keeps_values(self) -> bool:
        """Whether arrays are kept just now."""
        return self._keeps()

    def keep_update(self, step: int, parameter: str, name: str, part: Any, arrays: "Arrays") -> None:
        """What the optimizer's phase of a step has of this rank's part of a matrix: its gradient, a moment, its change.

        As maxima by block. It may be called outside the phase.
        """
        if self._keeps():
            from minitp.trace.values import matrix
            self.inner.append((Inner(self.rank, "optimizer", step, parameter, name),
                               matrix(arrays.to_host(part), whole_up_to=0)))

    def _condense(self) -> None:
        """Large copies become their maxima, so that a long run with values fits into memory."""
        from minitp.trace.values import condensed
        values, inner = self._condensed
        for value in self.values[values:]:
            value[1:] = map(condensed, value[1:])
        self.inner[inner:] = [(of, condensed(copy)) for of, copy in self.inner[inner:]]
        self._condensed = len(self.values), len(self.inner)
