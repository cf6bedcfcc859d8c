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


@dataclass(frozen=True)
class ParallelEmbedding:
    """ids → own columns of their rows, shard(-1) → all-gather → whole."""
    site: str
    group: Communicator
    hidden: Cut

    def forward(self, ids: Int[np.ndarray, "B T"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        columns = weights[self.site + ".weight"][ctx.arrays.from_host(ids)]                        # B T D_p
        ctx.save(self.site, columns=columns)
        return self.group.all_gather(columns, axis=-1, cut=self.hidden, site=self.site,
                                     reason="lay the ranks' columns side by side")


@dataclass(frozen=True)
class VocabParallelEmbedding:
    """ids → own rows, zeros for the others', partial sum → all-reduce → whole."""
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
