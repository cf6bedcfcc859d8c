"""What a trace keeps of an array: all of it where it is small, else the largest magnitude of each block.

Copied while the model runs, spelled out as numbers afterwards: the copy takes a µs, the numbers take hundreds, and what
takes time between two events would show as computing.
"""
from math import isfinite
from typing import Any

import numpy as np

WHOLE_UP_TO = 4096                 # elements
BLOCKS = 64                        # of the last axis


def keep(array: Any) -> dict[str, Any] | None:
    """A copy of `array` (host): {shape, data}, or {shape, block, maxima} with `block` numbers of a row in each."""
    if array is None:
        return None
    array = np.asarray(array)
    if array.size <= WHOLE_UP_TO:
        return {"shape": list(array.shape), "data": array.copy()}
    rows = array.reshape(-1, array.shape[-1])
    block = -(-rows.shape[1] // BLOCKS)
    starts = np.arange(0, rows.shape[1], block)
    return {"shape": list(array.shape), "block": block, "maxima": np.maximum.reduceat(np.abs(rows), starts, axis=1)}


def as_plain(kept: dict[str, Any] | None) -> dict[str, Any] | None:
    """What `keep` returned as plain data. A number that isn't finite is None: JSON has no NaN."""
    if kept is None:
        return None
    return {key: _numbers(part) if isinstance(part, np.ndarray) else part for key, part in kept.items()}


def _numbers(array: np.ndarray) -> list:
    """Six significant digits: enough for a picture, a third of the bytes. Whole numbers (token ids) stay."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "iub":
        return [int(x) for x in flat.tolist()]
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    return [float(f"{x:.6g}") if isfinite(x) else None for x in map(float, flat.tolist())]
