"""The collectives of a communicator once more, built from its messages: same arguments, same states, same results.

    BuiltCollectives(comm, "ring").all_reduce(partial, site="layers.3.mlp.down", reason="…")

Every hop is recorded as a send, a receive, or both, in a mark whose phase is "all_reduce by ring" and whose step is the
round: messages of one round are under way at the same time. `chunk` is the piece, where a message carries just one. The
time of a Hockney model and the bytes on the wire follow from these events (minitp.plan.network.collectives).
"""
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.comm.algorithms.hops import Hop, Schedule
from minitp.comm.algorithms.schedules import chunks, schedule
from minitp.comm.checks import check_root, cut_axis, movable, pieces_axis, summable
from minitp.comm.packing import axis_pieces, join, pack, shape_of, unpack
from minitp.comm.partial import Partial
from minitp.comm.states import PARTIAL, WHOLE, State
from minitp.cut import Cut, Slices
from minitp.errors import CollectiveError

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

Parts = dict[int, np.ndarray]
Watch = Callable[[int, Mapping[int, np.ndarray]], None]
"""Called on a rank with the round and the pieces it holds: before the first (round -1) and after each of its own."""


class BuiltCollectives:
    """What `algorithm` makes of the sends and receives of `comm`; see minitp.comm.algorithms.ALGORITHMS.

    A partial is consumed and never written into; other inputs are never changed. Payload and shape of the whole array
    are in no event: only messages are on record.
    """

    def __init__(self, comm: "Communicator", algorithm: str, watch: Watch | None = None):
        self.comm, self.algorithm, self.watch = comm, algorithm, watch
        self.rank, self.size = comm.rank, comm.size

    # --- partial → whole, shard, on root -------------------------------------------------------------------------

    def all_reduce(self, partial: Partial, *, site: str, reason: str, plane: str = "data") -> Any:
        """partial → whole."""
        return self._sum("all_reduce", partial, 0, site, reason, plane)

    def reduce(self, partial: Partial, *, root: int = 0, site: str, reason: str, plane: str = "data") -> Any:
        """partial → on root; None on the others."""
        check_root("reduce", site, root, self.size)
        return self._sum("reduce", partial, root, site, reason, plane)

    def _sum(self, op: str, partial: Partial, root: int, site: str, reason: str, plane: str) -> Any:
        plan = schedule(op, self.algorithm, self.rank, self.size, root)
        host, on_device = self.comm.stage(summable(partial, op).consume(self.comm)[0])
        counts = Cut(host.size, chunks(op, self.algorithm, self.size)).sizes
        parts = self._play(op, plan, _split(host.reshape(-1), range(len(counts)), counts), counts, host.dtype,
                           WHOLE, (site, reason, plane))
        return None if op == "reduce" and self.rank != root else self.comm.unstage(
            _all(parts, host.dtype).reshape(host.shape), on_device)

    def reduce_scatter(self, partial: Partial, *, axis: int, cut: Cut, site: str, reason: str,
                       plane: str = "data") -> Any:
        """partial → shard(axis)."""
        plan = schedule("reduce_scatter", self.algorithm, self.rank, self.size)
        axis = cut_axis("reduce_scatter", site, summable(partial, "reduce_scatter").shape, axis, cut, self.size, None)
        host, on_device = self.comm.stage(partial.consume(self.comm)[0])
        pieces = axis_pieces(host.shape, axis, cut)
        counts = _counts(host.shape, pieces)
        parts = self._play("reduce_scatter", plan, _split(pack(host, pieces), range(self.size), counts), counts,
                           host.dtype, State("shard", axis - host.ndim), (site, reason, plane))
        return self.comm.unstage(parts[self.rank].reshape(shape_of(host.shape, pieces[self.rank])).copy(), on_device)

    # --- shard → whole, shard, on root ---------------------------------------------------------------------------

    def all_gather(self, shard: Any, *, axis: int, cut: Cut, site: str, reason: str, plane: str = "data") -> Any:
        """shard(axis) → whole."""
        return self._gather("all_gather", shard, axis, cut, 0, site, reason, plane)

    def gather(self, shard: Any, *, axis: int, cut: Cut, root: int = 0, site: str, reason: str,
               plane: str = "data") -> Any:
        """shard(axis) → on root; None on the others."""
        check_root("gather", site, root, self.size)
        return self._gather("gather", shard, axis, cut, root, site, reason, plane)

    def _gather(self, op: str, array: Any, axis: int, cut: Cut, root: int, site: str, reason: str, plane: str) -> Any:
        plan = schedule(op, self.algorithm, self.rank, self.size, root)
        host, on_device = self.comm.stage(movable(array, op))
        axis = cut_axis(op, site, host.shape, axis, cut, self.size, self.rank)
        whole = (*host.shape[:axis], cut.size, *host.shape[axis + 1:])
        pieces = axis_pieces(whole, axis, cut)
        parts = self._play(op, plan, {self.rank: host.reshape(-1)}, _counts(whole, pieces), host.dtype,
                           State("shard", axis - len(whole)), (site, reason, plane))
        return None if op == "gather" and self.rank != root else self.comm.unstage(
            unpack(_all(parts, host.dtype), whole, pieces), on_device)

    def all_to_all(self, shard: Any, *, axis: int, cut: Cut, to_axis: int, to_cut: Cut, site: str, reason: str,
                   plane: str = "data") -> Any:
        """shard(axis) → shard(to_axis)."""
        plan = schedule("all_to_all", self.algorithm, self.rank, self.size)
        host, on_device = self.comm.stage(movable(shard, "all_to_all"))
        axis = cut_axis("all_to_all", site, host.shape, axis, cut, self.size, self.rank)
        to_axis = cut_axis("all_to_all", site, host.shape, to_axis, to_cut, self.size, None)
        if axis == to_axis:
            raise CollectiveError(f"all_to_all at {site}: this is a shard along axis {axis} already")
        rest = prod(n for i, n in enumerate(host.shape) if i not in (axis, to_axis))
        counts = [rest * len(cut.of(s)) * len(to_cut.of(d)) for s in range(self.size) for d in range(self.size)]
        outgoing = axis_pieces(host.shape, to_axis, to_cut)
        mine = [self.rank * self.size + d for d in range(self.size)]
        parts = self._play("all_to_all", plan, _split(pack(host, outgoing), mine, counts), counts, host.dtype,
                           State("shard", axis - host.ndim), (site, reason, plane))
        target = tuple(cut.size if i == axis else len(to_cut.of(self.rank)) if i == to_axis else n
                       for i, n in enumerate(host.shape))
        arrived = {s: parts[s * self.size + self.rank] for s in range(self.size)}
        return self.comm.unstage(unpack(_all(arrived, host.dtype), target, axis_pieces(target, axis, cut)), on_device)

    # --- on root → shard, whole ----------------------------------------------------------------------------------

    def scatter(self, array: Any, *, pieces: Sequence[Slices], shape: tuple[int, ...], dtype: Any, axis: int,
                root: int = 0, site: str, reason: str, plane: str = "data") -> Any:
        """on root → shard(axis): rank r gets the slice `pieces[r]` of the root's array."""
        check_root("scatter", site, root, self.size)
        plan = schedule("scatter", self.algorithm, self.rank, self.size, root)
        dtype, axis = np.dtype(dtype), pieces_axis("scatter", site, shape, axis, pieces, self.size)
        counts, parts = _counts(shape, pieces), {}
        if self.rank == root:
            parts = _split(pack(self._announced("scatter", site, array, tuple(shape), dtype), pieces),
                           range(self.size), counts)
        parts = self._play("scatter", plan, parts, counts, dtype, State("shard", axis), (site, reason, plane))
        return self.comm.arrays.from_host(parts[self.rank].reshape(shape_of(shape, pieces[self.rank])).copy())

    def broadcast(self, array: Any, *, shape: tuple[int, ...], dtype: Any, root: int = 0, site: str, reason: str,
                  plane: str = "data") -> Any:
        """on root → whole."""
        check_root("broadcast", site, root, self.size)
        plan = schedule("broadcast", self.algorithm, self.rank, self.size, root)
        shape, dtype, parts = tuple(shape), np.dtype(dtype), {}
        counts = Cut(prod(shape), chunks("broadcast", self.algorithm, self.size)).sizes
        if self.rank == root:
            host = self._announced("broadcast", site, array, shape, dtype)
            parts = _split(host.reshape(-1), range(len(counts)), counts)
        parts = self._play("broadcast", plan, parts, counts, dtype, WHOLE, (site, reason, plane))
        return array if self.rank == root else self.comm.arrays.from_host(_all(parts, dtype).reshape(shape))

    def _announced(self, op: str, site: str, array: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        host, _ = self.comm.stage(movable(array, op))
        if host.shape != shape or host.dtype != dtype:
            raise CollectiveError(f"{op} at {site}: the root holds {host.shape} {host.dtype}, announced was "
                                  f"{shape} {dtype}")
        return host

    # --- how each is done ----------------------------------------------------------------------------------------

    def _play(self, op: str, plan: Schedule, parts: Parts, counts: Sequence[int], dtype: np.dtype, state: State,
              why: tuple[str, str, str]) -> Parts:
        """Every hop of the schedule as a message; what this rank holds at the end."""
        phase = f"{op} by {self.algorithm}"
        if self.watch is not None:
            self.watch(-1, dict(parts))
        for hop in plan.hops:
            with self.comm.recorder.mark(phase, hop.round):
                self._hop(hop, parts, counts, dtype, PARTIAL if hop.adds else state, why)
            if self.watch is not None:
                self.watch(hop.round, dict(parts))
        return parts

    def _hop(self, hop: Hop, parts: Parts, counts: Sequence[int], dtype: np.dtype, state: State,
             why: tuple[str, str, str]) -> None:
        common: dict[str, Any] = dict(zip(("site", "reason", "plane"), why, strict=True), state=state)
        shape, came = (sum(counts[piece] for piece in hop.takes),), None
        outgoing = None if hop.to is None else _join([parts[piece] for piece in hop.gives], dtype)
        if hop.to is not None and hop.source is not None:
            came = self.comm.exchange(outgoing, to=hop.to, shape=shape, dtype=dtype, source=hop.source,
                                      chunk=_single(hop.gives), received_chunk=_single(hop.takes), **common)
        elif hop.to is not None:
            self.comm.send(outgoing, to=hop.to, chunk=_single(hop.gives), **common)
        elif hop.source is not None:
            came = self.comm.receive(shape=shape, dtype=dtype, source=hop.source, chunk=_single(hop.takes), **common)
        if not hop.keeps:
            for piece in hop.gives:
                del parts[piece]
        if came is not None:
            arrived = _split(self.comm.stage(came)[0], hop.takes, counts)
            parts |= {piece: parts[piece] + term for piece, term in arrived.items()} if hop.adds else arrived


def _counts(shape: Sequence[int], pieces: Sequence[Slices]) -> list[int]:
    return [prod(shape_of(shape, piece)) for piece in pieces]


def _split(flat: np.ndarray, pieces: Sequence[int], counts: Sequence[int]) -> Parts:
    """Views of `flat`, in which these pieces lie one after the other."""
    parts, start = {}, 0
    for piece in pieces:
        parts[piece] = flat[start:start + counts[piece]]
        start += counts[piece]
    return parts


def _join(parts: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    return parts[0] if len(parts) == 1 else join(parts, dtype)


def _all(parts: Parts, dtype: np.dtype) -> np.ndarray:
    """All pieces by number in one new array."""
    return join([parts[piece] for piece in sorted(parts)], dtype)


def _single(pieces: Sequence[int]) -> int | None:
    return pieces[0] if len(pieces) == 1 else None
