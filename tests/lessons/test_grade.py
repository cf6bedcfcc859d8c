"""minitp grade: files as students hand them in, well meant or not."""
import inspect
import json
import os
import runpy
import subprocess
import sys
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.errors import FileFormatError, MinitpError
from minitp.lesson.puzzles import grading, puzzles
from minitp.lesson.puzzles.cells import Cell, cells_of
from minitp.lesson.puzzles.judge import FULL
from tests.lessons.notebooks import LESSONS

SOLUTIONS = LESSONS / "solutions" / "puzzles.py"
QUIET = '''
import minitp
def bias_once(tp, x_p, W_p, b):
    return tp.all_reduce(minitp.Partial(x_p @ W_p.T, tp), site="y", reason="add the terms") + b
'''
RIGHT = QUIET.replace("    return", "    for _ in range(5_000):\n        print('noise')\n    return")


@pytest.fixture
def few(monkeypatch):
    """Two puzzles alone: what becomes of a step doesn't depend on how many there are."""
    kept = {name: puzzles()[name] for name in ("bias-once", "qkv-cut")}
    monkeypatch.setattr(grading, "puzzles", lambda: kept)
    monkeypatch.setattr("minitp.lesson.puzzles.puzzles", lambda: kept)
    return kept


def graded(file, *options, seeds=(7,)):
    chosen = [word for seed in seeds for word in ("--seed", str(seed))]
    result = CliRunner().invoke(app, ["grade", str(file), "--json", *chosen, *options], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def script(tmp_path, *cells, name="answers.py"):
    file = tmp_path / name
    file.write_text("".join(f"# %%\n{cell}\n" for cell in cells), "utf-8")
    return file


def notebook(tmp_path, *sources):
    file = tmp_path / "answers.ipynb"
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": []} for source in sources]
    file.write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": [
        {"cell_type": "markdown", "source": "# not code"}, *cells]}), "utf-8")
    return file


# --- a file that is well meant ---------------------------------------------------------------------------------------


def test_the_solutions_get_all_points():
    row = graded(SOLUTIONS)
    assert row["points"] == row["of"] == FULL * len(puzzles())
    assert [one["name"] for one in row["puzzles"]] == list(puzzles())
    assert {one["status"] for one in row["puzzles"]} == {"solved"} and row["cells"] == []
    assert row["seeds"] == [7] and row["file"] == "puzzles.py"
    assert all(one["by_seed"][0]["spent"]["memory"] > 0 for one in row["puzzles"] if one["name"] != "ring-in-chunks")


def test_the_blank_notebook_gets_none_and_its_own_checks_don_t_run(few):
    row = graded(LESSONS / "puzzles.ipynb")
    assert row["points"] == 0 and {one["status"] for one in row["puzzles"]} == {"blank"} and row["cells"] == []


def test_a_table_without_json_and_seeds_that_are_drawn(few, tmp_path):
    file = script(tmp_path, RIGHT, "raise ValueError('[red]x[/red]\\x1b[31m')")
    result = CliRunner().invoke(app, ["grade", str(file)], catch_exceptions=False)
    assert result.exit_code == 0 and "10 of 20 points" in result.output and "\x1b" not in result.output
    assert "there is no function: qkv_cut" in result.output and "[red]x[/red]" in result.output
    assert result.output.partition("Judged with")[2].count("--seed") == 2


def test_the_worst_seed_counts(few, tmp_path):
    file = script(tmp_path, RIGHT.replace("+ b", "+ (b if len(b) % 2 else 0 * b)"))
    lengths = {seed: len(puzzles()["bias-once"].drawn(seed).inputs[0]["b"]) % 2 for seed in range(8)}
    even, odd = (next(seed for seed, one in lengths.items() if one == wanted) for wanted in (0, 1))
    row = graded(file, seeds=(odd, even))
    bias = row["puzzles"][0]
    assert (bias["status"], bias["points"]) == ("wrong", 0) and "b is missing" in bias["words"][0]
    assert {one["seed"]: one["points"] for one in bias["by_seed"]} == {odd: FULL, even: 0}


