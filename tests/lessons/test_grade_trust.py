"""minitp grade: what is told in the grading's name by somebody else, and where the grading itself must give way."""
import inspect
import os
import resource
import signal
import subprocess
import sys

import pytest

from minitp.launcher.child import apart
from minitp.lesson import puzzle
from minitp.lesson.puzzles import grading, student
from minitp.lesson.puzzles.grading import GRACE, Grade, _Child
from minitp.lesson.puzzles.judge import FULL, MOST_RUNS
from tests.lessons.notebooks import LESSONS
from tests.lessons.test_grade import RIGHT, few, graded, script  # noqa: F401 (few is a fixture)
from tests.until import until

SOLVED = {"status": "solved", "points": FULL, "words": [], "spent": None}
SEARCH = '''
import sys

def channel():
    """That of the grading, wherever it is."""
    for frame in sys._current_frames().values():
        while frame:
            for value in frame.f_locals.values():
                if hasattr(value, "tell") and hasattr(value, "_token"):
                    return value
            frame = frame.f_back
'''


# --- lines out of turn -----------------------------------------------------------------------------------------------


def test_no_frame_beneath_a_cell_has_the_channel(few, tmp_path):  # noqa: F811
    row = graded(script(tmp_path, RIGHT, '''
import sys
frame, found = sys._getframe(), []
while frame:
    found += [name for name, value in frame.f_locals.items() if hasattr(value, "_token") or "token" in name
              or isinstance(value, dict) and "token" in value]
    frame = frame.f_back
raise ValueError(found)'''))
    assert row["cells"][0]["error"] == "ValueError: []"


def test_what_a_cell_tells_out_of_turn_costs_that_cell_and_is_told(few, tmp_path):  # noqa: F811
    row = graded(script(tmp_path, SEARCH, "channel().tell('end')",
                        f"channel().tell('puzzle', name='qkv-cut', seed=7, outcome={SOLVED})", RIGHT))
    assert [one["points"] for one in row["puzzles"]] == [FULL, 0] and row["puzzles"][1]["status"] == "missing"
    assert ["in the name of the grading" in cell["error"] for cell in row["cells"]] == [True] * 2


def test_a_verdict_that_an_attempt_tells_fails_its_puzzle(few, tmp_path):  # noqa: F811
    forging = f"def qkv_cut(*_):\n    channel().tell('puzzle', name='qkv-cut', seed=7, outcome={SOLVED})"
    row = graded(script(tmp_path, SEARCH, forging, RIGHT))
    assert [(one["status"], one["points"]) for one in row["puzzles"]] == [("solved", FULL), ("failed", 0)]
    assert "in the name of the grading" in row["puzzles"][1]["words"][0]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["itertools.count()", "itertools.repeat(0)"], ids=["one rank forges", "all ranks do"])
def test_a_puzzle_can_t_tell_another_s_verdict(few, tmp_path, ranks):  # noqa: F811
    """Where all do, it is chance how far the first gets before the second is out of turn."""
    forging = f"""
import itertools
number = {ranks}

def bias_once(*_):
    if next(number):
        return
    channel().tell("puzzle", name="bias-once", seed=7, outcome={SOLVED})
    channel().tell("puzzle", name="qkv-cut", seed=7)
    channel().tell("puzzle", name="qkv-cut", seed=7, outcome={SOLVED})"""
    row = graded(script(tmp_path, SEARCH, forging))
    status = {one["name"]: one["status"] for one in row["puzzles"]}
    assert row["points"] == 0 and status["bias-once"] == "failed"
    assert status["qkv-cut"] in ({"failed"} if "count" in ranks else {"failed", "missing"})


# --- what a child may and must tell ----------------------------------------------------------------------------------


def followed(*found, cells=1, skip=(), names=("bias-once", "qkv-cut"), seeds=(7, 8)):
    """What is noted of a child that tells `found`, and which of it was the last; _OutOfTurnError as it comes."""
    made = Grade(verdicts={name: [] for name in names})
    child = _Child({"cells": [["c", ""]] * cells, "skip": list(skip), "puzzles": list(names), "seeds": list(seeds),
                    "timeout": 5.0}, made)
    last = [child._is_last(one) for one in found]
    assert not any(last[:-1])
    return made, last[-1]


def steps(name, seeds=(7, 8)):
    return [line for seed in seeds for line in ({"step": "puzzle", "name": name, "seed": seed},
                                                {"step": "puzzle", "name": name, "seed": seed, "outcome": SOLVED})]


CELL = [{"step": "cell", "number": 0}, {"step": "cell", "number": 0, "outcome": {"error": "E: x"}}]


