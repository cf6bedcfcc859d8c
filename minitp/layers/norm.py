"""Norms: whole in, whole out. They need all of a row, so a partial sum must be reduced and a shard gathered before."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.context import Context
from minitp.errors import StateError
from minitp.gradients import Gradients


@dataclass(frozen=True)
class RMSNorm:
    """y = x / rms(x) · w. Zhang & Sennrich 2019, equation 4."""
    site: str
    eps: float

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        weight = _of_whole_rows(x, weights, self.site)
        inverse = 1 / ctx.xp.sqrt(_mean(x * x) + self.eps)                            # B T 1
        ctx.save(self.site, x=x, inverse=inverse)
        return x * inverse * weight

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        x, inverse = ctx.kept[self.site]["x"], ctx.kept[self.site]["inverse"]
        n, dn = x * inverse, dy * weights[self.site + ".weight"]                      # normalized; gradient at it
        return inverse * (dn - n * _mean(dn * n)), (dy, n)

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        """x and dy are whole, so this is too: the same on every rank."""
        dy, n = pending
        gradients.add(self.site + ".weight", (dy * n).sum((0, 1)))


@dataclass(frozen=True)
class LayerNorm:
    """y = (x − mean) / deviation · w + b. Ba et al. 2016."""
    site: str
    eps: float

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        weight = _of_whole_rows(x, weights, self.site)
        centered = x - _mean(x)
        inverse = 1 / ctx.xp.sqrt(_mean(centered * centered) + self.eps)
        ctx.save(self.site, centered=centered, inverse=inverse)
        ctx.show(self.site, x=x)
        return centered * inverse * weight + weights[self.site + ".bias"]

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        inverse = ctx.kept[self.site]["inverse"]
        n, dn = ctx.kept[self.site]["centered"] * inverse, dy * weights[self.site + ".weight"]
        return inverse * (dn - _mean(dn) - n * _mean(dn * n)), (dy, n)

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        dy, n = pending
        gradients.add(self.site + ".weight", (dy * n).sum((0, 1)))
        gradients.add(self.site + ".bias", dy.sum((0, 1)))


def _mean(x: Float[Array, "B T D"]) -> Float[Array, "B T 1"]:
    """Of each row; `x.mean` gives the same and takes twice as long on the one row of a decode step."""
    return x.sum(-1, keepdims=True) / x.shape[-1]


def _of_whole_rows(x: Any, weights: Mapping[str, Any], site: str) -> Any:
    """The norm's weight, once x is known to be no shard: the mean over a slice is not the mean over the row."""
    weight = weights[site + ".weight"]
    if x.shape[-1] != weight.shape[0]:
        raise StateError(f"the norm at {site} needs whole rows of {weight.shape[0]} numbers, and these have "
                         f"{x.shape[-1]}: a shard's own mean is not the row's. Make it whole first (all_gather)")
    return weight
