"""Exercises of lesson 13: memory, to run and to train."""
from math import ceil
from typing import Any

import ml_dtypes
import numpy as np

from minitp.cut import Cut
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import bytes_sent, is_near, meetings, met, on_ranks
from minitp.plan import catalogue
from minitp.plan.job import MIXED_FP32_GRADIENTS

RANKS, PIECES, N = 3, 300, 5                 # so many that a running sum in bf16 stops growing
CLOSE = 1e-4                                 # of a sum in float32
DECAY, RATE = 0.9, 0.1                       # of exercise 13.4, as its text has them


def _states() -> float:
    """13.1: bytes of LLaMA 65B's weights, gradients and optimizer."""
    return catalogue.model("llama-65b").parameters * MIXED_FP32_GRADIENTS.states


def _cards() -> int:
    return ceil(_states() / catalogue.machine("8xa100-80").device.memory)


def _near(found: Any, wanted: np.ndarray) -> bool:
    return is_near(found, wanted, CLOSE, CLOSE)


def _summed(pieces: list[np.ndarray], dtype: Any) -> np.ndarray:
    """One by one, the running sum in `dtype`."""
    running = np.zeros(N, dtype)
    for piece in pieces:
        running = (running + piece).astype(dtype)
    return running.astype(np.float64)


def _total(total_gradient: Any) -> Verdict:
    """13.3: sums in float32, one all-reduce."""
    rng = np.random.default_rng(13)
    held = [[rng.uniform(0.5, 1.5, N).astype(ml_dtypes.bfloat16) for _ in range(PIECES)] for _ in range(RANKS)]
    run = on_ranks(lambda tp: total_gradient(tp, list(held[tp.rank])), RANKS)
    if isinstance(run, Verdict):
        return run
    own = [_summed(pieces, np.float64) for pieces in held]
    lost = np.sum([_summed(pieces, ml_dtypes.bfloat16) for pieces in held], axis=0)
    wanted = np.sum(own, axis=0)
    for rank, found in enumerate(run.results):
        if _near(found, lost):
            return Verdict(False, f"rank {rank} lost most of it: summed in bf16 the running sum stops at 256, however "
                                  "many pieces follow. Cast each piece up before it is added.")
        if _near(found, own[rank]):
            return Verdict(False, f"rank {rank} returned the sum of its own micro-batches: a term of the sum over "
                                  "ranks, which is still to be reduced.")
        if not _near(found, wanted):
            return Verdict(False, f"rank {rank} returned {found}, the sum is {wanted.round(2)}.")
        if found.dtype != np.float32:
            return Verdict(False, f"the sum is right; it comes as {found.dtype}, and float32 is asked for.")
    if meetings(run) > 1:
        return Verdict(False, f"right, with {met(run)}: a rank adds up its own micro-batches first, then the ranks "
                              "meet once.")
    return Verdict(True, f"right: {RANKS} × {PIECES} pieces, {met(run)} of {bytes_sent(run)} bytes, 4 a number.")


def _zero_1(zero_1: Any) -> Verdict:
    """13.4: reduce-scatter the gradient, step one's own slice, gather the weights."""
    rng = np.random.default_rng(14)
    w, m = rng.normal(size=N), rng.normal(size=N)
    g = rng.normal(size=(RANKS, N))
    cut = Cut(N, RANKS)

    def slice_of(array: np.ndarray, rank: int) -> np.ndarray:
        return array[cut.of(rank).start:cut.of(rank).stop]

    run = on_ranks(lambda tp: zero_1(tp, w.copy(), g[tp.rank].copy(), slice_of(m, tp.rank).copy()), RANKS)
    if isinstance(run, Verdict):
        return run
    moment = DECAY * m + g.sum(0)
    for rank, found in enumerate(run.results):
        if not isinstance(found, tuple | list) or len(found) != 2:
            return Verdict(False, f"rank {rank} must return two arrays, the whole w and its slice of m.")
        if _near(found[1], slice_of(DECAY * m + g[rank], rank)):
            return Verdict(False, f"rank {rank}'s moment knows the gradient of its own tokens only: one term of a sum.")
        if not _near(found[1], slice_of(moment, rank)):
            wanted = slice_of(moment, rank).round(3)
            return Verdict(False, f"rank {rank}'s slice of m must be {wanted}, got {found[1]}.")
        if not _near(found[0], w - RATE * moment):
            return Verdict(False, f"rank {rank}'s m is right, its w isn't. Each rank can update only the slice of w "
                                  "whose moment it has, and needs the others' slices.")
    if (sent := bytes_sent(run)) > 2 * w.nbytes or "all_reduce" in {event.op for event in run.trace}:
        return Verdict(False, f"right, with {sent} bytes of payload. A rank needs only its slice of the "
                              "summed gradient: a reduce-scatter, and one all-gather of w.")
    return Verdict(True, f"right: a reduce-scatter and an all-gather, together what one all-reduce sends; of {N} "
                         f"moments the ranks hold {' + '.join(map(str, cut.sizes))}.")


EXERCISES = {
    "13.1": number(lambda: _states() / 1e9, lambda size: f"{size:,.0f} GB: {MIXED_FP32_GRADIENTS.states:g} bytes a "
                                                         "parameter, 2 + 4 + 12.",
                   hint="2 bytes of weights, 4 of gradients, 4 of master copy, 8 of moments; a GB is 1e9 bytes.",
                   tolerance=0.01),
    "13.2": number(_cards, lambda cards: f"{cards:,} cards: by bytes alone, were any cut even.",
                   hint="The states over 80e9 bytes, rounded up."),
    "13.3": Exercise(_total),
    "13.4": Exercise(_zero_1),
}
