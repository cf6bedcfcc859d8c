"""What the lessons are written with: runs, predictions, pictures, exercises, on threads and on MPI ranks."""
import json
import os
import subprocess
import sys
import time
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import config as checks

import minitp
from minitp.errors import ConfigError
from minitp.lesson import exercise, picture, predict, run
from minitp.lesson.attempt import attempt
from minitp.lesson.carry import from_plain, to_plain
from minitp.lesson.exercises import judged
from minitp.lesson.exercises.base import number
from tests.lessons.notebooks import LESSONS
from tests.lessons.test_mpi_scripts import mpirun

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.lists(st.integers(-9, 9), max_size=4).map(np.array),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text("abcd", min_size=1), inner, max_size=3), max_leaves=8)


def same(one, other):
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and one == other


@given(PLAIN)
def test_what_ranks_return_comes_back(value):
    assert same(value, from_plain(to_plain(value)))


@pytest.mark.parametrize("value", [
    {1, 2}, {1: 2}, object(), {"__array__": 1}, 1j, np.complex64(1), np.ones(2, complex), np.array([object()]),
    np.datetime64("2026-12-01"), np.array(["2026-12-01"], "datetime64[ns]"), np.datetime64(5, "ns"), [np.void(b"a")],
    np.zeros(2, [("a", "i4")])])
def test_what_cannot_be_carried_is_refused(value):
    with pytest.raises(ConfigError, match="arrays, numbers, text"):
        to_plain(value)


def test_numpy_s_numbers_and_slices_come_back():
    for one, plain in ((np.float32(0.5), 0.5), (np.int64(3), 3), (np.True_, True), (np.str_("a"), "a"),
                       (np.longdouble(2), 2.0)):
        assert same(from_plain(json.loads(json.dumps(to_plain(one)))), plain)
    for array in (np.arange(12).reshape(3, 4).T, np.arange(6)[::2], np.ones((2, 0)), np.array(["a", "bc"]),
                  np.ones(3, ml_dtypes.bfloat16)):
        assert same(from_plain(to_plain(array)), array)


def test_a_run_has_all_results_and_what_was_said(capsys):
    found = run(lambda tp: tp.all_reduce(minitp.Partial(np.full(3, tp.rank + 1.0), tp), site="here", reason="add"), 5)
    assert found.ranks == 5 and all(np.array_equal(one, np.full(3, 15.0)) for one in found.results)
    assert (found.sync_points, found.payload) == (1, 24)
    found.tell()
    assert capsys.readouterr().out == "all_reduce at here: partial → whole, shape (3,), 24 B: add\n"


def test_messages_are_no_sync_points():
    def pass_on(tp):
        if tp.rank == 0:
            tp.send(np.ones(2), to=1, site="here", reason="pass on")
        elif tp.rank == 1:
            tp.receive(shape=(2,), dtype=np.float64, source=0, site="here", reason="take")

    found = run(pass_on, 2)
    assert found.sync_points == 0 and len(found.events) == 1


@pytest.fixture
def as_users_call():
    """Without the tests' check of annotations, which would refuse first, in its own words."""
    before = checks.jaxtyping_disable
    checks.update("jaxtyping_disable", True)
    yield
    checks.update("jaxtyping_disable", before)


@pytest.mark.parametrize("ranks", [2.0, "3", None, 0, -1, 65, True, float("nan")])
def test_a_run_on_what_is_no_number_of_ranks_is_refused(ranks, as_users_call):
    with pytest.raises(ConfigError, match=r"ranks=.*whole number of them from 1 to 64"):
        run(lambda tp: tp.rank, ranks)


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf"), "3", True])
def test_a_deadline_is_seconds(deadline, as_users_call):
    with pytest.raises(ConfigError, match=r"deadline=.*seconds that the run may take, more than 0"):
        run(lambda tp: tp.rank, 2, deadline=deadline)


def test_a_run_takes_a_function_and_numpy_s_numbers(as_users_call):
    with pytest.raises(ConfigError, match=r"takes a function that every rank calls.*; 5 is none"):
        run(5, 2)
    assert run(lambda tp: tp.rank, np.int64(2), deadline=np.float64(9)).results == [0, 1]


SCRIPT = """
import os
import numpy as np
from minitp.lesson import begin, run
begin("00")
found = run(lambda tp: {"rank": tp.rank, "array": np.arange(tp.rank)}, ranks=4)
assert [one["rank"] for one in found.results] == [0, 1, 2]
assert [one["array"].size for one in found.results] == [0, 1, 2] and found.trace.run["ranks"] == 3
exact = run(lambda tp: tp.size, ranks=5, threads=True)
assert exact.results == [5] * 5
print("printed by one")
"""