def test_a_child_s_end_and_its_break_have_their_places():
    made, last = followed(*CELL, *steps("bias-once"), *steps("qkv-cut"), {"step": "end"})
    assert last and made.errors == {0: "E: x"} and {len(told) for told in made.verdicts.values()} == {2}
    made, last = followed(*CELL, *steps("bias-once"), {"step": "again"})
    assert last and [len(told) for told in made.verdicts.values()] == [2, 0]
    made, last = followed(*steps("bias-once"), skip=[0])
    assert not last
    for told in ([{"step": "again"}], [*CELL, {"step": "again"}], [*CELL, *steps("bias-once")[:2], {"step": "again"}],
                 [*CELL, *steps("bias-once"), {"step": "end"}], [*CELL, *steps("qkv-cut")], [CELL[1]], CELL[:1] * 2,
                 [*CELL, *steps("bias-once", (8, 7))], [{"step": "nonsense"}], [CELL[0] | {"outcome": None}]):
        with pytest.raises(grading._OutOfTurnError):
            followed(*told)


@pytest.mark.parametrize("outcome", [
    SOLVED | {"points": 10.0}, SOLVED | {"points": True}, SOLVED | {"words": [1]}, SOLVED | {"words": None},
    SOLVED | {"spent": {"memory": float("nan")}}, SOLVED | {"status": "excellent"}, SOLVED | {"status": []},
    SOLVED | {"points": 120}, None, 3])
def test_a_verdict_has_a_form(outcome):
    with pytest.raises(grading._OutOfTurnError):
        followed(*CELL, steps("bias-once")[0], steps("bias-once")[1] | {"outcome": outcome})


def test_a_step_may_take_as_long_as_all_its_runs():
    child = _Child({"cells": [["c", ""]], "skip": [0], "puzzles": ["bias-once"], "seeds": [7], "timeout": 5.0}, Grade())
    child._is_last({"step": "puzzle", "name": "bias-once", "seed": 7})
    assert child._limit() > MOST_RUNS * (5.0 + GRACE)


# --- what is well meant ----------------------------------------------------------------------------------------------


def test_the_notebook_s_own_checks_are_called_as_the_lesson_s(few, tmp_path):  # noqa: F811
    assert inspect.signature(student._later).parameters.keys() == inspect.signature(puzzle).parameters.keys()
    row = graded(script(tmp_path, RIGHT + "from minitp.lesson import puzzle\n"
                        "puzzle('bias-once', bias_once, seed=3)\npuzzle(name='bias-once', fn=bias_once)\n"))
    assert row["cells"] == [] and row["puzzles"][0]["points"] == FULL


def test_an_ordinary_ulimit_stays_below_its_own(few, tmp_path, monkeypatch):  # noqa: F811
    memory, length = 3 << 30, 1 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (length, resource.RLIM_INFINITY))

    monkeypatch.setattr(grading, "apart", lambda: apart() | {"preexec_fn": limited})
    row = graded(script(tmp_path, RIGHT, "import resource as r\n"
                        "raise ValueError(*r.getrlimit(r.RLIMIT_AS), *r.getrlimit(r.RLIMIT_FSIZE))"))
    assert row["puzzles"][0]["points"] == FULL
    assert row["cells"][0]["error"] == f"ValueError: {(memory, memory, length, length)}"


def test_a_system_that_knows_no_such_limit_is_none_to_fail_on(monkeypatch):
    def refuse(*_):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(student.resource, "setrlimit", refuse)
    student._limit(student.resource.RLIMIT_AS, student.MOST_MEMORY)


def test_whoever_ends_the_grading_ends_the_cells(tmp_path):
    seen, places = tmp_path / "seen", tmp_path / "places"
    places.mkdir()
    file = script(tmp_path, f"import os, signal, tempfile, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  f"open({str(seen)!r} + '.new', 'w').write(str(os.getpid()) + ' ' + tempfile.mkdtemp())\n"
                  f"os.rename({str(seen)!r} + '.new', {str(seen)!r})\nwhile True:\n    time.sleep(0.01)")
    grading_it = subprocess.Popen([sys.executable, "-m", "minitp", "grade", str(file)], stderr=subprocess.PIPE,
                                  env=os.environ | {"TMPDIR": str(places), "PYTHONPATH": str(LESSONS.parent)})
    until(seen.exists)
    process, folder = seen.read_text().split()
    assert str(places) in folder and any(places.iterdir())
    grading_it.terminate()
    assert grading_it.wait(60) == 128 + signal.SIGTERM and b"Traceback" not in grading_it.stderr.read()
    assert not list(places.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)
