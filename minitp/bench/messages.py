"""Collectives by size, through the communicator and without it, and what it costs to record one."""
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitp.bench.measure import check_rounds, every_rank, facts, median, own_recorder, thread_ranks
from minitp.comm import Communicator, Partial
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.trace.recorder import Recorder

SIZES = tuple(4**n for n in range(1, 13))                # 4 B … 16 MiB
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
MOST_CALLS, BYTES_PER_CASE = 200, 2**27                 # large messages are sent less often
_WHY: dict[str, Any] = {"site": "bench", "reason": "measure how long it takes"}


def collective(group: Communicator, *, ops: Sequence[str] = OPS, sizes: Sequence[int] = SIZES, calls: int = MOST_CALLS
               ) -> list[dict[str, Any]]:
    """One row per op and size (bytes of the whole array, float32): µs through minitp, and of the bare call (the limit).

    The two alternate, call by call; ranks begin each together, and the slowest rank's time counts.
    """
    check_rounds(calls)
    wrong = [str(size) for size in sizes if size < 4 or size % 4] + [op for op in ops if op not in OPS]
    if wrong:
        raise ConfigError(f"can't measure {wrong[0]}: sizes are multiples of 4 bytes, collectives are {', '.join(OPS)}")
    rows = []
    with own_recorder(group):
        for op in ops:
            for size in sizes:
                through, alone = _case(group, op, size // 4)
                rows.append(_row(group, op, size, *_timed(group, through, alone, _calls(size, calls))))
    return rows


def recording(group: Communicator) -> list[dict[str, Any]]:
    """One row: µs that minitp adds to a collective by announcing and recording it, without values."""
    return [facts(group, "recording") | {"recording_us": float(every_rank(group, [recording_cost()]).max())}]


def recording_cost(rounds: int = 7, calls: int = 300) -> float:
    """µs per collective: a barrier of one rank through a communicator that records, less the same barrier bare."""
    group = Communicator(ThreadTransport(ThreadWorld(1), 0), Recorder())
    costs = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            group.barrier(**_WHY)
        between = time.perf_counter_ns()
        for _ in range(calls):
            group.transport.barrier()
        costs.append((2 * between - start - time.perf_counter_ns()) / calls / 1e3)
    return max(0.0, float(np.median(costs)))


def _case(group: Communicator, op: str, n: int) -> tuple[Callable[[], Callable], Callable[[], Any]]:
    """Both ways to do `op` on n float32: a maker of the call through minitp, which may need fresh input; the bare call.

    On MPI the bare call is mpi4py's own with buffers made before; with threads it is the transport's.
    """
    cut, whole = Cut(n, group.size), np.zeros(n, np.float32)
    piece = np.zeros(len(cut.of(group.rank)), np.float32)
    bare = _mpi(whole, piece, cut) if group.transport.world == "mpi" else _threads(group, whole, piece, cut)

    def through() -> Callable[[], Any]:
        if op == "all_gather":
            return lambda: group.all_gather(piece, axis=0, cut=cut, **_WHY)
        if op == "broadcast":
            root = whole if group.rank == 0 else None
            return lambda: group.broadcast(root, shape=(n,), dtype=np.float32, **_WHY)
        partial = Partial(whole, group)
        if op == "all_reduce":
            return lambda: group.all_reduce(partial, **_WHY)
        return lambda: group.reduce_scatter(partial, axis=0, cut=cut, **_WHY)

    return through, bare[op]


def _mpi(whole: np.ndarray, piece: np.ndarray, cut: Cut) -> dict[str, Callable[[], Any]]:
    from mpi4py import MPI
    world, sizes, result = MPI.COMM_WORLD, list(cut.sizes), np.empty_like(whole)
    return {"all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, whole),
            "all_gather": lambda: world.Allgatherv(piece, [result, sizes]),
            "reduce_scatter": lambda: world.Reduce_scatter(whole, piece, sizes),
            "broadcast": lambda: world.Bcast(whole, root=0)}


def _threads(group: Communicator, whole: np.ndarray, piece: np.ndarray, cut: Cut) -> dict[str, Callable[[], Any]]:
    transport, sizes = group.transport, list(cut.sizes)
    return {"all_reduce": lambda: transport.all_reduce(whole, True),
            "all_gather": lambda: transport.all_gather(piece, sizes),
            "reduce_scatter": lambda: transport.reduce_scatter(whole, sizes),
            "broadcast": lambda: transport.broadcast(whole, 0)}


def _timed(group: Communicator, through: Callable[[], Callable], bare: Callable, calls: int) -> tuple[np.ndarray, ...]:
    """µs of each call, through minitp and bare, of the slowest rank."""
    times = np.empty((calls + 3, 2))
    for measured in times:
        for column, call in enumerate((through(), bare)):
            group.transport.barrier()
            start = time.perf_counter_ns()
            call()
            measured[column] = (time.perf_counter_ns() - start) / 1e3
    slowest = every_rank(group, times[3:].reshape(-1)).max(axis=0).reshape(calls, 2)
    return slowest[:, 0], slowest[:, 1]


def _calls(size: int, most: int) -> int:
    return min(most, max(10, BYTES_PER_CASE // size))


def _row(group: Communicator, op: str, size: int, through: np.ndarray, bare: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {"op": op, "bytes": size, "calls": len(through)}
    for name, times in (("", through), ("limit_", bare)):
        low, high = np.percentile(times, (10, 90))
        found |= {f"{name}median_us": median(times), f"{name}p10_us": float(low), f"{name}p90_us": float(high)}
    share = found["limit_median_us"] / found["median_us"]
    return facts(group, "collective") | found | {"share_of_limit": None if thread_ranks(group) else share}
