"""Puzzles: matrices that are stored as one and can't be cut as one."""
from collections.abc import Callable

import numpy as np

from minitp.comm.states import shard
from minitp.cut import Cut
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

_QKV = """\
*Needs lesson 04.*

Many checkpoints store the three projections of attention as one matrix: the `q` rows of all heads, below them the `k`
rows of all heads, then the `v` rows. Somebody cut it like any other matrix, rank r taking the r-th piece of its rows,
and read the piece as `q`, `k`, `v`. On one rank the text was fine; on two it was nonsense, and no shape complained.

**Given** on each rank: the whole `x` (T, D), the whole `W_qkv`, which is `(3·H·E, D)`, and the number of
heads `H`.
**Return** this rank's `(q_p, k_p, v_p)`, each `(T, H_p·E)`: queries, keys and values of the heads that the rank holds
when `H` heads are dealt out by `minitp.Cut(H, tp.size)`. **Budget:** no sync point, and no memory for the other ranks'
heads."""

_GATE_UP = """\
*Needs lesson 03.*

`y = (silu(x · W_gateᵀ) * (x · W_upᵀ)) · W_downᵀ`, with `silu(a) = a / (1 + exp(-a))`. The file has gate and up as one
matrix `W_gu` (2·F, D): first all rows of gate, then all rows of up. Each column of `h` needs its gate and its up on the
same rank.

**Given** on each rank: the whole `x` (T, D), the whole `W_gu` (2·F, D), and `W_down_p` (D, F_p), its columns by
`minitp.Cut(F, tp.size)`. **Return** the whole `y` (T, D). **Budget:** one sync point, of the size of `y`; memory for
this rank's columns of `h` alone."""


def _qkv(rng: np.random.Generator) -> World:
    ranks = int(rng.integers(2, 5))
    H, E = ranks * int(rng.integers(2, 4)) + 1, 2 * int(rng.integers(8, 12))
    T, D = int(rng.integers(60, 80)), int(rng.integers(20, 30))
    x, W = rng.normal(size=(T, D)), rng.normal(size=(3 * H * E, D))
    heads = Cut(H, ranks)
    whole = [x @ part.T for part in np.split(W, 3)]                                # (T, H·E) each

    def held(cut: Cut, of: list[np.ndarray] = whole) -> list[tuple[np.ndarray, ...]]:
        return [tuple(part[:, share.start:share.stop] for part in of) for share in map(cut.of, range(ranks))]

    def rows(cut: Cut) -> list[tuple[np.ndarray, ...]]:
        return [tuple(np.split(x @ W[share.start:share.stop].T, 3, axis=1)) for share in map(cut.of, range(ranks))]

    truth = held(heads.times(E))
    swapped = [(q, v, k) for q, k, v in truth]
    mistakes = [
        Mistake(rows(heads.times(3 * E)), "this is the matrix cut as one: rank 0 got rows of q alone and took a third "
                "of them for k. Cut q, k and v each by itself, and then by heads."),
        Mistake(held(Cut(H * E, ranks)), "the rows of q, k and v were shared out evenly, which splits a head over two "
                f"ranks. {H} heads are cut in whole heads: minitp.Cut(H, tp.size).times(E)."),
        Mistake(held(Cut(ranks * (H // ranks), ranks).times(E)), f"{H} heads on {ranks} ranks don't divide evenly, and "
                "H // p per rank leaves the last ones out."),
        Mistake([tuple(whole)] * ranks, "these are all heads, on every rank. Asked for are shards: each rank's own."),
        Mistake(swapped, "k and v are exchanged: the file has q, then k, then v.")]
    own = max(sum(part.nbytes for part in parts) for parts in truth)
    return World(inputs=[{"x": x, "W_qkv": W, "H": H}] * ranks, truth=truth, names=("q_p", "k_p", "v_p"),
                 state=(shard(-1),) * 3, mistakes=mistakes,
                 budget=Budget(sync_points=0, payload=0, memory=own + max(map(_rows_of, truth)) * D * x.itemsize))


def _rows_of(parts: tuple[np.ndarray, ...]) -> int:
    """How many rows of W_qkv make these: whoever gathers them before the product holds a copy of them."""
    return sum(part.shape[1] for part in parts)


def _gate_up(rng: np.random.Generator) -> World:
    ranks = int(rng.integers(3, 6))
    F, D, T = ranks * int(rng.integers(40, 60)) + 1, int(rng.integers(30, 40)), int(rng.integers(70, 90))
    x, W, down = rng.normal(size=(T, D)) / 2, rng.normal(size=(2 * F, D)) / 2, rng.normal(size=(D, F))
    gate, up = W[:F], W[F:]
    held = [slice(share.start, share.stop) for share in map(Cut(F, ranks).of, range(ranks))]
    terms = [_h(x, gate[mine], up[mine]) @ down[:, mine].T for mine in held]
    y = _h(x, gate, up) @ down.T

    def taken(of: Callable[[slice], tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """y where rank by rank `of` its columns of h says which rows were taken for gate and up."""
        return np.sum([_h(x, *of(mine)) @ down[:, mine].T for mine in held], axis=0)

    def piece(mine: slice) -> np.ndarray:
        return W[2 * mine.start:2 * mine.stop]

    def halves(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rows[:len(rows) // 2], rows[len(rows) // 2:]

    mistakes = [
        everywhere(taken(lambda mine: halves(piece(mine))), ranks,
                   "this is W_gu cut as one matrix: the first ranks got rows of gate alone and took half of them for "
                   "up. Cut gate and up each by itself."),
        everywhere(taken(lambda mine: (up[mine], gate[mine])), ranks,
                   "silu acts on up here. The file has gate first, and silu acts on gate."),
        everywhere(taken(lambda mine: (piece(mine)[::2], piece(mine)[1::2])), ranks,
                   "rows of gate and up were taken in turn, as if stored so. The file has all of gate first."),
        own_terms(terms), largest_term(terms), times_too_many([y] * ranks)]
    shard_bytes = T * len(range(held[0].start, held[0].stop)) * x.itemsize
    return World(inputs=[{"x": x, "W_gu": W, "W_down_p": down[:, mine]} for mine in held], truth=[y] * ranks,
                 mistakes=mistakes,
                 budget=Budget(sync_points=1, payload=y.nbytes, memory=5 * shard_bytes + 2 * y.nbytes))


def _h(x: np.ndarray, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    a = x @ gate.T
    return a / (1 + np.exp(-a)) * (x @ up.T)


PUZZLES = (
    Puzzle(name="qkv-cut", title="The wrong QKV cut", story=_QKV, arguments=("x", "W_qkv", "H"), world=_qkv),
    Puzzle(name="gate-up-cut", title="Gate and up in one matrix", story=_GATE_UP,
           arguments=("x", "W_gu", "W_down_p"), world=_gate_up))
