"""Exercises of lesson 11: who moves, the activations or the weights."""
from typing import Any

import numpy as np

from minitp.cut import Cut
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import bytes_sent, is_near, met, on_ranks
from minitp.plan import catalogue
from minitp.plan.job import bytes_of

RANKS, TOKENS, INPUTS, ROWS = 3, 7, 4, 8             # neither tokens nor rows divide evenly
HOLDERS, MATRICES = 4, 3                             # of exercise 11.2


def _shape() -> tuple[int, int]:
    """F and D of Llama-2 7B."""
    config = catalogue.model("llama-2-7b").config
    return config.ffn, config.hidden


def _held() -> float:
    """11.2: a share of every matrix, and one of them whole."""
    ffn, hidden = _shape()
    return (MATRICES / HOLDERS + 1) * ffn * hidden * bytes_of("bf16")


def _numbers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (N, in), W (rows, in) and dy (N, rows)."""
    rng = np.random.default_rng(11)
    return rng.normal(size=(TOKENS, INPUTS)), rng.normal(size=(ROWS, INPUTS)), rng.normal(size=(TOKENS, ROWS))


def _mine(array: np.ndarray, rank: int) -> np.ndarray:
    held = Cut(len(array), RANKS).of(rank)
    return array[held.start:held.stop]


def _linear(linear: Any) -> Verdict:
    """11.3: gather the weight, multiply one's own tokens."""
    x, W, _ = _numbers()
    run = on_ranks(lambda tp: linear(tp, _mine(x, tp.rank), _mine(W, tp.rank), ROWS), RANKS)
    if isinstance(run, Verdict):
        return run
    y = x @ W.T
    for rank, found in enumerate(run.results):
        if is_near(found, y):
            return Verdict(False, f"rank {rank} returned all {TOKENS} tokens of y. In ZeRO-3 a rank computes its own "
                                  "tokens only; nobody needs the others' here.")
        if not is_near(found, _mine(y, rank)):
            shape = f"shape {found.shape}" if isinstance(found, np.ndarray) else f"a {type(found).__name__}"
            return Verdict(False, f"rank {rank} returned {shape}, not its tokens of y, {_mine(y, rank).shape}. Is the "
                                  "weight whole when the tokens meet it? Its rows lie on all ranks.")
    if (sent := bytes_sent(run)) > W.nbytes:
        return Verdict(False, f"right, but {sent:,} bytes of payload where the weight has {W.nbytes:,}: only the "
                              "weight needs to move, once.")
    return Verdict(True, f"right on {RANKS} ranks: {met(run)}, {sent:,} bytes, all of them weights.")


def _gradient(weight_gradient: Any) -> Verdict:
    """11.4: a reduce-scatter of the weight's gradient."""
    x, _, dy = _numbers()
    run = on_ranks(lambda tp: weight_gradient(tp, _mine(x, tp.rank), _mine(dy, tp.rank)), RANKS)
    if isinstance(run, Verdict):
        return run
    dW = dy.T @ x
    for rank, found in enumerate(run.results):
        own = _mine(dy, rank).T @ _mine(x, rank)
        if is_near(found, dW):
            return Verdict(False, f"rank {rank} returned all {ROWS} rows of dW: right numbers, and more than it "
                                  "stores.")
        if is_near(found, own) or is_near(found, _mine(own, rank)):
            return Verdict(False, f"rank {rank} returned the gradient of its own {len(_mine(x, rank))} tokens: one "
                                  "term of a sum. The other ranks' tokens went through the same weight.")
        if not is_near(found, _mine(dW, rank)):
            return Verdict(False, f"rank {rank} must return its rows of dW, shape {_mine(dW, rank).shape}: dW = "
                                  "dyᵀ · x over all tokens.")
    ops, sent = {event.op for event in run.trace}, bytes_sent(run)
    if ops != {"reduce_scatter"} or sent > dW.nbytes:
        return Verdict(False, f"right, by {' and '.join(sorted(ops)) or 'no collective'} with {sent:,} bytes of "
                              "payload. One collective leads from partial to shard, "
                              "and a ring sends half as much for it as for an all-reduce.")
    return Verdict(True, f"right on {RANKS} ranks: one reduce-scatter, {sent:,} bytes of payload.")


EXERCISES = {
    "11.1": number(lambda: 1.5 * _shape()[0], lambda n: f"{n:,.0f} tokens: 2·N·D = 3·F·D, so N = 3F/2. D, the bytes of "
                                                        "a number and the number of ranks cancel.",
                   hint="One all-reduce of N·D numbers counts twice, three gathers of F·D once each."),
    "11.2": number(_held, lambda size: f"{size:,.0f} bytes: {MATRICES}/{HOLDERS} · F·D of its own and F·D borrowed, 2 "
                                       "bytes each.",
                   hint="Its own share of each of the three matrices stays; one whole matrix comes on top of it."),
    "11.3": Exercise(_linear),
    "11.4": Exercise(_gradient),
}
