"""The transformer: embedding, blocks, norm, head. Read it beside `layers/`; both fit a train ride.

A forward pass of L layers has 2L + 2 sync points whatever it carries: one token, a prompt, a batch.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from minitp.arrays import Array
from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.context import Context
from minitp.errors import ConfigError
from minitp.layers import (
    MLP,
    Attention,
    ColumnParallelLinear,
    HiddenParallelHead,
    LayerNorm,
    Logits,
    ParallelEmbedding,
    RMSNorm,
    RowParallelLinear,
    TensorBoundary,
    VocabParallelEmbedding,
    VocabParallelHead,
)
from minitp.placement import Placement

ATTENTION_REASON = "add the ranks' partial attention output"
MLP_REASON = "add the ranks' partial MLP output"
BOTH_REASON = "add the ranks' partial attention + MLP"


@dataclass(frozen=True)
class Block:
    """x + attention(norm x), then x + mlp(norm x): two sync points."""
    attention_norm: RMSNorm | LayerNorm
    attention: Attention
    mlp_norm: RMSNorm | LayerNorm
    mlp: MLP
    boundary: TensorBoundary

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        n = self.boundary.enter(self.attention_norm.forward(x, weights, ctx))
        o = self.attention.o
        y = self.boundary.leave(self.attention.product(n, weights, ctx), o.site, o.reason)
        x = x + o.add_bias(y, weights)
        n = self.boundary.enter(self.mlp_norm.forward(x, weights, ctx))
        down = self.mlp.down
        y = self.boundary.leave(self.mlp.product(n, weights, ctx), down.site, down.reason)
        return x + down.add_bias(y, weights)


@dataclass(frozen=True)
class ParallelBlock:
    """x + attention(norm x) + mlp(norm x): two partial sums added before they are reduced, one sync point.

    Wang & Komatsuzaki 2021 (GPT-J); Chowdhery et al. 2022 (PaLM), section 2.
    """
    attention_norm: RMSNorm | LayerNorm
    attention: Attention
    mlp: MLP
    boundary: TensorBoundary

    def forward(self, x: Float[Array, "B T D"], weights: Mapping[str, Any], ctx: Context) -> Float[Array, "B T D"]:
        n = self.boundary.enter(self.attention_norm.forward(x, weights, ctx))
        both = self.attention.product(n, weights, ctx) + self.mlp.product(n, weights, ctx)
        y = self.boundary.leave(both, self.mlp.down.site, BOTH_REASON)
        return x + self.mlp.down.add_bias(self.attention.o.add_bias(y, weights), weights)


class Transformer:
    """One rank's part of the model: descriptions of its layers, no weights and no state."""

    def __init__(self, config: ModelConfig, placement: Placement, group: Communicator):
        if placement.config != config or placement.ranks != group.size:
            raise ConfigError(f"the placement is for {placement.ranks} ranks and the group has {group.size}, "
                              "or it is another model's")
        self.config, self.placement, self.group = config, placement, group
        self.embedding = self._embedding()
        self.blocks = [self._block(f"layers.{layer}") for layer in range(config.layers)]
        self.norm = self._norm("norm")
        self.head = self._head()

    def forward(self, ids: Int[np.ndarray, "B T"], weights: Mapping[str, Any], ctx: Context, *,
                gathered: bool = True) -> Logits:
        """Logits of the rows that `ctx.last` names (of every row where it is None)."""
        x = self.embedding.forward(ids, weights, ctx)                            # B T D
        if self.config.learned_positions:
            x = x + weights["positions.weight"][ctx.position_index]
        for block in self.blocks:
            x = block.forward(x, weights, ctx)
        if ctx.last is not None:
            x = x[ctx.row_index, ctx.arrays.from_host(ctx.last[:, None])]        # B 1 D
        return self.head.forward(self.norm.forward(x, weights, ctx), weights, ctx, gathered)

    # --- how the parts are made -----------------------------------------------------------------------------------

    def _embedding(self) -> ParallelEmbedding | VocabParallelEmbedding:
        if self.placement.embedding == "hidden":
            return ParallelEmbedding("embedding", self.group, self.placement.hidden)
        return VocabParallelEmbedding("embedding", self.group, self.placement.vocab.of(self.group.rank))

    def _head(self) -> VocabParallelHead | HiddenParallelHead:
        placement, table = self.placement, "embedding.weight" if self.config.tied else "head.weight"
        if self.config.tied and placement.embedding == "hidden":
            return HiddenParallelHead("head", table, self.group, placement.hidden.of(self.group.rank), placement.vocab)
        return VocabParallelHead("head", table, self.group, placement.vocab)

    def _norm(self, site: str) -> RMSNorm | LayerNorm:
        return (RMSNorm if self.config.norm == "rms" else LayerNorm)(site, self.config.norm_eps)

    def _block(self, at: str) -> Block | ParallelBlock:
        norm, boundary = self._norm(f"{at}.attention_norm"), TensorBoundary(self.group)
        if self.config.parallel_block:
            return ParallelBlock(norm, self._attention(f"{at}.attention"), self._mlp(f"{at}.mlp"), boundary)
        return Block(norm, self._attention(f"{at}.attention"), self._norm(f"{at}.mlp_norm"), self._mlp(f"{at}.mlp"),
                     boundary)

    def _attention(self, site: str) -> Attention:
        c, rank = self.config, self.group.rank
        heads, kv_heads = self.placement.heads.of(rank), self.placement.kv_heads(rank)
        qkv = ColumnParallelLinear(f"{site}.qkv", (len(heads) + 2 * len(kv_heads)) * c.head_size, c.qkv_bias)
        o = RowParallelLinear(f"{site}.o", self.group, len(heads) * c.head_size, ATTENTION_REASON, c.attention_bias)
        return Attention(site, qkv, o, heads, kv_heads, c.heads_per_kv, c.head_size)

    def _mlp(self, site: str) -> MLP:
        c, ffn = self.config, len(self.placement.ffn.of(self.group.rank))
        name, outputs = (f"{site}.gate_up", 2 * ffn) if c.gated else (f"{site}.up", ffn)
        up = ColumnParallelLinear(name, outputs, c.mlp_bias)
        down = RowParallelLinear(f"{site}.down", self.group, ffn, MLP_REASON, c.mlp_bias)
        return MLP(site, up, down, c.activation, c.gated)
