"""What one pass of a generation reads of a rank's memory: weights once for all tokens, and each sequence's cache.

Of an expert layer only those experts are read that a token visits, more the more tokens there are; of the embedding
table only the tokens' rows.
"""
from math import ceil
from typing import Literal, NamedTuple

from minitp.plan.job import Inference, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.model import PlannedModel
from minitp.plan.speed import flops

Ends = Literal["cut", "copied"]
"""Embedding table and head: cut over the tp group (two sync points more), or whole on every rank, as in gpt-fast."""


class Read(NamedTuple):
    """Bytes that a rank reads in one pass, by part. `table` is what it holds of the embedding table: of that, only the
    tokens' rows are read."""
    layers: float
    head: float
    rows: float
    cache: float
    table: float

    @property
    def weights(self) -> float:
        return self.layers + self.head + self.rows

    @property
    def total(self) -> float:
        return self.weights + self.cache


def bytes_read(model: PlannedModel, layout: Layout, job: Inference, place: Place, *, context: float | None = None,
               ends: Ends = "cut", tokens: int = 1) -> Read:
    """What the rank at `place` reads in one pass over `tokens` tokens of each sequence.

    Pieces of a context each read all weights of their rank: with one new token every piece does its products.
    """
    held, size = model.on_stage(layout, place), bytes_of(job.weights)
    config, sequences = model.config, ceil(job.batch / layout.dp)
    layer, seen, here = held["layer"], job.context if context is None else context, ceil(tokens / layout.cp)
    pieces = min(layout.ep, layout.cp)                                     # of a context, among an ep group's ranks
    visitors = sequences * layout.ep // pieces * min(tokens, pieces * here)
    visited = flops.touched(model.experts, model.active, visitors) / model.experts if model.experts > 1 else 1.0
    table = config.vocab * config.hidden if ends == "copied" else held["embedding"].shard if place.pp == 0 else 0
    head = norm = 0
    if place.pp == layout.pp - 1:
        own = held["head"].total if layout.pp > 1 or not config.tied else held["embedding"].shard
        head, norm = config.vocab * config.hidden if ends == "copied" else own, held["norm"].total
    cached = cache(model, layout, job, place.tp, sequences * seen / layout.cp)
    return Read((layer.shard + layer.whole + layer.expert * visited) * size, (head + norm) * size,
                sequences * here * config.hidden * size if place.pp == 0 else 0.0,
                layout.layers_on(config.layers, place.pp) * cached, table * size)


def cache(model: PlannedModel, layout: Layout, job: Inference, rank: int, positions: float) -> float:
    """Bytes of ONE layer's keys and values on a rank of the tp group, of so many positions of all sequences."""
    placement = model.cuts(layout.tp, layout.embedding, layout.cut)
    return 2 * len(placement.kv_heads(rank)) * model.config.head_size * positions * bytes_of(job.cache)
