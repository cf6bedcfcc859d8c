"""Ranks that are threads: results, errors told once, deadlines, Ctrl-C, BLAS threads."""
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import minitp
from minitp import environment
from minitp.comm import Partial, threads
from minitp.errors import CollectiveError, ConfigError, LaunchError
from minitp.launcher import run_script
from minitp.launcher import threads as launcher_threads
from minitp.launcher.failures import fail, reported
from minitp.launcher.telling import USER_ERROR, describe
from minitp.launcher.world import script_defaults
from minitp.trace.recorder import Recorder

ROOT = Path(__file__).parents[1]


def total(group, size=3):
    """One all-reduce: every rank gets 0 + 1 + … in each entry."""
    return group.all_reduce(Partial(np.full(size, float(group.rank)), group), site="layers.0.mlp.down", reason="test")


def comes_only_once_a_rank_was_freed(group, freed):
    """The other ranks wait in vain until the first of them is let go, however long that takes."""
    if group.rank == 1:
        assert freed.wait(60)
    try:
        total(group)
    finally:
        freed.set()


def no_rank_left():
    return not [thread for thread in threading.enumerate() if thread.name.startswith("rank ")]


@pytest.fixture
def soon_stuck(monkeypatch):
    """Ranks that wait for each other are told so soon: what is said doesn't depend on how long it was waited for."""
    monkeypatch.setattr(launcher_threads, "_STUCK", 0.2)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_results_of_all_ranks_in_order(ranks):
    results = minitp.launch(lambda group: (group.rank, group.size, total(group)[0]), ranks=ranks)
    assert results == [(rank, ranks, sum(range(ranks))) for rank in range(ranks)]
    assert minitp.launch(lambda group: group.checked, ranks=ranks) == [True] * ranks
    assert callable(minitp.launch)               # still the function, whatever has been imported meanwhile


def test_without_a_number_it_is_one_rank_or_what_the_runner_was_told():
    assert minitp.launch(lambda group: group.size) == [1]
    with script_defaults(3, None):
        assert minitp.launch(lambda group: group.size) == [3, 3, 3]
        with pytest.raises(LaunchError, match="needs 4 ranks, got 3"):
            minitp.launch(lambda group: None, ranks=4)


def test_a_recorder_per_rank():
    recorders = [Recorder(rank) for rank in range(3)]
    minitp.launch(total, ranks=3, recorder=recorders.__getitem__)
    assert [len(recorder.events) for recorder in recorders] == [1, 1, 1]


def test_one_rank_raises_and_the_others_are_freed():
    def main(group):
        total(group)
        if group.rank == 2:
            raise ZeroDivisionError("boo")
        total(group)

    began = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="boo") as caught:
        minitp.launch(main, ranks=4)
    assert caught.value.__notes__ == ["on rank 2, after all_reduce(3 float64) at layers.0.mlp.down, call 0"]
    assert time.monotonic() - began < 30 and no_rank_left()         # a collective's own deadline is 300 s


def test_an_error_inside_a_collective_names_it():
    def broken(*_args, **_kwargs):
        raise MemoryError("no room for the sum")

    def main(group):
        total(group)
        if group.rank == 1:
            group.transport.all_reduce = broken
        total(group)

    with pytest.raises(MemoryError) as caught:
        minitp.launch(main, ranks=2)
    assert caught.value.__notes__ == ["on rank 1, in all_reduce(3 float64) at layers.0.mlp.down, call 1"]


def test_the_same_error_on_all_ranks_is_raised_once():
    meet = threading.Barrier(3)

    def main(group):
        meet.wait()
        raise ConfigError("52 heads can't be cut")

    with pytest.raises(ConfigError) as caught:
        minitp.launch(main, ranks=3)
    assert not hasattr(caught.value, "__notes__")          # where a refused request was met is no news


