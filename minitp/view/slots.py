"""The arrays of a sync as the play carries them: their sizes as layouts, each once, and their numbers in one blob."""
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minitp.view.packing import Blob, Cells, blocks, number_of_blocks

FIRST_ELEMENTS = ("first", "sum")
ALWAYS_EXACT = (*FIRST_ELEMENTS, "act", "best", "chosen", "owner")


class Detail(NamedTuple):
    """How finely arrays are shown.

    exact   arrays of at most so many numbers are shown one by one
    cells   others in so many cells along a row, half as many where there are several rows (of heads)
    first   exact first elements that stand beside them
    """
    exact: int
    cells: int
    first: int


DETAILS = (Detail(1024, 64, 4), Detail(512, 48, 4), Detail(256, 32, 4), Detail(128, 24, 4), Detail(64, 16, 4),
           Detail(48, 12, 2), Detail(32, 8, 2), Detail(0, 8, 1))
"""From fine to coarse: a play takes the finest for which there is room."""


@dataclass(frozen=True)
class Slot:
    """One array of one rank (-1: whole, the same on all)."""
    name: str
    rank: int
    matrix: np.ndarray
    exact: bool
    shape: tuple[int, ...]
    axis: str = ""


def _in_cells(slots: list[Slot], detail: Detail) -> set[str]:
    """The names whose arrays are shown as block maxima: of all ranks, if of one."""
    return {slot.name for slot in slots if not (
        slot.name in ALWAYS_EXACT or (slot.exact and slot.matrix.size <= detail.exact))}


def _size(slot: Slot, detail: Detail) -> tuple[int, int]:
    """At most so many rows and columns of cells."""
    return detail.cells, detail.cells if len(slot.matrix) == 1 else max(detail.cells // 2, 4)


def outline(slots: list[Slot]) -> tuple:
    """What decides the layout of a sync's slots, and how many bytes they take in any detail."""
    return tuple((slot.name, slot.rank, slot.matrix.shape, slot.exact, slot.shape, slot.axis) for slot in slots)


def nbytes(slots: list[Slot], detail: Detail) -> int:
    """Bytes of the blob that the slots of one sync take."""
    in_cells = _in_cells(slots, detail)
    found = 0
    for slot in slots:
        rows, cols = slot.matrix.shape
        if slot.name in in_cells:
            most = _size(slot, detail)
            found += 4 + -(-number_of_blocks(rows, most[0]) * number_of_blocks(cols, most[1]) // 4) * 4
        else:
            found += 4 * rows * (min(cols, detail.first) if slot.name in FIRST_ELEMENTS else cols)
    return found


class Layouts:
    """The slots' sizes, each arrangement once, and their numbers in one blob."""

    def __init__(self, detail: Detail):
        self.detail, self.blob = detail, Blob()
        self.table: list[dict[str, Any]] = []
        self._number: dict[tuple, int] = {}

    def add(self, slots: list[Slot]) -> int:
        """The number of the slots' layout, -1 where there are none; their numbers go to the blob."""
        if not slots:
            return -1
        in_cells = _in_cells(slots, self.detail)
        made = [(slot, self._cells(slot, slot.name in in_cells)) for slot in slots]
        self.blob.add([(slot.name, cells) for slot, cells in made])
        key = tuple((s.name, s.rank, *cells.numbers.shape, cells.kind, s.shape, s.axis) for s, cells in made)
        if key not in self._number:
            self._number[key] = len(self.table)
            self.table.append({"slots": [
                {"slot": name, "rank": rank, "rows": rows, "cols": cols, "kind": kind, "shape": list(shape),
                 "axis": axis} for name, rank, rows, cols, kind, shape, axis in key]})
        return self._number[key]

    def _cells(self, slot: Slot, in_cells: bool) -> Cells:
        if in_cells:
            return blocks(slot.matrix, *_size(slot, self.detail))
        return Cells(slot.matrix[:, :self.detail.first] if slot.name in FIRST_ELEMENTS else slot.matrix, "f32")
