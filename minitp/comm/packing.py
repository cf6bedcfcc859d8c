"""Slices of an array, one after the other in one buffer, and back: what a collective sends is one piece of memory."""
from collections.abc import Sequence
from math import prod

import numpy as np

from minitp.cut import Cut, Slices


def shape_of(shape: Sequence[int], piece: Slices) -> tuple[int, ...]:
    """The shape of a slice of an array of `shape`."""
    return tuple(len(range(*s.indices(n))) for s, n in zip(piece, shape, strict=True))


def axis_pieces(shape: Sequence[int], axis: int, cut: Cut) -> list[Slices]:
    """Each rank's slice of an array of `shape` that is cut along `axis`."""
    axis %= len(shape)
    return [tuple(slice(cut.of(rank).start, cut.of(rank).stop) if i == axis else slice(0, n)
                  for i, n in enumerate(shape)) for rank in range(cut.ranks)]


def pack(array: np.ndarray, pieces: Sequence[Slices]) -> np.ndarray:
    """The pieces of `array` in one flat buffer, in rank order."""
    return join([array[piece].reshape(-1) for piece in pieces], array.dtype)


def join(parts: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Flat arrays, one after the other, as they are: `concatenate` alone would swap the bytes of a foreign order."""
    return np.concatenate(parts, out=np.empty(sum(part.size for part in parts), dtype))


def unpack(flat: np.ndarray, shape: Sequence[int], pieces: Sequence[Slices]) -> np.ndarray:
    """The array of `shape` whose pieces lie one after the other in `flat`."""
    if prod(shape[:_cut_axis(shape, pieces)]) == 1:              # the pieces are already in order: no copy
        return flat.reshape(shape)
    whole, start = np.empty(shape, flat.dtype), 0
    for piece in pieces:
        target = whole[piece]
        whole[piece] = flat[start:start + target.size].reshape(target.shape)
        start += target.size
    return whole


def _cut_axis(shape: Sequence[int], pieces: Sequence[Slices]) -> int:
    """The first axis along which some piece is not the whole."""
    for axis, size in enumerate(shape):
        if any(piece[axis] != slice(0, size) for piece in pieces):
            return axis
    return 0
