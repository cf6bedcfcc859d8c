"""Finding the mpiexec that fits this Python, and the command and environment it needs.

`pip install mpi4py mpich` puts mpiexec beside the interpreter, where it works without an activated environment and
fits the library mpi4py loads. Another one, from the PATH, is compared with that library first: one that doesn't fit
starts N processes that each believe they are rank 0 of 1.
"""
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from minitp.environment import set_for_ranks
from minitp.errors import LaunchError
from minitp.launcher.marks import JOB_VARIABLE

_HOW = "pip install 'minitp[mpi]' brings both; without MPI use ranks that are threads: --world threads"
_FITS = {"mpich": "mpich", "intel": "mpich", "openmpi": "openmpi"}           # Intel MPI shares MPICH's binary interface


@dataclass(frozen=True)
class Mpiexec:
    """A launcher: where it is and whose it is ("mpich", "intel", "openmpi", "unknown")."""
    path: str
    kind: str

    @property
    def tags(self) -> bool:
        """Whether it can say of each piece of output which rank wrote it, without waiting for the line's end."""
        return self.kind == "mpich"

    def command(self, ranks: int, program: Sequence[str], tag: str = "", root: bool | None = None) -> list[str]:
        """The command that runs `program` on `ranks` ranks, with the flags this MPI needs on a small machine."""
        flags = []
        if self.kind == "openmpi":
            flags = ["--oversubscribe"]                          # else more ranks than cores are "not enough slots"
            if hasattr(os, "geteuid") and os.geteuid() == 0 if root is None else root:
                flags.append("--allow-run-as-root")              # a container
        elif self.kind == "mpich" and tag:
            flags = ["-print-all-exitcodes", "-prepend-pattern", tag]
        return [self.path, *flags, "-n", str(ranks), *program]


def job_environment(ranks: int, job: str) -> tuple[dict[str, str], str]:
    """The environment of a job, and what was changed in it, in words ('' if nothing)."""
    environment = dict(os.environ)
    said = set_for_ranks(ranks, environment)
    environment[JOB_VARIABLE] = job
    return environment, said


def no_mpi() -> str | None:
    """Why MPI ranks can't be started here, or None where they can."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    if beside_python() is None and shutil.which("mpiexec") is None:
        return "there is no mpiexec, neither beside this Python nor on the PATH"
    return None


def find_mpiexec() -> Mpiexec:
    """The launcher for this Python. LaunchError where there is none or it belongs to another MPI than mpi4py uses."""
    if why := no_mpi():
        raise LaunchError(f"MPI ranks can't be started: {why}. {_HOW}")
    if beside := beside_python():
        return Mpiexec(beside, _kind(beside))
    path = shutil.which("mpiexec") or ""
    found = Mpiexec(path, _kind(path))
    library = _library()
    if not fits(found.kind, library):
        raise LaunchError(f"the mpiexec on the PATH ({path}) is {found.kind}'s, but mpi4py here uses {library}: every "
                          f"process would be rank 0 of 1. Install the one that fits beside this Python ({_HOW})")
    return found


def python_command() -> list[str]:
    """This Python, and where minitp is installed without the working folder on its path: a random.py may lie there."""
    try:
        metadata.version("minitp")
    except metadata.PackageNotFoundError:          # run from a source folder
        return [sys.executable]
    return [sys.executable, "-P"]


def beside_python() -> str | None:
    """mpiexec beside the interpreter: users don't always activate the environment."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), Path(sys.prefix, "Library", "bin")]
    return next(filter(None, (shutil.which("mpiexec", path=str(folder)) for folder in folders)), None)


def fits(launcher: str, library: str) -> bool:
    """Whether this kind of launcher can start ranks of this kind of library; where one is unknown: perhaps."""
    return launcher not in _FITS or library not in _FITS or _FITS[launcher] == _FITS[library]


def kind_of(version: str) -> str:
    """Whose launcher or library this is, by what it prints as its version."""
    for word, kind in (("Intel", "intel"), ("Open MPI", "openmpi"), ("OpenRTE", "openmpi"), ("HYDRA", "mpich"),
                       ("MPICH", "mpich")):
        if word in version:
            return kind
    return "unknown"


@cache
def _kind(path: str) -> str:
    return kind_of(_output([path, "--version"]))


@cache
def _library() -> str:
    """The MPI that mpi4py loads, asked in a process of its own: loading MPI here would make this process part of it."""
    ask = ("import mpi4py; mpi4py.rc(initialize=False, finalize=False); from mpi4py import MPI; "
           "print(MPI.Get_library_version())")
    return kind_of(_output([sys.executable, "-c", ask]))


def _output(command: list[str]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, errors="replace",
                             stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout + run.stderr
