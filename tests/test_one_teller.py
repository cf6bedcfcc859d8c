"""Of the ranks of an MPI job that fail at different times one writes the trace, of the recordings of all.

Without MPI: a job whose hotline is a list of what the others say, and when. Who tells what: tests/test_processes.py.
"""
import threading

import pytest

from minitp.comm import Communicator
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.launcher import processes
from minitp.launcher.hotline import ANSWER, ASK, FAILED, FETCH, RECORDING
from minitp.launcher.processes import Job
from minitp.launcher.telling import OUT_OF_TIME, describe

RANK, SIZE = 1, 4
BEFORE = 0                                         # the hotline has no such kind
FAILURE = describe(ValueError("line 7"))


class Line:
    """A hotline on which the others say what `says` has, before or as soon as this rank waits for an answer of a kind;
    those that fail, of `key`."""

    def __init__(self, says, key):
        self.says, self.key, self.told = says, key, []
        self.heard = {kind: {} for kind in (FAILED, ASK, ANSWER, FETCH, RECORDING)}
        self.hear(BEFORE)

    def tell(self, kind, text):
        self.told.append(kind)

    def listen(self):
        pass

    def wait_for_all(self, kind, seconds):
        self.hear(kind)
        return dict(self.heard[kind])

    def hear(self, now):
        for (during, said), ranks in self.says.items():
            if during == now:
                self.heard[said] |= dict.fromkeys(ranks, self.key)


class AbortedError(Exception):
    pass


@pytest.fixture
def outcome(monkeypatch):
    """What a rank does that ends the job: what it tells, whom it asks, whether it keeps the trace or stands back."""
    def after(end, says, key="1 another"):
        lines, stood_back = [], []

        def abort(job, code):
            raise AbortedError

        monkeypatch.setattr(processes, "_write", lambda text, code: lines.append(text.splitlines()[0]))
        monkeypatch.setattr(processes, "_mute", lambda *streams: None)
        monkeypatch.setattr(processes, "handed_over", lambda *given: "kept")
        monkeypatch.setattr(processes.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(Job, "abort", abort)
        monkeypatch.setattr(Job, "_leave_to_others", lambda job, seconds: stood_back.append(seconds))
        job, group = Job.__new__(Job), Communicator(ThreadTransport(ThreadWorld(SIZE), RANK))
        job.rank, job.size, job.hotline, job.rescued, job.doing = RANK, SIZE, Line(says, key), len, None
        job.groups, job._ending = [group], threading.Lock()
        with pytest.raises(AbortedError):
            end(job)
        return lines, "minitp: kept" in lines, bool(stood_back)
    return after


def fails(job):
    job.fail(FAILURE)


def out_of_time(job):
    job._out_of_time(OUT_OF_TIME, "too long")


@pytest.mark.parametrize("says, keeps", [
    ({}, True),
    ({(FAILED, FETCH): [3]}, False),               # another one failed earlier, alone, and is about it
    ({(RECORDING, FETCH): [0]}, False),            # both asked at once
    ({(RECORDING, FETCH): [3]}, True)])
def test_who_fails_tells_its_error_and_one_keeps_the_trace(outcome, says, keeps):
    lines, kept, stood_back = outcome(fails, says)
    assert lines[0].startswith("rank 1: ") and kept is keeps and stood_back is not keeps


@pytest.mark.parametrize("says, tells", [
    ({}, True),
    ({(ANSWER, FETCH): [3]}, False),               # a higher one asked earlier, and has told it
    ({(ANSWER, FAILED): [3]}, False)])             # it tells why it never comes
def test_who_is_out_of_time_tells_what_nobody_else_does(outcome, says, tells):
    lines, kept, stood_back = outcome(out_of_time, says)
    assert lines == ["minitp: error: too long", "minitp: kept"] * tells and kept is tells and stood_back is not tells


@pytest.mark.parametrize("says, tells", [
    ({(FAILED, FAILED): [2, 3]}, True),
    ({(BEFORE, FAILED): [3], (BEFORE, FETCH): [3]}, False),           # it has told the same
    ({(BEFORE, FAILED): [2], (BEFORE, FETCH): [3]}, True)])           # it has told something else
def test_the_same_error_is_told_once(outcome, says, tells):
    lines, _, _ = outcome(fails, says, FAILURE.key)
    assert any("line 7" in line for line in lines) is tells


def test_who_keeps_the_trace_packs_its_own_recording_before_it_waits_for_another(outcome, monkeypatch):
    order = []
    monkeypatch.setattr(processes, "recording_of", lambda group: order.append("packed"))
    monkeypatch.setattr(Line, "hear", lambda line, now: order.append(now))
    outcome(fails, {})
    assert order == [BEFORE, FAILED, "packed", RECORDING]


def test_of_two_that_are_out_of_time_at_once_both_tell_and_one_keeps_the_trace(outcome):
    lines, kept, stood_back = outcome(out_of_time, {(RECORDING, FETCH): [0]})
    assert lines == ["minitp: error: too long"] and not kept and stood_back
