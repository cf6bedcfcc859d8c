"""Where a pipeline's messages go: which boundaries between stages lie inside a box, and which cross a network."""
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import mul

import numpy as np

from minitp.plan.layout import Layout
from minitp.plan.machine import LOOKED_AT, Machine


@dataclass(frozen=True)
class Boundary:
    """Between two stages. `shares`: of a stage's ranks, by the level at which they meet theirs of the other."""
    shares: tuple[float, ...]

    @property
    def level(self) -> int:
        """The outermost at which some meet: the slowest of them, for which the others wait."""
        return max((level for level, share in enumerate(self.shares) if share), default=0)

    @property
    def meeting(self) -> tuple[int, ...]:
        """Two ranks that meet there."""
        return tuple(2 if level == self.level else 1 for level in range(len(self.shares)))


def boundary(machine: Machine, layout: Layout, stage: int, other: int) -> Boundary:
    """The one between these two stages."""
    return Boundary(_shares(tuple(level.size for level in machine.levels), layout.strides["pp"], stage,
                            other))


def boundaries(machine: Machine, layout: Layout) -> tuple[Boundary, ...]:
    """All between a stage and the next, and the one from the last to the first, in order."""
    return tuple(boundary(machine, layout, stage, (stage + 1) % layout.pp) for stage in range(layout.pp))


@lru_cache(maxsize=4096)
def _shares(sizes: tuple[int, ...], stride: int, stage: int, other: int) -> tuple[float, ...]:
    ranks = np.arange(min(stride, LOOKED_AT))                               # pp is the outermost axis of the mesh
    mine, theirs = ranks + stage * stride, ranks + other * stride
    level = np.zeros(len(ranks), int)
    for unit in accumulate(sizes[:-1], mul):
        level += mine // unit != theirs // unit
    return tuple((np.bincount(level, minlength=len(sizes)) / len(ranks)).tolist())
