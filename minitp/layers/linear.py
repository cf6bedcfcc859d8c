"""The two cuts of a matrix: by columns (the result is a shard) and by rows (the result is a partial sum).

Shoeybi et al. 2019, section 3. A column cut followed by a row cut needs one sync; the activation stands between them,
where every entry is final. After the row cut it could not: act(a + b) ≠ act(a) + act(b).
"""
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Communicator, Partial
from minitp.context import Context


def rows(x: Any) -> Any:
    """(…, n) → (rows, n), also where this rank holds n = 0 (reshape(-1, n) can't)."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def times(x: Any, w: Any) -> Any:
    """x Wᵀ for x (…, in) and W (out, in), as one matrix product."""
    return (rows(x) @ w.T).reshape(*x.shape[:-1], w.shape[0])


@dataclass(frozen=True)
class ColumnParallelLinear:
    """whole · columns → shard(-1); nothing is sent. `outputs` is this rank's share."""
    site: str
    outputs: int
    bias: bool = False

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any],
                ctx: Context) -> Float[Array, "B T {self.outputs}"]:
        ctx.save(self.site, x=x)
        y = times(x, weights[self.site + ".weight"])
        return y + weights[self.site + ".bias"] if self.bias else y


@dataclass(frozen=True)
class RowParallelLinear:
    """shard(-1) · rows → partial sum → (all-reduce) → whole. `inputs` is this rank's share."""
    site: str
    group: Communicator
    inputs: int
    reason: str
    bias: bool = False

    def product(self, x: Float[Array, "B T {self.inputs}"], weights: Mapping[str, Any],
                ctx: Context) -> Float[Partial, "B T D"]:
        """This rank's term of the sum. Whoever reduces it adds the bias afterwards."""
        ctx.save(self.site, x=x)
        return Partial(times(x, weights[self.site + ".weight"]), self.group)

    def add_bias(self, y: Float[Array, "B T D"], weights: Mapping[str, Any]) -> Float[Array, "B T D"]:
        """After the sum: once, not p times."""
        return y + weights[self.site + ".bias"] if self.bias else y

    def forward(self, x: Float[Array, "B T {self.inputs}"], weights: Mapping[str, Any],
                ctx: Context) -> Float[Array, "B T D"]:
        y = self.group.all_reduce(self.product(x, weights, ctx), site=self.site, reason=self.reason)
        return self.add_bias(y, weights)
