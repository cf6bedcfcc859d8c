"""What a trace keeps of an array: all of it where it is small, else of its last token the largest magnitudes by block.

Copied while the model runs, condensed between its passes and spelled out as numbers at the end: a copy takes a µs, the
numbers take hundreds, and what takes time inside a pass would show as computing.
"""
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

WHOLE_UP_TO = 512                  # numbers of what a collective saw
VECTOR_UP_TO = 48                  # numbers of a row of an inner array
MATRIX_UP_TO = 4096                # numbers of a rank's part of a weight
BLOCKS, FEWEST = 16, 6             # of a vector; of each row where several rows share them
GRID = 12                          # blocks of a matrix along each axis
FIRST = 4                          # exact numbers beside the maxima
BEST = 8                           # tokens of a rank's own logits

Kept = dict[str, Any]
"""{shape, data} or {shape, block, maxima}, perhaps with `row` and `first`: the format is described in `schema`."""


class Copy(NamedTuple):
    """A copy taken while the model runs, of a collective's array or of one inside a layer.

    `row`: of the array, only this token of the first sequence was copied.
    """
    data: np.ndarray
    inner: bool = False
    row: int | None = None


class Scores(NamedTuple):
    """A copy of softmax weights (heads, positions): shares of 1, so four decimals, and as many positions as can be."""
    data: np.ndarray


class Best(NamedTuple):
    """A copy of a rank's logits of one token, of which its BEST largest are kept. `first` is the id of logits[0]."""
    logits: np.ndarray
    first: int
    ids: bool                      # the tokens' ids, or their logits


def copy_of(array: Any, row: int) -> Copy | None:
    """What is kept of a collective's array (host); of a large one (…, T, n) its token `row`, or its last one."""
    if array is None:
        return None
    array = np.asarray(array)
    if array.size <= WHOLE_UP_TO or array.ndim < 2:
        return Copy(array.copy())
    first = array[(0,) * (array.ndim - 2)]
    row = token(row, len(first))
    return Copy(first[row].copy(), row=row)


def token(row: int, tokens: int) -> int:
    """Which of `tokens` is looked at: number `row` of a prompt, the last one of a pass that hasn't so many."""
    return row if 0 <= row < tokens else tokens - 1


def condensed(copy: "Copy | Scores | Best | Kept | None") -> Kept | None:
    """The copy as `Kept`, with NumPy arrays for the numbers; what is `Kept` already stays."""
    if isinstance(copy, Scores):
        shares = np.round(copy.data, 4)
        return _whole(shares) if shares.shape[1] <= VECTOR_UP_TO else _maxima(shares, VECTOR_UP_TO)
    if isinstance(copy, Best):
        ids, logits = best_of(copy.logits, copy.first)
        return _whole(ids if copy.ids else logits)
    if not isinstance(copy, Copy):
        return copy
    data, row = copy.data, {} if copy.row is None else {"row": copy.row}
    columns = data.shape[-1] if data.ndim else 1
    if not data.size or (data.size <= WHOLE_UP_TO and not (copy.inner and columns > VECTOR_UP_TO)):
        return _whole(data) | row
    kept = _maxima(data, max(FEWEST, BLOCKS * columns // data.size)) | row
    return kept if copy.inner else kept | {"first": data.reshape(-1, columns)[-1, :FIRST].copy()}


def _whole(data: np.ndarray) -> Kept:
    return {"shape": list(data.shape), "data": data}


def _maxima(data: np.ndarray, blocks: int) -> Kept:
    """At most so many blocks of each row; their numbers are the last axis's neighbors."""
    columns = data.shape[-1]
    block = -(-columns // blocks)
    maxima = np.maximum.reduceat(np.abs(data).reshape(-1, columns), np.arange(0, columns, block), axis=1)
    return {"shape": list(data.shape), "block": block, "maxima": maxima}


def best_of(logits: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, logits) of the BEST largest, best first, ties by the lowest id."""
    some = np.argpartition(-logits, BEST - 1)[:BEST] if len(logits) > BEST else np.arange(len(logits))
    order = some[np.lexsort((some, -logits[some]))]
    return order + first, logits[order]


def matrix(array: np.ndarray, whole_up_to: int = MATRIX_UP_TO) -> Kept:
    """A rank's part of a weight (out, in): all of it, or the maxima of a grid of blocks."""
    kept: Kept = {"shape": list(array.shape)}
    if not array.size or array.size <= whole_up_to:
        return kept | {"data": array.copy()}
    block = [-(-n // GRID) for n in array.shape]
    rows, columns = (np.arange(0, n, b) for n, b in zip(array.shape, block, strict=True))
    high, low = (pick.reduceat(pick.reduceat(array, rows, axis=0), columns, axis=1)
                 for pick in (np.maximum, np.minimum))                  # |W| itself would be a second W in memory
    return kept | {"block": block, "maxima": np.maximum(high, -low), "first": array[0, :FIRST].copy()}


def as_plain(copy: "Copy | Scores | Best | Kept | None") -> Kept | None:
    """What was kept as plain data. A number that isn't finite is None: JSON has no NaN."""
    kept = condensed(copy)
    return None if kept is None else {key: _numbers(part, 3 if key == "maxima" else 6)
                                      if isinstance(part, np.ndarray) else part for key, part in kept.items()}


def _numbers(array: np.ndarray, digits: int) -> list:
    """Six significant digits are enough for a picture, three for a magnitude. Whole numbers (token ids) stay."""
    flat = array.reshape(-1)
    if flat.dtype.kind in "iub":
        return [int(x) for x in flat.tolist()]
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    return [float(f"{x:.{digits}g}") if isfinite(x) else None for x in map(float, flat.tolist())]
