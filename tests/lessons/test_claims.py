"""What the source discussion says and asks: each statement that belongs in a lesson is met there, by a computed number.

A cell that meets one has its id as a tag; the markdown beside it says what came of the statement.
"""
import re

import nbformat
import pytest

from minitp.plan.questions import claims
from tests.lessons.notebooks import LESSONS, printed, scripts

MET_IN = {"C01": ("02",), "C02": ("06",), "C03": ("02", "05"), "C04": ("04",), "C05": ("11",), "C06": ("10",),
          "C07": ("15",), "C08": ("13", "15"), "C09": ("13",), "C10": ("13",), "C11": ("15",), "C12": ("15",),
          "C13": ("13",), "C14": ("14",), "C15": ("13",), "C16": ("13",), "C17": ("14",), "C18": ("15",),
          "C19": ("15",), "C21": ("15",)}
ELSEWHERE = {"C20", "C22"}              # `minitp plan ask bloom`, `wafer`


def cells(lesson):
    (file,) = LESSONS.glob(f"{lesson}_*.ipynb")
    return nbformat.read(file, 4).cells


@pytest.mark.parametrize("claim, lesson", [(claim, lesson) for claim, lessons in MET_IN.items() for lesson in lessons])
def test_a_statement_is_met_by_a_computed_number(claim, lesson):
    book = cells(lesson)
    tagged = [number for number, cell in enumerate(book) if claim in cell.metadata.get("tags", ())]
    assert tagged, f"lesson {lesson} has no cell for {claim}"
    assert any(re.search(r"\d", printed(book[number])) for number in tagged)
    for number in tagged:
        assert "markdown" in {cell.cell_type for cell in book[number - 1:number + 2]}, f"{claim}: nothing explains it"


def test_every_statement_is_met_somewhere():
    assert set(MET_IN) | ELSEWHERE == {f"C{number:02d}" for number in range(1, 23)}
    assert set(claims()) >= ELSEWHERE


def test_tags_are_statements_or_known():
    for script in scripts():
        for cell in nbformat.read(script.with_suffix(".ipynb"), 4).cells:
            assert set(cell.metadata.get("tags", ())) <= set(MET_IN) | {"measured"}
