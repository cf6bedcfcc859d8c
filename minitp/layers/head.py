"""The head: from the last activations to logits over the vocabulary, whole or left as shards.

Logits carry their state, so that what reads them (sampling, a loss) can't take a shard for the whole.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Communicator, Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.gradients import Gradients
from minitp.layers.linear import add_linear, times


@dataclass(frozen=True)
class Logits:
    """(B, T, V) whole, or with `cut` this rank's (B, T, V_p) of it."""
    array: Any
    cut: Cut | None = None


@dataclass(frozen=True)
class VocabParallelHead:
    """whole · own rows of the vocabulary → shard(-1), all-gathered on demand. Column-parallel, tied or not.

    backward, from the gradient of the shards: partial sum → all-reduce.
    """
    site: str
    weight: str                                  # its table: head.weight, or embedding.weight where it is tied
    group: Communicator
    vocab: Cut

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context, gathered: bool) -> Logits:
        shard = Logits(times(x, weights[self.weight]), self.vocab)               # B T V_p
        ctx.save(self.site, x=x)
        ctx.show(self.site, logits=shard, rank=self.group.rank)
        if not gathered:
            return shard
        return Logits(self.group.all_gather(shard.array, axis=-1, cut=self.vocab, site=self.site,
                                            reason="lay the ranks' logits side by side"))

    def backward_input(self, dlogits: Float[Array, "B T V_p"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        ctx.show(self.site, dy=dlogits)
        partial = Partial(times(dlogits, weights[self.weight].T), self.group)
        dx = self.group.all_reduce(partial, site=self.site, reason="add the ranks' partial gradients of the input")
        return dx, (dlogits, ctx.kept[self.site]["x"])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        add_linear(self.weight.removesuffix(".weight"), False, pending, gradients)


@dataclass(frozen=True)
class HiddenParallelHead:
    """A tied table cut along hidden: own columns of x · own columns of the table → partial logits. Row-parallel.

    No second copy of the table is needed; the sum is an all-reduce, or a reduce-scatter where shards are wanted.
    backward, from the gradient of the shards: both of its steps the other way, two all-gathers.
    """
    site: str
    weight: str
    group: Communicator
    hidden: Cut
    vocab: Cut

    def product(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Partial, "B T V"]:
        own = self.hidden.of(self.group.rank)
        columns = x[..., own.start:own.stop]                                     # whole → shard: free
        ctx.save(self.site, columns=columns)
        return Partial(times(columns, weights[self.weight]), self.group)

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context, gathered: bool) -> Logits:
        partial = self.product(x, weights, ctx)
        if gathered:
            logits = Logits(self.group.all_reduce(partial, site=self.site, reason="add the ranks' partial logits"))
        else:
            logits = Logits(self.group.reduce_scatter(partial, axis=-1, cut=self.vocab, site=self.site,
                                                      reason="add the ranks' logits, keep own part"), self.vocab)
        ctx.show(self.site, logits=logits, rank=self.group.rank)
        return logits

    def backward_input(self, dlogits: Float[Array, "B T V_p"], weights: Mapping[str, Any],
                       ctx: Context) -> tuple[Float[Array, "B T D"], Any]:
        ctx.show(self.site, dy=dlogits)
        whole = self.group.all_gather(dlogits, axis=-1, cut=self.vocab, site=self.site,
                                      reason="every rank's columns met all of the vocabulary")
        dx = self.group.all_gather(times(whole, weights[self.weight].T), axis=-1, cut=self.hidden,
                                   site=self.site + ".input", reason="lay the ranks' columns side by side")
        return dx, (whole, ctx.kept[self.site]["columns"])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        add_linear(self.weight.removesuffix(".weight"), False, pending, gradients)
