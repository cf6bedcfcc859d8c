"""What every world must do alike: checks that run on every rank, in threads and in MPI processes, from this one source.

A check only notes what is wrong (`see`), so that no rank leaves the others waiting in a collective. Sizes are odd and
small: on 5 and 7 ranks some own nothing. Terms are whole numbers, so sums are exact in any order.
"""
from collections.abc import Callable
from itertools import permutations

import ml_dtypes
import numpy as np

from minitp.comm import Communicator, Partial
from minitp.cut import Cut
from minitp.errors import ConfigError, FileFormatError
from tests.comm.findings import Findings, crossed, cuts, numbers, piece, roots, total

WHY = {"site": "here", "reason": "to see that it works"}
SUMMED = ["int16", "int32", "int64", "uint8", "float32", "float64", "complex64", "complex128"]
MOVED = [np.dtype(name) for name in (*SUMMED, "bool", "float16", ">f8")] + [np.dtype(ml_dtypes.bfloat16)]
SHAPES = ((3, 5), (), (1,), (4,), (2, 3, 4), (0,), (3, 0, 2))

CHECKS: dict[str, Callable[[Communicator, Findings], None]] = {}


def check(body: Callable) -> Callable:
    CHECKS[body.__name__] = body
    return body


# --- sums ------------------------------------------------------------------------------------------------------------

@check
def all_reduce(comm, see):
    for dtype, shape in crossed(SUMMED, SHAPES):
        got = comm.all_reduce(Partial(numbers(shape, dtype, comm.rank), comm), **WHY)
        wanted = total(comm, shape, dtype)
        see.same((dtype, shape), got, wanted)
        see.event(comm, (dtype, shape), op="all_reduce", before="partial", after="whole", shape=shape, dtype=dtype,
                  payload=wanted.nbytes, root=None, plane="data")


@check
def all_reduce_max(comm, see):
    for dtype, shape in crossed([name for name in SUMMED if "complex" not in name], SHAPES):
        terms = numbers(shape, dtype, comm.rank)
        got = comm.all_reduce_max(terms, **WHY)
        wanted = np.maximum.reduce([numbers(shape, dtype, rank) for rank in range(comm.size)])
        see.same((dtype, shape), got, wanted)
        see.same("what was given", terms, numbers(shape, dtype, comm.rank))
        see.event(comm, (dtype, shape), op="all_reduce_max", before="partial", after="whole", shape=shape, dtype=dtype,
                  payload=wanted.nbytes, root=None, plane="data")


@check
def all_reduce_overwrites_only_what_it_was_given(comm, see):
    """In place is for a partial that owns its buffer. In both worlds: what is right in threads must be right on MPI."""
    handed_over = numbers((3, 4), np.float64, comm.rank)
    result = comm.all_reduce(Partial(handed_over, comm), **WHY)
    see.same("the buffer that was handed over holds the sum", handed_over, result)
    behind = numbers((3, 4), np.float64, comm.rank)
    result = comm.all_reduce(Partial(behind, comm)[1:], **WHY)
    see.same("a view's sum", result, total(comm, (3, 4), np.float64)[1:])
    see.same("what is behind a view", behind, numbers((3, 4), np.float64, comm.rank))
    frozen = numbers((3, 4), np.float64, comm.rank)
    frozen.flags.writeable = False
    result = comm.all_reduce(Partial(frozen, comm), **WHY)
    see.same("sum of a read-only term", result, total(comm, (3, 4), np.float64))
    see.same("a read-only term", frozen, numbers((3, 4), np.float64, comm.rank))
    see.same("a result can be written", result.flags.writeable, True)


@check
def reduce(comm, see):
    for dtype, root in crossed(SUMMED, roots(comm)):
        got = comm.reduce(Partial(numbers((3, 5), dtype, comm.rank), comm), root=root, **WHY)
        see.same((dtype, root), got, total(comm, (3, 5), dtype) if comm.rank == root else None)
        see.event(comm, (dtype, root), op="reduce", before="partial", after="on root", shape=(3, 5), dtype=dtype,
                  payload=15 * np.dtype(dtype).itemsize, root=root)


