"""Exercises of appendix A: when ranks fail."""
from collections.abc import Callable
from typing import Any

import numpy as np

from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import is_near, meetings, met, on_ranks

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
    run = on_ranks(lambda tp: sums_of_uneven(tp, [array.copy() for array in held[tp.rank]], SIZE), ranks,
                   _if_hanging("every rank must make the same calls, also one that has nothing left to give."), SECONDS)
    if isinstance(run, Verdict):
        return run
    wanted = [np.sum([arrays[n] for arrays in held if n < len(arrays)], axis=0) for n in range(max(HELD))]
    for rank, sums in enumerate(run.results):
        if not isinstance(sums, list | tuple) or len(sums) != len(wanted):
            return Verdict(False, f"rank {rank} must return a list of {len(wanted)} sums: as many as the longest list "
                                  "has arrays.")
        for n, (one, right) in enumerate(zip(sums, wanted, strict=True)):
            if not is_near(one, right):
                return Verdict(False, f"sum {n} on rank {rank} is {one}, it should be {right}.")
    needed = max(HELD) + 1
    if meetings(run) > needed:
        return Verdict(False, f"right, but with {met(run)}; one to agree on the number and one for each sum make "
                              f"{needed}.")
    return Verdict(True, f"right, with {met(run)} for lists of {', '.join(map(str, HELD))} arrays, and no rank waits "
                         "for one that has left.")


def _ring(pass_on: Any) -> Verdict:
    """A.3: `pass_on(tp, x)` gives what the rank before sent, on a ring of any size."""
    for ranks in RINGS:
        run = on_ranks(lambda tp: pass_on(tp, np.full(2, 10.0 + tp.rank)), ranks,
                       _if_hanging(f"on {ranks} ranks all wait for each other. Let some receive first (even and odd "
                                   "ranks), or do both at once (tp.exchange)."), SECONDS)
        if isinstance(run, Verdict):
            return run
        for rank, got in enumerate(run.results):
            wanted = np.full(2, 10.0 + (rank - 1) % ranks)
            if not is_near(got, wanted):
                return Verdict(False, f"rank {rank} of {ranks} returned {got}; the rank before it sent {wanted}.")
    return Verdict(True, f"right on {', '.join(map(str, RINGS))} ranks: nobody waits for one that waits itself.")


def _if_hanging(hint: str) -> Callable[[str], str]:
    """What is to be said of an error, where ranks wait."""
    return lambda error: hint if "waiting in" in error else ""


EXERCISES = {
    "A.1": number(_waiting, lambda seconds: f"{seconds:g} s: {PACE['ranks'] - 1} ranks wait, at each step, for as long "
                  "as the slow one is late.", tolerance=1e-6,
                  hint="At each step every rank but the slow one waits for the difference."),
    "A.2": Exercise(_uneven),
    "A.3": Exercise(_ring),
}
