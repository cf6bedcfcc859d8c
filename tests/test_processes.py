"""One rank's part in a job, without MPI: what it does where MPI can be called from one thread only."""
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from minitp.errors import LaunchError
from minitp.launcher.processes import Job


def world():
    hotline = SimpleNamespace(rank=0, size=1, Improbe=lambda status: None)
    return SimpleNamespace(rank=0, size=1, Dup=lambda: hotline)


@pytest.fixture(params=[2, 3])
def level(request, monkeypatch):
    """The thread level that MPI gives; 3 is MPI_THREAD_MULTIPLE."""
    package = ModuleType("mpi4py")
    package.MPI = SimpleNamespace(Query_thread=lambda: request.param, THREAD_MULTIPLE=3, Status=lambda: None)
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    monkeypatch.setattr("atexit.register", lambda function: None)
    return request.param


def test_the_watchdog_needs_an_mpi_that_any_thread_may_call(level, capfd):
    job = Job(world())
    watched = any(thread.name == "watchdog" for thread in threading.enumerate())
    told = capfd.readouterr().err
    try:
        if level == 3:
            assert watched and not told
            with job.limit(60):
                pass
        else:
            assert not watched and told.count("MPI_THREAD_MULTIPLE") == 1
            with job.limit(None):
                pass
            with pytest.raises(LaunchError, match=r"can't be ended after 60 s.*--world threads"), job.limit(60):
                pass
    finally:
        job._close()
