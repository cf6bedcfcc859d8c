"""An error on its way to the user: told once, by one rank, and the job ended everywhere with the right exit code."""
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from minitp.environment import is_first_rank, launcher_environment
from minitp.launcher.telling import PROGRAM_ERROR, describe


def fail(error: BaseException, hide: str | None = None) -> NoReturn:
    """Tell `error` and end: a user's error (MinitpError) as one message and exit code 2, any other with its traceback.

    In an MPI job all ranks end; ranks that failed of the same let the lowest speak. Elsewhere raises SystemExit.
    `hide`: a script's file; frames before it are left out of the traceback.
    """
    from minitp.launcher.processes import current_job
    failure, job = describe(error, hide), current_job()
    if job is not None:
        job.fail(failure)
    if failure.text and (is_first_rank() or failure.code == PROGRAM_ERROR):    # no MPI to agree on who speaks
        print(failure.text, file=sys.stderr, flush=True)
    raise SystemExit(failure.code)


@contextmanager
def reported(*, first_rank_only: bool = False, hide: str | None = None, join: bool = True) -> Iterator[None]:
    """The frame of a whole program: whatever escapes is told once and ends the process, and its job, by exit code.

    Under an MPI launcher it opens the job first, so that every rank is ready to hear of another's failure.
    first_rank_only: what the other ranks print goes nowhere (errors are still told). join: False leaves the job alone.
    """
    try:
        if launcher_environment() is not None:
            from minitp.launcher.processes import open_job
            first = open_job().rank == 0 if join else is_first_rank()
            if first_rank_only and not first:
                sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")    # noqa: SIM115 (until the end)
        yield
    except SystemExit as end:
        if not end.code:
            raise
        fail(end, hide)
    except BaseException as error:
        fail(error, hide)
