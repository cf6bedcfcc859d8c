"""Attention, cut by heads: they are independent, and the sum of their projections is the projection of them all.

Vaswani et al. 2017, section 3.2; grouped queries: Ainslie et al. 2023. A rank holds whole query heads and the kv heads
that these need; a kv head needed by two ranks is held by both. A rank may hold no head at all.
"""
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Partial
from minitp.context import Context
from minitp.gradients import Gradients
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
        keep = ctx.save if ctx.recompute == "none" else ctx.show
        for part in self.parts(t):
            scores = self.scores(part, query, key, ctx)                                         # B n gT S
            keep(self.site, heads=part.heads, queries=part.queries, scores=scores)
            head = self.drop_out(part, scores, ctx) @ value[:, part.kv]                         # B n gT E
            y[:, part.queries, part.heads] = split(head, part, b)
        ctx.save(self.site, query=query, key=key, value=value)
        ctx.show(self.site, query=query, key=key, value=value, y=y)
        return y.reshape(b, t, h * e)

    def parts(self, tokens: int) -> Iterator["Part"]:
        """The products that one pass of `tokens` tokens is done in."""
        for kv, heads, g in self.groups:
            for first in range(0, tokens, QUERIES):
                yield Part(kv, heads, g, slice(first, min(first + QUERIES, tokens)))

    def scores(self, part: "Part", query: Float[Array, "B H_p T E"], key: Float[Array, "B K_p S E"],
               ctx: Context) -> Float[Array, "B n gT S"]:
        """softmax(q kᵀ) of one part: its g query heads stand above one another, and meet their kv head at once."""
        scores = stack(query[:, part.heads, part.queries], part) @ key[:, part.kv].swapaxes(2, 3)
        if ctx.mask is not None:
            scores = hide(scores, ctx.mask[:, :, part.queries], part.shared, ctx.xp)
        return softmax(scores, ctx.xp)

    def drop_out(self, part: "Part", scores: Float[Array, "B n gT S"], ctx: Context) -> Float[Array, "B n gT S"]:
        """Each head has a stream of its own, by its global number: whoever holds it draws the same mask."""
        if ctx.dropout is None:
            return scores
        tokens = scores.shape[-1]                                                # no cache in training: T × T
        masks = [ctx.dropout.mask(f"{self.site}.{head}", (tokens, tokens), scores.dtype)[:, part.queries]
                 for head in self.heads[part.heads]]                                            # B T S each
        return scores * ctx.xp.stack(masks, 1).reshape(scores.shape)

    # --- backward ------------------------------------------------------------------------------------------------

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Partial, "B T D"], Any]:
        """dy is whole; the input's gradient is a partial sum, for the boundary to reduce: one for q, k and v."""
        b, t, _ = dy.shape
        dhead, o = self.o.backward_input(dy, weights, ctx)                                      # B T H_p·E
        dquery, dkey, dvalue = self.attend_backward(dhead, ctx)
        turned = rotate(ctx.xp.concatenate([dquery, dkey], axis=1), ctx, back=True)             # B H_p+K_p T E
        dqkv = ctx.xp.concatenate([turned, dvalue], axis=1).swapaxes(1, 2)                      # B T H_p+2K_p E
        dx, qkv = self.qkv.backward_input(dqkv.reshape(b, t, self.qkv.outputs), weights, ctx)
        return dx, (qkv, o)

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        qkv, o = pending
        self.o.backward_weight(o, gradients)
        self.qkv.backward_weight(qkv, gradients)

    def attend_backward(self, dy: Float[Array, "B T {self.o.inputs}"], ctx: Context) -> tuple[Any, Any, Any]:
        """The gradients of query, key and value, part by part; a kv head's is the sum over the heads that share it.

        The scores are those that were saved, or, with selective recomputation, they are computed again.
        """
        kept = ctx.kept[self.site]
        query, key, value = kept["query"], kept["key"], kept["value"]
        b, h, t, e = query.shape
        dy = dy.reshape(b, t, h, e)
        dquery, dkey, dvalue = ctx.xp.zeros_like(query), ctx.xp.zeros_like(key), ctx.xp.zeros_like(value)
        saved = [save["scores"] for save in ctx.kept.all(self.site) if "scores" in save]
        for number, part in enumerate(self.parts(t)):
            scores = saved[number] if saved else self.scores(part, query, key, ctx)
            dhead = stack(dy[:, part.queries, part.heads].swapaxes(1, 2), part)                 # B n gT E
            dvalue[:, part.kv] += self.drop_out(part, scores, ctx).swapaxes(2, 3) @ dhead
            dscores = self.drop_out(part, dhead @ value[:, part.kv].swapaxes(2, 3), ctx)        # B n gT S
            dscores -= ctx.xp.einsum("...s,...s->...", dscores, scores)[..., None]              # no product is kept
            dscores *= scores
            dkey[:, part.kv] += dscores.swapaxes(2, 3) @ stack(query[:, part.heads, part.queries], part)
            dquery[:, part.heads, part.queries] = split(dscores @ key[:, part.kv], part, b).swapaxes(1, 2)
        ctx.show(self.site, dheads=dy, dquery=dquery, dkey=dkey, dvalue=dvalue)
        return dquery * dquery.dtype.type(e ** -0.5), dkey, dvalue

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


@dataclass(frozen=True)
class Part:
    """Products done at once: n kv heads, the query heads of each, `shared` of them to a kv head, some of the tokens."""
    kv: slice
    heads: slice
    shared: int
    queries: slice


def stack(x: Float[Array, "B N T E"], part: Part) -> Float[Array, "B n gT E"]:
    """The query heads of a kv head one above the other: one product for all of them."""
    return x.reshape(x.shape[0], part.kv.stop - part.kv.start, -1, x.shape[-1])


def split(x: Float[Array, "B n gT E"], part: Part, b: int) -> Float[Array, "B T N E"]:
    """`stack`'s inverse, the tokens first."""
    return x.reshape(b, -1, part.queries.stop - part.queries.start, x.shape[-1]).swapaxes(1, 2)


def hide(scores: Float[Array, "B n gT S"], mask: Any, g: int, xp: Any) -> Float[Array, "B n gT S"]:
    """-∞, in place, where a query may not look. The mask, (B, 1, T, S), is the same for all heads."""
    b, n, _, s = scores.shape
    xp.copyto(scores.reshape(b, n, g, -1, s), scores.dtype.type("-inf"), where=~mask[:, None])
    return scores


def rotate(x: Float[Array, "B N T E"], ctx: Context, back: bool = False) -> Float[Array, "B N T E"]:
    """Turn each pair (x_i, x_{i+E/2}) by its position's angle. Su et al. 2021; the pairs are halves, not neighbors.

    `back` turns by the opposite angle: the inverse, and the backward of a rotation.
    """
    if ctx.rotary is None:
        return x
    cos, sin = ctx.rotary                                                        # B 1 T E/2
    if back:
        sin = -sin
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return ctx.xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def softmax(x: Any, xp: Any) -> Any:
    """Along the last axis, the largest subtracted first: finite for any finite x. A query always sees itself."""
    e = x - x.max(-1, keepdims=True)
    xp.exp(e, out=e)                                                             # one array of this size, not three
    e /= e.sum(-1, keepdims=True)
    return e
