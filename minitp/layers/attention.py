"""Attention, cut by heads: they are independent, and the sum of their projections is the projection of them all.

Vaswani et al. 2017, section 3.2; grouped queries: Ainslie et al. 2023. A rank holds whole query heads and the kv heads
that these need; a kv head needed by two ranks is held by both. A rank may hold no head at all.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Partial
from minitp.context import Context
from minitp.layers.linear import ColumnParallelLinear, RowParallelLinear

QUERIES = 512           # that attend at once: the scores of a long prompt against itself would take tokens² × heads


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
        """softmax(q kᵀ / √E) v: every kv head with all the query heads that share it, QUERIES tokens at a time."""
        b, h, t, e = query.shape
        query = query * query.dtype.type(e ** -0.5)                              # before the product: no overflow
        y = ctx.xp.empty((b, t, h, e), query.dtype)
        for kv, shared, g in self.groups:                                        # n kv heads, g query heads to each
            for first in range(0, t, QUERIES):
                some = slice(first, min(first + QUERIES, t))
                q = query[:, shared, some].reshape(b, kv.stop - kv.start, -1, e)                # B n gT E
                scores = q @ key[:, kv].swapaxes(2, 3)                                          # B n gT S
                if ctx.mask is not None:
                    scores = hide(scores, ctx.mask[:, :, some], g, ctx.xp)
                scores = softmax(scores, ctx.xp)
                ctx.save(self.site, heads=shared, queries=some, scores=scores)
                head = scores @ value[:, kv]                                                    # B n gT E
                y[:, some, shared] = head.reshape(b, -1, some.stop - first, e).swapaxes(1, 2)
        ctx.save(self.site, query=query, key=key, value=value, y=y)
        return y.reshape(b, t, h * e)

    @cached_property
    def groups(self) -> tuple[tuple[slice, slice, int], ...]:
        """(kv heads, the query heads that share them, how many share each), by their local numbers on this rank.

        Kv heads with equally many query heads here stand together: all of them are one batch of products. At its edges
        a rank may hold fewer query heads of a kv head, and other ranks the rest. With 9 heads, 3 to a kv head:

          rank 0 of 2   heads 0-4, kv heads 0, 1   (0:1, 0:3, 3), (1:2, 3:5, 2)   kv head 1 lacks head 5 here
          rank 1 of 4   heads 3-4, kv head 1       (0:1, 0:2, 2)
          rank 2 of 4   heads 5-6, kv heads 1, 2   (0:2, 0:2, 1)                  alike: one batch of two
        """
        owner = [head // self.heads_per_kv for head in self.heads]
        found, kv, head = [], 0, 0
        for g, alike in groupby(owner.count(kv_head) for kv_head in self.kv_heads):
            n = len(list(alike))
            found.append((slice(kv, kv + n), slice(head, head + n * g), g))
            kv, head = kv + n, head + n * g
        return tuple(found)


def hide(scores: Float[Array, "B n gT S"], mask: Any, g: int, xp: Any) -> Float[Array, "B n gT S"]:
    """-∞ where a query may not look. The mask, (B, 1, T, S), is the same for all heads."""
    b, n, _, s = scores.shape
    by_head = scores.reshape(b, n, g, -1, s)
    return xp.where(mask[:, None], by_head, by_head.dtype.type("-inf")).reshape(scores.shape)


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