# --- a file that isn't -----------------------------------------------------------------------------------------------


def test_failing_cells_are_noted_and_the_others_go_on(few, tmp_path):
    row = graded(notebook(tmp_path, "1 / 0", "import sys; sys.exit(3)", "%matplotlib inline\n!ls\n" + RIGHT,
                          "%%bash\nls", "raise KeyboardInterrupt", "input('name?')", "def broken(:",
                          "class E(Exception):\n    __str__ = lambda self: 1 / 0\nraise E", "bias = 3\nqkv_cut = 3"))
    assert row["puzzles"][0]["points"] == FULL
    assert "no function" in row["puzzles"][1]["words"][0]
    errors = {cell["where"]: cell["error"] for cell in row["cells"]}
    assert list(errors) == [f"code cell {number}" for number in (1, 2, 4, 5, 6, 7, 8)]
    for word, error in zip(("ZeroDivisionError", "SystemExit: 3", "not run: %%bash is for IPython", "KeyboardInterrupt",
                            "EOFError", "SyntaxError", "can't be made"), errors.values(), strict=True):
        assert word in error


FORGED = json.dumps({"step": "puzzle", "name": "qkv-cut", "seed": 7, "status": "solved", "points": FULL, "words": []})


def test_what_is_printed_or_written_anywhere_changes_nothing(few, tmp_path):
    row = graded(script(tmp_path, "import os, sys", f"print({FORGED!r}, flush=True)", f"""
for descriptor in range(1, 60):
    try:
        os.write(descriptor, b'\\n' + {FORGED!r}.encode() + b'\\n{{"step": "end"}}\\n{{"cut sho')
    except OSError:
        pass""", "print('x' * 30_000_000)", "sys.stdout = sys.stderr = None", RIGHT))
    assert [one["points"] for one in row["puzzles"]] == [FULL, 0] and row["cells"] == []
    assert row["puzzles"][1]["status"] == "missing"


def test_endless_cells_are_ended_and_what_they_defined_stays(few, tmp_path):
    file = script(tmp_path, QUIET + "\nwhile True:\n    pass", "import time; time.sleep(1e6)")
    row = graded(file, "--timeout", "0.5")
    assert row["puzzles"][0]["points"] == FULL
    assert [cell["error"] for cell in row["cells"]] == ["stopped: it ran longer than 0.5 s"] * 2


@pytest.mark.slow
def test_cells_that_end_or_block_the_process_cost_that_cell_alone(few, tmp_path):
    row = graded(script(tmp_path, "import os, subprocess", "os._exit(5)", QUIET, "os.kill(os.getpid(), 11)", """
child = subprocess.Popen(["sleep", "31557"])
import signal
signal.signal(signal.SIGALRM, signal.SIG_IGN)
while True:
    pass""", "os.closerange(3, 60)"), "--timeout", "1")
    assert row["puzzles"][0]["points"] == FULL
    errors = [cell["error"] for cell in row["cells"]]
    assert ["(code 5)" in errors[0], "(code -11)" in errors[1], "not ended after" in errors[2],
            "ended in the middle" in errors[3]] == [True] * 4
    assert "31557" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout


@pytest.mark.slow
def test_ranks_that_can_t_be_stopped_don_t_disturb_the_next_puzzle(few, tmp_path):
    runaway = """
import time
def bias_once(tp, x_p, W_p, b):
    kept = []
    while True:
        try:
            while True:
                kept.append(bytearray(100_000))
                time.sleep(0.01)
        except BaseException:
            pass
"""
    right = "import numpy as np\nimport minitp\n" + inspect.getsource(runpy.run_path(str(SOLUTIONS))["qkv_cut"])
    row = graded(script(tmp_path, runaway, right), "--timeout", "0.5", seeds=(7, 8))
    assert [(one["status"], one["points"]) for one in row["puzzles"]] == [("failed", 0), ("solved", FULL)]
    assert [one["seed"] for one in row["puzzles"][0]["by_seed"]] == [7, 8]


