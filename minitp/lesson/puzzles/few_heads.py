"""Puzzle: multi-query attention on more ranks than it has heads."""
from dataclasses import replace
from typing import Any

import numpy as np

from minitp.config import TINY
from minitp.lesson.puzzles.base import (
    Budget,
    Mistake,
    Puzzle,
    World,
    everywhere,
    largest_term,
    own_terms,
    times_too_many,
)
from minitp.placement import Placement

_STORY = """\
*Needs lessons 04 and 07.*

Multi-query attention has one KV head for all query heads. Cut by query heads over more ranks than there are heads, some
ranks own none: their matrices have no rows, and what they compute has size 0. They must come to every sync point all
the same. The ranks that do own a query head hold the KV head, too: each a copy.

Each query head h: `softmax(q_h kᵀ / √E) v`, where token t sees tokens 0…t; the heads side by side, times `Woᵀ`.
Matrices are stored (out, in): `q = x · Wqᵀ`.

**Given** on each rank: the whole `x` (T, D); its rows `Wq` (H_p · E, D); `Wk` and `Wv` (E, D), on a rank without heads
(0, D); its columns `Wo` (D, H_p · E); `head_size`, which is E.
**Return** the whole `y` (T, D) on every rank. **Budget:** one sync point, of the size of `y`."""


_PARTS = {"Wq": "q", "Wk": "k", "Wv": "v", "Wo": "o"}


def _world(rng: np.random.Generator) -> World:
    heads = int(rng.integers(2, 4))
    ranks = heads + int(rng.integers(1, 3))                                       # at least one owns no head
    T, D, E = int(rng.integers(20, 28)), int(rng.integers(60, 80)), 2 * int(rng.integers(4, 7))
    placement = Placement(replace(TINY, hidden=D, heads=heads, kv_heads=1, head_size=E), ranks)
    rows = {name: placement.parameter(f"layers.0.attention.{part}.weight") for name, part in _PARTS.items()}
    x = rng.normal(size=(T, D))
    whole = {name: rng.normal(size=of.shape) * 2 / D ** 0.5 for name, of in rows.items()}
    inputs = [{"x": x, **{name: whole[name][placement.slices(of, rank)] for name, of in rows.items()}, "head_size": E}
              for rank in range(ranks)]
    y, score_bytes = _attention(x, *whole.values(), head_size=E), x.itemsize * T * T
    return World(inputs=inputs, truth=[y] * ranks, mistakes=_mistakes(inputs, x, whole, E),
                 budget=Budget(sync_points=1, payload=y.nbytes, memory=3 * y.nbytes + 6 * score_bytes))


def _attention(x: np.ndarray, Wq: np.ndarray, Wk: np.ndarray, Wv: np.ndarray, Wo: np.ndarray, *, head_size: int,
               scale: float | None = None, causal: bool = True, over: int = -1) -> np.ndarray:
    """(T, D), the term of the query heads in Wq: zeros where there are none. `over`: the axis of the softmax."""
    y, T = np.zeros_like(x), len(x)
    for start in range(0, len(Wq), head_size):
        own = slice(start, start + head_size)
        scores = x @ Wq[own].T @ (x @ Wk.T).T * (head_size ** -0.5 if scale is None else scale)
        if causal:
            scores = np.where(np.tri(T), scores, -np.inf)
        exps = np.exp(scores - scores.max(over, keepdims=True))
        y += exps / exps.sum(over, keepdims=True) @ (x @ Wv.T) @ Wo[:, own].T
    return y


def _mistakes(inputs: list[dict[str, Any]], x: np.ndarray, whole: dict[str, np.ndarray], E: int) -> list[Mistake]:
    ranks, D = len(inputs), x.shape[1]
    terms = [_attention(**own) for own in inputs]
    y = np.sum(terms, axis=0)

    def wrong(words: str, **how: Any) -> Mistake:
        return everywhere(_attention(x, *whole.values(), head_size=E, **how), ranks, words)

    return [
        own_terms(terms), largest_term(terms), times_too_many([y] * ranks),
        wrong("the scores were divided by √D. They are sums of E products, so √E keeps them of size 1.",
              scale=D ** -0.5),
        wrong("the scores were not divided by √E.", scale=1.0),
        wrong("every token saw all tokens. Token t sees tokens 0…t: later ones get a score of −∞.", causal=False),
        wrong("the softmax went over the tokens that ask. A token's weights are over those that it sees: the last axis "
              "of its scores.", over=-2),
        wrong("the scores were divided by √D, and every token saw all tokens.", scale=D ** -0.5, causal=False),
        wrong("the scores were not divided by √E, and every token saw all tokens.", scale=1.0, causal=False),
        everywhere(terms[0], ranks, "this is rank 0's heads alone, on every rank. The other ranks' heads belong to the "
                                    "sum."),
        everywhere(y / ranks, ranks, "this is the mean over the ranks. The heads' projections are summed; a rank "
                                     "without heads adds 0."),
    ]


_SIZE_0 = "A rank without heads has arrays of size 0: "
_ERRORS = {
    "cannot reshape array of size 0": _SIZE_0 + "what -1 stands for can't be found from them. Write all sizes out.",
    "zero-size array": _SIZE_0 + "there is no largest of no numbers. A softmax takes the maximum along the last axis, "
                       "of each head and token alone.",
    "at least one array": _SIZE_0 + "there is nothing to lay side by side. Begin with zeros of the size of y and add.",
    "don't make the same collective call": "A rank without heads owes the sum its term, too: zeros of the size of y. "
                                           "All ranks come to every sync point.",
    "has returned": "A rank without heads owes the sum its term, too: zeros of the size of y."}

PUZZLES = (Puzzle(name="few-heads", title="More ranks than heads", story=_STORY,
                  arguments=("x", "Wq", "Wk", "Wv", "Wo", "head_size"), world=_world, errors=_ERRORS),)
