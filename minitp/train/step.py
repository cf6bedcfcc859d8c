"""One training step: micro-batches forward and backward, the ranks' debts paid once, clipping, the optimizer.

    loss of a step = Σ losses of its tokens / number of its tokens

over all micro-batches, so that how a batch is split (and into how unequal parts) changes neither loss nor gradients.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np
from jaxtyping import Int

from minitp.arrays import NUMPY, Arrays
from minitp.context import Context, Recompute, plan_pass
from minitp.cut import Cut
from minitp.dropout import Dropout
from minitp.errors import ConfigError
from minitp.gradients import Gradients
from minitp.layers import IGNORED, VocabParallelCrossEntropy
from minitp.layers.loss import Loss
from minitp.model import Transformer
from minitp.saved import Saved
from minitp.train.optimizer import AdamW
from minitp.train.reduce import clip, global_norm, sum_copies
from minitp.train.shown import Shown


@dataclass(frozen=True)
class MicroBatch:
    """What goes through the model at once: `ids` and the ids that follow them, `targets` (or IGNORED).

    `sequences` are the running numbers of its sequences in the run, for dropout.
    """
    ids: Int[np.ndarray, "B T"]
    targets: Int[np.ndarray, "B T"]
    sequences: tuple[int, ...]


def split_batch(windows: Int[np.ndarray, "B T_1"], parts: int, first_sequence: int = 0) -> list[MicroBatch]:
    """Windows of T + 1 tokens as micro-batches, as even as B allows (8 in 3 parts: 3, 3, 2)."""
    if not 1 <= parts <= len(windows):
        raise ConfigError(f"{len(windows)} sequences can't be split into {parts} micro-batches: each needs one at "
                          "least")
    cut = Cut(len(windows), parts)
    return [MicroBatch(windows[rows.start:rows.stop, :-1], windows[rows.start:rows.stop, 1:],
                       tuple(first_sequence + row for row in rows)) for rows in map(cut.of, range(parts))]


@dataclass(frozen=True)
class Passes:
    """How passes are computed: dtype, what is recomputed, how much is dropped (by masks from `seed`)."""
    dtype: Any = np.float32
    recompute: Recompute = "none"
    dropout: float = 0.0
    seed: int = 0
    arrays: Arrays = NUMPY


@dataclass(frozen=True)
class StepResult:
    """What a step came to, the same on every rank but for `activations`.

    loss         mean over the step's tokens that count, in nats
    norm         of the whole model's gradient, before clipping
    skipped      the norm wasn't finite: the weights are as before
    activations  bytes: the most that this rank's forward passes kept for the backward at once
    """
    loss: float
    tokens: int
    norm: float
    skipped: bool
    activations: int


def train_step(model: Transformer, loss: VocabParallelCrossEntropy, weights: dict[str, Any], gradients: Gradients,
               optimizer: AdamW, batch: Sequence[MicroBatch], rate: float, *, step: int, limit: float = inf,
               passes: Passes = Passes()) -> StepResult:
    """One step of training. `limit`: the norm that the gradient is clipped to; `step`: its number, for the record."""
    gradients.zero()
    sums, activations = accumulate(model, loss, weights, gradients, batch, step=step, passes=passes)
    shown = Shown(model, step)
    shown.gradients(gradients, weights)
    with model.group.recorder.mark("optimizer", step):
        sum_copies(gradients, model.placement, model.group)
        norm = global_norm(gradients, model.placement, model.group)
        if isfinite(norm):                                       # the same number on every rank, so all go or none
            clip(gradients, norm, limit)
            optimizer.step(gradients, rate)
    shown.update(optimizer, weights)
    return StepResult(sums.total / max(1, sums.tokens), sums.tokens, norm, not isfinite(norm), activations)


def accumulate(model: Transformer, loss: VocabParallelCrossEntropy, weights: dict[str, Any], gradients: Gradients,
               batch: Sequence[MicroBatch], *, step: int | None = None, passes: Passes = Passes(),
               ) -> tuple[Loss, int]:
    """Add the gradients of a step's mean loss; returns the sum of its losses, and the activations' peak in bytes.

    What copies of kv heads owe each other is not yet paid (`sum_copies`).
    """
    recorder = model.group.recorder
    counted = sum(int((part.targets != IGNORED).sum()) for part in batch)        # on the host, alike on every rank
    total, activations = 0.0, 0
    for number, part in enumerate(batch):
        with recorder.mark("forward", step, number):
            ctx = plan_training(model, part, passes)
            of_part = loss.forward(model.forward(part.ids, weights, ctx, gathered=False), part.targets, ctx)
        with recorder.mark("backward", step, number):
            # no name for the logits' gradient: it would stay in memory through the next micro-batch's forward
            model.backward(loss.backward_input(1 / max(1, counted), ctx), weights, ctx, gradients)
        total += of_part.total
        activations = max(activations, ctx.kept.peak)
    return Loss(total, counted), activations


def evaluate(model: Transformer, loss: VocabParallelCrossEntropy, weights: dict[str, Any],
             batches: Iterator[MicroBatch], *, step: int | None = None, passes: Passes = Passes()) -> Loss:
    """The loss of some batches, without dropout and without a backward."""
    total, tokens = 0.0, 0
    for number, part in enumerate(batches):
        with model.group.recorder.mark("evaluate", step, number):
            ctx = plan_pass(model.config, _positions(part), dtype=passes.dtype, arrays=passes.arrays)
            found = loss.forward(model.forward(part.ids, weights, ctx, gathered=False), part.targets, ctx)
        total, tokens = total + found.total, tokens + found.tokens
    return Loss(total, tokens)


def plan_training(model: Transformer, part: MicroBatch, passes: Passes) -> Context:
    """The context of one micro-batch: what its forward leaves there, its backward finds. Several may be in flight."""
    dropout = None
    if passes.dropout:
        dropout = Dropout(passes.dropout, passes.seed, part.sequences, passes.arrays)
    return plan_pass(model.config, _positions(part), dtype=passes.dtype, arrays=passes.arrays,
                     observer=model.group.recorder.observer(), saved=Saved(), recompute=passes.recompute,
                     dropout=dropout)


def _positions(part: MicroBatch) -> Int[np.ndarray, "B T"]:
    return np.broadcast_to(np.arange(part.ids.shape[1]), part.ids.shape)
