"""AdamW (Loshchilov & Hutter 2019): Adam's step, and a decay of the weights that doesn't pass through its moments.

    m ← β₁ m + (1 − β₁) g           v ← β₂ v + (1 − β₂) g²                      the moments of the gradient g
    w ← w − rate · decay · w        w ← w − rate · m̂ / (√v̂ + ε)                 m̂ = m / (1 − β₁ᵗ), v̂ = v / (1 − β₂ᵗ)

All of it is element by element, so a rank steps its own shards and sends nothing: gradients that are equal where a
parameter is held more than once keep the copies equal for ever.

In bf16 mode the weights that the layers multiply are rounded to bfloat16 after each step; the step itself is taken on
a float32 master copy, as a step of a thousandth of a weight would be lost in bfloat16's 8 bits (Micikevicius et al.
2018, section 3.1). The rounded weights are kept in float32 arrays: NumPy's products know no bfloat16.
"""
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minitp.arrays import NUMPY, Arrays
from minitp.errors import ConfigError, StateError

BLOCK = 1 << 16
"""Numbers that are worked on at a time: temporary arrays stay this small, and in a core's cache."""


def blocks(array: Any) -> Iterator[slice]:
    """Runs of rows of `array`, about BLOCK numbers each, one row at least; none where this rank holds nothing."""
    rows = array.shape[0] if array.size else 0
    step = max(1, BLOCK * rows // max(1, array.size))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def to_bf16(array: Any) -> Any:
    """`array` rounded to bfloat16, to nearest and ties to even, as float32."""
    from ml_dtypes import bfloat16
    return array.astype(bfloat16).astype(np.float32)


class AdamW:
    """The optimizer's state on one rank, by physical name, and its step.

    Matrices decay; norms and biases, whose size is no measure of a function's complexity, don't. The moments are kept
    in the weights' dtype, float32 or float64; a tied table is one array and has one state.
    """

    def __init__(self, weights: Mapping[str, Any], *, arrays: Arrays = NUMPY, betas: tuple[float, float] = (0.9, 0.95),
                 eps: float = 1e-8, decay: float = 0.1, bf16: bool = False):
        if not all(0 <= beta < 1 for beta in betas):
            raise ConfigError(f"AdamW's betas lie from 0 to below 1, not {betas}")
        if not eps > 0 or not decay >= 0:
            raise ConfigError(f"AdamW's eps must be above 0 and its decay not below, not {eps} and {decay}")
        wrong = {str(w.dtype) for w in weights.values()} - ({"float32"} if bf16 else {"float32", "float64"})
        if wrong:
            raise ConfigError("AdamW keeps its moments in the weights' dtype, float32 or float64 (in bf16 mode float32 "
                              f"arrays of rounded numbers), not {', '.join(sorted(wrong))}")
        self.weights, self.arrays = weights, arrays
        self.betas, self.eps, self.decay, self.bf16, self.steps = betas, eps, decay, bf16, 0
        zeros = arrays.xp.zeros
        self.m = {name: zeros(w.shape, w.dtype) for name, w in weights.items()}
        self.v = {name: zeros(w.shape, w.dtype) for name, w in weights.items()}
        self.master = {name: w.copy() for name, w in weights.items()} if bf16 else {}
        self.round_weights()

    def step(self, gradients: Any, rate: float) -> None:
        """One step against `gradients`, whole or shards as the weights are, by physical name; `rate` is the step's."""
        self.steps += 1
        for name in self.weights:
            gradient = gradients[name]
            if gradient.shape != self.m[name].shape:
                raise StateError(f"the gradient of {name} has shape {gradient.shape}, the weight {self.m[name].shape}: "
                                 "a shard is stepped with its own shard of the gradient")
            for rows in blocks(gradient):
                self._step(name, rows, gradient[rows], rate)

    def _step(self, name: str, rows: slice, g: Any, rate: float) -> None:
        first, second = self.betas
        m, v = self.m[name][rows], self.v[name][rows]             # views: what is written into them stays
        w = (self.master or self.weights)[name][rows]
        m *= first
        m += (1 - first) * g
        v *= second
        v += (1 - second) * g * g
        size = self.arrays.xp.sqrt(v)
        size /= (1 - second ** self.steps) ** 0.5
        size += self.eps
        if len(w.shape) == 2:
            w *= 1 - rate * self.decay
        w -= rate / (1 - first ** self.steps) * m / size
        if self.bf16:
            self.weights[name][rows] = to_bf16(w)

    def round_weights(self) -> None:
        """In bf16 mode: make the working weights anew from the master copy. Elsewhere there is nothing to do."""
        for name, master in self.master.items():
            for rows in blocks(master):
                self.weights[name][rows] = to_bf16(master[rows])

    def state(self) -> dict[str, dict[str, Any]]:
        """The arrays themselves, for a checkpoint to read and fill: "m", "v" and, in bf16 mode, "master", by name."""
        return {"m": self.m, "v": self.v} | ({"master": self.master} if self.bf16 else {})

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for kind in self.state().values() for array in kind.values())