@check
def reduce_scatter(comm, see):
    shape = (3, 4, 5)
    for dtype, axis in crossed(SUMMED, (0, 1, 2, -1, -2, -3)):
        for cut in cuts(shape[axis], comm.size):
            got = comm.reduce_scatter(Partial(numbers(shape, dtype, comm.rank), comm), axis=axis, cut=cut, **WHY)
            see.same((dtype, axis, cut), got, piece(total(comm, shape, dtype), axis, cut.of(comm.rank)))
            see.event(comm, axis, op="reduce_scatter", before="partial", after=f"shard({axis % 3 - 3})",
                      shape=shape, dtype=dtype, payload=60 * np.dtype(dtype).itemsize)


# --- movement --------------------------------------------------------------------------------------------------------

@check
def all_gather(comm, see):
    for dtype, axis in crossed(MOVED, (0, 1, 2, -1, -2, -3)):
        whole = numbers((3, 4, 5), dtype)
        for cut in cuts(whole.shape[axis], comm.size):
            got = comm.all_gather(piece(whole, axis, cut.of(comm.rank)), axis=axis, cut=cut, **WHY)
            see.same((dtype, axis, cut), got, whole)
            see.event(comm, axis, op="all_gather", before=f"shard({axis % 3 - 3})", after="whole", shape=(3, 4, 5),
                      dtype=str(dtype), payload=whole.nbytes, root=None)


@check
def gather(comm, see):
    for dtype, axis in crossed(MOVED, (0, 1, -1)):
        for root in roots(comm):
            whole, cut = numbers((3, 4, 5), dtype), Cut((3, 4, 5)[axis], comm.size)
            got = comm.gather(piece(whole, axis, cut.of(comm.rank)), axis=axis, cut=cut, root=root, **WHY)
            see.same((dtype, axis, root), got, whole if comm.rank == root else None)
            see.event(comm, axis, op="gather", before=f"shard({axis % 3 - 3})", after="on root", root=root,
                      shape=(3, 4, 5), payload=whole.nbytes)


@check
def all_to_all(comm, see):
    for dtype, (axis, to_axis) in crossed(MOVED, tuple(permutations((0, 1, -1), 2))):
        whole = numbers((3, 4, 5), dtype)
        for cut, to_cut in zip(cuts(whole.shape[axis], comm.size), cuts(whole.shape[to_axis], comm.size),
                               strict=True):
            got = comm.all_to_all(piece(whole, axis, cut.of(comm.rank)), axis=axis, cut=cut, to_axis=to_axis,
                                  to_cut=to_cut, **WHY)
            see.same((dtype, axis, to_axis, cut), got, piece(whole, to_axis, to_cut.of(comm.rank)))
            see.event(comm, axis, op="all_to_all", before=f"shard({axis % 3 - 3})", shape=(3, 4, 5),
                      after=f"shard({to_axis % 3 - 3})", payload=whole.nbytes)


@check
def gathers_of_nothing(comm, see):
    """Every rank's shard may be empty, by the cut axis or by another."""
    for shape, axis in (((0, 3), 0), ((4, 0), 0), ((0,), -1)):
        cut = Cut(shape[axis], comm.size)
        mine = piece(np.zeros(shape), axis, cut.of(comm.rank))
        see.same(shape, comm.all_gather(mine, axis=axis, cut=cut, **WHY), np.zeros(shape))
        see.event(comm, shape, payload=0, shape=shape)


