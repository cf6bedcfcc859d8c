"""What training holds in a rank's memory, by kind, counted from the arrays themselves.

    weights      the model's arrays; in bf16 mode the rounded ones, kept in float32 arrays
    gradients    one sum for each weight
    optimizer    Adam's two moments, and in bf16 mode the float32 master weights
    activations  what the forward pass left for the backward pass, at its most: logits and probabilities too
"""
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from minitp.comm import Communicator
from minitp.cut import Cut

KINDS = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True)
class Held:
    """Bytes by kind, of one rank."""
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @classmethod
    def of(cls, weights: Mapping[str, Any], gradients: Any, optimizer: Any, activations: int) -> "Held":
        """`gradients` and `optimizer` know their own `nbytes`; `activations`: the most that a pass has saved."""
        return cls(sum(array.nbytes for array in weights.values()), gradients.nbytes, optimizer.nbytes, activations)

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations

    def to_row(self) -> dict[str, int]:
        return asdict(self)


def every_rank(held: Held, group: Communicator) -> list[Held]:
    """What each rank holds, on every rank. A control message: the ranks tell each other, training needs none of it."""
    mine = np.array([list(held.to_row().values())], np.int64)
    table = group.all_gather(group.arrays.from_host(mine), axis=0, cut=Cut(group.size, group.size), site="memory",
                             plane="control", reason="tell every rank what each holds")
    return [Held(*map(int, row)) for row in group.arrays.to_host(table)]


def fullest(table: list[Held]) -> tuple[int, Held]:
    """The rank that holds most, and what it holds."""
    rank = max(range(len(table)), key=lambda r: (table[r].total, -r))
    return rank, table[rank]
