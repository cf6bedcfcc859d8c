"""The one class through which ranks talk: every collective takes a state, returns another, says why, and is recorded.

A collective that is not in the trace can't exist: no layer, loop or loader holds a transport (the launcher's good-bye
after a run, and the bare calls that `bench` takes as its limit, are not part of a run). Names of the movement
follow the literature (all-reduce, reduce-scatter, all-gather, …); `site` is where in the model, `reason` is the
sentence a reader sees. Whole and shard inputs are never changed; a partial sum is consumed.
"""
import json
import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from minitp.arrays import NUMPY, Arrays
from minitp.comm.caller import caller
from minitp.comm.checks import check_root, comparable, cut_axis, movable, pieces_axis, summable
from minitp.comm.messages import Messages, name_of
from minitp.comm.packing import axis_pieces, pack, shape_of, unpack
from minitp.comm.partial import Partial
from minitp.comm.states import state_names
from minitp.comm.transport import Call, Transport
from minitp.cut import Cut, Slices
from minitp.errors import CollectiveError, MinitpError, error_named
from minitp.trace.recorder import Recorder
from minitp.trace.schema import CHECK

T = TypeVar("T")


class Communicator(Messages):
    """A group of ranks: this rank's number in it, its size, and the collectives.

    In the trace a group is named by its mesh axis and by `first`, the smallest rank of the run in it.
    Planes: `data` is what the mathematics of the model needs (counted as sync points), `sample` the exchange of winning
    tokens, `control` what the program adds for its own ends.
    """

    def __init__(self, transport: Transport, recorder: Recorder | None = None, *, axis: str = "tp",
                 first: int = 0, arrays: Arrays = NUMPY, checked: bool = False):
        self.transport, self.axis, self.first, self.arrays, self.checked = transport, axis, first, arrays, checked
        self.recorder = recorder if recorder is not None else Recorder(transport.rank)
        self.rank, self.size = transport.rank, transport.size
        self.pending: tuple[Call, int] | None = None      # what this rank is in, and since when: for the watchdog
        self.latest: Call | None = None                   # the call it made last, whatever came of it
        self._sequence = 0
        self._messages: dict[tuple[str, int], int] = {}   # sent to and received from each rank so far

    def __str__(self) -> str:
        return f"{self.axis} group of {self.size} ranks"

    # --- partial → whole, shard, on root -------------------------------------------------------------------------

    def all_reduce(self, partial: Partial, *, site: str, reason: str, plane: str = "data") -> Any:
        """partial → whole: every rank gets the sum."""
        array, owned = summable(partial, "all_reduce").consume(self)
        host, on_device = self.stage(array)
        total = self._run("all_reduce", site, reason, plane, host.shape, host.dtype, host.nbytes,
                          lambda: self.transport.all_reduce(host, in_place=owned or on_device), before=host)
        return self.unstage(total, on_device)

    def all_reduce_max(self, terms: Any, *, site: str, reason: str, plane: str = "data") -> Any:
        """Every rank gets the largest of the ranks' numbers, entry by entry. `terms` is each rank's own, kept as it is.

        Its state is partial too (each rank has a candidate for the answer), but not the type `Partial`: what commutes
        with a sum doesn't commute with a maximum.
        """
        host, on_device = self.stage(comparable(terms, site))
        largest = self._run("all_reduce_max", site, reason, plane, host.shape, host.dtype, host.nbytes,
                            lambda: self.transport.all_reduce_max(host), before=host)
        return self.unstage(largest, on_device)

    def reduce_scatter(self, partial: Partial, *, axis: int, cut: Cut, site: str, reason: str,
                       plane: str = "data") -> Any:
        """partial → shard(axis): every rank gets its slice of the sum."""
        axis = cut_axis("reduce_scatter", site, summable(partial, "reduce_scatter").shape, axis, cut, self.size, None)
        array, _ = partial.consume(self)
        host, on_device = self.stage(array)
        pieces = axis_pieces(host.shape, axis, cut)
        shape = shape_of(host.shape, pieces[self.rank])
        counts = [prod(shape_of(host.shape, piece)) for piece in pieces]
        mine = self._run("reduce_scatter", site, reason, plane, host.shape, host.dtype, host.nbytes,
                         lambda: self.transport.reduce_scatter(pack(host, pieces), counts).reshape(shape),
                         axis=axis - host.ndim, before=host)
        return self.unstage(mine, on_device)

    def reduce(self, partial: Partial, *, root: int = 0, site: str, reason: str, plane: str = "data") -> Any:
        """partial → on root: the root gets the sum, the others None."""
        check_root("reduce", site, root, self.size)
        array, _ = summable(partial, "reduce").consume(self)
        host, on_device = self.stage(array)
        total = self._run("reduce", site, reason, plane, host.shape, host.dtype, host.nbytes,
                          lambda: self.transport.reduce(host, root), root=root, before=host)
        return self.unstage(total, on_device)

    # --- shard → whole, shard, on root ---------------------------------------------------------------------------

    def all_gather(self, shard: Any, *, axis: int, cut: Cut, site: str, reason: str, plane: str = "data") -> Any:
        """shard(axis) → whole: every rank gets all slices, side by side."""
        return self._gather("all_gather", shard, axis, cut, site, reason, plane, None)

    def gather(self, shard: Any, *, axis: int, cut: Cut, root: int = 0, site: str, reason: str,
               plane: str = "data") -> Any:
        """shard(axis) → on root: the root gets all slices, the others None."""
        return self._gather("gather", shard, axis, cut, site, reason, plane, root)

    def _gather(self, op: str, shard: Any, axis: int, cut: Cut, site: str, reason: str, plane: str, root: int | None):
        host, on_device = self.stage(movable(shard, op))
        if root is not None:
            check_root(op, site, root, self.size)
        axis = cut_axis(op, site, host.shape, axis, cut, self.size, self.rank)
        whole = (*host.shape[:axis], cut.size, *host.shape[axis + 1:])
        pieces = axis_pieces(whole, axis, cut)
        counts = [prod(shape_of(whole, piece)) for piece in pieces]

        def move():
            if root is None:
                return unpack(self.transport.all_gather(host, counts), whole, pieces)
            flat = self.transport.gather(host, counts, root)
            return None if flat is None else unpack(flat, whole, pieces)

        gathered = self._run(op, site, reason, plane, whole, host.dtype, prod(whole) * host.dtype.itemsize, move,
                             axis=axis - len(whole), root=root, before=host)
        return self.unstage(gathered, on_device)

    def all_to_all(self, shard: Any, *, axis: int, cut: Cut, to_axis: int, to_cut: Cut, site: str, reason: str,
                   plane: str = "data") -> Any:
        """shard(axis) → shard(to_axis): every rank sends each other rank the part it will hold."""
        host, on_device = self.stage(movable(shard, "all_to_all"))
        axis = cut_axis("all_to_all", site, host.shape, axis, cut, self.size, self.rank)
        to_axis = cut_axis("all_to_all", site, host.shape, to_axis, to_cut, self.size, None)
        if axis == to_axis:
            raise CollectiveError(f"all_to_all at {site}: this is a shard along axis {axis} already")
        outgoing = axis_pieces(host.shape, to_axis, to_cut)
        mine = len(to_cut.of(self.rank))
        target = tuple(cut.size if i == axis else mine if i == to_axis else n for i, n in enumerate(host.shape))
        whole = tuple(to_cut.size if i == to_axis else n for i, n in enumerate(target))
        incoming = axis_pieces(target, axis, cut)
        sizes = ([prod(shape_of(host.shape, p)) for p in outgoing], [prod(shape_of(target, p)) for p in incoming])
        moved = self._run("all_to_all", site, reason, plane, whole, host.dtype, prod(whole) * host.dtype.itemsize,
                          lambda: unpack(self.transport.all_to_all(pack(host, outgoing), *sizes), target, incoming),
                          axis=axis - host.ndim, to_axis=to_axis - host.ndim, before=host)
        return self.unstage(moved, on_device)

    # --- on root → shard, whole ----------------------------------------------------------------------------------

    def scatter(self, array: Any, *, pieces: Sequence[Slices], shape: tuple[int, ...], dtype: Any, axis: int,
                root: int = 0, site: str, reason: str, plane: str = "data") -> Any:
        """on root → shard(axis): the root sends rank r the slice `pieces[r]` of its array (None on the others).

        Pieces may overlap (copies of kv heads): the payload is the sum of what is sent. What is scattered are
        parameters, so the axis is recorded as the placement counts it, from the start.
        """
        check_root("scatter", site, root, self.size)
        dtype, axis = np.dtype(dtype), pieces_axis("scatter", site, shape, axis, pieces, self.size)
        counts = [prod(shape_of(shape, piece)) for piece in pieces]
        packed = None
        if self.rank == root:
            host, _ = self.stage(movable(array, "scatter"))
            if host.shape != tuple(shape) or host.dtype != dtype:
                raise CollectiveError(f"scatter at {site}: the root holds {host.shape} {host.dtype}, "
                                      f"announced was {tuple(shape)} {dtype}")
            packed = pack(host, pieces)
        mine = shape_of(shape, pieces[self.rank])
        moved = self._run("scatter", site, reason, plane, tuple(shape), dtype, sum(counts) * dtype.itemsize,
                          lambda: self.transport.scatter(packed, counts, dtype, root).reshape(mine),
                          axis=axis, root=root)
        return self.arrays.from_host(moved)

    def broadcast(self, array: Any, *, shape: tuple[int, ...], dtype: Any, root: int = 0, site: str, reason: str,
                  plane: str = "data") -> Any:
        """on root → whole: every rank gets the root's array (None on the others)."""
        host = self._broadcast(array, tuple(shape), np.dtype(dtype), root, site, reason, plane)
        return array if self.rank == root else self.arrays.from_host(host)

    def _broadcast(self, array: Any, shape: tuple[int, ...], dtype: np.dtype, root: int, site: str, reason: str,
                   plane: str) -> np.ndarray:
        """The host's half of it; a control message needs no more."""
        check_root("broadcast", site, root, self.size)
        if self.rank == root:
            host, _ = self.stage(movable(array, "broadcast"))
            if host.shape != shape or host.dtype != dtype:
                raise CollectiveError(f"broadcast at {site}: the root holds {host.shape} {host.dtype}, "
                                      f"announced was {shape} {dtype}")
        else:
            host = np.empty(shape, dtype)

        def move():
            self.transport.broadcast(host, root)
            return host

        return self._run("broadcast", site, reason, plane, shape, dtype, host.nbytes, move, root=root)

    # --- control: the program's own messages ---------------------------------------------------------------------

    def barrier(self, *, site: str, reason: str) -> None:
        """Wait until every rank is here."""
        self._run("barrier", site, reason, "control", (), np.dtype(np.uint8), 0, self.transport.barrier)

    def share(self, value: T | None, *, root: int = 0, site: str, reason: str) -> T:
        """The root's `value` (plain data, as JSON) on every rank: two control broadcasts, its length and its text."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8) if self.rank == root else None
        size = None if text is None else np.array([text.size])
        length = self._broadcast(size, (1,), np.dtype(np.int64), root, site, reason, "control")
        sent = self._broadcast(text, (int(length[0]),), np.dtype(np.uint8), root, site, reason, "control")
        return json.loads(bytes(sent))

    def on_root(self, work: Callable[[], T], *, root: int = 0, site: str, reason: str) -> T:
        """Let the root do `work` and share what it returns; where it fails, all ranks raise the same error.

        The work may be long (a download): no deadline holds while the others wait for it.
        """
        outcome: dict[str, Any] | None = None
        failure: MinitpError | OSError | None = None
        if self.rank == root:
            try:
                outcome = {"value": work()}
            except (MinitpError, OSError) as error:
                failure, outcome = error, {"error": type(error).__name__, "message": str(error)}
        self.transport.patient = True
        try:
            outcome = self.share(outcome, root=root, site=site, reason=reason)
        finally:
            self.transport.patient = False
        if failure is not None:
            raise failure
        if "error" in outcome:
            raise error_named(outcome["error"])(outcome["message"])
        return outcome["value"]

    # --- how each is done ----------------------------------------------------------------------------------------

    def _run(self, op: str, site: str, reason: str, plane: str, shape: tuple[int, ...], dtype: np.dtype, payload: int,
             move: Callable[[], Any], *, axis: int | None = None, to_axis: int | None = None, root: int | None = None,
             before: np.ndarray | None = None) -> Any:
        """Announce, move, record."""
        call = Call(self._sequence, op, site, name_of(dtype), shape, root)
        self._sequence += 1
        kept = self.recorder.snapshot(before, plane)   # before the collective: a sum in place overwrites its terms
        enter = time.perf_counter_ns()
        self.latest, self.pending = call, (call, enter)
        try:
            compared = self.transport.announce(call, self.checked)
            checked_at = time.perf_counter_ns()
            result = move()
            leave = time.perf_counter_ns()
        except BaseException:
            self.recorder.lose(self, call, enter)
            raise
        finally:
            self.pending = None                        # also after an error that the caller survives: nobody waits here
        if compared:
            self.recorder.add(self, call, "all_gather", "control", CHECK, ("whole", "whole"), (compared,), "uint8",
                              compared, enter, checked_at, caller())
            enter = checked_at
        self.recorder.add(self, call, op, plane, reason, state_names(op, axis, to_axis), shape, call.dtype, payload,
                          enter, leave, caller())
        self.recorder.keep(kept, result, plane)
        return result
