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
from minitp.gradients import Gradients


def rows(x: Any) -> Any:
    """(…, n) → (rows, n), also where this rank holds n = 0 (reshape(-1, n) can't)."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def times(x: Any, w: Any) -> Any:
    """x Wᵀ for x (…, in) and W (out, in), as one matrix product."""
    return (rows(x) @ w.T).reshape(*x.shape[:-1], w.shape[0])


@dataclass(frozen=True)
class ColumnParallelLinear:
    """forward: whole · columns → shard(-1), nothing is sent;  backward: the input's gradient is a partial sum.

    That sum is the f of the paper: one all-reduce in front of all column cuts that share an input. `outputs` is this
    rank's share.
    """
    site: str
    group: Communicator
    outputs: int
    bias: bool = False

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any],
                ctx: Context) -> Float[Array, "B T {self.outputs}"]:
        ctx.save(self.site, x=x)
        y = times(x, weights[self.site + ".weight"])
        return y + weights[self.site + ".bias"] if self.bias else y

    def backward_input(self, dy: Float[Array, "B T {self.outputs}"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Partial, "B T D"], Any]:
        ctx.show(self.site, dy=dy)
        dx = times(dy, weights[self.site + ".weight"].T)                         # this rank's term of the sum
        return Partial(dx, self.group), (dy, ctx.kept[self.site]["x"])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        add_linear(self.site, self.bias, pending, gradients)


@dataclass(frozen=True)
class RowParallelLinear:
    """forward: shard(-1) · rows → partial sum → (all-reduce) → whole;  backward: nothing is sent.

    `inputs` is this rank's share.
    """
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

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T {self.inputs}"], Any]:
        """The sum's gradient is the gradient of each of its terms, and every rank has it: dy is whole."""
        ctx.show(self.site, dy=dy)
        return times(dy, weights[self.site + ".weight"].T), (dy, ctx.kept[self.site]["x"])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        """The bias was added once to a whole sum, so its gradient is whole: the same on every rank."""
        add_linear(self.site, self.bias, pending, gradients)


def add_linear(site: str, bias: bool, pending: tuple[Any, Any], gradients: Gradients) -> None:
    """dW = dyᵀ x and db = Σ dy, over all tokens of the micro-batch; `pending` is (dy, x)."""
    dy, x = pending
    gradients.add(site + ".weight", rows(dy).T @ rows(x))
    if bias:
        gradients.add(site + ".bias", rows(dy).sum(0))
