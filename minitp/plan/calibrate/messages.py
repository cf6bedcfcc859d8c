"""What messages and collectives of this MPI take, measured as a run meets them.

Between two collectives every rank computes a small layer, as in a run: it pushes MPI's code and buffers out of the
caches, and the ranks arrive apart. Without it an all-reduce of 2 kB took 4.6 µs on the machine where this was written,
and 11 µs in a generation; with it 11 µs in both. After a product of far more bytes (the head, before logits are
gathered) a collective takes up to twice as long still. Waiting is parted from moving by the same rule as in any trace.

Sizes and kinds take turns in an order drawn anew in each round: a burst of other work on the machine falls on all of
them, and none is always the one that follows 16 MiB. A collective during which the system took the core away from some
rank (an involuntary context switch) is left out where others are left.
"""
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

from minitp.bench.measure import every_rank, own_recorder
from minitp.comm import Communicator, Partial
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.cut import Cut
from minitp.plan.calibrate.durations import Kind, per_sync
from minitp.trace.file import Trace
from minitp.trace.merge import align_clocks, collect, run_info
from minitp.trace.timeline import Timeline

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "scatter", "gather", "reduce")
"""The communicator's kinds; a maximum moves what a sum does (`plan.collectives.COSTS_AS`)."""
SIZES = tuple(4**n for n in range(1, 13))                # 4 B … 16 MiB
BETWEEN = tuple(2 * size for size in SIZES[:-1])
TESTS = tuple(3 * size for size in SIZES[:-1])           # 12 B … 12 MiB: in no table
FEW = 2                                                  # undisturbed times that say more than many others
SMALL = 2**16                                            # bytes: up to here a round has each size twice
_WHY: dict[str, Any] = {"site": "calibrate", "reason": "measure how long it takes"}
Progress = Callable[[str], None]
Spread = tuple[float, float, float]
"""Lower quartile, median, upper quartile, in s."""


class SmallerGroups:
    """Groups of the first p ranks of a run; made before the ranks start, for ranks that are threads share it."""

    def __init__(self):
        self._lock, self._worlds = threading.Lock(), {}

    def first(self, group: Communicator, ranks: int) -> Communicator | None:
        """The first `ranks` ranks of `group`; None on the others. Every rank must call it."""
        if ranks == group.size:
            return group
        mine = group.rank < ranks
        if group.transport.world == "threads":
            with self._lock:
                world = self._worlds.setdefault(ranks, ThreadWorld(ranks))
            return Communicator(ThreadTransport(world, group.rank), checked=False) if mine else None
        from mpi4py import MPI

        from minitp.comm.mpi import MPITransport
        part = MPI.COMM_WORLD.Split(0 if mine else 1, group.rank)
        return Communicator(MPITransport(part), checked=False) if mine else None


def meet_asleep(group: Communicator) -> None:
    """A barrier whose waiting ranks sleep: MPI's own spins, and would take the core of those that still work."""
    if group.transport.world != "mpi":
        group.transport.patient = True                     # others may measure longer than a collective may take
        try:
            group.transport.barrier()
        finally:
            group.transport.patient = False
        return
    from mpi4py import MPI
    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(1e-3)


FFN, HIDDEN = 768, 576                                   # half of a layer of SmolLM2-135M's MLP, as on two ranks
LAYER_BYTES = 2 * FFN * HIDDEN * 4


