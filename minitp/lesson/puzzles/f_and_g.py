"""Puzzle: the two operators around a tensor-parallel block, each a sum one way and nothing the other way."""
from typing import Any

import numpy as np

from minitp.comm.states import WHOLE
from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World

_STORY = """\
*Needs lesson 09.*

Around a column-then-row block stand two operators that Megatron-LM calls f and g. One is a sum over the ranks on the
way forward and does nothing on the way back; the other does nothing forward and is a sum on the way back. Somebody put
each where the other belongs: the loss went down, slowly, to somewhere else.

The block is `h = max(x · W_upᵀ, 0)`, `y = h · W_downᵀ`. Backward, with `dy` the gradient at `y`:
`dh = dy · W_down`, zero where `h` is zero; `dx = dh · W_up`.

**Given** on each rank: the whole `x` (T, D) and the whole `dy` (T, D), its rows `W_up_p` (F_p, D), and its columns
`W_down_p` (D, F_p). **Return** `(y, dx)`, both whole. **Budget:** one sync point each way."""


def _world(rng: np.random.Generator) -> World:
    ranks = int(rng.integers(3, 6))
    F, D, T = ranks * int(rng.integers(12, 20)) + 1, int(rng.integers(50, 70)), int(rng.integers(60, 80))
    x, dy = rng.normal(size=(T, D)), rng.normal(size=(T, D))
    W_up, W_down = rng.normal(size=(F, D)), rng.normal(size=(D, F))
    held = [slice(share.start, share.stop) for share in map(Cut(F, ranks).of, range(ranks))]
    h = np.maximum(x @ W_up.T, 0)
    dh = np.where(h > 0, dy @ W_down, 0)
    ys = [h[:, mine] @ W_down[:, mine].T for mine in held]                         # terms of y
    dxs = [dh[:, mine] @ W_up[mine] for mine in held]                              # terms of dx
    y, dx, unmasked, p = h @ W_down.T, dh @ W_up, dy @ W_down @ W_up, ranks
    known: list[tuple[list[Any], str]] = [
        ([(p * one, p * other) for one, other in zip(ys, dxs, strict=True)],
         f"f and g stand at each other's place: x and dy, whole already, were summed over {p} ranks, and y and dx, "
         "which are terms of a sum, were not."),
        (list(zip(ys, dxs, strict=True)), "y and dx are each rank's own terms: neither way has its sum."),
        ([(y, one) for one in dxs], "y is right. dx is each rank's own term: x went to all ranks, so its gradient is "
                                    "the sum of what comes back from them. That is f."),
        ([(one, dx) for one in ys], "dx is right. y is each rank's own term: the row cut leaves a sum. That is g."),
        ([(y, p * one) for one in dxs], "y is right. On the way back dy was summed, which is whole already, and dx was "
                                        "not."),
        ([(y, p * dx)] * p, f"y is right, dx is {p} times too large: dy, whole already, was summed as well."),
        ([(y, unmasked)] * p, "y is right. dx went through the activation as if it were not there: dh is zero where h "
                              "is zero."),
        ([(dx, y)] * p, "the two are exchanged: return (y, dx).")]
    return World(inputs=[{"x": x, "dy": dy, "W_up_p": W_up[mine], "W_down_p": W_down[:, mine]} for mine in held],
                 truth=[(y, dx)] * ranks, names=("y", "dx"), state=(WHOLE, WHOLE),
                 mistakes=[Mistake(results, words) for results, words in known],
                 budget=Budget(sync_points=2, payload=y.nbytes + dx.nbytes,
                               memory=3 * y.nbytes + 4 * h[:, held[0]].nbytes))


PUZZLES = (Puzzle(name="f-and-g", title="f and g swapped", story=_STORY, arguments=("x", "dy", "W_up_p", "W_down_p"),
                  world=_world),)
