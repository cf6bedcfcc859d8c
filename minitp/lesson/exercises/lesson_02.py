"""Exercises of lesson 02: two cuts, and the nonlinearity that decides."""
from typing import Any

import numpy as np

import minitp
from minitp.comm import Communicator
from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.lesson.exercises.checking import on_ranks, sent_too_much
from minitp.plan import catalogue

RANKS, D, F = 3, 4, 7
ITEM = 8                               # bytes of a float64


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
    if not all(len(one) in (F // RANKS, F // RANKS + 1) for one in held):
        return Verdict(False, f"every row is held once, and the shares {[len(one) for one in held]} are not as even "
                              "as they can be: minitp.Cut(F, p) deals them out.")
    return Verdict(True, f"{' + '.join(str(len(one)) for one in held)} = {F} rows, each held once.")


def _act_late(mlp: Any) -> Verdict:
    """2.3: `mlp(tp, x_p, up, down)`, an MLP with both matrices cut by rows: a is reduced before the activation."""
    rng = np.random.default_rng(3)
    x, W_up, W_down = rng.normal(size=D), rng.normal(size=(F, D)), rng.normal(size=(D, F))
    inputs, inner = minitp.Cut(D, RANKS), minitp.Cut(F, RANKS)

    def held(rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        d, f = inputs.of(rank), inner.of(rank)
        return (x[d.start:d.stop].copy(), W_up[:, d.start:d.stop].copy(), W_down[:, f.start:f.stop].copy())

    def on_rank(tp: Communicator) -> Any:
        return mlp(tp, *held(tp.rank))

    found = on_ranks(on_rank, RANKS, f"D = {D} and F = {F} lie on {RANKS} ranks: {inputs.sizes} and {inner.sizes}.")
    if isinstance(found, Verdict):
        return found
    a = [x_p @ up.T for x_p, up, _ in map(held, range(RANKS))]                      # terms of the sum, (F,) each
    wanted = np.maximum(sum(a), 0) @ W_down.T
    early = sum(np.maximum(term, 0) for term in a)
    for rank, y in enumerate(found.results):
        f = inner.of(rank)
        known = [(early @ W_down.T, "each rank activated its own term of a: act(a + b) ≠ act(a) + act(b). Add first."),
                 (sum(a) @ W_down.T, "the activation is missing."),
                 (np.maximum(sum(a), 0)[f.start:f.stop] @ W_down[:, f.start:f.stop].T,
                  "this is the rank's own term of y: the others' are missing.")]
        if not (isinstance(y, np.ndarray) and y.shape == wanted.shape):
            return Verdict(False, f"rank {rank} returned {y!r:.200}; the whole y is an array of shape {wanted.shape}.")
        if not np.allclose(y, wanted):
            words = next((words for value, words in known if np.allclose(y, value)),
                         "a is a sum over the ranks; of the whole act(a) a rank takes its slice; y is a sum, too.")
            return Verdict(False, f"rank {rank} returned {y}, the whole y is {wanted}: {words}")
    return sent_too_much(found, 2, (F + D) * ITEM, "a is summed, then y, and nothing else has to travel.") or Verdict(
        True, f"right, with {found.sync_points} sync points where column-then-row needs one.")


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
