"""Which matrices a rank keeps and where each piece lies in the whole: for the inset and for the shards in the lanes.

All layers are cut alike, so a matrix's shape, cut and parts stand once, as `layers.*.…`, with kind "none"; what has
numbers follows under its own name.
"""
import re
from typing import Any

import numpy as np

from minitp.placement import Parameter, Physical, Placement
from minitp.trace.file import Trace
from minitp.trace.kept import KeptArray
from minitp.view.packing import Blob, Cells, blocks

CELLS = (32, 24, 16, 12, 8, 6, 4)  # along each side of a matrix: as many as there is room for
_ROWS = 96                         # of a matrix that is put together from parts with blocks of their own
_ANY_LAYER = re.compile(r"^layers\.\d+\.")
_Matrices = dict[str, list[tuple[int, np.ndarray, bool, tuple[int, ...]]]]


def weights(placement: Placement | None, lanes: int, trace: Trace, room: int) -> tuple[list[dict[str, Any]], Blob]:
    """The entries of the play's `weights`, and their numbers, in about `room` bytes of JSON.

    Both are empty where the header doesn't say who holds what.
    """
    if placement is None:
        return [], Blob()
    matrices = [array for array in placement.physical if len(array.parts[0].shape) == 2]
    patterns = {_ANY_LAYER.sub("layers.*.", array.name): array for array in reversed(matrices)}
    entries = [_entry(placement, array, name, rank) for name, array in reversed(patterns.items())
               for rank in range(min(lanes, placement.ranks))]
    held: _Matrices = {}
    if len(trace.weights):
        for array in matrices:
            pieces = [(rank, *whole) for rank in range(min(lanes, placement.ranks))
                      if (whole := _stacked([trace.weight(rank, part.name) for part in array.parts])) is not None]
            if pieces:
                held[array.name] = pieces
    return _with_numbers(entries, held, room)


def _entry(placement: Placement, array: Physical, name: str, rank: int) -> dict[str, Any]:
    rows, cols = placement.physical_shape(array, rank)
    parts = [{"name": _ANY_LAYER.sub("layers.*.", part.name), "shape": list(part.shape),
              "at": [[s.start, s.stop] for s in placement.slices(part, rank)]} for part in array.parts]
    return {"name": name, "rank": rank, "rows": rows, "cols": cols, "kind": "none", "shape": [rows, cols],
            "cut": cut_name(array.parts[0]), "parts": parts}


def cut_name(parameter: Parameter) -> str:
    """In the literature's words, in which columns are columns of Wᵀ: the rows of the stored matrix."""
    if parameter.cut_axis is None:
        return "whole"
    axis = parameter.axes[parameter.cut_axis]
    if axis in ("vocab", "hidden"):
        return axis
    return "rows" if parameter.cut_axis == 1 else "heads" if axis in ("head", "kv_head") else "columns"


def _stacked(parts: list[KeptArray | None]) -> tuple[np.ndarray, bool, tuple[int, ...]] | None:
    """The parts of a physical matrix one under the other: (cells, whether they are its numbers, its true shape)."""
    kept = [part for part in parts if part is not None and len(part.shape) == 2 and part.cells.size]
    if not kept or len(kept) < len(parts) or len({part.shape[1] for part in kept}) > 1:
        return None
    rows = sum(part.shape[0] for part in kept)
    shape = rows, kept[0].shape[1]
    if all(part.whole for part in kept):
        return np.concatenate([part.cells for part in kept]), True, shape
    if len({part.cells.shape[1] for part in kept}) > 1:
        return None
    return np.concatenate([_in_rows(part.cells, max(_ROWS * part.shape[0] // rows, 1)) for part in kept]), False, shape


def _in_rows(cells: np.ndarray, rows: int) -> np.ndarray:
    """The same picture in about `rows` rows, so that parts of one matrix stand as high as they are."""
    if rows < len(cells):
        return blocks(cells, rows, cells.shape[1]).numbers
    return cells[np.arange(rows) * len(cells) // rows]


def _with_numbers(entries: list[dict[str, Any]], held: _Matrices, room: int) -> tuple[list[dict[str, Any]], Blob]:
    """As finely as there is room for; layers beyond it have no numbers."""
    blob, one = Blob(), 100                                                  # bytes of an entry
    number = sum(map(len, held.values()))
    cells = next((n for n in CELLS if number * (one + n * n * 4 // 3) <= room), CELLS[-1])
    most = room // (one + cells * cells * 4 // 3)
    for name, pieces in held.items():
        most -= len(pieces)
        if most < 0:
            break
        exact = all(whole and max(matrix.shape) <= cells for _, matrix, whole, _ in pieces)
        made = [(rank, Cells(matrix, "f32") if exact else blocks(matrix, cells), shape)
                for rank, matrix, _, shape in pieces]
        blob.add([(name, drawn) for _, drawn, _ in made])
        entries += [{"name": name, "rank": rank, "rows": drawn.numbers.shape[0], "cols": drawn.numbers.shape[1],
                     "kind": drawn.kind, "shape": list(shape)} for rank, drawn, shape in made]
    return entries, blob