def test_of_different_errors_the_others_are_noted():
    meet = threading.Barrier(2)

    def main(group):
        meet.wait()
        raise ValueError(f"mine is {group.rank}")

    with pytest.raises(ValueError, match="mine is") as caught:
        minitp.launch(main, ranks=2)
    assert "failed too: ValueError: mine is" in caught.value.__notes__[1]


def test_what_only_the_root_does_fails_on_all_ranks():
    def main(group):
        group.on_root(lambda: Path("/nowhere/at/all").read_text(), site="load", reason="test")

    with pytest.raises(FileNotFoundError, match="nowhere") as caught:
        minitp.launch(main, ranks=3)
    assert "broadcast" in caught.value.__notes__[0]


def test_a_mismatch_names_the_ranks():
    with pytest.raises(CollectiveError, match=r"ranks 0, 2: all_reduce\(3 float64\)[^\n]*\n  rank 1: all_reduce\(4"):
        minitp.launch(lambda group: total(group, 3 + (group.rank == 1)), ranks=3)


def test_a_rank_that_has_returned_is_said_to_have():
    leaving = SimpleQueue()

    def main(group):
        if group.rank == 1:
            return leaving.put(threading.current_thread())
        leaving.get(timeout=60).join()
        total(group)

    with pytest.raises(CollectiveError, match=r"waited 0\.2 s in all_reduce.*: rank 1 has returned$"):
        minitp.launch(main, ranks=2, deadline=0.2)


def test_deadline_of_a_collective():
    freed = threading.Event()
    with pytest.raises(CollectiveError, match=r"waited 0\.2 s in all_reduce.*rank 1 has come to no call yet"):
        minitp.launch(lambda group: comes_only_once_a_rank_was_freed(group, freed), ranks=3, deadline=0.2)
    assert no_rank_left()


def test_a_rank_that_returned_can_not_come_any_more(soon_stuck):
    def main(group):
        if group.rank != 1:
            total(group)

    with pytest.raises(CollectiveError, match="wait for each other") as caught:
        minitp.launch(main, ranks=3)
    assert "ranks 0 and 2: waiting in all_reduce(3 float64)" in str(caught.value)
    assert "rank 1: has returned" in str(caught.value)


def test_ranks_that_add_up_large_arrays_are_not_taken_for_stuck(soon_stuck, monkeypatch):
    """Each rank is inside the collective for longer than a stuck one would be, and has work to do there."""
    real = threads._sum_in_rank_order

    def slow(arrays):
        time.sleep(0.6)                          # and the launcher looks five times meanwhile
        return real(arrays)

    monkeypatch.setattr(launcher_threads, "_LOOK", 0.05)
    monkeypatch.setattr(threads, "_sum_in_rank_order", slow)
    assert [sums[0] for sums in minitp.launch(total, ranks=2)] == [1.0, 1.0]


def test_ranks_that_a_busy_machine_lets_go_late_are_not_taken_for_stuck(soon_stuck):
    """All have come, and each takes longer to look up than a stuck one would be given."""
    @contextmanager
    def late():
        yield
        time.sleep(0.5)

    def main(group):
        group.transport.idle = late
        return total(group)[0]

    assert minitp.launch(main, ranks=2) == [1.0, 1.0]


def test_deadline_of_the_run_ends_a_rank_that_computes():
    def main(group):
        while group.rank == 1:
            pass
        total(group)

    with pytest.raises(LaunchError, match=r"longer than its 0\.5 s") as caught:
        minitp.launch(main, ranks=2, run_deadline=0.5)
    assert "rank 1: computing, no collective call yet" in str(caught.value)
    assert no_rank_left()


def test_ctrl_c_ends_waiting_and_computing_ranks():
    all_there = threading.Barrier(3)

    def main(group):
        all_there.wait(60)
        if group.rank == 0:
            time.sleep(0.1)                      # rank 2 comes to wait in its collective
            signal.raise_signal(signal.SIGINT)
        while group.rank == 1:
            pass
        total(group)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        minitp.launch(main, ranks=3)
    assert time.monotonic() - began < 30 and no_rank_left()


