"""What `minitp run` and `--ranks N` do: the same program on N ranks, as MPI processes or as threads."""
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from minitp.environment import launcher_environment
from minitp.errors import LaunchError
from minitp.launcher.failures import reported
from minitp.launcher.job import run_job
from minitp.launcher.marks import JOB_VARIABLE
from minitp.launcher.mpiexec import no_mpi
from minitp.launcher.world import WORLDS, World, script_defaults

_MARGIN = 3.0                   # seconds the ranks have to say where they were before the whole job is stopped


def run_script(path: str, args: Sequence[str] = (), ranks: int = 1, world: World = "auto",
               timeout: float | None = None, verbose: bool = False) -> int:
    """Run a script on `ranks` ranks; its exit code.

    With MPI any mpi4py script will do. With threads the script runs in this process, and its launch() calls start
    `ranks` threads. "auto" is MPI where it is installed.
    """
    if launcher_environment() is not None:
        raise LaunchError("minitp run starts the ranks itself, but an MPI launcher has started it already. Use one of "
                          f"`minitp run -n N {path}` and `mpirun -n N python {path}`")
    if path.startswith("-") and not Path(path).is_file():
        raise LaunchError(f"minitp run has no option {path}; what follows the script's name is the script's own: "
                          "`minitp run -n N script.py --its-option`")
    if not Path(path).is_file():
        raise LaunchError(f"there is no script {path} (seen from {Path.cwd()})")
    if _as_threads(ranks, world):
        return _run_here(path, args, ranks, timeout)
    limit = [] if timeout is None else ["--timeout", str(timeout)]
    return run_job(["-m", "minitp.launcher.script", *limit, path, *args], ranks, verbose=verbose,
                   timeout=None if timeout is None else timeout + _MARGIN)


def relaunch(argv: Sequence[str], ranks: int | None, world: World = "auto", timeout: float | None = None) -> int | None:
    """Run this command line (`minitp` and `argv`) as `ranks` MPI processes; the exit code. None: go on here.

    None where the ranks are threads (asked for, or there is no MPI, which is said), where one rank is enough, and in
    the processes of an MPI launcher, whose number must be `ranks`: those that this started come by here again.
    """
    announced = launcher_environment()
    if announced is not None:
        if world == "threads":
            raise LaunchError(f"--world threads under an MPI launcher: each of its {announced[1]} processes would run "
                              "all ranks. Leave out mpirun, or --world threads")
        if ranks is not None and ranks != announced[1]:
            raise LaunchError(f"--ranks {ranks} was asked for, but the MPI launcher started {announced[1]} "
                              f"processes. Use `mpirun -n {ranks} …`, or leave out one of the two")
        return None
    if ranks is None or (ranks == 1 and world == "auto") or _as_threads(ranks, world):
        return None
    if os.environ.get(JOB_VARIABLE):                     # else each rank would start as many anew, without end
        raise LaunchError("the mpiexec that started this process doesn't announce rank and size as MPICH's, Open MPI's "
                          "and Slurm's do. `minitp doctor` shows which one it is; --world threads needs none")
    return run_job(["-m", "minitp", *argv], ranks, timeout=None if timeout is None else timeout + _MARGIN)


def _as_threads(ranks: int, world: World) -> bool:
    """Whether to use threads; where that is for want of MPI it is said."""
    if world not in WORLDS:
        raise LaunchError(f"--world {world} is not known; minitp has auto, threads and mpi")
    if ranks < 1:
        raise LaunchError(f"a run needs at least 1 rank, {ranks} was asked for")
    if world == "auto" and (why := no_mpi()):
        if ranks > 1:
            print(f"minitp: {why}, so the {ranks} ranks are threads of this process; pip install 'minitp[mpi]' for "
                  "processes", file=sys.stderr)
        return True
    return world == "threads"


def _run_here(path: str, args: Sequence[str], ranks: int, timeout: float | None) -> int:
    """The script in this process, as `python script.py` would run it, with `ranks` threads for its launches."""
    before = sys.argv, sys.path[:]
    try:
        with script_defaults(ranks, timeout), reported(hide=path):
            run_as_main(path, args)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.path[:] = before
    return 0


def run_as_main(path: str, args: Sequence[str]) -> None:
    """What `python path args…` does."""
    sys.argv = [path, *args]
    if not sys.flags.safe_path:                    # the script's folder takes the place of the working folder
        del sys.path[0]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")
