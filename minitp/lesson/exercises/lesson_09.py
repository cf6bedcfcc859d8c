"""Exercises of lesson 09: what the ranks owe each other on the way back."""
from collections.abc import Callable
from typing import Any

import numpy as np

import minitp
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import is_near, on_ranks, sent_too_much
from minitp.placement import Placement
from minitp.plan import catalogue
from minitp.trace.predict_pass import Pass

RANKS, TOKENS, D, F = 3, 2, 4, 7
ROWS = (9, 6, 6)                       # of q, k and v
ITEM = 8                               # bytes of a float64


def _sync_points() -> float:
    """9.1: the closed form of a micro-batch."""
    config = catalogue.model("smollm2-135m").config
    one = Pass(Placement(config, RANKS), "float32", 1, TOKENS, "forward", 0)
    return sum(1 for part in (one.forward(gathered=False), one.loss(), one.backward()) for _ in part)


def _mlp_backward(mlp_backward: Callable[..., Any]) -> Verdict:
    """9.2: `mlp_backward(tp, x, h, W_up, W_down, dy)` → dx, dW_up, dW_down with one all-reduce of dx."""
    rng = np.random.default_rng(9)
    x, dy = rng.normal(size=(2, TOKENS, D))
    W_up, W_down = rng.normal(size=(F, D)), rng.normal(size=(D, F))
    h = np.tanh(x @ W_up.T)
    du = dy @ W_down * (1 - h * h)
    cut = minitp.Cut(F, RANKS)

    def fn(tp: minitp.Communicator) -> Any:
        own = slice(cut.of(tp.rank).start, cut.of(tp.rank).stop)
        return mlp_backward(tp, x.copy(), h[:, own].copy(), W_up[own].copy(), W_down[:, own].copy(), dy.copy())
    found = on_ranks(fn, RANKS)
    if isinstance(found, Verdict):
        return found
    for rank, three in enumerate(found.results):
        own = slice(cut.of(rank).start, cut.of(rank).stop)
        if not isinstance(three, tuple | list) or len(three) != 3:
            return Verdict(False, f"rank {rank} returned {type(three).__name__}; three arrays are asked for: dx, dW_up "
                                  "and dW_down.")
        truth, term = (du @ W_up, du[:, own].T @ x, dy.T @ h[:, own]), du[:, own] @ W_up[own]
        if is_near(three[2], RANKS * truth[2]):
            return Verdict(False, f"rank {rank}'s dW_down is {RANKS} times too large: dy was whole already. g sends "
                                  "nothing backward.")
        if is_near(three[0], term):
            return Verdict(False, f"rank {rank} returned its own term of dx: x went into all ranks' columns, and f is "
                                  "an all-reduce backward.")
        for name, one, whole in zip(("dx", "dW_up", "dW_down"), three, truth, strict=True):
            if not is_near(one, whole):
                return Verdict(False, f"{name} of rank {rank} isn't what one rank gets, which is of shape {whole.shape}"
                                      f"; this is {getattr(one, 'shape', type(one).__name__)}. For y = x Wᵀ: dx = dy W "
                                      "and dW = dyᵀ x; tanh's slope is 1 − h².")
    return sent_too_much(found, 1, TOKENS * D * ITEM, "weights' gradients stay where the weights are.") or Verdict(
        True, f"right, with f alone: one all-reduce of {TOKENS * D * ITEM} bytes. Your weights' gradients are shards.")


def _before_qkv(before_qkv: Callable[..., Any]) -> Verdict:
    """9.3: `before_qkv(tp, dq, dk, dv, W_q, W_k, W_v)` → the whole dx with one all-reduce for all three."""
    rng = np.random.default_rng(10)
    backs = [rng.normal(size=(TOKENS, rows)) for rows in ROWS]
    matrices = [rng.normal(size=(rows, D)) for rows in ROWS]
    wanted = sum((back @ matrix for back, matrix in zip(backs, matrices, strict=True)), start=np.zeros((TOKENS, D)))

    def own_part(rank: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        held = [minitp.Cut(rows, RANKS).of(rank) for rows in ROWS]
        return ([back[:, own.start:own.stop] for back, own in zip(backs, held, strict=True)],
                [matrix[own.start:own.stop] for matrix, own in zip(matrices, held, strict=True)])

    def fn(tp: minitp.Communicator) -> Any:
        of_back, of_matrix = own_part(tp.rank)
        return before_qkv(tp, *(one.copy() for one in of_back), *(one.copy() for one in of_matrix))
    found = on_ranks(fn, RANKS)
    if isinstance(found, Verdict):
        return found
    for rank, dx in enumerate(found.results):
        if not is_near(dx, wanted):
            of_back, of_matrix = own_part(rank)
            term = sum((a @ b for a, b in zip(of_back, of_matrix, strict=True)), start=np.zeros((TOKENS, D)))
            return Verdict(False, f"rank {rank} returned " + (
                "its own term: it has to be added to the other ranks'." if is_near(dx, term) else
                "another dx than one rank gets. It is dq W_q + dk W_k + dv W_v, summed over the ranks."))
    return sent_too_much(found, 1, TOKENS * D * ITEM, "partial + partial is partial: add the three first, for free.") \
        or Verdict(True, "right: one all-reduce for all three.")


EXERCISES = {
    "9.1": number(_sync_points, lambda count: f"{count:g}: 2L + 1 forward, 3 of the loss, 2L + 1 backward.",
                  hint="Two a layer and one at an end, forward and backward alike; and the loss's."),
    "9.2": Exercise(_mlp_backward),
    "9.3": Exercise(_before_qkv),
}
