"""Exercises of appendix A: when ranks fail."""
from typing import Any

import numpy as np

from minitp.lesson.attempt import Attempt, attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number

PACE = {"ranks": 4, "steps": 100, "seconds of a step": 0.010, "seconds of a step on the slow rank": 0.012}
HELD = (3, 1, 0, 2)                        # how many arrays each rank has
SIZE = 3                                   # numbers of an array
RINGS = (2, 3, 4)
SECONDS = 3.0                              # after which an attempt counts as hanging


def _waiting() -> float:
    """A.1: rank-seconds spent waiting for the slow rank."""
    late = PACE["seconds of a step on the slow rank"] - PACE["seconds of a step"]
    return (PACE["ranks"] - 1) * PACE["steps"] * late


def _uneven(sums_of_uneven: Any) -> Verdict:
    """A.2: `sums_of_uneven(tp, arrays, size)` gives the sums of lists that differ in length over the ranks."""
    rng, ranks = np.random.default_rng(5), len(HELD)
    held = [[rng.integers(-9, 9, SIZE).astype(float) for _ in range(n)] for n in HELD]
    tried = attempt(lambda tp: sums_of_uneven(tp, [array.copy() for array in held[tp.rank]], SIZE), ranks, SECONDS)
    if refused := _refused(tried, "every rank must make the same calls, also one that has nothing left to give."):
        return refused
    assert tried.run is not None
    wanted = [np.sum([arrays[n] for arrays in held if n < len(arrays)], axis=0) for n in range(max(HELD))]
    for rank, sums in enumerate(tried.run.results):
        if not isinstance(sums, list) or len(sums) != len(wanted):
            return Verdict(False, f"rank {rank} must return a list of {len(wanted)} sums: as many as the longest list "
                                  "has arrays.")
        for n, (one, right) in enumerate(zip(sums, wanted, strict=True)):
            if not (isinstance(one, np.ndarray) and one.shape == right.shape and np.allclose(one, right)):
                return Verdict(False, f"sum {n} on rank {rank} is {one}, it should be {right}.")
    needed = max(HELD) + 1
    if tried.run.sync_points > needed:
        return Verdict(False, f"right, but with {tried.run.sync_points} sync points; one to agree on the number and "
                              f"one for each sum make {needed}.")
    return Verdict(True, f"right, with {tried.run.sync_points} sync points for lists of {', '.join(map(str, HELD))} "
                         "arrays, and no rank waits for one that has left.")


def _ring(pass_on: Any) -> Verdict:
    """A.3: `pass_on(tp, x)` gives what the rank before sent, on a ring of any size."""
    for ranks in RINGS:
        tried = attempt(lambda tp: pass_on(tp, np.full(2, 10.0 + tp.rank)), ranks, SECONDS)
        if refused := _refused(tried, f"on {ranks} ranks all wait for each other. Let some receive first (even "
                                      "and odd ranks), or do both at once (tp.exchange)."):
            return refused
        assert tried.run is not None
        for rank, got in enumerate(tried.run.results):
            wanted = np.full(2, 10.0 + (rank - 1) % ranks)
            if not (isinstance(got, np.ndarray) and got.shape == wanted.shape and np.array_equal(got, wanted)):
                return Verdict(False, f"rank {rank} of {ranks} returned {got}; the rank before it sent {wanted}.")
    return Verdict(True, f"right on {', '.join(map(str, RINGS))} ranks: nobody waits for one that waits itself.")


def _refused(tried: Attempt, hint: str) -> Verdict | None:
    """What is to be said of an attempt without a result."""
    if tried.blank:
        return BLANK
    if tried.run is None:
        hangs = "waiting in" in tried.error
        return Verdict(False, f"{tried.error}\n{hint if hangs else ''}".rstrip())
    return None


EXERCISES = {
    "A.1": number(_waiting, lambda seconds: f"{seconds:g} s: {PACE['ranks'] - 1} ranks wait, at each step, for as long "
                  "as the slow one is late.", tolerance=1e-6,
                  hint="At each step every rank but the slow one waits for the difference."),
    "A.2": Exercise(_uneven),
    "A.3": Exercise(_ring),
}
