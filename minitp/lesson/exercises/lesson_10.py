"""Exercises of lesson 10: not the time axis."""
from itertools import pairwise
from typing import Any

import numpy as np

from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import bytes_sent, has_shape, is_near, meetings, met, on_ranks
from minitp.plan import catalogue

TOKENS, BYTES = 1000, 4
SLOTS, E = (3, 1, 4), 5                # of each rank's part of the cache; head size
OFFSETS = (1000.0, -1000.0)            # of each head's scores: exp of them is no float, or 0
ENOUGH = len(OFFSETS) * (1 + 1 + E) * 8
_NO_SUMS = ("each rank's output was scaled by its largest score alone. The sum of its weights counts as well: scale "
            "and add sums and weighted values, and divide at the end.")


def _gathered() -> int:
    """Keys and values of a prompt, in all layers."""
    c = catalogue.model("smollm2-135m").config
    return c.layers * 2 * c.kv_heads * c.head_size * TOKENS * BYTES


def _summed() -> int:
    """Two sums of the hidden size, in all layers."""
    c = catalogue.model("smollm2-135m").config
    return c.layers * 2 * c.hidden * TOKENS * BYTES


def _drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q (h, E), k and v (S, E) of all ranks: each head's scores differ by about 1, around OFFSETS."""
    rng, slots = np.random.default_rng(10), sum(SLOTS)
    q, k, v = rng.normal(size=(len(OFFSETS), E)), rng.normal(size=(slots, E)), rng.normal(size=(slots, E))
    q[:, 0], k[:, 0] = OFFSETS, 1
    return q, k, v


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _parts(attend: Any) -> Verdict:
    """10.3: attention over a cache in parts, merged exactly, with two collectives whose size doesn't grow with p."""
    q, k, v = _drawn()
    own = [(k[a:b], v[a:b]) for a, b in pairwise(np.cumsum((0, *SLOTS)))]
    run = on_ranks(lambda tp: attend(tp, q.copy(), *(part.copy() for part in own[tp.rank])), len(SLOTS))
    if isinstance(run, Verdict):
        return run
    wanted = _softmax(q @ k.T) @ v
    for rank, y in enumerate(run.results):
        if not has_shape(y, wanted.shape):
            return Verdict(False, f"rank {rank} returned {y!r}; an array of shape {wanted.shape} is asked for.")
        if not is_near(y, wanted):
            return Verdict(False, _why(rank, y, q, k, v, own))
    if (sent := bytes_sent(run)) > ENOUGH:
        return Verdict(False, f"right, but {sent} bytes of payload on {len(SLOTS)} ranks, where {ENOUGH} are enough on "
                              "any number: one largest score, one sum and E values a head.")
    if meetings(run) > 2:
        return Verdict(False, f"right, with {met(run)}: sum and values can go in one array.")
    return Verdict(True, f"right, with {met(run)} and {sent} bytes, on any number of ranks.")


def _why(rank: int, y: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray,
         own: list[tuple[np.ndarray, np.ndarray]]) -> str:
    """What a wrong output was made by, where it is a known mistake."""
    if not np.isfinite(y).all():
        return ("some numbers aren't finite: subtract the largest score that a head has on any rank before exp. Heads "
                "differ in it.")
    alone = [_softmax(q @ keys.T) @ values for keys, values in own]                # (h, E) each
    largest = np.array([(q @ keys.T).max(-1) for keys, _ in own])                  # (p, h)
    scales = np.exp(largest - largest.max(0))[..., None]
    scores, scaled = q @ k.T, (scales * alone).sum(0)
    known = [(alone[rank], f"rank {rank} returned attention over its own part only: nothing was merged."),
             (np.mean(alone, axis=0), "this is the mean of the ranks' outputs; a part with larger scores weighs more: "
              "its sum and values are scaled by exp(its largest − the largest of all), then added."),
             (scaled, _NO_SUMS), (scaled / scales.sum(0), _NO_SUMS),
             (np.exp(scores - scores.max(-1, keepdims=True)) @ v,
              "these are the weighted values, added up; what is missing is to divide them by the sum of all weights."),
             (np.choose(largest.argmax(0)[:, None], alone),
              "this is the output of the rank with the largest score; the others' tokens have weights, too."),
             (v[scores.argmax(-1)], "this is the value with the largest score; softmax gives every token a weight.")]
    return next((words for value, words in known if is_near(y, value)),
                f"rank {rank} returned {y.round(3)}, right is {(_softmax(scores) @ v).round(3)}. Each rank's sum and "
                "values must be scaled by exp(its largest − the largest of all).")


EXERCISES = {
    "10.1": number(_gathered, lambda found: f"L·2·K·E numbers a token: {found:,} bytes.",
                   hint="A key and a value of each kv head, for each token, in each layer."),
    "10.2": number(_summed, lambda found: f"{found:,} bytes, {found / _gathered():.0f} times the time cut's.",
                   hint="Two sums a layer, each of the whole hidden size for each token."),
    "10.3": Exercise(_parts),
}
