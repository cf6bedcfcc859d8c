"""Attention, cut by heads: they are independent, and the sum of their projections is the projection of them all.

Vaswani et al. 2017, section 3.2; grouped queries: Ainslie et al. 2023. A rank holds whole query heads and the kv heads
that these need; a kv head needed by two ranks is held by both. A rank may hold no head at all.
"""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Partial
from minitp.context import Context
from minitp.layers.linear import ColumnParallelLinear, RowParallelLinear


@dataclass(frozen=True)
class Attention:
    """q, k, v as one column-parallel product; each head on its own; the output projection row-parallel.

    `heads` and `kv_heads` are this rank's, by their global numbers.
    """
    site: str
    qkv: ColumnParallelLinear
    o: RowParallelLinear
    heads: range
    kv_heads: range
    heads_per_kv: int
    head_size: int

    def product(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Partial, "B T D"]:
        b, t, _ = x.shape
        h, k, e = len(self.heads), len(self.kv_heads), self.head_size
        qkv = self.qkv.forward(x, weights, ctx).reshape(b, t, h + 2 * k, e)
        turned = rotate(qkv[:, :, :h + k].swapaxes(1, 2), ctx)                   # B H_p+K_p T E
        query, key = turned[:, :h], turned[:, h:]                                # B H_p T E, B K_p T E
        value = qkv[:, :, h + k:].swapaxes(1, 2)                                 # B K_p T E
        if ctx.cache is not None:                                                # those of all slots so far, B K_p S E
            key, value = ctx.cache.extend(self.site, key.swapaxes(1, 2), value.swapaxes(1, 2), ctx)
        y = self.attend(query, key, value, ctx)                                  # B T H_p·E
        return self.o.product(y, weights, ctx)

    def attend(self, query: Float[Array, "B H_p T E"], key: Float[Array, "B K_p S E"], value: Float[Array, "B K_p S E"],
               ctx: Context) -> Float[Array, "B T {self.o.inputs}"]:
        """softmax(q kᵀ / √E) v, one kv head at a time with all the query heads that share it."""
        b, h, t, e = query.shape
        query = query * query.dtype.type(e ** -0.5)                              # before the product: no overflow
        y = ctx.xp.empty((b, t, h, e), query.dtype)
        for kv_head, shared in self.groups():
            q = query[:, shared].reshape(b, -1, e)                               # B gT E: g heads, one product
            scores = (q @ key[:, kv_head].swapaxes(1, 2)).reshape(b, -1, t, key.shape[2])       # B g T S
            if ctx.mask is not None:
                scores = ctx.xp.where(ctx.mask, scores, scores.dtype.type("-inf"))
            probability = softmax(scores, ctx.xp)
            head = (probability.reshape(b, -1, key.shape[2]) @ value[:, kv_head]).reshape(b, -1, t, e)
            y[:, :, shared] = head.swapaxes(1, 2)
        ctx.save(self.site, query=query, key=key, value=value, y=y)
        return y.reshape(b, t, h * e)

    def groups(self) -> Iterator[tuple[int, slice]]:
        """(kv head, the query heads that share it), both by their local numbers on this rank."""
        for local, kv_head in enumerate(self.kv_heads):
            first = max(self.heads.start, kv_head * self.heads_per_kv) - self.heads.start
            last = min(self.heads.stop, (kv_head + 1) * self.heads_per_kv) - self.heads.start
            yield local, slice(first, last)


def rotate(x: Float[Array, "B N T E"], ctx: Context) -> Float[Array, "B N T E"]:
    """Turn each pair (x_i, x_{i+E/2}) by its position's angle. Su et al. 2021; the pairs are halves, not neighbors."""
    if ctx.rotary is None:
        return x
    cos, sin = ctx.rotary                                                        # B 1 T E/2
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return ctx.xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def softmax(x: Any, xp: Any) -> Any:
    """Along the last axis, the largest subtracted first: finite for any finite x. A query always sees itself."""
    e = xp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
