"""Which matrices a rank keeps and where each piece lies in the whole: for the inset, and for the shards in the lanes."""
import re
from typing import Any

import numpy as np

from minitp.placement import Parameter, Physical, Placement
from minitp.view.packing import Blob, blocks

MOST = 4_000                       # entries: beyond it no picture shows them
_ANY_LAYER = re.compile(r"^layers\.\d+\.")


def weights(placement: Placement | None, lanes: int, arrays: dict[tuple[str, int], tuple[np.ndarray, bool]],
            cells: int) -> tuple[list[dict[str, Any]], Blob]:
    """The entries of the play's `weights`, and their numbers.

    arrays   physical name and rank → (matrix as stored, whether its numbers are exact)
    cells    at most so many rows and columns are shown of a matrix that is larger

    Matrices without numbers are the same in every layer: they stand once, as `layers.*.…`, with kind "none".
    """
    made: list[dict[str, Any]] = []
    blob = Blob()
    if placement is None:
        return made, blob
    seen: set[str] = set()
    for array in placement.physical:
        if len(array.parts[0].shape) != 2:
            continue
        pattern = _ANY_LAYER.sub("layers.*.", array.name)
        if pattern not in seen:
            seen.add(pattern)
            made += [_entry(placement, array, pattern, rank) for rank in range(lanes)]
        for rank in range(lanes):
            if (array.name, rank) in arrays and len(made) < MOST:
                made.append(_with_numbers(_entry(placement, array, array.name, rank), arrays[array.name, rank],
                                          cells, blob))
    return made, blob


def _entry(placement: Placement, array: Physical, name: str, rank: int) -> dict[str, Any]:
    rows, cols = placement.physical_shape(array, rank)
    parts = [{"name": f"{name.rsplit('.', 2)[0]}.{part.name.rsplit('.', 2)[-2]}.weight" if len(array.parts) > 1 else name,
              "shape": list(part.shape),
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


def _with_numbers(entry: dict[str, Any], array: tuple[np.ndarray, bool], cells: int, blob: Blob) -> dict[str, Any]:
    matrix, exact = array
    if exact and max(matrix.shape, default=0) <= cells:
        from minitp.view.packing import Cells
        drawn = Cells(matrix, "f32")
    else:
        drawn = blocks(matrix, cells)
    blob.add(drawn, float(np.max(np.abs(np.nan_to_num(drawn.numbers)), initial=0)))
    return entry | {"rows": drawn.shape[0], "cols": drawn.shape[1], "kind": drawn.kind}
