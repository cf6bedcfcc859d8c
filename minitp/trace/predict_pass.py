"""The closed form of one pass over B sequences of T tokens: forward, loss and backward, event by event.

A generation and a training run are made of such passes (`minitp.trace.predict`). B and T change bytes only; the number
of events is a matter of L, of the family (a parallel block meets once) and of how the embedding table is cut.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from minitp.placement import Placement
from minitp.trace.schema import Expected

RECOMPUTE = ("none", "selective", "full")
"""What backward computes again: nothing; attention's scores, which no rank needs another for; whole blocks."""


@dataclass(frozen=True)
class Pass:
    """What the events of a pass have in common. Each method gives the events of one part of it, in order."""
    placement: Placement
    dtype: str
    batch: int
    tokens: int
    phase: str
    step: int | None
    micro_batch: int | None = None

    def forward(self, gathered: bool, rows: int | None = None) -> Iterator[Expected]:
        """2L + 2 events with whole logits of `rows` tokens of each sequence (None: of all); L fewer of parallel blocks.

        With shards of the logits one less, unless a tied table is cut along hidden: its head then is row-parallel.
        """
        if self.placement.embedding == "hidden":
            yield self._gather("embedding", *self._stream)
        else:
            yield self._reduce("embedding", *self._stream)
        for layer in range(self.placement.config.layers):
            yield from self._block(layer)
        logits = (self.tokens if rows is None else rows, self.placement.config.vocab)
        if self._row_parallel_head:
            yield (self._reduce("head", *logits) if gathered
                   else self._event("reduce_scatter", "head", "partial", "shard(-1)", *logits))
        elif gathered:
            yield self._gather("head", *logits)

    def loss(self) -> Iterator[Expected]:
        """3 events of one number a token: from shards of the logits, the vocabulary is never whole."""
        yield self._event("all_reduce_max", "loss.max", "partial", "whole", self.tokens)
        yield self._reduce("loss.sum", self.tokens)
        yield self._reduce("loss.target", self.tokens)

    def backward(self, recompute: str = "none") -> Iterator[Expected]:
        """2L + 1 events: the forward pass's cuts, the other way; `full` recomputation has its 2L within the blocks
        once more."""
        c = self.placement.config
        if self._row_parallel_head:
            yield self._gather("head", self.tokens, c.vocab)
            yield self._gather("head.input", *self._stream)
        else:
            yield self._reduce("head", *self._stream)
        for layer in reversed(range(c.layers)):
            if recompute == "full":
                yield from self._block(layer)
            yield self._reduce(f"layers.{layer}.mlp.{'gate_up' if c.gated else 'up'}", *self._stream)
            if not c.parallel_block:
                yield self._reduce(f"layers.{layer}.attention.qkv", *self._stream)

    def _block(self, layer: int) -> Iterator[Expected]:
        if not self.placement.config.parallel_block:
            yield self._reduce(f"layers.{layer}.attention.o", *self._stream)
        yield self._reduce(f"layers.{layer}.mlp.down", *self._stream)

    @property
    def _stream(self) -> tuple[int, int]:
        return self.tokens, self.placement.config.hidden

    @property
    def _row_parallel_head(self) -> bool:
        return self.placement.config.tied and self.placement.embedding == "hidden"

    def _reduce(self, site: str, *shape: int) -> Expected:
        return self._event("all_reduce", site, "partial", "whole", *shape)

    def _gather(self, site: str, *shape: int) -> Expected:
        return self._event("all_gather", site, "shard(-1)", "whole", *shape)

    def _event(self, op: str, site: str, before: str, after: str, *shape: int) -> Expected:
        whole = (self.batch, *shape)
        return Expected(op, site, "data", self.phase, self.step, self.micro_batch, self.dtype, whole,
                        prod(whole) * np.dtype(self.dtype).itemsize, before, after)


def loading(placement: Placement, dtype: str) -> Iterator[Expected]:
    """What `--load scatter` moves: one event per logical parameter, in table order."""
    size = np.dtype(dtype).itemsize
    copies = sum(len(placement.kv_heads(rank)) for rank in placement.ranks_with_heads)
    for p in placement.parameters:
        if p.cut_axis is None:
            yield Expected("broadcast", p.name, "data", "load", None, None, dtype, p.shape, p.size * size, "on root",
                           "whole")
        else:
            kv_heads = placement.config.kv_heads
            sent = p.size // kv_heads * copies if p.gradient == "partial" else p.size        # a copy is sent once more
            yield Expected("scatter", p.name, "data", "load", None, None, dtype, p.shape, sent * size, "on root",
                           f"shard({p.cut_axis})")
