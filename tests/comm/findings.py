"""What checks that run on every rank need: numbers to send, cuts to send them by, and a place for what was wrong."""
from math import prod

import numpy as np

from minitp.comm import Communicator
from minitp.cut import Cut


class Findings(list):
    """What was wrong, in words; `same` compares kind, shape, dtype and every value."""

    def same(self, what: object, got: object, wanted: object) -> None:
        if wanted is None or not isinstance(wanted, np.ndarray):
            if got != wanted:
                self.append(f"{what}: got {got!r}, wanted {wanted!r}")
        elif not isinstance(got, np.ndarray):
            self.append(f"{what}: got a {type(got).__name__}, wanted an array")
        elif got.shape != wanted.shape or got.dtype != wanted.dtype:
            self.append(f"{what}: got {got.shape} {got.dtype}, wanted {wanted.shape} {wanted.dtype}")
        elif got.tobytes() != wanted.tobytes():
            self.append(f"{what}: got\n{got}\nwanted\n{wanted}")

    def event(self, comm: Communicator, what: object, **wanted: object) -> None:
        """The last event says so."""
        last = comm.recorder.events[-1]
        for name, value in wanted.items():
            self.same(f"event of {what}: {name}", getattr(last, name), value)


def numbers(shape: tuple[int, ...], dtype: object, seed: int = 0) -> np.ndarray:
    """Small whole numbers, all different from their neighbors and from other seeds'; complex ones have both parts."""
    dtype = np.dtype(dtype)
    values = (np.arange(prod(shape)) * 7 + seed * 3 + 1) % 11
    if dtype.kind == "c":
        return (values + 1j * (values % 5 + seed)).astype(dtype).reshape(shape)
    return (values % 2 == 1 if dtype.kind == "b" else values).astype(dtype).reshape(shape)


def total(comm: Communicator, shape: tuple[int, ...], dtype: object) -> np.ndarray:
    return np.sum([numbers(shape, dtype, rank) for rank in range(comm.size)], axis=0, dtype=dtype).reshape(shape)


def piece(array: np.ndarray, axis: int, held: range) -> np.ndarray:
    """The slice of `array` along `axis`, in C order as a collective returns it."""
    return np.ascontiguousarray(np.take(array, held, axis))


def crossed(dtypes: list, axes: tuple[int, ...]) -> list[tuple]:
    """Every axis with the first dtype, every dtype with the first axis."""
    return [(dtypes[0], axis) for axis in axes] + [(dtype, axes[0]) for dtype in dtypes[1:]]


def roots(comm: Communicator) -> tuple[int, ...]:
    return tuple(sorted({comm.size // 2, comm.size - 1}))


def cuts(size: int, ranks: int) -> list[Cut]:
    """Even in ones, even in units of 2, and one whose first rank has nothing and whose second nearly all."""
    ends = sorted([0, *[size - 1] * (ranks - 2), size]) if ranks > 1 else [size]
    return [Cut(size, ranks), Cut(size, ranks, 2), Cut(size, ranks, ends=tuple(ends))]
