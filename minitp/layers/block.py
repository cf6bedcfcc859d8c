"""A block: attention and MLP, each between a boundary's enter and leave. Two sync points forward, two backward.

q, k and v share one input, and so do gate and up: their partial gradients are added by the same product, and one
all-reduce takes the sum in front of them. One for each would make five.
"""
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.context import Context
from minitp.gradients import Gradients
from minitp.layers.attention import Attention
from minitp.layers.boundary import TensorBoundary
from minitp.layers.mlp import MLP
from minitp.layers.norm import LayerNorm, RMSNorm

BOTH_REASON = "add the ranks' partial attention + MLP"
ATTENTION_BACK = "add the ranks' partial gradients before q, k, v"
MLP_BACK = "add the ranks' partial gradients before the MLP"
BOTH_BACK = "add the ranks' partial gradients, attention + MLP"


class Recomputable(ABC):
    """Forward and backward of a block, which with full recomputation keeps nothing but its input.

    Its forward then runs a second time in the backward pass, sync points included.
    """
    site: str

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        if ctx.saved is None or ctx.recompute != "full":
            return self.run(x, weights, ctx)
        ctx.save(self.site, x=x)
        return self.run(x, weights, replace(ctx, saved=None))

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        if ctx.recompute == "full":
            ctx = replace(ctx, recompute="none")
            self.run(ctx.kept[self.site]["x"], weights, ctx)
        return self.run_backward(dy, weights, ctx)

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        for part, kept in pending:
            part.backward_weight(kept, gradients)

    @abstractmethod
    def run(self, x: Any, weights: Mapping[str, Any], ctx: Context) -> Any:
        """The block's forward itself."""

    @abstractmethod
    def run_backward(self, dy: Any, weights: Mapping[str, Any], ctx: Context) -> tuple[Any, Any]:
        """(dx, ((part, what its weights wait for), …)), from what `run` saved."""


@dataclass(frozen=True)
class Block(Recomputable):
    """x + attention(norm x), then x + mlp(norm x): two sync points."""
    site: str
    attention_norm: RMSNorm | LayerNorm
    attention: Attention
    mlp_norm: RMSNorm | LayerNorm
    mlp: MLP
    boundary: TensorBoundary

    def run(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        n = self.boundary.enter(self.attention_norm.forward(x, weights, ctx))
        o = self.attention.o
        y = self.boundary.leave(self.attention.product(n, weights, ctx), o.site, o.reason)
        x = x + ctx.drop_out(o.site, o.add_bias(y, weights))
        n = self.boundary.enter(self.mlp_norm.forward(x, weights, ctx))
        down = self.mlp.down
        y = self.boundary.leave(self.mlp.product(n, weights, ctx), down.site, down.reason)
        return x + ctx.drop_out(down.site, down.add_bias(y, weights))

    def run_backward(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                     ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        """Each half adds its own input gradient to the one that came by the residual path."""
        mlp, attention, boundary = self.mlp, self.attention, self.boundary
        d = boundary.leave_backward(ctx.drop_out(mlp.down.site, dy))
        dn, of_mlp = mlp.backward_input(d, weights, ctx)                         # B T D, a partial sum
        dn = boundary.enter_backward(dn, mlp.up.site, MLP_BACK)
        dx, of_mlp_norm = self.mlp_norm.backward_input(dn, weights, ctx)
        dy = dy + dx
        d = boundary.leave_backward(ctx.drop_out(attention.o.site, dy))
        dn, of_attention = attention.backward_input(d, weights, ctx)
        dn = boundary.enter_backward(dn, attention.qkv.site, ATTENTION_BACK)
        dx, of_norm = self.attention_norm.backward_input(dn, weights, ctx)
        return dy + dx, ((mlp, of_mlp), (self.mlp_norm, of_mlp_norm), (attention, of_attention),
                         (self.attention_norm, of_norm))


@dataclass(frozen=True)
class ParallelBlock(Recomputable):
    """x + attention(norm x) + mlp(norm x): two partial sums added before they are reduced, one sync point.

    Wang & Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM), section 2. Backward the same: one.
    """
    site: str
    attention_norm: RMSNorm | LayerNorm
    attention: Attention
    mlp: MLP
    boundary: TensorBoundary

    def run(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        n = self.boundary.enter(self.attention_norm.forward(x, weights, ctx))
        both = self.attention.product(n, weights, ctx) + self.mlp.product(n, weights, ctx)
        down = self.mlp.down
        y = self.boundary.leave(both, down.site, BOTH_REASON)
        return x + ctx.drop_out(down.site, down.add_bias(self.attention.o.add_bias(y, weights), weights))

    def run_backward(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                     ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        d = self.boundary.leave_backward(ctx.drop_out(self.mlp.down.site, dy))
        dn_mlp, of_mlp = self.mlp.backward_input(d, weights, ctx)
        dn, of_attention = self.attention.backward_input(d, weights, ctx)
        dn = self.boundary.enter_backward(dn + dn_mlp, self.mlp.up.site, BOTH_BACK)
        dx, of_norm = self.attention_norm.backward_input(dn, weights, ctx)
        return dy + dx, ((self.mlp, of_mlp), (self.attention, of_attention), (self.attention_norm, of_norm))