@pytest.mark.parametrize("rank, size, said", [
    (0, 1, "Lesson 00: the rank is the 1 process that mpirun started; rank 0 prints.\n? to 1\n"), (1, 2, ""),
    (None, None, "Lesson 00: the ranks are threads of this process.\n? to 1\n")])
def test_where_the_terminal_knows_ascii_alone_a_lesson_goes_on(rank, size, said):
    announced = {} if rank is None else {"PMI_RANK": str(rank), "PMI_SIZE": str(size)}
    code = "from minitp.lesson import begin; begin('00'); print('\\u2192 to 1')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180,
                          env=os.environ | announced | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    assert (done.returncode, done.stdout) == (0, said), done.stderr


@pytest.mark.mpi
def test_under_mpirun_every_process_sees_all_results_and_one_prints(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text(SCRIPT)
    done = mpirun(3, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Lesson 00: the ranks are the 3 processes that mpirun started; rank 0 prints.", "printed by one"]


def test_minitp_run_sets_the_number_of_threads():
    command = [sys.executable, "-m", "minitp", "run", "-n", "3", "--world", "threads", str(LESSONS / "02_two_cuts.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "rank 2 computed" in done.stdout and "rank 3 computed" not in done.stdout


@pytest.mark.parametrize("guess, found, says", [
    (None, 3, "No guess yet. The run says: 3."), (3, 3, "Right."), (6, 3, "Too high by a factor of 2."),
    (1, 0, "Off by 1."), (-1, 2, "Off by 3."), (1.5, 2.0, "Close: off by a factor of 1.33."), (1, 4.0, "Too low by"),
    (True, True, "Right."), (False, True, "You said no. The run says: yes. Not so."), ("Ring ", "ring", "Right."),
    ("ring", 3, "Not so."), ("Yes", True, "Right."), ("true", "yes", "Right."), ("no", True, "Not so."),
    ("All reduce", "all-reduce", "Right."),
    (300, 200, "Close: off by a factor of 1.50."), (6, 4, "Too high by a factor of 1.5."),
    (20000, 25529.7, "The run says: 25,530. Close"), (None, 0.00012345, "says: 0.0001234."),
    (1234, 1234, "You said 1,234."), (np.int64(3), 3, "You said 3. The run says: 3. Right."),
    (np.float32(0.5), np.float64(0.5), "You said 0.5. The run says: 0.5. Right."), (np.True_, True, "You said yes."),
    (Fraction(1, 2), 0.5, "Right.")])
def test_a_guess_is_compared(guess, found, says, capsys):
    predict("how many?", guess).check(found, "so it is")
    said = capsys.readouterr().out
    assert says in said and "Why: so it is" in said


def test_a_guess_is_a_number_or_a_word():
    with pytest.raises(ConfigError, match="a guess is a number"):
        predict("how many?", [1])


def test_a_script_prints_a_picture_s_words_and_draws_nothing(capsys):
    picture(lambda: pytest.fail("drawn"), "three boxes")
    assert capsys.readouterr().out == "Picture: three boxes\n"


def test_an_attempt_that_fails_is_told():
    tried = attempt(lambda tp: tp.rank / 0, 2)
    assert tried.run is None and "ZeroDivisionError" in tried.error and "rank" in tried.error
    assert attempt(lambda tp: None, 2).blank


def test_a_number_s_exercise_hints():
    asked = number(lambda: 12.0, lambda right: f"{right:g} it is.", hint="Count the ends.", tolerance=0.01)
    assert asked.judge(12.1).passed and asked.judge(12).words == "12 it is."
    assert asked.judge(24).words == "24 is too high. Count the ends."
    assert asked.judge("twelve").passed is False and asked.judge(True).passed is False
    assert asked.judge(np.float32(12)).passed and asked.judge(np.int64(12)).passed and asked.judge(Fraction(12)).passed
    for none in (np.True_, float("nan"), 12 + 0j, np.complex64(12), np.timedelta64(12, "ns")):
        assert "a number is asked for" in asked.judge(none).words


def test_numbers_of_numpy_are_answers():
    assert judged("2.1", np.int64(2304)).passed and judged("2.1", np.float32(2304)).passed


@pytest.mark.parametrize("number", ["2.2", "6.3", "A.3"])
def test_no_answer_goes_on_for_ever(number, monkeypatch):
    def endless(*_):
        while True:
            time.sleep(0.001)

    monkeypatch.setattr("minitp.lesson.attempt.DEADLINE", 0.1)
    monkeypatch.setattr("minitp.lesson.exercises.lesson_a.SECONDS", 0.1)
    verdict = judged(number, endless)
    assert verdict.passed is False and "longer than its 0.1 s" in verdict.words and "doesn't end" in verdict.words


def test_verdicts_of_what_is_none(capsys):
    exercise("2.1", None)
    assert capsys.readouterr().out == "· Exercise 2.1: still blank.\n"
    for wrong, said in (("2.99", "lesson 2 has 2.1"), ("77.1", "no lesson '77'"), ("q.1", "no lesson 'Q'")):
        with pytest.raises(ConfigError, match=said):
            judged(wrong, 1)
    assert "TypeError" in judged("2.2", lambda: 1).words


@pytest.mark.parametrize("written, plain", [("02.1", "2.1"), (" 2.1 ", "2.1"), ("a.1", "A.1"), ("A.1", "A.1")])
def test_an_exercise_is_found_however_its_number_is_written(written, plain, capsys):
    exercise(written, None)
    assert capsys.readouterr().out == f"· Exercise {plain}: still blank.\n"


@pytest.mark.parametrize("number", [2.1, 2, None])
def test_the_number_of_an_exercise_is_text(number, as_users_call):
    with pytest.raises(ConfigError, match=rf'in quotes, as exercise\("2.1", …\); this is {number}'):
        exercise(number, 1)


@pytest.mark.parametrize("answer", [5, "columns", np.ones(3)])
def test_where_a_function_is_asked_for_all_else_is_told_in_one_sentence(answer):
    verdict = judged("2.2", answer)
    assert verdict.passed is False and verdict.words.startswith("a function is asked for, this is ")


def test_an_answer_that_exits_is_an_answer():
    assert "SystemExit: enough" in judged("15.3", lambda *_: sys.exit("enough")).words
    assert judged("2.2", lambda *_: sys.exit(1)).passed is False


def test_a_rank_that_leaves_early_is_said_to_have_returned():
    tried = attempt(lambda tp: tp.rank and tp.all_reduce(minitp.Partial(np.ones(2), tp), site="a", reason="b"), 3)
    assert tried.run is None and "rank 0: has returned" in tried.error and "at a, call 0" in tried.error


def test_an_attempt_may_have_a_deadline_and_may_exit():
    def endless(tp):
        while tp.rank == 1:
            pass

    assert "longer than its 0.3 s" in attempt(endless, 2, deadline=0.3).error
    assert attempt(lambda tp: sys.exit("enough"), 2).error.startswith("SystemExit: enough")


@pytest.mark.parametrize("code", [None, 0])
def test_to_leave_by_sys_exit_is_no_blank(code):
    for which, who in ((2, "ranks 0 and 1"), (1, "rank 0")):
        tried = attempt(lambda tp, which=which: tp.rank < which and sys.exit(code), 2)
        assert tried.run is None and not tried.blank
        assert "sys.exit() ends a rank without a result" in tried.error and tried.error.endswith(f"on {who}")


def test_a_rank_s_own_interrupt_is_an_answer_and_the_user_s_stops_everything(monkeypatch):
    def interrupted(tp):
        raise KeyboardInterrupt("enough")

    assert "the function itself raised KeyboardInterrupt: enough" in attempt(interrupted, 2).error
    assert "KeyboardInterrupt" in judged("2.2", lambda *_: interrupted(None)).words
    monkeypatch.setattr("minitp.launcher.threads._Ranks._stuck", lambda self: interrupted(None))   # in the main thread
    with pytest.raises(KeyboardInterrupt, match="enough"):
        attempt(lambda tp: time.sleep(0.3), 2)


def test_a_trace_of_threads_is_complete_and_on_one_clock():
    def twice(tp):
        for site in ("one", "two"):
            tp.barrier(site=site, reason="meet")

    trace = run(twice, 3, threads=True).trace
    assert [(event.rank, event.site) for event in trace if event.rank == 2] == [(2, "one"), (2, "two")]
    assert {mark.rank for mark in trace.mark_rows()} == set(trace.ranks) == {0, 1, 2}
    assert trace.run["ranks"] == 3 and len(trace.run["blas_threads"]) == 3
    times = {site: [event for event in trace if event.site == site] for site in ("one", "two")}
    assert max(one.enter for one in times["one"]) <= min(one.leave for one in times["one"])
    assert max(one.leave for one in times["one"]) <= min(two.leave for two in times["two"])
