"""Puzzle: an all-reduce from messages, in chunks around a ring."""
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
*Needs lesson 08.*

Write the all-reduce yourself, with messages alone. Passing whole arrays around works, and a rank sends the array p − 1
times. Cut into p chunks, it sends less than twice the array, for any p: once around the ring to sum, each rank adding
its part of the chunk that passes, so that every rank ends with one chunk complete; once more to hand the complete
chunks on.

**Given** on each rank: `y` (n,), its term of the sum.
**Return** the whole sum (n,) on every rank. **Budget:** no collectives. 2(p − 1) messages from each rank, of one chunk
each. `tp.exchange(array, to=…, shape=…, dtype=…, source=…, site=…, reason=…)` sends to one rank and receives from
another at once (all ranks that first send and then receive may wait forever); `minitp.Cut(n, p).of(i)` is chunk i, and
n doesn't divide evenly."""


def _world(rng: np.random.Generator) -> World:
    ranks = int(rng.integers(4, 7))
    n = ranks * int(rng.integers(3000, 4000)) + int(rng.integers(1, ranks))       # never divides evenly
    terms = list(rng.normal(size=(ranks, n)))
    y, chunks = np.sum(terms, axis=0), [Cut(n, ranks).of(i) for i in range(ranks)]
    rounds = 2 * (ranks - 1)
    smallest = min(map(len, chunks))                                              # the one that a rank may not send
    return World(inputs=[{"y": term} for term in terms], truth=[y] * ranks, names=("the sum",),
                 mistakes=_mistakes(terms, y, chunks),
                 budget=Budget(sync_points=0, payload=0, messages=rounds, sent=2 * (n - smallest) * y.itemsize,
                               memory=y.nbytes + 5 * len(chunks[0]) * y.itemsize))


def _mistakes(terms: list[np.ndarray], y: np.ndarray, chunks: list[range]) -> list[Mistake]:
    ranks, left = len(terms), len(y) % len(terms)
    half = "this is how it stands after the first way around: every rank has one chunk complete. Hand the complete " \
           "chunks on, p − 1 times more, each in the place of the unfinished one."
    return [
        own_terms(terms, "the sum"),
        Mistake([np.concatenate([y[:-left], term[-left:]]) for term in terms],
                f"the last {left} of {len(y):,} numbers are still the rank's own: n // p numbers a chunk leave a rest. "
                "Take the chunks from minitp.Cut."),
        *(Mistake(_after_the_sums(terms, chunks, first, step), half) for first in (0, 1, -1) for step in (1, -1)),
        Mistake([term + terms[rank - 1] for rank, term in enumerate(terms)],
                "each rank added one neighbor's term. What passes on must be what came in plus the own term, p − 1 "
                "times."),
        Mistake([term + terms[(rank + 1) % ranks] for rank, term in enumerate(terms)],
                "each rank added one neighbor's term. What passes on must be what came in plus the own term, p − 1 "
                "times."),
        Mistake([y + term for term in terms],
                "each rank's own term is in it twice: a chunk that has been around already holds it."),
        everywhere(y / ranks, ranks, "this is the mean over the ranks. Asked for is the sum."),
        times_too_many([y] * ranks, "the sum"), largest_term(terms, "the sum")]


def _after_the_sums(terms: list[np.ndarray], chunks: list[range], first: int, step: int) -> list[np.ndarray]:
    """Each rank's array after p − 1 rounds: rank r begins with chunk r + first and sends it to rank r + step."""
    held, ranks = [term.copy() for term in terms], len(terms)
    for turn in range(ranks - 1):
        passed = []
        for rank in range(ranks):
            sender = (rank - step) % ranks
            chunk = chunks[(sender + first - step * turn) % ranks]
            passed.append((chunk, held[sender][chunk.start:chunk.stop].copy()))
        for rank, (chunk, numbers) in enumerate(passed):
            held[rank][chunk.start:chunk.stop] += numbers
    return held


PUZZLES = (Puzzle(name="ring-in-chunks", title="A ring, in chunks", story=_STORY, arguments=("y",), world=_world,
                  errors={"wait for each other": "every rank waits for a message that another sends only later. In a "
                                                 "ring all send and receive in the same round: tp.exchange."}),)
