"""Exercises of lesson 10: not the time axis."""
from itertools import pairwise
from typing import Any

import numpy as np

from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.plan import catalogue

TOKENS, BYTES = 1000, 4
SLOTS, HEADS, E = (3, 1, 4), 2, 5                          # of each rank's part of the cache; query heads; head size
SPREAD = 300.0                                             # of scores: exp of it is no float


def _gathered() -> int:
    """Keys and values of a prompt, in all layers."""
    c = catalogue.model("smollm2-135m").config
    return c.layers * 2 * c.kv_heads * c.head_size * TOKENS * BYTES


def _summed() -> int:
    """Two sums of the hidden size, in all layers."""
    c = catalogue.model("smollm2-135m").config
    return c.layers * 2 * c.hidden * TOKENS * BYTES


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q @ k.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def _parts(attend: Any) -> Verdict:
    """10.3: attention over a cache in parts, merged exactly, with two collectives whose size doesn't grow with p."""
    rng, ranks = np.random.default_rng(10), len(SLOTS)
    q, k, v = rng.normal(size=(HEADS, E)) * SPREAD, rng.normal(size=(sum(SLOTS), E)), rng.normal(size=(sum(SLOTS), E))
    edges = np.cumsum((0, *SLOTS))
    own = [(k[a:b], v[a:b]) for a, b in pairwise(edges)]
    tried = attempt(lambda tp: attend(tp, q.copy(), *(part.copy() for part in own[tp.rank])), ranks)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, tried.error)
    wanted, alone = _attended(q, k, v), [_attended(q, *part) for part in own]
    for rank, y in enumerate(tried.run.results):
        if not isinstance(y, np.ndarray) or y.shape != wanted.shape:
            return Verdict(False, f"rank {rank} returned {y!r}; an array of shape {wanted.shape} is asked for.")
        if not np.isfinite(y).all():
            return Verdict(False, "some numbers aren't finite: subtract the largest score of all ranks before exp.")
        if np.allclose(y, alone[rank]):
            return Verdict(False, f"rank {rank} returned attention over its own part only: nothing was merged.")
        if np.allclose(y, np.mean(alone, axis=0)):
            return Verdict(False, "this is the mean of the ranks' outputs; a part with larger scores weighs more: its "
                                  "sum and values are scaled by exp(its largest − the largest of all), then added.")
        if not np.allclose(y, wanted):
            return Verdict(False, f"rank {rank} returned {y.round(3)}, right is {wanted.round(3)}. Each rank's sum and "
                                  "values must be scaled by exp(its largest − the largest of all).")
    return _price(tried.run.sync_points, tried.run.payload)


def _price(sync_points: int, payload: int) -> Verdict:
    """Right, and what it took."""
    enough = HEADS * (1 + 1 + E) * 8
    if payload > enough:
        return Verdict(False, f"right, but {payload} bytes of payload on {len(SLOTS)} ranks, where {enough} are enough "
                              "on any number: one largest score, one sum and E values a head.")
    if sync_points > 2:
        return Verdict(False, f"right, with {sync_points} sync points: sum and values can go in one array.")
    return Verdict(True, f"right, with {sync_points} sync points and {payload} bytes, on any number of ranks.")


EXERCISES = {
    "10.1": number(_gathered, lambda found: f"L·2·K·E numbers a token: {found:,} bytes.",
                   hint="A key and a value of each kv head, for each token, in each layer."),
    "10.2": number(_summed, lambda found: f"{found:,} bytes, {found / _gathered():.0f} times the time cut's.",
                   hint="Two sums a layer, each of the whole hidden size for each token."),
    "10.3": Exercise(_parts),
}
