"""What a trace keeps of an array: all of it where it is small, else the largest magnitude of each block."""
from math import isfinite
from typing import Any

import numpy as np

WHOLE_UP_TO = 4096                 # elements
BLOCKS = 64                        # of the last axis


def keep(array: Any) -> dict[str, Any] | None:
    """`array` (host) as plain data: {shape, data}, or {shape, block, maxima} with `block` numbers of a row in each.

    A number that isn't finite is None: JSON has no NaN, and a picture should show the hole.
    """
    if array is None:
        return None
    array = np.asarray(array)
    if array.size <= WHOLE_UP_TO:
        return {"shape": list(array.shape), "data": _numbers(array)}
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    block = -(-rows.shape[1] // BLOCKS)
    starts = np.arange(0, rows.shape[1], block)
    maxima = np.maximum.reduceat(np.abs(rows), starts, axis=1)
    return {"shape": list(array.shape), "block": block, "maxima": _numbers(maxima)}


def _numbers(array: np.ndarray) -> list:
    """Six significant digits: enough for a picture, a third of the bytes. Whole numbers (token ids) stay."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "iub":
        return [int(x) for x in flat.tolist()]
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    return [float(f"{x:.6g}") if isfinite(x) else None for x in map(float, flat.tolist())]
