"""The fixture `mpi_counts`: run a body on MPI ranks while a library between it and MPI counts the calls."""
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from tests.mpi_world import run_mpi
from tests.needs import missing

SOURCE = Path(__file__).with_name("count.c")

# What the communicator records → what MPI is asked for. Movement takes the v-forms: shards may be uneven.
MPI_CALL = {"all_reduce": "Allreduce", "all_reduce_max": "Allreduce", "reduce": "Reduce",
            "reduce_scatter": "Reduce_scatter", "all_gather": "Allgatherv", "gather": "Gatherv",
            "all_to_all": "Alltoallv", "scatter": "Scatterv", "broadcast": "Bcast",
            "barrier": "Barrier", "send": "Send", "receive": "Recv"}


def calls_of(ops: Iterable[str]) -> Counter[str]:
    """The MPI calls that so many recorded ops should have made (unchecked: comparing calls is an Allgather more)."""
    return Counter(MPI_CALL[op] for op in ops)


@pytest.fixture(scope="session")
def counting_library(tmp_path_factory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("calls are counted by LD_PRELOAD, which is Linux's")
    compiler = which(os.environ.get("CC", "cc"))
    if compiler is None:
        missing("no C compiler here (cc, or $CC): the library that counts MPI calls can't be built")
    library = tmp_path_factory.mktemp("pmpi") / "libcount.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@pytest.fixture
def mpi_counts(counting_library, tmp_path) -> Callable[..., tuple[list, list[Counter[str]]]]:
    """`mpi_counts(n, function, **options)` → what each rank returned (see `run_mpi`), and its MPI calls by name."""
    def run(n: int, function: str | Callable, **options: Any) -> tuple[list, list[Counter[str]]]:
        env = {"LD_PRELOAD": str(counting_library), "MPI_COUNTS": str(tmp_path)}
        results = run_mpi(n, function, env=env, **({"checked": False} | options))
        return results, [read(tmp_path / f"{rank}.counts") for rank in range(n)]
    return run


def read(path: Path) -> Counter[str]:
    lines = path.read_text().splitlines()
    path.unlink()                                        # the next run of this test must not find it
    return Counter({name: int(count) for name, count in map(str.split, lines)})
