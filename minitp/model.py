"""The transformer: embedding, blocks, norm, head. Read it beside `layers/`; both fit a train ride.

A forward pass of L layers has 2L + 2 sync points whatever it carries: one token, a prompt, a batch. With logits left as
shards it has 2L + 1, and the backward pass as many: what was sent forward is free backward, and the other way round.
"""
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from minitp.arrays import Array
from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.context import Context
from minitp.errors import ConfigError
from minitp.gradients import Gradients
from minitp.layers import (
    MLP,
    Attention,
    Block,
    ColumnParallelLinear,
    HiddenParallelHead,
    LayerNorm,
    Logits,
    ParallelBlock,
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
        x = ctx.drop_out("embedding", x)
        for block in self.blocks:
            x = block.forward(x, weights, ctx)
        if ctx.last is not None:
            x = x[ctx.row_index, ctx.arrays.from_host(ctx.last[:, None])]        # B 1 D
        return self.head.forward(self.norm.forward(x, weights, ctx), weights, ctx, gathered)

    def backward(self, dlogits: Float[Array, "B T V_p"], weights: Mapping[str, Any], ctx: Context,
                 gradients: Gradients) -> None:
        """Add the gradients of this pass to the store, from those of this rank's logits (`loss.backward_input`).

        Part by part, each its two halves: first what the part before it waits for, then its own weights. What a part
        saved is dropped as soon as it is used.
        """
        if ctx.last is not None:
            raise ConfigError("a pass that computed the logits of some rows only has no backward: plan it without last")

        def back(part: Any, dy: Any) -> Any:
            dx, pending = part.backward_input(dy, weights, ctx)
            part.backward_weight(pending, gradients)
            ctx.kept.drop(part.site, pending)
            return dx

        dx = back(self.head, dlogits)                                            # B T D
        del dlogits                                        # large, and it would stay until the last block is done
        dx = back(self.norm, dx)
        for block in reversed(self.blocks):
            dx = back(block, dx)
        dx = ctx.drop_out("embedding", dx)
        if self.config.learned_positions:
            gradients.add_rows("positions.weight", ctx.position_index, dx)
        ctx.show("embedding", dy=dx)
        back(self.embedding, dx)

    # --- how the parts are made -----------------------------------------------------------------------------------

    def _embedding(self) -> ParallelEmbedding | VocabParallelEmbedding:
        if self.placement.embedding == "hidden":
            return ParallelEmbedding("embedding", self.group, self.placement.hidden)
        return VocabParallelEmbedding("embedding", self.group, self.placement.vocab.of(self.group.rank))

    def _head(self) -> VocabParallelHead | HiddenParallelHead:
        placement, table = self.placement, "embedding.weight" if self.config.tied else "head.weight"
        if self.config.tied and placement.embedding == "hidden":
            return HiddenParallelHead("head", table, self.group, placement.hidden, placement.vocab)
        return VocabParallelHead("head", table, self.group, placement.vocab)

    def _norm(self, site: str) -> RMSNorm | LayerNorm:
        return (RMSNorm if self.config.norm == "rms" else LayerNorm)(site, self.config.norm_eps)

    def _block(self, at: str) -> Block | ParallelBlock:
        norm, boundary = self._norm(f"{at}.attention_norm"), TensorBoundary(self.group)
        if self.config.parallel_block:
            return ParallelBlock(at, norm, self._attention(f"{at}.attention"), self._mlp(f"{at}.mlp"), boundary)
        return Block(at, norm, self._attention(f"{at}.attention"), self._norm(f"{at}.mlp_norm"),
                     self._mlp(f"{at}.mlp"), boundary)

    def _attention(self, site: str) -> Attention:
        c, rank = self.config, self.group.rank
        heads, kv_heads = self.placement.heads.of(rank), self.placement.kv_heads(rank)
        outputs = (len(heads) + 2 * len(kv_heads)) * c.head_size
        qkv = ColumnParallelLinear(f"{site}.qkv", self.group, outputs, c.qkv_bias)
        o = RowParallelLinear(f"{site}.o", self.group, len(heads) * c.head_size, ATTENTION_REASON, c.attention_bias)
        return Attention(site, qkv, o, heads, kv_heads, c.heads_per_kv, c.head_size)

    def _mlp(self, site: str) -> MLP:
        c, ffn = self.config, len(self.placement.ffn.of(self.group.rank))
        name, outputs = (f"{site}.gate_up", 2 * ffn) if c.gated else (f"{site}.up", ffn)
        up = ColumnParallelLinear(name, self.group, outputs, c.mlp_bias)
        down = RowParallelLinear(f"{site}.down", self.group, ffn, MLP_REASON, c.mlp_bias)
        return MLP(site, up, down, c.activation, c.gated)