@check
def scatter(comm, see):
    for dtype, axis in crossed(MOVED, (0, 1, 2, -1)):
        for root in roots(comm):
            whole, cut = numbers((3, 4, 5), dtype), Cut((3, 4, 5)[axis], comm.size)
            pieces = [tuple(slice(held.start, held.stop) if i == axis % 3 else slice(None) for i in range(3))
                      for held in map(cut.of, range(comm.size))]
            got = comm.scatter(whole if comm.rank == root else None, pieces=pieces, shape=(3, 4, 5), dtype=dtype,
                               axis=axis, root=root, **WHY)
            see.same((dtype, axis, root), got, piece(whole, axis, cut.of(comm.rank)))
            see.event(comm, axis, op="scatter", before="on root", after=f"shard({axis % 3})", root=root,
                      shape=(3, 4, 5), dtype=str(dtype), payload=whole.nbytes)


@check
def scatter_of_copies(comm, see):
    """Two kv heads of 3 rows, each needed by several ranks: the payload is what is sent, copies and all."""
    whole, holds = numbers((6, 2), np.float32), [(0, 3), (0, 6), (3, 6), (3, 6), (6, 6)]
    pieces = [(slice(*holds[rank % 5]), slice(0, 2)) for rank in range(comm.size)]
    root = comm.size - 1
    got = comm.scatter(whole if comm.rank == root else None, pieces=pieces, shape=(6, 2), dtype=np.float32, axis=0,
                       root=root, **WHY)
    see.same("copies", got, whole[pieces[comm.rank]])
    see.event(comm, "copies", after="shard(0)", shape=(6, 2),
              payload=4 * 2 * sum(stop - start for start, stop in (holds[r % 5] for r in range(comm.size))))


@check
def broadcast(comm, see):
    for dtype, shape in crossed(MOVED, SHAPES):
        for root in roots(comm):
            whole = numbers(shape, dtype)
            got = comm.broadcast(whole if comm.rank == root else None, shape=shape, dtype=dtype, root=root, **WHY)
            see.same((dtype, shape, root), got, whole)
            see.event(comm, shape, op="broadcast", before="on root", after="whole", root=root, shape=shape,
                      dtype=str(dtype), payload=whole.nbytes)


# --- layouts: rows that aren't rows in memory ------------------------------------------------------------------------

def layouts(values: np.ndarray) -> dict[str, np.ndarray]:
    """The same (4, 6) numbers in other orders of memory."""
    read_only = values.copy()
    read_only.flags.writeable = False
    return {"transposed": np.ascontiguousarray(values.T).T, "every other column": np.repeat(values, 2, axis=1)[:, ::2],
            "real part": (values + 1j).real, "Fortran": np.asfortranarray(values), "read-only": read_only,
            "backwards": values[::-1].copy()[::-1], "broadcast": np.broadcast_to(values[:1], (4, 6))}


@check
def any_layout_of_memory(comm, see):
    cut, by_columns = Cut(4, comm.size), Cut(6, comm.size)
    for name, whole in layouts(numbers((4, 6), np.float64)).items():
        kept = whole.copy()
        held = slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
        see.same(name, comm.all_gather(whole[held], axis=0, cut=cut, **WHY), kept)
        mine = piece(kept, 1, by_columns.of(comm.rank))
        see.same(name, comm.all_to_all(whole[held], axis=0, cut=cut, to_axis=1, to_cut=by_columns, **WHY), mine)
        last = comm.size - 1
        see.same(name, comm.gather(whole[held], axis=0, cut=cut, root=last, **WHY), kept if comm.rank == last else None)
        pieces = [(slice(None), slice(c.start, c.stop)) for c in map(by_columns.of, range(comm.size))]
        see.same(name, comm.scatter(whole, pieces=pieces, shape=(4, 6), dtype=np.float64, axis=1, **WHY), mine)
        see.same(name, np.asarray(comm.broadcast(whole, shape=(4, 6), dtype=np.float64, **WHY)), kept)
        see.same(f"{name}: the input afterwards", whole, kept)