@pytest.mark.slow
def test_attempts_that_hang_or_end_the_process_cost_that_puzzle_alone(few, tmp_path):
    wait = "def qkv_cut(tp, x, W_qkv, H):\n    return tp.all_reduce(minitp.Partial(x, tp), site='a', reason='b') " \
           "if tp.rank else None"
    for ending, words in (("os._exit(9)", "(code 9)"), ("sum(iter(int, 1))", "not ended after"),
                          ("raise KeyboardInterrupt", "KeyboardInterrupt")):
        row = graded(script(tmp_path, QUIET, f"import os\ndef qkv_cut(*_, **__):\n    {ending}"), "--timeout", "1")
        assert [one["points"] for one in row["puzzles"]] == [FULL, 0], ending
        assert row["puzzles"][1]["status"] == "failed" and words in row["puzzles"][1]["words"][0]
    row = graded(script(tmp_path, RIGHT, wait))
    assert "has returned" in row["puzzles"][1]["words"][0]


def test_a_hog_meets_its_limit(few, tmp_path):
    row = graded(script(tmp_path, RIGHT, "hog = bytearray(1 << 36)", """
with open("big", "wb") as file:
    file.truncate(1 << 40)"""))
    assert ["MemoryError" in row["cells"][0]["error"], "OSError" in row["cells"][1]["error"]] == [True, True]
    assert row["puzzles"][0]["points"] == FULL and not (tmp_path / "big").exists()


# --- files that can't be graded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, text, words", [
    ("notes.txt", "hello", "a notebook (.ipynb) or a script (.py)"),
    ("a.ipynb", "no JSON", "is no notebook"),
    ("a.ipynb", "[" * 100_000, "is no notebook"),
    ("a.ipynb", '{"cells": [3]}', "is no notebook"),
    ("a.ipynb", '{"worksheets": []}', "is no notebook"),
    ("a.ipynb", '{"cells": [{"cell_type": "code", "source": [3]}]}', "is no notebook"),
    ("a.py", b"\xff\xfe\x00", "no text in UTF-8"),
])
def test_unusable_files_are_refused(tmp_path, name, text, words):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError) as refused:
        CliRunner().invoke(app, ["grade", str(file)], catch_exceptions=False)
    assert words in str(refused.value)


def test_exit_codes_as_a_shell_sees_them(tmp_path):
    (tmp_path / "a.ipynb").write_text("no JSON")
    for file in ("a.ipynb", "."):
        ran = subprocess.run([sys.executable, "-m", "minitp", "grade", str(tmp_path / file)], capture_output=True,
                             text=True, env=os.environ | {"PYTHONPATH": str(LESSONS.parent)})
        assert ran.returncode == 2 and ran.stderr.startswith("minitp: error: "), ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_child_that_can_t_start_is_an_error(few, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "_environment", lambda: os.environ | {"PYTHONHOME": "/nowhere"})
    with pytest.raises(MinitpError, match="didn't start"):
        graded(script(tmp_path, RIGHT))


def test_cells_of_a_script(tmp_path):
    marked = script(tmp_path, "a = 1", "b = 2")
    marked.write_text("first = 0\n" + marked.read_text() + "# %% [markdown]\n# words\n# %% tags=['x']\nc = 3\n")
    assert [cell.source.strip() for cell in cells_of(marked)] == ["first = 0", "a = 1", "b = 2", "c = 3"]
    plain = tmp_path / "plain.py"
    plain.write_text("import os\nx = 1; y = (2,\n 3)\n\n@staticmethod\ndef f():\n    pass\n")
    assert [cell.where for cell in cells_of(plain)] == ["line 1", "line 2", "line 5"]
    assert "\n".join(cell.source for cell in cells_of(plain)).splitlines() == plain.read_text().replace("\n\n", "\n"
                                                                                                  ).splitlines()
    plain.write_text("def f(:\n")
    assert cells_of(plain) == [Cell("the script", "def f(:\n")]
    assert all(a.where != b.where for a, b in pairwise(cells_of(SOLUTIONS)))
