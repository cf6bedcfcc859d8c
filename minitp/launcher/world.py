"""launch(): one function on every rank, whichever world the ranks live in."""
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from minitp.environment import launcher_environment
from minitp.errors import LaunchError

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator
    from minitp.launcher.rescue import Rescued
    from minitp.trace.recorder import Recorder

World = Literal["auto", "threads", "mpi"]
WORLDS = ("auto", "threads", "mpi")


@dataclass(frozen=True)
class Options:
    """What a launch was asked for; the two worlds share it.

    deadline      seconds a rank may wait in one collective
    run_deadline  seconds the whole run may take, None for no end
    recorder      rank → the recorder of that rank
    checked       compare the ranks' calls before each collective
    arrays        "numpy" or "cupy"
    kind          the class of the communicators; None: Communicator
    rescued       takes the trace of a run that failed
    """
    deadline: float = 300.0
    run_deadline: float | None = None
    recorder: "Callable[[int], Recorder] | None" = None
    checked: bool = True
    arrays: str = "numpy"
    kind: "type[Communicator] | None" = None
    rescued: "Rescued | None" = None

    def communicator(self, transport: Any, local_rank: int) -> "Communicator":
        from minitp.arrays import choose_arrays
        from minitp.comm.communicator import Communicator
        recorder = None if self.recorder is None else self.recorder(transport.rank)
        arrays = choose_arrays(self.arrays, local_rank)
        return (self.kind or Communicator)(transport, recorder, arrays=arrays, checked=self.checked)


@dataclass
class _Defaults:
    """What `minitp run` was told for a script's launches: its number of threads, its run's deadline."""
    ranks: int | None = None
    run_deadline: float | None = None


_defaults = _Defaults()
_here = threading.local()                       # .rank: set while this thread (or this MPI process) runs as a rank


@contextmanager
def script_defaults(ranks: int | None, run_deadline: float | None) -> Iterator[None]:
    """Inside, launch() without `ranks` starts this many threads: how `minitp run --world threads` reaches a script."""
    before = _defaults.ranks, _defaults.run_deadline
    _defaults.ranks, _defaults.run_deadline = ranks, run_deadline
    try:
        yield
    finally:
        _defaults.ranks, _defaults.run_deadline = before


def script_ranks() -> int | None:
    """How many threads `minitp run --world threads` was asked for; None outside it."""
    return _defaults.ranks


@contextmanager
def as_rank(rank: int) -> Iterator[None]:
    """This thread is now rank `rank` of a launch."""
    _here.rank = rank
    try:
        yield
    finally:
        _here.rank = None


def launch(fn: "Callable[[Communicator], Any]", ranks: int | None = None, *, world: World = "auto",
           deadline: float = 300.0, run_deadline: float | None = None,
           recorder: "Callable[[int], Recorder] | None" = None, checked: bool | None = None,
           arrays: str = "numpy", kind: "type[Communicator] | None" = None,
           rescued: "Rescued | None" = None) -> list[Any]:
    """Call fn(communicator) on every rank; the results of the ranks that live in this process, in rank order.

    With threads (plain `python script.py`, a notebook) these are all ranks. Under mpirun or `minitp run` every process
    is one rank and gets a list with its own result: a script that prints on rank 0 reads the same in both worlds.

      ranks         how many; None takes the launcher's number, or that of `minitp run`, or 1
      world         "threads", "mpi", or "auto": MPI under an MPI launcher, else threads
      deadline      seconds a rank may wait in one collective before the run is ended
      run_deadline  seconds the whole call may take
      recorder      called with each rank, gives its Recorder
      checked       compare the ranks' calls before each collective; None: yes with threads, no with MPI
      arrays        "numpy" or "cupy"
      kind          a class of communicators other than Communicator: BrokenCommunicator, DelayedCommunicator
      rescued       called once, should the run fail, with the trace up to there, as far as the ranks could still be
                    asked; what it returns is told with the error. Not on Ctrl-C, nor where the request is refused
                    before anything has moved

    An error on a rank ends all ranks and is raised here once, with a note which rank it was. LaunchError where the
    ranks can't be had.
    """
    announced = launcher_environment()
    threads = _choose(world, announced)
    if getattr(_here, "rank", None) is not None:
        raise LaunchError(f"launch() was called on rank {_here.rank} of another launch; a rank can't start ranks. Pass "
                          "the communicator on to what needs it, or launch one after the other")
    if ranks is not None and ranks < 1:
        raise LaunchError(f"a launch needs at least 1 rank, {ranks} was asked for")
    options = Options(deadline, run_deadline if run_deadline is not None else _defaults.run_deadline, recorder,
                      threads if checked is None else checked, arrays, kind, rescued)
    if threads:
        from minitp.launcher.threads import run_in_threads
        if ranks is not None and _defaults.ranks is not None and ranks != _defaults.ranks:
            raise wrong_number(ranks, _defaults.ranks)
        return run_in_threads(fn, ranks or _defaults.ranks or 1, options)
    from minitp.launcher.processes import run_in_mpi
    return run_in_mpi(fn, ranks, options)


def _choose(world: World, announced: tuple[int, int, int] | None) -> bool:
    """Whether the ranks are threads."""
    if world not in WORLDS:
        raise LaunchError(f"world {world!r} is not known; minitp has auto, threads and mpi")
    return world == "threads" or (world == "auto" and announced is None)


def wrong_number(wanted: int, got: int) -> LaunchError:
    """The refusal of a run on another number of ranks than it is written for."""
    import sys
    script = sys.argv[0] if sys.argv and sys.argv[0].endswith(".py") else "script.py"
    return LaunchError(f"this run needs {wanted} ranks, got {got}. Start it as `minitp run -n {wanted} {script}` or "
                       f"`mpirun -n {wanted} python {script}`")
