"""Puzzle: an all-reduce taken apart, and the norm on each rank's rows between its halves."""
import numpy as np

from minitp.comm.states import WHOLE, shard
from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World
from minitp.lesson.puzzles.spent import ring_bytes

_STORY = """\
*Needs lesson 01.*

An all-reduce is a reduce-scatter and an all-gather. Between the two each rank has some rows of the sum, complete: what
works row by row, as the residual's addition and the norm do, can be done there, by one rank for each row instead of by
all ranks for all rows. That is sequence parallelism, and it costs no byte more than the all-reduce.

Here is the seam between attention and MLP: `x_new = x + Σ y_p`, `h = x_new / √(mean(x_new²) + eps) · weight`, the mean
over the D numbers of a row.

**Given** on each rank: `y_p` (T, D), its term of attention's output; its rows `x_rows` (T_p, D) of the residual stream,
a shard along the tokens; the whole `weight` (D,); `eps`. Rank r's rows are `minitp.Cut(T, tp.size).of(r)`.
**Return** two things, `x_new, h`: the residual stream stays a shard (T_p, D), `h` is whole (T, D). **Budget:** two sync
points; what a rank sends for them on a ring is no more than for one all-reduce of `y`."""


def _world(rng: np.random.Generator) -> World:
    ranks, eps = int(rng.integers(3, 6)), 0.01
    T, D = ranks * int(rng.integers(20, 28)) + int(rng.integers(1, ranks)), int(rng.integers(110, 140))
    terms, x, weight = rng.normal(size=(ranks, T, D)), rng.normal(size=(T, D)), rng.uniform(0.5, 2, size=D)
    held = [slice(own.start, own.stop) for own in map(Cut(T, ranks).of, range(ranks))]
    inputs = [{"y_p": term, "x_rows": x[own], "weight": weight, "eps": eps}
              for term, own in zip(terms, held, strict=True)]
    x_new, rows = x + terms.sum(0), x[held[0]].nbytes
    return World(inputs=inputs, truth=[(x_new[own], _norm(x_new, weight, eps)) for own in held], names=("x_new", "h"),
                 state=(shard(0), WHOLE), mistakes=_mistakes(terms, x, weight, eps, held),
                 budget=Budget(sync_points=2, payload=2 * x.nbytes, ring=ring_bytes([("all_reduce", x.nbytes)], ranks),
                               memory=x.nbytes + 4 * rows))


def _norm(x: np.ndarray, weight: np.ndarray | float, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _mistakes(terms: np.ndarray, x: np.ndarray, weight: np.ndarray, eps: float, held: list[slice]) -> list[Mistake]:
    x_new, total = x + terms.sum(0), terms.sum(0)
    h, ranks = _norm(x_new, weight, eps), len(held)
    early = np.concatenate([_norm(x[own] + terms[rank][own], weight, eps) for rank, own in enumerate(held)])
    by_column = np.concatenate([x_new[own] / np.sqrt((x_new[own] ** 2).mean(0) + eps) * weight for own in held])

    def given(stream: np.ndarray, normed: np.ndarray, words: str) -> Mistake:
        return Mistake([(stream[own], normed) for own in held], words)

    return [
        Mistake([(x[own] + terms[rank][own], early) for rank, own in enumerate(held)],
                "each rank added its own term of y to its rows. A row of x needs the sum of all ranks' terms: "
                "reduce-scatter first, a slice of the own term is no substitute."),
        Mistake([(x_new[own], h[own]) for own in held],
                "both are right on this rank's rows, but h is asked for whole: the MLP's column cut needs every row on "
                "every rank (all_gather)."),
        Mistake([(x_new, h)] * ranks, "both are whole. The residual stream stays a shard: this rank's rows alone."),
        given(x_new, _norm(x_new, 1, eps), "x_new is right; h lacks `weight`."),
        given(x_new, _norm(total, weight, eps), "x_new is right; h is the norm of the sum of y without the residual."),
        given(total, _norm(total, weight, eps), "the residual x is missing: x_new = x + Σ y_p."),
        given(total, h, "h is right; the residual x is missing from x_new."),
        given(x_new, x_new, "x_new is right; h is x_new itself, gathered before its norm."),
        given(x_new, by_column, "x_new is right; the mean of the norm went over the rows that a rank has, not over the "
                                "D numbers of each row. A norm over tokens would depend on the cut."),
        given(x_new, _norm(x_new, weight, 0), "x_new is right; eps is missing from the root."),
        given(ranks * x + total, _norm(ranks * x + total, weight, eps),
              f"the residual came in {ranks} times: x is no term of the sum. Add it after the reduce-scatter."),
    ]


PUZZLES = (Puzzle(name="norm-between", title="Reduce-scatter, norm, all-gather", story=_STORY,
                  arguments=("y_p", "x_rows", "weight", "eps"), world=_world),)
