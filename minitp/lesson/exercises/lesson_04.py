"""Exercises of lesson 04: heads."""
from collections.abc import Callable
from typing import Any

import numpy as np

from minitp.comm import Communicator
from minitp.cut import Cut
from minitp.layers.attention import softmax
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import on_ranks
from minitp.plan import catalogue
from minitp.trace.wording import count

T, D, H, E, RANKS = 3, 5, 3, 4, 4      # fewer heads than ranks: the last rank has none
HEAD_SIZE, HEAD_RANKS = 5, 3           # of the head that is cut inside


def _scores_bytes() -> float:
    """4.1: bytes of the scores of all heads of one layer of SmolLM2, at its full context, in float32."""
    config = catalogue.model("smollm2-135m").config
    return 4 * config.heads * config.positions ** 2


def _project(project: Any) -> Verdict:
    """4.2: each rank's heads times its part of W_o is a partial sum of y."""
    rng = np.random.default_rng(4)
    found, W_o = rng.normal(size=(T, H, E)), rng.normal(size=(D, H * E))
    cut = Cut(H, RANKS)

    def on_rank(tp: Communicator) -> Any:
        mine = cut.of(tp.rank)
        return project(tp, found[:, mine.start:mine.stop], W_o[:, mine.start * E:mine.stop * E])

    def hint(rank: int, y: np.ndarray) -> str:
        mine = cut.of(rank)
        own = found[:, mine.start:mine.stop].reshape(T, len(mine) * E) @ W_o[:, mine.start * E:mine.stop * E].T
        if np.allclose(y, own):
            return "This is the term of the rank's own heads: the others' are missing."
        return "This rank's heads side by side, (T, H_p · E), times its part of W_o: a term of y. Then add the terms."

    return _judged(on_rank, RANKS, found.reshape(T, H * E) @ W_o.T, hint,
                   "Each rank's heads gave a term of y, also the one with no head: zeros.",
                   f"found is (T, H_p, E), W_o (D, H_p · E); H_p is {', '.join(map(str, cut.sizes))}.")


def _shares(shares: Any) -> Verdict:
    """4.3: scores of a head cut inside are partial sums: they are added before the softmax."""
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(T, HEAD_SIZE)), rng.normal(size=(T, HEAD_SIZE))
    cut, scale = Cut(HEAD_SIZE, HEAD_RANKS), HEAD_SIZE ** -0.5

    def term(rank: int) -> np.ndarray:
        mine = cut.of(rank)
        return q[:, mine.start:mine.stop] @ k[:, mine.start:mine.stop].T

    def on_rank(tp: Communicator) -> Any:
        mine = cut.of(tp.rank)
        return shares(tp, q[:, mine.start:mine.stop].copy(), k[:, mine.start:mine.stop].copy(), HEAD_SIZE)

    def hint(rank: int, found: np.ndarray) -> str:
        summed = sum(softmax(term(r) * scale, np) for r in range(HEAD_RANKS))
        known = [(summed, "softmax came before the sum: softmax(a + b) ≠ softmax(a) + softmax(b)."),
                 (summed / HEAD_RANKS, "this is the mean of the softmaxes; it isn't the softmax of the sum."),
                 (softmax(term(rank) * scale, np),
                  "these are the shares of this rank's own term of the scores: add first."),
                 (q @ k.T * scale, "these are the scores: softmax is missing."),
                 (softmax(q @ k.T, np), "the scores must be divided by √E, E the size of the whole head.")]
        return next((words for value, words in known if np.allclose(found, value)),
                    "q · kᵀ of a rank's columns is a term of the scores: add, divide by √E, then softmax.")

    return _judged(on_rank, HEAD_RANKS, softmax(q @ k.T * scale, np), hint,
                   "It moved a number for each pair of tokens; a cut between heads moves none of them.")


def _judged(on_rank: Callable[[Communicator], Any], ranks: int, wanted: np.ndarray,
            hint: Callable[[int, np.ndarray], str], why: str, shapes: str = "") -> Verdict:
    """An answer that is to be `wanted` on every rank, with one sync; `hint` says what a wrong one lacks, `shapes` what
    one that fails may have missed."""
    run = on_ranks(on_rank, ranks, shapes)
    if isinstance(run, Verdict):
        return run
    for rank, found in enumerate(run.results):
        if not (isinstance(found, np.ndarray) and found.shape == wanted.shape):
            return Verdict(False, f"rank {rank} returned {found!r:.200}; the shape {wanted.shape} is asked for, on "
                                  "every rank.")
        if not np.allclose(found, wanted):
            return Verdict(False, f"rank {rank} is wrong. {hint(rank, found)}")
    used = run.sync_points
    if used != 1:
        return Verdict(False, f"the numbers are right, but there were {count(used, 'sync point')}; one is enough.")
    return Verdict(True, f"right, with one sync point and {run.payload} bytes of payload. {why}")


EXERCISES = {
    "4.1": number(_scores_bytes, lambda found: f"{found:,} bytes in every layer: a number for each pair of tokens and "
                                               "each head.",
                  hint="For each head a score for every pair of tokens, 4 bytes each."),
    "4.2": Exercise(_project),
    "4.3": Exercise(_shares),
}
