"""launch(…, rescued=…): the trace of a run that failed is handed over once, and only where a run had begun."""
import signal
import threading
from queue import SimpleQueue

import numpy as np
import pytest

import minitp
from minitp.comm import Partial
from minitp.errors import CollectiveError, ConfigError, LaunchError
from minitp.launcher import threads
from minitp.launcher.rescue import written_to
from minitp.launcher.telling import describe
from minitp.trace import Trace

ENOUGH = 0.5                           # seconds for ranks to come to where they hang, also on a busy machine


def total(group, size=3, site="mlp.down"):
    return group.all_reduce(Partial(np.full(size, float(group.rank)), group), site=site, reason="test")


def failed(main, ranks=3, **options):
    """(the error, the traces that were handed over)."""
    kept: list[Trace] = []

    def rescued(trace):
        kept.append(trace)
        return f"trace {len(kept)}"

    with pytest.raises(BaseException) as caught:
        minitp.launch(main, ranks, rescued=rescued, **options)
    return caught.value, kept


def waiting(trace):
    return [(call.rank, call.sequence) for call in trace.unfinished_rows()]


def raises(group):
    total(group)
    if group.rank == 1:
        raise ValueError("line 7")
    total(group)


def leaving():
    """What ranks do of which rank 1 returns after the first sum: once it has, the others wait for it in a second."""
    gone: SimpleQueue[threading.Thread] = SimpleQueue()

    def main(group):
        total(group)
        if group.rank != 1:
            gone.get(timeout=60).join()
            return total(group)
        for _ in range(group.size - 1):
            gone.put(threading.current_thread())
    return main


def test_a_rank_raises():
    error, (trace,) = failed(raises)
    assert isinstance(error, ValueError) and error.__notes__[-1] == "trace 1" and len(error.__notes__) == 2
    assert trace.run["failed"].startswith("ValueError: line 7; on rank 1, after all_reduce")
    assert [(event.rank, event.sequence) for event in trace] == [(0, 0), (1, 0), (2, 0)]
    assert waiting(trace) == [(0, 1), (2, 1)]


@pytest.mark.parametrize("options, kind, says", [({"deadline": ENOUGH}, CollectiveError, "rank 1 has returned"),
                                                 ({"run_deadline": ENOUGH}, LaunchError, f"than its {ENOUGH} s")])
def test_a_rank_does_not_come(options, kind, says):
    error, (trace,) = failed(leaving(), **options)
    assert isinstance(error, kind) and error.__notes__[-1] == "trace 1"
    assert says in trace.run["failed"] and waiting(trace) == [(0, 1), (2, 1)]
    assert all(call.leave - call.enter > 0.03e9 for call in trace.unfinished_rows())


def test_ranks_that_are_stuck(monkeypatch):
    monkeypatch.setattr(threads, "_STUCK", 0.2)
    error, (trace,) = failed(leaving())
    assert "wait for each other" in str(error) and waiting(trace) == [(0, 1), (2, 1)]


def test_ranks_that_disagree():
    error, (trace,) = failed(lambda group: total(group, 3 + (group.rank == 1)))
    assert isinstance(error, CollectiveError) and not len(trace)
    assert [(call.rank, call.shape) for call in trace.unfinished_rows()] == [(0, (3,)), (1, (4,)), (2, (3,))]


def test_a_message_that_nobody_takes():
    def main(group):
        if group.rank == 0:
            group.send(np.ones(2), to=1, site="ring", reason="test")

    _, (trace,) = failed(main, 2, run_deadline=ENOUGH)
    (call,) = trace.unfinished_rows()
    assert (call.rank, call.op, call.peer, call.site) == (0, "send", 1, "ring")


def test_a_rank_that_computes_is_in_its_mark_and_in_no_call():
    def main(group):
        with group.recorder.mark("decode", 4):
            while group.rank == 1:
                pass
            total(group)

    _, (trace,) = failed(main, 2, run_deadline=ENOUGH)
    assert waiting(trace) == [(0, 0)] and [(mark.rank, mark.step) for mark in trace.mark_rows()] == [(0, 4), (1, 4)]


def test_who_fails_right_after_a_meeting_takes_no_result_from_the_others():
    """The quickest rank fails before the others have looked up from the meeting that all had come to."""
    assert all(waiting(failed(raises)[1][0]) == [(0, 1), (2, 1)] for _ in range(20))


def test_not_where_all_ranks_refuse():
    def main(group):
        group.barrier(site="begin", reason="test")
        raise ConfigError("52 heads can't be cut")

    error, kept = failed(main)
    assert isinstance(error, ConfigError) and not kept


def test_not_where_no_run_failed():
    kept = []
    assert minitp.launch(lambda group: group.rank, 2, rescued=kept.append) == [0, 1] and not kept


def test_not_on_ctrl_c():
    all_there = threading.Barrier(3)

    def main(group):
        all_there.wait(60)
        if group.rank == 0:
            signal.raise_signal(signal.SIGINT)
        total(group, site=f"never.{group.rank}")

    error, kept = failed(main)
    assert isinstance(error, KeyboardInterrupt) and not kept


def test_an_error_of_who_wanted_the_trace_hides_none():
    def rescued(trace):
        raise OSError("the disk is full")

    with pytest.raises(ValueError, match="line 7") as caught:
        minitp.launch(raises, 3, rescued=rescued)
    assert caught.value.__notes__[-1] == "the trace up to there could not be kept: the disk is full"


def test_a_folder_that_is_gone_is_told_as_the_user_named_the_file(tmp_path):
    with pytest.raises(ValueError, match="line 7") as caught:
        minitp.launch(raises, 3, rescued=written_to(str(tmp_path / "gone" / "run.json")))
    assert caught.value.__notes__[-1] == ("the trace up to there could not be kept: No such file or directory: "
                                          f"'{tmp_path / 'gone' / 'run.json'}'")


class MuteError(Exception):
    """It has no words, not even for itself."""

    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("error, code, told", [
    (SystemExit(3), 3, "minitp: trace 1\n"), (SystemExit("enough"), 1, "enough\n  on rank 1, after {}\n  trace 1"),
    (MemoryError(), 2, "\n  on rank 1, after {}\n  trace 1"), (MuteError(), 1, "\non rank 1, after {}\ntrace 1"),
    (KeyboardInterrupt(), 130, "stopped by Ctrl-C\n  on rank 1, after {}\n  trace 1")])
def test_where_the_trace_is_is_told_whatever_the_error(capsys, error, code, told):
    def main(group):
        total(group)
        if group.rank == 1:
            raise error
        total(group)

    raised, (trace,) = failed(main)
    said = describe(raised)
    assert raised is error and said.code == code and trace.run["failed"].startswith(type(error).__name__)
    assert (said.text + capsys.readouterr().err).endswith(told.format("all_reduce(3 float64) at mlp.down, call 0"))


def test_a_recorder_that_keeps_nothing_has_nothing_to_hand_over():
    from minitp.trace.recorder import Recorder
    error, kept = failed(raises, recorder=lambda rank: Recorder(rank, keep_events=False))
    assert isinstance(error, ValueError) and not kept


def test_what_the_header_says_is_what_the_recorder_was_told():
    def main(group):
        group.recorder.about = lambda: {"command": [], "model": {"name": "toy"}}
        raises(group)

    _, (trace,) = failed(main)
    assert (trace.run["command"], trace.run["model"], trace.run["ranks"]) == ([], {"name": "toy"}, 3)
