"""Puzzle: a bias belongs to the sum, not to its terms."""
import numpy as np

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

_STORY = """\
*Needs lesson 02.*

`y = x · Wᵀ + b` with `W` cut by rows of its transpose: rank r holds the columns of `W` that meet its piece of `x`. Each
rank's product is one term of a sum, and there is only one `b`, which every rank has.

**Given** on each rank: its shard `x_p` (T, n_p), its columns `W_p` (M, n_p), and the whole `b` (M,).
**Return** the whole `y` (T, M) on every rank. **Budget:** one sync point, of the size of `y`."""


def _world(rng: np.random.Generator) -> World:
    ranks = int(rng.integers(3, 6))
    N = ranks * int(rng.integers(3, 6)) + int(rng.integers(1, ranks))             # never divides evenly
    T, M = int(rng.integers(30, 50)), int(rng.integers(90, 130))
    x, W, b = rng.normal(size=(T, N)), rng.normal(size=(M, N)), rng.normal(size=M)
    held = [slice(share.start, share.stop) for share in map(Cut(N, ranks).of, range(ranks))]
    terms = [x[:, mine] @ W[:, mine].T for mine in held]
    y, plain = x @ W.T + b, x @ W.T
    mistakes = [
        everywhere(plain + ranks * b, ranks, f"b came in {ranks} times, once with each rank's term. Add it once: after "
                                             "the sum, or on one rank alone."),
        everywhere(plain, ranks, "the sum is right, but b is missing from it."),
        own_terms(terms), own_terms([term + b for term in terms]), largest_term(terms),
        Mistake([plain + (b if rank == 0 else 0) for rank in range(ranks)],
                "rank 0 added b after the sum and the others did not: ranks that should hold the same y don't."),
        times_too_many([y] * ranks)]
    return World(inputs=[{"x_p": x[:, mine], "W_p": W[:, mine], "b": b} for mine in held], truth=[y] * ranks,
                 budget=Budget(sync_points=1, payload=y.nbytes, memory=2 * y.nbytes), mistakes=mistakes)


PUZZLES = (Puzzle(name="bias-once", title="A bias, once", story=_STORY, arguments=("x_p", "W_p", "b"), world=_world),)