@check
def any_layout_of_a_term(comm, see):
    for name in layouts(numbers((4, 6), np.float64)):
        def term(rank, name=name):
            return layouts(numbers((4, 6), np.float64, rank))[name]
        wanted = np.sum([term(rank) for rank in range(comm.size)], axis=0)
        last, cut = comm.size - 1, Cut(6, comm.size)
        see.same(name, comm.all_reduce(Partial(term(comm.rank), comm), **WHY), wanted)
        see.same(name, comm.reduce(Partial(term(comm.rank), comm), root=last, **WHY),
                 wanted if comm.rank == last else None)
        see.same(name, comm.reduce_scatter(Partial(term(comm.rank), comm), axis=1, cut=cut, **WHY),
                 piece(wanted, 1, cut.of(comm.rank)))


@check
def results_are_nobody_elses(comm, see):
    """Writing into a result changes neither an input nor another rank's result."""
    mine, cut = numbers((2, 3), np.float32), Cut(2 * comm.size, comm.size)
    results = [comm.all_gather(mine, axis=0, cut=cut, **WHY), comm.gather(mine, axis=0, cut=cut, **WHY),
               comm.all_to_all(mine, axis=0, cut=cut, to_axis=1, to_cut=Cut(3, comm.size), **WHY),
               comm.scatter(mine, pieces=[(slice(0, 2), slice(0, 3))] * comm.size, shape=(2, 3), dtype=np.float32,
                            axis=0, **WHY)]
    for result in filter(lambda array: array is not None, results):
        result[...] = -1 - comm.rank
    comm.barrier(**WHY)
    see.same("the input", mine, numbers((2, 3), np.float32))
    for result in filter(lambda array: array is not None, results):
        see.same("a result", result, np.full(result.shape, -1 - comm.rank, np.float32))


# --- control ---------------------------------------------------------------------------------------------------------

@check
def barrier(comm, see):
    see.same("barrier", comm.barrier(**WHY), None)
    see.event(comm, "barrier", op="barrier", plane="control", payload=0, before="whole", after="whole")


PLAIN = [None, True, 0, -1.5, "", "grüß 東京 🙂", [1, [2, "x"], {}], {"a": {"b": None}}, float("inf"), "x" * 5000]


@check
def share(comm, see):
    for value in PLAIN:
        for root in roots(comm):
            see.same(value, comm.share(value if comm.rank == root else "not mine", root=root, **WHY), value)
            see.event(comm, value, op="broadcast", plane="control", root=root, dtype="uint8", before="on root")


@check
def on_root(comm, see):
    for root in roots(comm):
        asked = []
        got = comm.on_root(lambda asked=asked: asked.append(comm.rank) or {"done by": comm.rank}, root=root, **WHY)
        see.same("value", got, {"done by": root})
        see.same("who was asked", asked, [root] if comm.rank == root else [])


@check
def on_root_fails_alike_on_all(comm, see):
    def raises(error):
        raise error
    for root in roots(comm):
        for error in (ConfigError("can't be"), FileFormatError("broken"), FileNotFoundError(2, "No such file", "/x"),
                      PermissionError("no"), OSError("disk")):
            try:
                comm.on_root(lambda error=error: raises(error), root=root, **WHY)
            except Exception as met:
                see.same("error", (type(met).__name__, str(met)), (type(error).__name__, str(error)))
            else:
                see.append(f"{error!r} got lost")
    see.same("and the ranks go on", comm.share(comm.rank, **WHY), 0)


# --- all of them -----------------------------------------------------------------------------------------------------

EVENT = ("sequence", "plane", "op", "root", "site", "reason", "before", "after", "shape", "dtype", "payload")


def run_all(comm: Communicator) -> dict[str, dict]:
    """Per check: what was wrong, and the events it recorded without those of checked mode."""
    outcome = {}
    for name, body in CHECKS.items():
        findings, first = Findings(), len(comm.recorder.events)
        body(comm, findings)
        outcome[name] = {"findings": list(findings),
                         "events": [[getattr(event, column) for column in EVENT] for event in
                                    comm.recorder.events[first:] if not event.reason.startswith("checked mode")]}
    return outcome
