"""Which collective has which algorithms, and the schedule of each. What has no code of its own is put together."""
from collections.abc import Callable

from minitp.comm.algorithms import doubling, ring, star, tree
from minitp.comm.algorithms.hops import Schedule
from minitp.errors import CollectiveError

Make = Callable[[int, int, int], Schedule]         # (rank, size, root) → that rank's schedule


def _rootless(make: Callable[[int, int], Schedule]) -> Make:
    return lambda rank, size, root: make(rank, size)


def _backwards(make: Make, adds: bool) -> Make:
    return lambda rank, size, root: make(rank, size, root).backwards(adds=adds)


def _then(first: Make, second: Make) -> Make:
    return lambda rank, size, root: first(rank, size, root).then(second(rank, size, root))


def _keeping(make: Make) -> Make:
    return lambda rank, size, root: make(rank, size, root).keeping()


def _through_root(gather: Make, scatter: Make) -> Make:
    """All-to-all: each rank's parts to the root, then to each rank its parts."""
    def make(rank: int, size: int, root: int) -> Schedule:
        collect = gather(rank, size, root).of_parts(lambda source: tuple(source * size + d for d in range(size)))
        return collect.then(scatter(rank, size, root).of_parts(lambda to: tuple(s * size + to for s in range(size))))
    return make


def _by_root(scatter: Make, broadcast: Make) -> dict[str, Make]:
    """All eight from a scatter and a broadcast: the others are those backwards, or one after the other."""
    gather, reduce = _backwards(scatter, adds=False), _backwards(broadcast, adds=True)
    return {"scatter": scatter, "broadcast": broadcast, "gather": gather, "reduce": reduce,
            "all_gather": _then(gather, broadcast), "reduce_scatter": _then(reduce, scatter),
            "all_reduce": _then(reduce, broadcast), "all_to_all": _through_root(gather, scatter)}


_RING: dict[str, Make] = _by_root(ring.scatter, ring.broadcast) | {
    "all_gather": _rootless(ring.all_gather), "reduce_scatter": _rootless(ring.reduce_scatter),
    "all_reduce": _then(_rootless(ring.reduce_scatter), _rootless(ring.all_gather)),
    "all_to_all": _rootless(ring.all_to_all)}

_DOUBLING: dict[str, Make] = {
    "broadcast": _then(_keeping(tree.scatter), _rootless(doubling.all_gather)),
    "reduce": _then(_rootless(doubling.reduce_scatter), _backwards(tree.scatter, adds=False)),
    "all_gather": _rootless(doubling.all_gather), "reduce_scatter": _rootless(doubling.reduce_scatter),
    "all_reduce": _rootless(doubling.all_reduce), "all_to_all": _rootless(doubling.all_to_all)}

_BY_ALGORITHM: dict[str, dict[str, Make]] = {
    "star": _by_root(star.scatter, star.broadcast), "ring": _RING, "tree": _by_root(tree.scatter, tree.broadcast),
    "doubling": _DOUBLING, "halving": {"all_reduce": _rootless(doubling.all_reduce_by_halving)},
    "pairwise": {"all_to_all": _rootless(doubling.all_to_all_pairwise)}}

OPS = ("scatter", "broadcast", "gather", "reduce", "all_gather", "reduce_scatter", "all_reduce", "all_to_all")
ALGORITHMS: dict[str, tuple[str, ...]] = {
    op: tuple(name for name, makes in _BY_ALGORITHM.items() if op in makes) for op in OPS}


def schedule(op: str, algorithm: str, rank: int, size: int, root: int = 0) -> Schedule:
    """What `rank` does; CollectiveError where `op` has no such algorithm."""
    if algorithm not in ALGORITHMS.get(op, ()):
        raise CollectiveError(f"{op} can't be built by {algorithm!r}; "
                              + (f"it has {', '.join(ALGORITHMS[op])}" if op in ALGORITHMS else
                                 f"what can be built is {', '.join(OPS)}"))
    return _BY_ALGORITHM[algorithm][op](rank, size, root)


def chunks(op: str, algorithm: str, size: int) -> int:
    """In how many pieces an array is cut that no cut of the caller's divides: q = 2^⌊lg p⌋ for halving, else p."""
    return 1 << (size.bit_length() - 1) if (op, algorithm) == ("all_reduce", "halving") else size
