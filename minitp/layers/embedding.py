"""The embedding table, cut in either of two ways.

ParallelEmbedding        along hidden: every rank looks up its columns of every token; all-gather (LLaMA 1 and 2)
VocabParallelEmbedding   along the vocabulary: one rank knows a token's row, the others add zeros; all-reduce (Llama 3)
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from minitp.arrays import Array
from minitp.comm import Communicator, Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.gradients import Gradients


@dataclass(frozen=True)
class ParallelEmbedding:
    """forward: ids → own columns of their rows, shard(-1) → all-gather → whole;  backward: a slice, nothing is sent."""
    site: str
    group: Communicator
    hidden: Cut

    def forward(self, ids: Int[np.ndarray, "B T"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        columns = weights[self.site + ".weight"][ctx.arrays.from_host(ids)]                        # B T D_p
        ctx.save(self.site, ids=ids)
        return self.group.all_gather(columns, axis=-1, cut=self.hidden, site=self.site,
                                     reason="lay the ranks' columns side by side")

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> tuple[None, Any]:
        """Ids have no gradient. Every rank has the whole dy; its own columns of it are its columns' gradient."""
        own = self.hidden.of(self.group.rank)
        return None, (ctx.arrays.from_host(ctx.kept[self.site]["ids"]), dy[..., own.start:own.stop])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        gradients.add_rows(self.site + ".weight", *pending)


@dataclass(frozen=True)
class VocabParallelEmbedding:
    """forward: ids → own rows, zeros for the others', partial sum → all-reduce → whole;  backward: nothing is sent."""
    site: str
    group: Communicator
    vocab: range                                  # the rows this rank holds

    def product(self, ids: Int[np.ndarray, "B T"], weights: Mapping[str, Any],
                ctx: Context) -> Float[Partial, "B T D"]:
        table = weights[self.site + ".weight"]                                                     # V_p D
        mine = (ids >= self.vocab.start) & (ids < self.vocab.stop)                                 # B T
        found = ctx.xp.zeros((*ids.shape, table.shape[1]), table.dtype)
        if mine.any():
            here = ctx.arrays.from_host(mine)
            found[here] = table[ctx.arrays.from_host(ids[mine] - self.vocab.start)]
        ctx.save(self.site, ids=ids)                     # not `found`: it is handed over, a sum may be made in place
        return Partial(found, self.group)

    def forward(self, ids: Int[np.ndarray, "B T"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        return self.group.all_reduce(self.product(ids, weights, ctx), site=self.site,
                                     reason="one rank has the row, the others add 0")

    def backward_input(self, dy: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> tuple[None, Any]:
        """Ids have no gradient. dy is whole, and every rank keeps the tokens whose rows it has."""
        ids = ctx.kept[self.site]["ids"]
        mine = (ids >= self.vocab.start) & (ids < self.vocab.stop)                                 # B T
        return None, (ctx.arrays.from_host(ids[mine] - self.vocab.start), dy[ctx.arrays.from_host(mine)])

    def backward_weight(self, pending: Any, gradients: Gradients) -> None:
        gradients.add_rows(self.site + ".weight", *pending)
