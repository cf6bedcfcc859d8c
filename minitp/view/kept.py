"""The arrays that a trace kept, looked up by event and name, whatever a stranger's file makes of them."""
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from minitp.trace.file import Trace


@dataclass(frozen=True)
class Kept:
    """An array as the trace has it: `shape` is its true shape, `numbers` all of it or the maxima of blocks of its rows.

    numbers  (rows, n) where `exact`, else (rows, n / block): the last axis apart, all others as rows
    """
    shape: tuple[int, ...]
    numbers: np.ndarray
    exact: bool

    def row(self, sequence_rows: int, row: int) -> np.ndarray:
        """One row, (1, n): token `row` of the first sequence."""
        at = min(max(row, 0), max(sequence_rows, 1) - 1, len(self.numbers) - 1)
        return self.numbers[at:at + 1]


class KeptArrays:
    """`trace.values`, by event."""

    def __init__(self, trace: Trace):
        self._by_event: dict[int, Mapping[str, Any]] = {}
        for value in trace.values:
            self._by_event.setdefault(value["event"], value)
        self._read: dict[tuple[int, str], Kept | None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_event)

    def of(self, event: int, name: str) -> Kept | None:
        """The array `name` (before, after) of an event; None where none was kept."""
        key = event, name
        if key not in self._read:
            self._read[key] = _read(self._by_event.get(event, {}).get(name))
        return self._read[key]

    def detail(self) -> str:
        """whole: every array that was kept is complete; maxima: some are block maxima; none."""
        arrays = [array for value in self._by_event.values() for array in (value["before"], value["after"])
                  if array is not None]
        return "none" if not arrays else "whole" if all("data" in array for array in arrays) else "maxima"


def _read(array: Any) -> Kept | None:
    if array is None or not array["shape"] or not prod(array["shape"]):
        return None
    shape, exact = tuple(array["shape"]), "data" in array
    numbers = np.array(array["data"] if exact else array["maxima"], float)               # None becomes NaN
    return Kept(shape, numbers.reshape(prod(shape[:-1]), -1), exact)
