"""One step of training on one rank: micro-batches forward and backward, what the ranks owe each other, the optimizer.

    for each micro-batch:  ids → logits (shards) → loss → gradients, added up
    once a step:           copied kv heads summed, the global norm, clipping, AdamW

The loss of a step is the sum over all its tokens by their number, so how it is cut into micro-batches changes nothing.
"""
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Int

from minitp.context import Context, Recompute, plan_pass
from minitp.cut import Cut
from minitp.dropout import Dropout
from minitp.gradients import Gradients
from minitp.layers.loss import IGNORED, Loss, VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.saved import Saved
from minitp.train.optimizer import AdamW
from minitp.train.reduce import clip, global_norm, sum_copies
from minitp.train.schedule import Schedule
from minitp.weights import Weights


@dataclass(frozen=True)
class StepResult:
    """loss     mean over the step's tokens, in nats    norm     of the whole gradient, before clipping
    clipped  the factor it was shortened by          skipped  the gradient wasn't finite: nothing was changed
    micro_batches  (sequences, tokens) of each
    """
    loss: float
    tokens: int
    rate: float
    norm: float
    clipped: float
    skipped: bool
    micro_batches: tuple[tuple[int, int], ...]


@dataclass
class TrainStep:
    """What every step of a run has in common on this rank. `activations`: the most bytes that a pass has saved."""
    model: Transformer
    weights: Weights
    optimizer: AdamW
    schedule: Schedule
    dtype: Any = np.float32
    micro_batches: int = 1
    recompute: Recompute = "none"
    dropout: float = 0.0
    seed: int = 0
    smoothing: float = 0.0
    limit: float = 1.0
    activations: int = 0
    gradients: Gradients = field(init=False)

    def __post_init__(self):
        group, placement = self.model.group, self.model.placement
        self.gradients = Gradients(self.weights, group.arrays)
        self.loss = VocabParallelCrossEntropy(group, placement.vocab, self.smoothing)
        self.plain_loss = VocabParallelCrossEntropy(group, placement.vocab)
        self.dtype = np.dtype(self.dtype)

    def run(self, step: int, ids: Int[np.ndarray, "B T1"]) -> StepResult:
        """Step number `step` (from 0) on `ids`, of which the last column is a target only."""
        counted = int((ids[:, 1:] != IGNORED).sum())
        cut, total = Cut(len(ids), min(self.micro_batches, len(ids))), 0.0
        self.gradients.zero()
        shapes = []
        for m in range(cut.ranks):
            held = cut.of(m)
            rows = ids[held.start:held.stop]
            first = step * len(ids) + held.start
            total += self._forward_backward(step, m, rows, range(first, first + len(rows)), 1 / counted)
            shapes.append((len(rows), rows.shape[1] - 1))
        norm, factor = self._update(step)
        return StepResult(total / counted, counted, self.schedule.rate(step), norm, factor, not isfinite(norm),
                          tuple(shapes))

    def _forward_backward(self, step: int, m: int, ids: np.ndarray, sequences: range, scale: float) -> float:
        group, ctx = self.model.group, self._plan(ids, sequences)
        with group.recorder.mark("forward", step, m):
            logits = self.model.forward(ids[:, :-1], self.weights, ctx, gathered=False)
            loss = self.loss.forward(logits, ids[:, 1:], ctx)
        del logits
        with group.recorder.mark("backward", step, m):
            self.model.backward(self.loss.backward_input(scale, ctx), self.weights, ctx, self.gradients)
        self.activations = max(self.activations, ctx.saved.peak if ctx.saved else 0)
        return loss.total

    def _update(self, step: int) -> tuple[float, float]:
        group, placement = self.model.group, self.model.placement
        with group.recorder.mark("optimizer", step):
            sum_copies(self.gradients, placement, group)
            norm = global_norm(self.gradients, placement, group)
            if not isfinite(norm):
                return norm, 1.0
            factor = clip(self.gradients, norm, self.limit)
            self.optimizer.step(self.gradients, self.schedule.rate(step))
        return norm, factor

    def evaluate(self, step: int, n: int, ids: Int[np.ndarray, "B T1"]) -> Loss:
        """The loss of a batch, without smoothing or dropout, and no backward."""
        group = self.model.group
        ctx = self._plan(ids, None)
        with group.recorder.mark("evaluate", step, n):
            logits = self.model.forward(ids[:, :-1], self.weights, ctx, gathered=False)
            return self.plain_loss.forward(logits, ids[:, 1:], ctx)

    def _plan(self, ids: np.ndarray, sequences: range | None) -> Context:
        """A pass over `ids`; with the running numbers of its sequences one that is trained on."""
        batch, tokens = ids.shape[0], ids.shape[1] - 1
        positions = np.broadcast_to(np.arange(tokens), (batch, tokens))
        group, training = self.model.group, sequences is not None
        dropout = Dropout(self.dropout, self.seed, sequences, group.arrays) if training and self.dropout else None
        return plan_pass(self.model.config, positions, dtype=self.dtype, arrays=group.arrays,
                         observer=group.recorder.observer(), saved=Saved() if training else None,
                         recompute=self.recompute, dropout=dropout)
