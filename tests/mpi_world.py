"""Worlds of ranks for tests: threads of this process, and MPI processes started by the fixture `mpi`.

A body is a function `body(comm, **arguments)` at the top of a test module; every rank calls it, and the test gets the
list of what the ranks returned: plain data and arrays, the same from both worlds.
"""
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from tests.needs import missing

ROOT = Path(__file__).parents[1]
START = 60                                 # seconds that ranks may take to start: on a busy machine imports take long


class RanksFailedError(AssertionError):
    """A body failed on a rank; the message is that rank's own traceback."""


# --- ranks that are threads ------------------------------------------------------------------------------------------

def run_threads(body: Callable, n: int, *, checked: bool = True, deadline: float = 20.0, **arguments: Any) -> list:
    """What `body` returns on each of `n` thread ranks; the first failure is raised as it is."""
    from minitp.comm import Communicator
    from minitp.comm.threads import RankStoppedError, ThreadTransport, ThreadWorld
    world, results, failures = ThreadWorld(n, deadline), [None] * n, []

    def rank_main(rank: int) -> None:
        try:
            results[rank] = body(Communicator(ThreadTransport(world, rank), checked=checked), **arguments)
        except BaseException as error:
            error.add_note(f"on rank {rank} of {n}")
            failures.append(error)
            world.stop()

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + 3 * deadline
    for thread in threads:
        thread.join(max(0.0, give_up - time.monotonic()))
    if failures:
        raise next((error for error in failures if not isinstance(error, RankStoppedError)), failures[0])
    if any(thread.is_alive() for thread in threads):
        raise RanksFailedError(f"a thread rank still ran after {3 * deadline:g} s")
    return [unpacked(*packed(result)) for result in results]


# --- ranks that are MPI processes ------------------------------------------------------------------------------------

def mpiexec() -> str:
    """The mpiexec of the MPI library that mpi4py loads: the one beside this Python. No MPI: the test is skipped."""
    found = which("mpiexec", path=str(Path(sys.executable).parent)) or which("mpiexec")
    if find_spec("mpi4py") is None or found is None:
        missing("no mpi4py or no mpiexec here: pip install 'minitp[mpi]'")
    return found


def mpi_environment(n: int, seconds: int) -> dict[str, str]:
    """One BLAS thread a rank, and waiting ranks that leave the core to the one they wait for. A job may take `seconds`
    after its ranks have started."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPIEXEC_TIMEOUT": str(seconds + START), "PYTHONPATH": path,
                        "MINITP_TEST_RANK": "yes"}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return env | ({"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"} if n > cores else {})


def run_mpi(n: int, function: str | Callable, *, checked: bool = True, seconds: int = 120,
            env: dict[str, str] | None = None, **arguments: Any) -> list:
    """What `function` ("package.module:name", or itself) returns on each of `n` MPI ranks; arguments are plain data.

    It may take `seconds`; half-way each rank notes where it stands.
    """
    if callable(function):
        function = f"{function.__module__}:{function.__qualname__}"
    with TemporaryDirectory(prefix="minitp-ranks-") as folder:
        command = [mpiexec(), "-n", str(n), sys.executable, "-m", "tests.mpi_runner", function,
                   json.dumps(arguments), folder, json.dumps({"checked": checked, "seconds": seconds})]
        try:
            ended = subprocess.run(command, env=mpi_environment(n, seconds) | (env or {}), cwd=ROOT, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds + START + 10)
            code, output = ended.returncode, ended.stdout
        except subprocess.TimeoutExpired as error:
            code, output = None, (error.stdout or b"").decode(errors="replace")
        raise_first_failure(Path(folder), n, code, output)
        return [read_result(Path(folder), rank) for rank in range(n)]


def raise_first_failure(folder: Path, n: int, code: int | None, output: str) -> None:
    """The first traceback that a rank left, else where each rank stood when time was up, else what was printed."""
    tracebacks = sorted(folder.glob("*.traceback"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    if tracebacks:
        raise RanksFailedError(f"rank {tracebacks[0].stem} of {n}:\n{tracebacks[0].read_text()}")
    if code != 0 or any(not (folder / f"{rank}.json").exists() for rank in range(n)):
        stacks = [f"rank {path.stem} when half the time was up:\n{path.read_text()}"
                  for path in sorted(folder.glob("*.stack")) if path.stat().st_size]
        how = "did not end in time" if code is None else f"ended with exit code {code}"
        raise RanksFailedError("\n".join([f"the {n} ranks {how}", *stacks, output[-4000:]]))


@pytest.fixture
def mpi() -> Callable[..., list]:
    """`mpi(n, "tests.some.module:body", **arguments)` → what each rank returned; see `run_mpi`."""
    mpiexec()
    return run_mpi


class World:
    """`threads` or `mpi` on `n` ranks: `world(body, **arguments)` runs the same body in either."""

    def __init__(self, kind: str, n: int):
        self.kind, self.n = kind, n

    def __call__(self, body: Callable, **options: Any) -> list:
        return (run_threads if self.kind == "threads" else run_mpi)(n=self.n, **{
            "body" if self.kind == "threads" else "function": body}, **options)


def worlds(threads: tuple[int, ...] = (1, 2, 3, 5, 7), mpi: tuple[int, ...] = (1, 3, 4)) -> list:
    """Parameters for what runs in both worlds; the MPI ones carry the mark `mpi`, those on 4 ranks `slow` too."""
    return ([pytest.param(World("threads", n), id=f"threads-{n}") for n in threads]
            + [pytest.param(World("mpi", n), id=f"mpi-{n}", marks=[pytest.mark.mpi] + [pytest.mark.slow] * (n > 3))
               for n in mpi])


# --- results as files: numbers and text as JSON, arrays beside it, nothing pickled -----------------------------------

def packed(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """`value` as plain data in which each array is replaced by its name, and those arrays."""
    arrays: dict[str, np.ndarray] = {}

    def visit(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            arrays[f"a{len(arrays)}"] = part
            return {"array": f"a{len(arrays) - 1}"}
        if isinstance(part, dict):
            return {str(key): visit(entry) for key, entry in part.items()}
        if isinstance(part, (list, tuple)):
            return [visit(entry) for entry in part]
        return part.item() if isinstance(part, np.generic) else part

    return visit(value), arrays


def unpacked(plain: Any, arrays: Any) -> Any:
    if isinstance(plain, dict):
        return arrays[plain["array"]] if set(plain) == {"array"} else {k: unpacked(v, arrays) for k, v in plain.items()}
    return [unpacked(entry, arrays) for entry in plain] if isinstance(plain, list) else plain


def write_result(folder: Path, rank: int, value: Any) -> None:
    plain, arrays = packed(value)
    np.savez(folder / f"{rank}.npz", **arrays)
    (folder / f"{rank}.json").write_text(json.dumps(plain))


def read_result(folder: Path, rank: int) -> Any:
    with np.load(folder / f"{rank}.npz", allow_pickle=False) as arrays:
        return unpacked(json.loads((folder / f"{rank}.json").read_text()), dict(arrays))
