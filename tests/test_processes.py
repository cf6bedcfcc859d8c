"""One rank's part in a job, without MPI: where only one thread can call MPI, and who tells what went wrong."""
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from minitp.errors import LaunchError
from minitp.launcher import processes
from minitp.launcher.hotline import ANSWER, ASK, FAILED, FETCH, RECORDING, Hotline
from minitp.launcher.processes import Job
from minitp.launcher.telling import describe


def world(rank=0, size=1):
    hotline = SimpleNamespace(rank=rank, size=size, Improbe=lambda status: None)
    return SimpleNamespace(rank=rank, size=size, Dup=lambda: hotline)


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


def test_no_word_of_a_script_keeps_ranks_from_being_asked():
    """Nor an answer from coming: its watchdog would be gone, and the run never end."""
    sent = []
    comm = SimpleNamespace(Isend=lambda buffer, dest, tag: sent.append((dest, tag, bytes(buffer))))
    line = Hotline(SimpleNamespace(rank=1, size=3, Dup=lambda: comm), str, str)
    line.tell(ASK, "mlp\ud800" + "x" * 1000)
    assert [(dest, tag, len(text), text[:5]) for dest, tag, text in sent] == [
        (rank, ASK, 512, b"mlp?x") for rank in (0, 2)]


class EndedError(Exception):
    """The job is ended here."""


class Heard:
    """A hotline on which others have said `before`, and say `later` once somebody waits for them."""

    def __init__(self, before, later):
        self.heard = {kind: dict(before.get(kind, {})) for kind in (FAILED, ASK, ANSWER, FETCH, RECORDING)}
        self.later, self.said = later, []

    def tell(self, kind, text):
        self.said.append(kind)

    def wait_for_all(self, kind, seconds):
        for other, texts in self.later.items():
            self.heard[other].update(texts)
        return dict(self.heard[kind])


@pytest.fixture
def trouble(monkeypatch):
    """trouble(rank, before, later, way): what rank 1 or another of three tells, keeps, and leaves to others."""
    package = ModuleType("mpi4py")
    package.MPI = SimpleNamespace(Query_thread=lambda: 2, THREAD_MULTIPLE=3)
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def happened(rank, before, later, way):
        did = []

        def end(code):
            raise EndedError

        job = Job(world(rank, 3))
        job.hotline = Heard(before, later)
        monkeypatch.setattr(processes, "_write", lambda text, code: did.append("told"))
        monkeypatch.setattr(job, "_rescue", lambda why, refusal, code: did.append("kept"))
        monkeypatch.setattr(job, "_leave_to_others", lambda seconds: did.append("left"))
        monkeypatch.setattr(job, "abort", end)
        with pytest.raises(EndedError):
            way(job)
        return did
    return happened


BOO = describe(ValueError("boo"))


@pytest.mark.parametrize(("rank", "before", "later", "does"), [
    (2, {}, {}, ["told", "kept"]),
    (0, {ASK: {2: "late"}}, {}, ["left"]),                     # it has answered: rank 2 tells it
    (0, {}, {ASK: {2: "late"}}, ["told", "kept"]),             # both have asked before they heard of the other
    (2, {}, {ASK: {0: "late"}}, ["left"]),
    (0, {FAILED: {1: BOO.key}}, {}, ["left"]),                 # that others don't come is because rank 1 has failed
    (0, {FETCH: {1: ""}}, {}, ["left"])])
def test_that_time_is_up_is_told_once(trouble, rank, before, later, does):
    assert trouble(rank, before, later, lambda job: job._out_of_time(124, "time is up")) == does


@pytest.mark.parametrize(("rank", "before", "later", "does"), [
    (1, {}, {}, ["told", "kept"]),
    (1, {}, {FAILED: {2: BOO.key}}, ["told", "kept"]),
    (1, {}, {FAILED: {0: BOO.key}}, ["left"]),
    (1, {}, {FAILED: {0: "1 other"}}, ["told", "left"]),
    (0, {FAILED: {1: BOO.key}, FETCH: {1: ""}}, {}, ["left"]),             # told by rank 1, long ago
    (0, {FAILED: {1: "1 other"}, FETCH: {1: ""}}, {}, ["told", "left"]),
    (0, {FAILED: {1: BOO.key}}, {FETCH: {1: ""}}, ["left"])])
def test_an_error_is_told_once_however_late_others_meet_it(trouble, rank, before, later, does):
    assert trouble(rank, before, later, lambda job: job.fail(BOO)) == does
