"""Exercises of lesson 02: two cuts, and the nonlinearity that decides."""
from typing import Any

import numpy as np

import minitp
from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import answers, has_shape, is_near, met, on_ranks, sent_too_much
from minitp.lesson.runs import Run
from minitp.plan import catalogue

RANKS, D, F = 3, 4, 7
WORLDS = (2, 3, 5)                     # of 2.3; of 5 ranks one has nothing of the input
ITEM = 8                               # bytes of a float64
Held = tuple[np.ndarray, np.ndarray, np.ndarray]


def _columns(share: Any) -> Verdict:
    """2.2: `share(W_up, p, rank)` gives the rows of W_up (out, in) that this rank holds in a column cut."""
    W_up = np.arange(F * D, dtype=float).reshape(F, D)
    held = answers(share, [(W_up.copy(), RANKS, rank) for rank in range(RANKS)])
    if isinstance(held, Verdict):
        return held
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
    told = ""
    for ranks in WORLDS:
        found = _act_late_on(ranks, mlp)
        if isinstance(found, Verdict):
            return found
        told = met(found)
    return Verdict(True, f"right on {', '.join(map(str, WORLDS))} ranks, with {told} where column-then-row needs one.")


def _act_late_on(ranks: int, mlp: Any) -> Run | Verdict:
    """The run of a right answer; else what is wrong with it."""
    rng = np.random.default_rng(3)
    x, W_up, W_down = rng.normal(size=D), rng.normal(size=(F, D)), rng.normal(size=(D, F))
    inputs, inner = minitp.Cut(D, ranks), minitp.Cut(F, ranks)

    def held(rank: int) -> Held:
        d, f = inputs.of(rank), inner.of(rank)
        return (x[d.start:d.stop].copy(), W_up[:, d.start:d.stop].copy(), W_down[:, f.start:f.stop].copy())

    found = on_ranks(lambda tp: mlp(tp, *held(tp.rank)), ranks,
                     f"D = {D} and F = {F} lie on {ranks} ranks: {inputs.sizes} and {inner.sizes}.")
    if isinstance(found, Verdict):
        return found
    wanted = np.maximum(W_up @ x, 0) @ W_down.T
    for rank, y in enumerate(found.results):
        if not has_shape(y, wanted.shape):
            return Verdict(False, f"rank {rank} returned {y!r:.200}; the whole y is an array of shape {wanted.shape}.")
        if not is_near(y, wanted):
            return Verdict(False, f"on {ranks} ranks, rank {rank} returned {y}, the whole y is {wanted}: "
                                  + _mistake(y, [held(one) for one in range(ranks)], W_down, inner.of(rank)))
    return sent_too_much(found, 2, (F + D) * ITEM, "a is summed, then y, and nothing else has to travel.") or found


def _mistake(y: np.ndarray, held: list[Held], W_down: np.ndarray, own: range) -> str:
    """What a wrong y was made by, where it is a known mistake."""
    terms = np.array([up @ x_p for x_p, up, _ in held])                             # of a, (p, F)
    a, early = terms.sum(0), np.maximum(terms, 0).sum(0)
    known = [(early @ W_down.T, "each rank activated its own term of a: act(a + b) ≠ act(a) + act(b). Add first."),
             (a @ W_down.T, "the activation is missing."),
             (np.maximum(a, 0)[own.start:own.stop] @ W_down[:, own.start:own.stop].T,
              "this is the rank's own term of y: the others' are missing.")]
    return next((words for value, words in known if is_near(y, value)),
                "a is a sum over the ranks; of the whole act(a) a rank takes its slice; y is a sum, too.")


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