class Layer:
    """What a rank computes between two collectives: two products of a matrix and a vector, an activation, a norm."""

    def __init__(self, seed: int):
        draw = np.random.default_rng(seed)
        self.up, self.down = (draw.standard_normal(shape, np.float32) / HIDDEN**0.5
                              for shape in ((FFN, HIDDEN), (HIDDEN, FFN)))
        self.x = draw.standard_normal((1, HIDDEN), np.float32)

    def run(self) -> None:
        h = self.x @ self.up.T
        x = (h / (1 + np.exp(-h))) @ self.down.T
        self.x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def call(group: Communicator, op: str, size: int) -> Callable[[], Any]:
    """One collective of float32 whose whole array has `size` bytes; its input is made here, outside of its time."""
    n, rank = size // 4, group.rank
    cut, whole = Cut(n, group.size), np.full(n, rank / 8, np.float32)
    root = whole if rank == 0 else None
    if op in ("all_reduce", "reduce"):
        partial = Partial(whole, group)
        return lambda: getattr(group, op)(partial, **_WHY)
    if op == "reduce_scatter":
        partial = Partial(whole, group)
        return lambda: group.reduce_scatter(partial, axis=0, cut=cut, **_WHY)
    if op == "broadcast":
        return lambda: group.broadcast(root, shape=(n,), dtype=np.float32, **_WHY)
    if op == "scatter":
        pieces = [(slice(cut.of(r).start, cut.of(r).stop),) for r in range(group.size)]
        return lambda: group.scatter(root, pieces=pieces, shape=(n,), dtype=np.float32, axis=0, **_WHY)
    if op == "all_to_all":
        rows = max(d for d in range(1, isqrt(n) + 1) if n % d == 0)
        down, across = Cut(rows, group.size), Cut(n // rows, group.size)
        shard = np.full((len(down.of(rank)), n // rows), rank, np.float32)
        return lambda: group.all_to_all(shard, axis=0, cut=down, to_axis=1, to_cut=across, **_WHY)
    piece = whole[:len(cut.of(rank))].copy()
    return lambda: getattr(group, op)(piece, axis=0, cut=cut, **_WHY)


@dataclass(frozen=True)
class Measured:
    """Collectives that were run one after the other: step 0 of the trace warms up, each further step is a round.
    `switched`: for each of them, in order, whether a rank lost its core meanwhile."""
    trace: Trace
    switched: np.ndarray

    def times(self) -> dict[Kind, np.ndarray]:
        """Seconds by kind: of those that weren't switched if there are FEW of them or more, else of all."""
        syncs, events = per_sync(Timeline.of(self.trace)), self.trace.events
        op, payload, warm = self.trace.words("op"), events["payload"], events["step"][syncs.event] == 0
        found: dict[Kind, list[int]] = {}
        for number in np.flatnonzero(~warm).tolist():
            event = int(syncs.event[number])
            found.setdefault(Kind(op[event], int(syncs.ranks[number]), int(payload[event])), []).append(number)
        undisturbed = {kind: [n for n in numbers if not self.switched[n]] for kind, numbers in found.items()}
        return {kind: syncs.seconds[undisturbed[kind] if len(undisturbed[kind]) >= FEW else numbers]
                for kind, numbers in found.items()}

    def quartiles(self) -> dict[Kind, Spread]:
        """The times of each kind."""
        def spread(times: np.ndarray) -> Spread:
            low, middle, high = np.percentile(times, (25, 50, 75)).tolist()
            return low, middle, high

        return {kind: spread(times) for kind, times in self.times().items()}


def collectives(group: Communicator, sizes: Mapping[str, Sequence[int]], *, seconds: float, least: int = 5,
                progress: Progress = lambda _now: None) -> Measured | None:
    """Each op with its `sizes`, in rounds until `seconds` are over, at least `least`. On rank 0; None on the others."""
    layer, began, draw = Layer(group.rank), time.monotonic(), np.random.default_rng(0)
    cases = [(op, size) for op, of_op in sizes.items() for size in of_op for _ in range(2 if size <= SMALL else 1)]
    switched: list[bool] = []
    with own_recorder(group) as recorder:
        align_clocks(group)
        again, step = True, 0
        while again:
            progress(f"{group.size} ranks, round {step + 1}")
            with recorder.mark("calibrate", step):
                for number in draw.permutation(len(cases)):       # the same on every rank
                    collective = call(group, *cases[number])
                    layer.run()
                    before = switches()
                    collective()
                    switched.append(switches() != before)
            step += 1
            over = time.monotonic() - began > seconds and step > least
            again = not group.share(over if group.rank == 0 else None, site="calibrate",
                                    reason="go on as long as there is time")
        somewhere = every_rank(group, np.array(switched, float)).max(axis=0) > 0
        trace = collect(group, recorder, run_info(group))
    return None if trace is None else Measured(trace, somewhere)


def switches() -> int:
    """How often the system took the core away from this thread; 0 where it doesn't say."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_nivcsw


def ping_pong(group: Communicator, sizes: Sequence[int] = (*SIZES, *BETWEEN), *, seconds: float = 1.0, least: int = 5
              ) -> list[tuple[int, float]]:
    """(bytes, seconds one way) between ranks 0 and 1, by the transport alone: median of half a round trip.

    Every rank calls it and gets the same; the others sleep.
    """
    times: dict[int, list[float]] = {size: [] for size in sorted(sizes)}
    if group.rank < 2:
        buffers, again = {size: np.zeros(size, np.uint8) for size in times}, np.ones(1, np.uint8)
        began = time.monotonic()
        while again[0]:
            for size, buffer in buffers.items():
                for _ in range(3 if size <= SMALL else 1):
                    times[size].append(_round_trip(group, buffer) / 2)
            if group.rank == 0:
                again[0] = time.monotonic() - began < seconds or len(times[max(times)]) < least + 1
            (group.transport.send if group.rank == 0 else group.transport.receive)(again, 1 - group.rank)
    meet_asleep(group)
    found = [[size, float(np.percentile(of_size[len(of_size) // (least + 1):], 25))] for size, of_size in times.items()
             ] if group.rank == 0 else None
    shared = group.share(found, site="calibrate", reason="tell every rank what a message takes")
    return [(int(size), float(one_way)) for size, one_way in shared]


def _round_trip(group: Communicator, buffer: np.ndarray) -> float:
    start = time.perf_counter()
    if group.rank == 0:
        group.transport.send(buffer, 1)
        group.transport.receive(buffer, 1)
    else:
        group.transport.receive(buffer, 0)
        group.transport.send(buffer, 0)
    return time.perf_counter() - start
