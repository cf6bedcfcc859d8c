"""How fast one rank reads, copies and multiplies: alone, and with all ranks at it, for they share the memory.

What is read are the weights of layers, each matrix in its matrix · vector product, as decoding reads them: one large
matrix is read up to twice as fast.
"""
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from minitp.bench.measure import every_rank
from minitp.comm import Communicator
from minitp.plan.calibrate.messages import FFN, HIDDEN, meet_asleep

CACHES = 4                              # an array this many times as large as the last cache lies in memory
LEAST, MOST = 2**26, 2**29              # bytes of it
TOKENS, WIDE, DEEP = 256, 2048, 1024    # a product of activations (256, 1024) with weights (2048, 1024)


def memory_bytes() -> int:
    """Of this computer, or of the container where that is less; 0 where it can't be told."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
    try:
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return whole


def last_cache() -> int:
    """Bytes of the last cache of core 0; 0 where it can't be told."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text[:-1].isdigit() and text[-1:] in "KM":
            sizes.append(int(text[:-1]) * (2**10 if text[-1] == "K" else 2**20))
    return max(sizes)


def works(quick: bool) -> dict[str, tuple[Callable[[], object], float]]:
    """name → (what to do, bytes or FLOPs of it). The arrays are made here."""
    size = min(max(LEAST, CACHES * last_cache()), MOST, max(LEAST, memory_bytes() // 16)) // (2 if quick else 1)
    draw, matrices = np.random.default_rng(0), max(2, size // (4 * FFN * HIDDEN))
    weights = [np.full((FFN, HIDDEN), 0.5, np.float32) for _ in range(matrices)]
    vector, half = np.ones((1, HIDDEN), np.float32), [matrix.copy() for matrix in weights[:matrices // 2]]
    made: dict[str, tuple[Callable[[], object], float]] = {
        "read": (lambda: [vector @ matrix.T for matrix in weights], float(sum(matrix.nbytes for matrix in weights))),
        "copy": (partial(_copy, half, weights), 2.0 * sum(matrix.nbytes for matrix in half))}
    for dtype in ("float32", "float64"):
        a, b = (draw.standard_normal((n, DEEP)).astype(dtype) for n in (TOKENS, WIDE))
        made[dtype] = partial(_product, a, b), 2.0 * TOKENS * WIDE * DEEP
    return made


def _copy(to: list[np.ndarray], of: list[np.ndarray]) -> None:
    for one, other in zip(to, of, strict=False):
        np.copyto(one, other)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a @ b.T


def rates(group: Communicator, *, seconds: float, quick: bool = False,
          progress: Callable[[str], None] = lambda _now: None) -> dict[str, dict[str, float]]:
    """name → {"alone", "together"}: bytes/s (read, copy) or FLOP/s (float32, float64) of one rank; the same on every
    rank. The quickest quarter of the rounds counts, as of collectives; together, by its slowest rank."""
    all_works = works(quick)
    slice_s = seconds / (len(all_works) * (2 if group.size > 1 else 1))
    found: dict[str, dict[str, float]] = {}
    for name, (work, amount) in all_works.items():
        progress(f"memory, {name}" if name in ("read", "copy") else f"products in {name}")
        alone = _alone(group, work, slice_s)
        together = _together(group, work, slice_s) if group.size > 1 else alone
        found[name] = {"alone": amount / alone, "together": amount / together}
    return found


def _alone(group: Communicator, work: Callable[[], object], seconds: float) -> float:
    """s of it on rank 0 while the others sleep."""
    mine = 0.0
    if group.rank == 0:
        work()
        began, times = time.perf_counter(), list[float]()
        while len(times) < 3 or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        mine = float(np.percentile(times, 25))
    meet_asleep(group)
    return float(every_rank(group, [mine])[0, 0])


def _together(group: Communicator, work: Callable[[], object], seconds: float) -> float:
    """s of it on the slowest rank while all do it, twice in a row: nobody has ended long before the others."""
    work()
    began, rounds, again = time.perf_counter(), list[float](), True
    while again:
        group.transport.barrier()
        start = time.perf_counter()
        for _ in range(2):
            work()
        rounds.append(float(every_rank(group, [(time.perf_counter() - start) / 2]).max()))
        over = len(rounds) >= 2 and time.perf_counter() - began > seconds
        again = not group.share(over if group.rank == 0 else None, site="calibrate",
                                reason="go on as long as there is time")
    return float(np.percentile(rounds, 25))
