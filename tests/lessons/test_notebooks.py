"""Every lesson: its notebook runs from a clean kernel and prints what is committed, its twin runs under mpirun."""
import re
import tokenize
from html.parser import HTMLParser
from io import StringIO

import jupytext
import nbformat
import pytest

from tests.lessons.notebooks import LESSONS, executed, printed, scripts
from tests.lessons.test_mpi_scripts import mpirun

SCRIPTS = [pytest.param(script, id=script.stem) for script in scripts()]
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?")
_LINK_OR_COMMAND = re.compile(r"\]\([^)]*\)|`(?:minitp|mpirun|python) [^`]*`|https?://\S+|^#+ .*?·", re.M)
_REFERENCE = re.compile(
    r"\b\d+\sminutes|\b(?:lessons?|exercises?|puzzles?)\s\d+(?:\.\d)?(?:(?:,|\sand|\sto|–)\s?\d+(?:\.\d)?)*"
    r"|\b0\d\b|\*\*\d+\.\d\*\*|\[\d\d(?=\s·)|\d(?=·[A-Z])", re.I)


def notebook(script):
    return nbformat.read(script.with_suffix(".ipynb"), 4)


@pytest.mark.parametrize("script", SCRIPTS)
def test_pair_is_in_sync(script):
    def cells(book):
        return [(cell.cell_type, cell.source.rstrip(), cell.metadata.get("tags", [])) for cell in book.cells]
    assert cells(notebook(script)) == cells(jupytext.read(script))


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs_from_a_clean_kernel_and_prints_what_is_committed(script):
    book = notebook(script)
    for cell, committed in zip(executed(book).cells, book.cells, strict=True):
        assert "measured" in cell.metadata.get("tags", ()) or printed(cell) == printed(committed)


@pytest.mark.mpi
@pytest.mark.parametrize("script", SCRIPTS)
def test_twin_runs_under_mpirun(script):
    run = mpirun(3, script)
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert said[0].startswith("Lesson ") and "3 processes" in said[0]
    in_notebook = [line for cell in notebook(script).cells for line in printed(cell).splitlines()]
    assert said[-1] == in_notebook[-1]                         # it came to the last exercise
    for what in ("Picture: ", "· "):
        assert sum(line.startswith(what) for line in said) == sum(line.startswith(what) for line in in_notebook)


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_number_of_the_prose_is_typed_by_hand(script):
    """Each is a number in a cell's code, or in what it printed; what was measured may not be quoted."""
    book = notebook(script)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    known = {"0", "1", "2"}.union(*(numbers_in_code(cell.source) for cell in code), *(
        _NUMBER.findall(printed(cell)) for cell in code if "measured" not in cell.metadata.get("tags", ())))
    for cell in book.cells:
        if cell.cell_type == "markdown":
            prose = _REFERENCE.sub(" ", _LINK_OR_COMMAND.sub(" ", cell.source))
            found = [number.strip(",") for number in _NUMBER.findall(prose)]
            assert not [number for number in found if not {number, number.replace(",", "")} & known], cell.source


def numbers_in_code(source):
    """Its number tokens, and those in names as "gpt-3-175b": what else strings and comments say is prose."""
    try:
        tokens = list(tokenize.generate_tokens(StringIO(source).readline))
    except tokenize.TokenError:                            # a cell of a shell command
        return set()
    names = [token.string for token in tokens if token.type == tokenize.STRING and " " not in token.string]
    return {token.string.replace("_", "") for token in tokens if token.type == tokenize.NUMBER}.union(
        *(re.findall(r"\d+(?:\.\d+)?", name) for name in names))


def test_committed_notebooks_are_small_and_static():
    for file in sorted(LESSONS.glob("*.ipynb")):
        assert file.stat().st_size < 300_000, file.name
        for cell in nbformat.read(file, 4).cells:
            for output in cell.get("outputs", ()):
                assert output.output_type != "error", file.name
                assert set(output.get("data", {})) <= {"text/plain", "image/png", "text/markdown"}, file.name
                for kind in output.get("data", {}):
                    assert kind != "image/png" or output.metadata[kind]["alt"]


class _Images(HTMLParser):
    """The alternative text of each picture of a page; None where it has none."""

    def __init__(self):
        super().__init__()
        self.alts: list[str | None] = []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.alts.append(dict(attrs).get("alt"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_web_page_of_it_has_the_pictures_words(script):
    """By the template that reads them: nbconvert's default one, lab, writes a picture's size and nothing else."""
    from nbconvert import HTMLExporter
    book = notebook(script)
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(book)
    images = _Images()
    images.feed(page)
    assert images.alts == [output.metadata["image/png"]["alt"] for cell in book.cells
                           for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
