"""Exercises of lesson 02: two cuts, and the nonlinearity that decides."""
from typing import Any

import numpy as np

import minitp
from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.plan import catalogue

RANKS, D, F = 3, 4, 7


def _columns(share: Any) -> Verdict:
    """2.2: `share(W_up, p, rank)` gives the rows of W_up (out, in) that this rank holds in a column cut."""
    W_up = np.arange(F * D, dtype=float).reshape(F, D)
    held = [share(W_up, RANKS, rank) for rank in range(RANKS)]
    if all(one is None for one in held):
        return BLANK
    if any(not isinstance(one, np.ndarray) or one.ndim != 2 or one.shape[1] != D for one in held):
        return Verdict(False, f"each rank's share must be a matrix with all {D} columns of W_up; W_up is (out, in), so "
                              "a column cut of its transpose takes rows of it.")
    if not np.array_equal(np.concatenate(held), W_up):
        return Verdict(False, f"the shares of {RANKS} ranks, one below the other, are not W_up: {F} rows don't divide "
                              "evenly, and each row must be held exactly once.")
    return Verdict(True, f"{' + '.join(str(len(one)) for one in held)} = {F} rows, each held once.")


def _act_late(mlp: Any) -> Verdict:
    """2.3: an MLP with row cut first, its first product reduced before the activation: right with two syncs."""
    rng = np.random.default_rng(3)
    x, W_up, W_down = rng.normal(size=D), rng.normal(size=(F, D)), rng.normal(size=(D, F))
    tried = attempt(lambda tp: mlp(tp, x, W_up, W_down), RANKS)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, tried.error)
    wanted = np.maximum(x @ W_up.T, 0) @ W_down.T
    for rank, y in enumerate(tried.run.results):
        if not (isinstance(y, np.ndarray) and y.shape == wanted.shape and np.allclose(y, wanted)):
            return Verdict(False, f"rank {rank} returned {y}, the whole y is {wanted}. A sum that isn't complete must "
                                  "not enter the activation.")
    return Verdict(True, f"right, with {tried.run.sync_points} sync points where column-then-row needs one.")


def _payload() -> float:
    """2.1: bytes of the all-reduce of SmolLM2's y for one token."""
    hidden = catalogue.model("smollm2-135m").config.hidden
    found = attempt(lambda tp: tp.all_reduce(minitp.Partial(np.zeros(hidden, np.float32), tp), site="mlp.down",
                                             reason="add the ranks' partial sums"), RANKS)
    return 0 if found.run is None else found.run.payload


EXERCISES = {
    "2.1": number(_payload, lambda bytes: f"{bytes:,} bytes: D numbers of 4 bytes, at any F and any number of ranks.",
                  hint="What moves is y, D numbers of 4 bytes each; F doesn't enter."),
    "2.2": Exercise(_columns),
    "2.3": Exercise(_act_late),
}
