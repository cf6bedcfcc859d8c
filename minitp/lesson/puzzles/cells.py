"""The code of a file that somebody else wrote, cell by cell: a notebook, a script with cell marks, any script."""
import ast
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from minitp.errors import FileFormatError

_MOST_BYTES = 50_000_000
_MOST_PARSED = 5_000_000                         # characters of a cell, all tries to find IPython's lines together
_MARK = re.compile(r"^# ?%%(.*)$", re.M)
_AROUND_PYTHON = re.compile(r"^%%(time|timeit|capture|prun)\b.*")   # magics whose cell is Python after the first line
_TIMED = re.compile(r"%(time|timeit|prun)\s")                      # those whose line is Python after the word
_GIVEN = re.compile(r"^(\s*[\w, .]+=\s*)[%!].*")                  # a name that is given what one says
_OTHER = re.compile(r"^(\s*)([%!?].*|.*\?)\s*$")


class Cell(NamedTuple):
    """where: how its writer finds it. left_out: why it isn't run; "" where it is."""
    where: str
    source: str
    left_out: str = ""


def cells_of(file: Path) -> list[Cell]:
    """FileFormatError where the file is no notebook and no script; OSError where it can't be read."""
    if file.suffix not in (".ipynb", ".py"):
        raise FileFormatError(f"{file.name}: a notebook (.ipynb) or a script (.py) can be graded")
    size = file.stat().st_size
    if not file.is_file():
        raise FileFormatError(f"{file} is a folder, a pipe or a device: a file is needed, whose end comes")
    if size > _MOST_BYTES:
        raise FileFormatError(f"{file.name} has {size:,} bytes, a notebook of this size holds more than "
                              "answers: clear its outputs")
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file.name} is no text in UTF-8: {error}") from error
    found = _of_notebook(file.name, text) if file.suffix == ".ipynb" else _of_script(text)
    return [cell if cell.left_out else cell._replace(source=_without_shell(cell.source))
            for cell in map(_sorted_out, found) if cell.source.strip()]


def _of_notebook(name: str, text: str) -> list[Cell]:
    try:
        sources = [_source(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{name} is no notebook of format 4: JSON with `cells`, each with `cell_type` and "
                              "`source`. Open it in Jupyter and save it again") from error
    return [Cell(f"code cell {number}", source) for number, source in enumerate(sources, start=1)]


def _source(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _sorted_out(cell: Cell) -> Cell:
    """As it is, or left out where a magic gives it to something else than Python."""
    magic = cell.source.split(maxsplit=1)[0] if cell.source.lstrip().startswith("%%") else ""
    if not magic or _AROUND_PYTHON.match(magic):
        return cell
    return cell._replace(left_out=f"not run: {magic} is for IPython, and its cell is no Python of this notebook")


def _without_shell(source: str) -> str:
    """What is Python of a cell that is IPython's: its magics and shell lines left out; lines keep their numbers."""
    begun = source.lstrip()
    source = source[:len(source) - len(begun)] + _AROUND_PYTHON.sub("", begun, count=1)
    lines = source.split("\n")
    for _ in range(1 + min(len(lines), _MOST_PARSED // (1 + len(source)))):
        # a line at a time, where Python stops: a line `% 3)` that it reads on from `(5` is none of IPython's
        try:
            ast.parse("\n".join(lines))
            break
        except SyntaxError as error:
            stops = (error.lineno or 0) - 1
        except (ValueError, RecursionError, MemoryError):
            break
        if not 0 <= stops < len(lines) or (python := _as_python(lines[stops])) == lines[stops]:
            break
        lines[stops] = python
    return "\n".join(lines)


def _as_python(line: str) -> str:
    """A line of IPython's without what is IPython's; any other as it is."""
    if (timed := _TIMED.sub("", line, count=1)) != line:
        return timed
    return _OTHER.sub(r"\1pass", _GIVEN.sub(r"\1None", line))


def _of_script(text: str) -> list[Cell]:
    """By its marks (# %%); without any, each statement is one: what comes after a failure is still run."""
    within = _strings(text)
    marks = [mark for mark in _MARK.finditer(text) if text.count("\n", 0, mark.start()) + 1 not in within]
    if not marks:
        return _statements(text)
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = [("", 0, marks[0].start()), *((mark[1], mark.end(), end) for mark, end in zip(marks, ends, strict=True))]
    return [Cell(f"cell at line {text.count(chr(10), 0, begin) + 1}", text[begin:end])
            for title, begin, end in parts if "[markdown]" not in title and "[raw]" not in title]


def _strings(text: str) -> set[int]:
    """The lines on which a string goes on that began before: a mark there is none."""
    try:
        return {line for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant | ast.JoinedStr)
                for line in range(node.lineno + 1, (node.end_lineno or 0) + 1)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _statements(text: str) -> list[Cell]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [Cell("the script", text)]
    lines, made, end = text.split("\n"), [], 0
    for node in body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or first
        if first > end:                                    # several on one line are one cell
            made.append((first, last))
        elif last > end:
            made[-1] = made[-1][0], last
        end = max(end, last)
    return [Cell(f"line {first}", "\n".join(lines[first - 1:last])) for first, last in made]
