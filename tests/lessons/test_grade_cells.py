"""What of a file is run: IPython's own lines, marks, imports from the future, files that are none."""
import asyncio
import json
import os
import signal
import sys
import time

import pytest

from minitp import lesson
from minitp.errors import FileFormatError
from minitp.lesson.puzzles.cells import cells_of
from minitp.lesson.puzzles.student import _Student
from tests.lessons.test_grade import notebook

DEFINED = "\ndef f():\n    return 3\n"


@pytest.fixture
def student(tmp_path, monkeypatch):
    """One whose cells run here; what it changes of this process is set back."""
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(lesson, "puzzle", lesson.puzzle)
    before, loop = signal.getsignal(signal.SIGALRM), asyncio._get_running_loop()
    asyncio._set_running_loop(None)            # a browser's driver leaves its own here; a grading child has none
    yield lambda name: _Student(name, str(tmp_path), 5.0)
    asyncio._set_running_loop(loop)
    signal.signal(signal.SIGALRM, before)


def run(student, file):
    made = student(file.name)
    errors = [made.run(cell.where, cell.source)["error"] for cell in cells_of(file)]
    return made.names, errors


@pytest.mark.parametrize("source", ["%%time", "%%capture out --no-stderr", "\n%%timeit -n 1"])
def test_a_magic_around_a_cell_leaves_what_is_in_it(student, tmp_path, source):
    names, errors = run(student, notebook(tmp_path, source + DEFINED))
    assert errors == [None] and names["f"]() == 3


@pytest.mark.parametrize("source", [
    "# mine\n%%time", "files = !ls",
    "t = %time 1 + 1", "%matplotlib inline\nz = (5\n  % 3)", "if True:\n    !ls", "%load_ext autoreload\n%autoreload 2",
    "f?", "?minitp.Partial", "f??", "import asyncio\nawait asyncio.sleep(0)", "get_ipython().run_line_magic('x', '')",
    "%time y = 2", "display(3)"])
@pytest.mark.parametrize("after", [True, False])
def test_lines_of_ipython_leave_the_functions_beside_them(student, tmp_path, source, after):
    names, errors = run(student, notebook(tmp_path, source + "\n" + DEFINED if after else DEFINED + source))
    assert errors == [None] and names["f"]() == 3


def test_what_is_timed_is_run_and_what_is_given_is_none(student, tmp_path):
    names, errors = run(student, notebook(tmp_path, "%time y = 2\nfiles = !ls\nt = %time y + 1\n%%writefile x"))
    assert errors == [None] and (names["y"], names["files"], names["t"]) == (2, None, 3)


def test_a_flood_of_shell_lines_is_no_endless_search(student, tmp_path):
    begun = time.thread_time()
    _, errors = run(student, notebook(tmp_path, "!ls\n" * 100_000, "!ls\n" * 300 + DEFINED))
    assert "SyntaxError" in errors[0] and errors[1] is None and time.thread_time() - begun < 10


def test_an_error_of_python_keeps_its_line(student, tmp_path):
    _, errors = run(student, notebook(tmp_path, "%matplotlib inline\n!ls\ndef broken(:"))
    assert "SyntaxError" in errors[0] and "line 3" in errors[0]


def test_a_mark_within_a_string_is_none(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("# %%\ntext = '''\n# %%\n'''\n# %%\nb = f'''{\n text}\n# %%\n'''\n")
    assert len(cells_of(file)) == 2


@pytest.mark.parametrize("mark", ["", "# %%\n"])
def test_unusual_line_ends_and_a_byte_order_mark_are_no_errors(student, tmp_path, mark):
    file = tmp_path / "a.py"
    file.write_bytes(("\ufeff" + mark + "a = 1\r\n\x0c\r\nb = '\u2028\x85\x1c'\r\n" + DEFINED).encode())
    names, errors = run(student, file)
    assert not any(errors) and names["f"]() == 3 and names["b"] == "\u2028\x85\x1c"
    book = notebook(tmp_path, DEFINED)
    book.write_bytes(b"\xef\xbb\xbf" + book.read_bytes())
    assert run(student, book)[0]["f"]() == 3


def test_an_import_from_the_future_holds_for_the_later_cells(student, tmp_path):
    file = tmp_path / "a.py"
    file.write_text("from __future__ import annotations\nx = 1\ndef f(y: Unknown):\n    return __file__\n")
    names, errors = run(student, file)
    assert not any(errors) and names["f"](0) == str(file)
    assert "NameError" in run(student, notebook(tmp_path, "def f(y: Unknown): pass"))[1][0]


@pytest.mark.parametrize("name", ["a.py", "a.ipynb"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(FileFormatError, match="a file is needed"):
        cells_of(tmp_path / name)


def test_sources_may_be_lists_or_texts(tmp_path):
    file = tmp_path / "a.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["a = 1\n", "b = 2"]},
                                          {"cell_type": "code", "source": "c = 3"}]}))
    assert [cell.source for cell in cells_of(file)] == ["a = 1\nb = 2", "c = 3"]
