"""Where a backward pass leaves the gradients of the weights: one store that layers add into.

Layers add, they never set: a table used twice (tied embedding and head), micro-batches and accumulation are then one
mechanism. Nothing here communicates. What the ranks owe each other afterwards the placement says (`Parameter.gradient`)
and `minitp.train.reduce` pays once per step.
"""
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minitp.arrays import NUMPY, Arrays


class Gradients:
    """Sums of this rank's gradients by the weights' physical names, zeros at first; in float32 at least.

    `weights` give names and shapes. The arrays live where the weights do (`arrays`).
    """

    def __init__(self, weights: Mapping[str, Any], arrays: Arrays = NUMPY):
        self.arrays = arrays
        self._sums = {name: arrays.xp.zeros(w.shape, np.promote_types(w.dtype, np.float32))
                      for name, w in weights.items()}

    def add(self, name: str, value: Any) -> None:
        """Add the gradient of a whole weight."""
        total = self._sums[name]
        total += value                                    # in place: `items` and views of it stay true

    def add_rows(self, name: str, rows: Any, values: Any) -> None:
        """Add `values` (n, D) to the n rows of a table that `rows` names; one may be named several times."""
        self.arrays.xp.add.at(self._sums[name], rows, values)

    def zero(self) -> None:
        for total in self._sums.values():
            total[...] = 0

    def __getitem__(self, name: str) -> Any:
        return self._sums[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def items(self) -> Iterator[tuple[str, Any]]:
        return iter(self._sums.items())

    @property
    def nbytes(self) -> int:
        return sum(total.nbytes for total in self._sums.values())
