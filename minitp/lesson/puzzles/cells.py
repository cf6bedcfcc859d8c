"""The code of a file that somebody else wrote, cell by cell: a notebook, a script with cell marks, any script."""
import ast
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from minitp.errors import FileFormatError

_MOST_BYTES = 50_000_000
_MARK = re.compile(r"^# ?%%(.*)$", re.M)
_SHELL = re.compile(r"^\s*[%!].*$", re.M)


class Cell(NamedTuple):
    """where: how its writer finds it."""
    where: str
    source: str


def cells_of(file: Path) -> list[Cell]:
    """FileFormatError where the file is no notebook and no script; OSError where it can't be read."""
    if file.suffix not in (".ipynb", ".py"):
        raise FileFormatError(f"{file.name}: a notebook (.ipynb) or a script (.py) can be graded")
    if file.stat().st_size > _MOST_BYTES:
        raise FileFormatError(f"{file.name} has {file.stat().st_size:,} bytes, a notebook of this size holds more than "
                              "answers: clear its outputs")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{file.name} is no text in UTF-8: {error}") from error
    found = _of_notebook(file.name, text) if file.suffix == ".ipynb" else _of_script(text)
    cells = [Cell(where, _without_shell(source)) for where, source in found]
    return [cell for cell in cells if cell.source.strip()]


def _of_notebook(name: str, text: str) -> list[Cell]:
    try:
        sources = [_source(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{name} is no notebook of format 4: JSON with `cells`, each with `cell_type` and "
                              "`source`. Open it in Jupyter and save it again") from error
    return [Cell(f"code cell {number}", source) for number, source in enumerate(sources, start=1)]


def _source(source: Any) -> str:
    return source if isinstance(source, str) else "".join(source)


def _without_shell(source: str) -> str:
    """Lines for IPython and the shell left out, cells for them emptied; lines keep their numbers."""
    if source.lstrip().startswith("%%"):
        return ""
    try:
        ast.parse(source)
        return source
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _SHELL.sub("", source)


def _of_script(text: str) -> list[Cell]:
    """By its marks (# %%); without any, each statement is one: what comes after a failure is still run."""
    marks = list(_MARK.finditer(text))
    if not marks:
        return _statements(text)
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = [("", 0, marks[0].start()), *((mark[1], mark.end(), end) for mark, end in zip(marks, ends, strict=True))]
    return [Cell(f"cell at line {text.count(chr(10), 0, begin) + 1}", text[begin:end])
            for title, begin, end in parts if "[markdown]" not in title and "[raw]" not in title]


def _statements(text: str) -> list[Cell]:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [Cell("the script", text)]
    lines, made, end = text.splitlines(keepends=True), [], 0
    for node in body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or first
        if first > end:                                    # several on one line are one cell
            made.append((first, last))
        elif last > end:
            made[-1] = made[-1][0], last
        end = max(end, last)
    return [Cell(f"line {first}", "".join(lines[first - 1:last])) for first, last in made]