def test_a_rank_can_not_launch():
    with pytest.raises(LaunchError, match=r"on rank \d of another launch"):
        minitp.launch(lambda group: minitp.launch(total, ranks=2), ranks=2)
    assert minitp.launch(lambda group: group.size, ranks=2) == [2, 2]


def test_no_ranks_can_not_be_launched():
    with pytest.raises(LaunchError, match="at least 1 rank"):
        minitp.launch(total, ranks=0)


def blas_threads(_group=None):
    return max([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"], default=1)


def test_blas_threads_are_shared_out_while_ranks_run(monkeypatch):
    for name in environment.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = blas_threads()
    assert set(minitp.launch(blas_threads, ranks=4)) <= {1, environment.threads_per_rank(4)}
    assert blas_threads() == before
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert set(minitp.launch(blas_threads, ranks=4)) == {before}


def test_reported_tells_a_users_error_in_one_message(capsys):
    with pytest.raises(SystemExit) as end, reported():
        raise ConfigError("9 heads")
    assert end.value.code == 2 and capsys.readouterr().err == "minitp: error: 9 heads\n"
    with pytest.raises(SystemExit) as end, reported():
        raise KeyboardInterrupt
    assert end.value.code == 130 and capsys.readouterr().err == "minitp: stopped by Ctrl-C\n"
    with pytest.raises(SystemExit) as end:
        fail(KeyError("k"))
    assert end.value.code == 1 and "KeyError" in capsys.readouterr().err


@pytest.mark.parametrize(("last", "code", "told"), [
    ("", 0, ""), ("raise SystemExit(5)", 5, ""), ("raise SystemExit('enough')", 1, "enough"),
    ("raise KeyError('k')", 1, "KeyError: 'k'"), ("from minitp.errors import ConfigError; raise ConfigError('no')", 2,
                                                  "minitp: error: no\n")])
def test_a_script_on_threads(tmp_path, capsys, last, code, told):
    script = tmp_path / "script.py"
    script.write_text("import sys, minitp, beside\n"
                      "print(sys.argv[1:], __name__, minitp.launch(lambda g: g.rank))\n" + last)
    (tmp_path / "beside.py").write_text("")
    before = sys.argv, sys.path[:]
    assert run_script(str(script), ["a", "-b"], 3, "threads") == code
    assert (sys.argv, sys.path) == before
    printed = capsys.readouterr()
    assert printed.out == "['a', '-b'] __main__ [0, 1, 2]\n"
    assert told in printed.err and "runpy" not in printed.err


def test_ctrl_c_on_a_script_on_threads(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import minitp\n"
                      "def main(group):\n"
                      "    if group.rank == 0: print('up', flush=True)\n"
                      "    while group.rank: pass\n"
                      "    group.barrier(site='a', reason='b')\n"
                      "minitp.launch(main)\n")
    code = "import sys; from minitp.launcher import run_script; sys.exit(run_script(sys.argv[1], [], 2, 'threads'))"
    process = subprocess.Popen([sys.executable, "-c", code, script], env=os.environ | {"PYTHONPATH": str(ROOT)},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130 and told == "minitp: stopped by Ctrl-C\n"


def test_sys_exit_0_on_one_rank_ends_that_rank_alone(soon_stuck):
    def leaves(group):
        if group.rank == 1:
            sys.exit(0)
        return group.rank

    assert minitp.launch(leaves, 3) == [0, None, 2]

    def leaves_the_others_waiting(group):
        if group.rank == 1:
            sys.exit()
        group.barrier(site="s", reason="r")

    with pytest.raises(CollectiveError, match="rank 1: has returned"):
        minitp.launch(leaves_the_others_waiting, 3)


def test_too_little_memory_is_told_without_a_traceback():
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 61, np.uint8)
    told = describe(caught.value)
    assert told.code == USER_ERROR and "memory isn't enough: Unable to allocate" in told.text
