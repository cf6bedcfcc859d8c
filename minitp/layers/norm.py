"""Norms: whole in, whole out. They need all of a row, so a partial sum must have been reduced before."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.context import Context


@dataclass(frozen=True)
class RMSNorm:
    """y = x / rms(x) · w. Zhang & Sennrich 2019, equation 4."""
    site: str
    eps: float

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        mean_square = (x * x).sum(-1, keepdims=True) / x.shape[-1]                    # B T 1
        inverse = 1 / ctx.xp.sqrt(mean_square + self.eps)
        ctx.save(self.site, x=x, inverse=inverse)
        return x * inverse * weights[self.site + ".weight"]


@dataclass(frozen=True)
class LayerNorm:
    """y = (x − mean) / deviation · w + b. Ba et al. 2016."""
    site: str
    eps: float

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        centered = x - x.mean(-1, keepdims=True)
        inverse = 1 / ctx.xp.sqrt((centered * centered).mean(-1, keepdims=True) + self.eps)
        ctx.save(self.site, centered=centered, inverse=inverse)
        return centered * inverse * weights[self.site + ".weight"] + weights[self.site + ".bias"]
