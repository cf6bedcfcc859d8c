"""What the benchmarks share: alternating rounds, the facts of a run, numbers brought together from all ranks."""
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitp.comm import Communicator
from minitp.cut import Cut
from minitp.environment import blas_threads, cores
from minitp.errors import ConfigError
from minitp.trace.recorder import Recorder

LEAST_ROUNDS = 5
NOT_SPEED = ("ranks that are threads of one process show how a model is split, not how fast it is: no speed is given; "
             "take MPI ranks")


def check_rounds(rounds: int) -> None:
    if rounds < LEAST_ROUNDS:
        raise ConfigError(f"a median of {rounds} rounds says little; take at least {LEAST_ROUNDS}")


def alternate(group: Communicator, work: Callable[[], Any], limit: Callable[[], Any],
              rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of `work` and of `limit` in each of `rounds` rounds, of the slowest rank; one more round warms up."""
    times = np.empty((rounds + 1, 2))
    for measured in times:
        for column, run in enumerate((work, limit)):
            group.transport.barrier()                   # not recorded: the ranks begin together
            start = time.perf_counter()
            run()
            measured[column] = time.perf_counter() - start
    slowest = every_rank(group, times[1:].reshape(-1)).max(axis=0).reshape(rounds, 2)
    return slowest[:, 0], slowest[:, 1]


@contextmanager
def own_recorder(group: Communicator) -> Iterator[Recorder]:
    """A recorder for the benchmark alone: what it does is in no trace of the caller's."""
    outer = group.recorder
    group.recorder = Recorder(group.rank)
    try:
        yield group.recorder
    finally:
        group.recorder = outer


def every_rank(group: Communicator, numbers: Any) -> np.ndarray:
    """(ranks, n): each rank's n numbers, on every rank."""
    mine = np.atleast_2d(np.asarray(numbers, np.float64))
    return group.all_gather(mine, axis=0, cut=Cut(group.size, group.size), site="bench", plane="control",
                            reason="bring the ranks' measurements together")


def facts(group: Communicator, kind: str) -> dict[str, Any]:
    """What every row begins with."""
    return {"kind": kind, "world": group.transport.world, "ranks": group.size, "threads": blas_threads(),
            "cores": cores(), "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "note": NOT_SPEED if thread_ranks(group) else ""}


def thread_ranks(group: Communicator) -> bool:
    """Several ranks in one process: their times are not those of ranks that compute side by side."""
    return group.transport.world == "threads" and group.size > 1


def median(values: Any) -> float:
    return float(np.median(values))
