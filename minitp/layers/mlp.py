"""The MLP: a column cut, the activation on final entries, a row cut. One sync, and the block asks for it."""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Partial
from minitp.config import Activation
from minitp.context import Context
from minitp.gradients import Gradients
from minitp.layers.linear import ColumnParallelLinear, RowParallelLinear


@dataclass(frozen=True)
class MLP:
    """down(act(gate x) · up x), or down(act(up x)). Shazeer 2020, equation 6.

    `up` computes gate and up as one product where the MLP is gated: this rank's F_p rows of the one above those of the
    other, so that gate[i] and up[i] of the same i are on the same rank.
    """
    site: str
    up: ColumnParallelLinear                     # gate and up where gated
    down: RowParallelLinear
    activation: Activation
    gated: bool

    def product(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Partial, "B T D"]:
        u = self.up.forward(x, weights, ctx)                                     # B T 2F_p, or B T F_p
        if self.gated:
            f = self.down.inputs
            gate, u = u[..., :f], u[..., f:]                                     # B T F_p
            h = activate(gate, self.activation, ctx.xp) * u
            ctx.save(self.site, gate=gate, up=u)
        else:
            h = activate(u, self.activation, ctx.xp)
            ctx.save(self.site, up=u)
        ctx.show(self.site, h=h)
        return self.down.product(h, weights, ctx)

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Partial, "B T D"], Any]:
        """dy is whole; the input's gradient is a partial sum, for the boundary to reduce: one for gate and up."""
        dh, down = self.down.backward_input(dy, weights, ctx)                    # B T F_p
        kept, xp = ctx.kept[self.site], ctx.xp
        if self.gated:
            gate, f = kept["gate"], self.down.inputs
            du = xp.empty((*dh.shape[:-1], 2 * f), dh.dtype)                     # B T 2F_p, which gate and up share
            dgate, dup = du[..., :f], du[..., f:]
            xp.multiply(dh, slope(gate, self.activation, xp), out=dgate)
            dgate *= kept["up"]
            xp.multiply(dh, activate(gate, self.activation, xp), out=dup)
            ctx.show(self.site, dh=dh, dgate=dgate, dup=dup)
        else:
            du = dh * slope(kept["up"], self.activation, xp)
            ctx.show(self.site, dh=dh, dup=du)
        dx, up = self.up.backward_input(du, weights, ctx)
        return dx, (up, down)

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        up, down = pending
        self.down.backward_weight(down, gradients)
        self.up.backward_weight(up, gradients)


def activate(x: Any, kind: Activation, xp: Any) -> Any:
    """silu(x) = x σ(x);  gelu_tanh: Hendrycks & Gimpel 2016, the tanh form;  gelu: x Φ(x) with the true Φ."""
    if kind == "silu":
        return x * (0.5 * (1 + xp.tanh(0.5 * x)))                                # σ by tanh: no overflow at any x
    if kind == "gelu_tanh":
        return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))          # √(2/π)
    return 0.5 * x * (1 + error_function(x * 0.7071067811865476, xp))                            # 1/√2


def slope(x: Any, kind: Activation, xp: Any) -> Any:
    """The derivative of `activate`."""
    if kind == "silu":
        s = 0.5 * (1 + xp.tanh(0.5 * x))
        return s * (1 + x * (1 - s))
    if kind == "gelu_tanh":
        t = xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)
    density = 0.3989422804014327 * xp.exp(-0.5 * x * x)                                          # 1/√(2π)
    return 0.5 * (1 + error_function(x * 0.7071067811865476, xp)) + x * density


def error_function(x: Any, xp: Any) -> Any:
    """erf to 5e-16 in plain array operations (NumPy has none): a series near 0, a continued fraction farther out."""
    near = xp.minimum(xp.abs(x), 1.75)
    total = xp.zeros_like(near)
    for n in range(40, 0, -1):                                                   # Abramowitz & Stegun 7.1.6
        total = (1 + total) * (2 * near * near / (2 * n + 1))
    series = 1.1283791670955126 * xp.exp(-near * near) * near * (1 + total)      # 2/√π
    far = xp.maximum(xp.abs(x), 1.75)
    fraction = xp.zeros_like(far)
    for n in range(60, 0, -1):                                                   # Abramowitz & Stegun 7.1.14
        fraction = (n / 2) / (far + fraction)
    tail = 1 - xp.exp(-far * far) * 0.5641895835477563 / (far + fraction)        # 1/√π
    return xp.sign(x) * xp.where(xp.abs(x) < 1.75, series, tail)
