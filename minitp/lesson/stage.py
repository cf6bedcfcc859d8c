"""Where a lesson runs: in a notebook or as a script, on threads or under an MPI launcher."""
import os
import signal
import sys
import threading

from minitp.environment import launcher_environment, print_anyway, settle_blas_threads
from minitp.trace.wording import count


def in_notebook() -> bool:
    """Whether there is somebody to show pictures to: a kernel, not a script or a terminal's IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


def mpi_ranks() -> int | None:
    """How many processes an MPI launcher started; None in a notebook or a plain script."""
    announced = launcher_environment()
    return None if announced is None else announced[1]


def begin(lesson: str) -> None:
    """Say what this lesson's ranks are. Under mpirun all processes run the cells, and rank 0 alone prints.

    Errors of the other ranks are still told: they go to stderr.
    """
    announced = launcher_environment()
    print_anyway(sys.stdout)
    if announced is None:
        in_main = threading.current_thread() is threading.main_thread()
        if hasattr(signal, "SIGPIPE") and sys.stdout is sys.__stdout__ and in_main:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)      # a script whose reader has left (| head) ends silently
        print(f"Lesson {lesson}: the ranks are threads of this process.")
        return
    settle_blas_threads()
    rank, size, _ = announced
    if rank:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of this process
    print(f"Lesson {lesson}: the {'rank is' if size == 1 else 'ranks are'} the {count(size, 'process')} that mpirun "
          "started; rank 0 prints.")
