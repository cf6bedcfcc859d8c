"""Every lesson: its notebook runs from a clean kernel and prints what is committed, its twin runs under mpirun."""
import re

import jupytext
import nbformat
import pytest

from tests.lessons.notebooks import LESSONS, executed, printed, scripts
from tests.lessons.test_mpi_scripts import mpirun

SCRIPTS = [pytest.param(script, id=script.stem) for script in scripts()]
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?")
_LINK_OR_CODE = re.compile(r"\]\([^)]*\)|`[^`]*`|https?://\S+|^#+ .*?·", re.M)
_REFERENCE = re.compile(r"(?:\b\d+ minutes|(?:lessons?|exercises?|appendix|and|\*\*|\[)\s?\d{1,2}(?:\.\d)?\b)", re.I)


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
    assert run.stdout.startswith("Lesson ") and "3 processes" in run.stdout.splitlines()[0]


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_number_of_the_prose_is_typed_by_hand(script):
    """Each is in a cell's code or in what it printed; what was measured may not be quoted."""
    book = notebook(script)
    known = {number for cell in book.cells if cell.cell_type == "code"
             for text in (cell.source, "" if "measured" in cell.metadata.get("tags", ()) else printed(cell))
             for number in _NUMBER.findall(text)} | {"0", "1", "2"}
    for cell in book.cells:
        if cell.cell_type == "markdown":
            prose = _REFERENCE.sub(" ", _LINK_OR_CODE.sub(" ", cell.source))
            assert not [number for number in _NUMBER.findall(prose) if number.strip(",") not in known and
                        number not in known], cell.source


def test_committed_notebooks_are_small_and_static():
    for file in sorted(LESSONS.glob("*.ipynb")):
        assert file.stat().st_size < 300_000, file.name
        for cell in nbformat.read(file, 4).cells:
            for output in cell.get("outputs", ()):
                assert output.output_type != "error", file.name
                assert set(output.get("data", {})) <= {"text/plain", "image/png", "text/markdown"}, file.name
                for kind in output.get("data", {}):
                    assert kind != "image/png" or output.metadata[kind]["alt"]
