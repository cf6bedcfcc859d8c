"""Sync points of tensor parallelism on machines we don't have: by the closed form that traces are checked against.

Count and order of collectives are minitp.trace.predict's. Its payloads are float32; here they are counts of numbers, so
that a plan gives each kind its own type.
"""
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from minitp.config import ModelConfig
from minitp.placement import Placement
from minitp.plan.job import FLOAT32_BYTES
from minitp.plan.layout import Layout
from minitp.plan.model import PlannedModel
from minitp.trace.predict_pass import Pass
from minitp.trace.predict_training import optimizer

PREDICTED = "minitp.trace.predict, in another number type"


class Sync(NamedTuple):
    """Like collectives of tensor parallelism; `elements` of the whole array of each. Of the part `layer`: of ONE layer.

    `logits`: what it moves are logits, or the loss's numbers, which keep a type of their own.
    """
    phase: str
    part: str
    op: str
    elements: int
    logits: bool
    times: int


def syncs(model: PlannedModel, layout: Layout, batch: int, tokens: int, recompute: str | None = None,
          rows: int | None = 1) -> tuple[Sync, ...]:
    """Of one pass over `batch` sequences of `tokens` tokens each on one tp group, all stages together.

    recompute  None: a forward pass of a generation, with whole logits of `rows` tokens of a sequence (None: of all);
               else of a micro-batch of a training, its loss and backward pass
    """
    return _syncs(replace(model.config, layers=1), layout.tp, layout.embedding, layout.cut, batch, tokens, recompute,
                  rows)


@lru_cache(maxsize=1024)
def _syncs(config: ModelConfig, tp: int, embedding: Literal["vocab", "hidden"], cut: Literal["even", "balanced"],
           batch: int, tokens: int, recompute: str | None, rows: int | None) -> tuple[Sync, ...]:
    """All layers are alike: the closed form of one layer tells them all."""
    one = Pass(Placement(config, tp, embedding, cut), "float32", batch, tokens, "forward", 0)
    events = list(one.forward(recompute is None, rows if recompute is None else None))
    if recompute is not None:
        events += [event._replace(phase="loss") for event in one.loss()]
        events += replace(one, phase="backward").backward(recompute)
    counted: Counter[tuple[str, str, str, int, bool]] = Counter()
    for event in events:
        first = event.site.split(".")[0]
        part = "layer" if first == "layers" else first
        logits = part == "loss" or (part == "head" and event.shape[-1] == config.vocab)
        counted[event.phase, part, event.op, event.payload // FLOAT32_BYTES, logits] += 1
    return tuple(Sync(*key, times=times) for key, times in counted.items())


def on_stage(layout: Layout, stage: int, part: str, layers: int) -> int:
    """How often a part of a model of `layers` is on a stage."""
    if part == "layer":
        return layout.layers_on(layers, stage)
    return int(stage == (0 if part == "embedding" else layout.pp - 1))


def copies(model: PlannedModel, layout: Layout) -> int:
    """Numbers of ONE layer that kv heads held by several ranks of the tp group owe each other, once a step."""
    placement = Placement(replace(model.config, layers=1), layout.tp, layout.embedding, layout.cut)
    return sum(event.payload // FLOAT32_BYTES for event in optimizer(placement, "float32", 0)
               if event.site == "gradients.copies")
