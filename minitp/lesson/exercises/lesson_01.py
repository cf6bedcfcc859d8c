"""Exercises of lesson 01: four states and four collectives."""
from typing import Any

import numpy as np

import minitp
from minitp.comm import Communicator
from minitp.lesson.attempt import Attempt, attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number

RANKS, N, ENDS = 4, 5, (3, 4, 4, 5)    # slices of 3, 1, 0 and 1 numbers
SHAPE, GATHERERS = (3, 576), 7


def _payload() -> float:
    """1.1: bytes of an all-gather of SHAPE in float32 on GATHERERS ranks, as a run records it."""
    cut = minitp.Cut(SHAPE[1], GATHERERS)

    def gather(tp: Communicator) -> Any:
        mine = np.zeros((SHAPE[0], len(cut.of(tp.rank))), np.float32)
        return tp.all_gather(mine, axis=1, cut=cut, site="exercise", reason="lay the slices side by side")

    found = attempt(gather, GATHERERS)
    return 0 if found.run is None else found.run.payload


def _mean(mean: Any) -> Verdict:
    """1.2: the mean of slices of different lengths: a sum of sums, divided once, with one sync."""
    x = np.array([2.0, 5.0, 11.0, 1.0, 6.0])
    cut = minitp.Cut(N, RANKS, ends=ENDS)

    def on_rank(tp: Communicator) -> Any:
        mine = cut.of(tp.rank)
        return mean(tp, x[mine.start:mine.stop], N)

    tried = attempt(on_rank, RANKS)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, f"{tried.error} Of what a rank has, the others need but one number.")
    total = x.sum()
    known = {
        total: "this is the sum: it must be divided by n.",
        total / RANKS: "the sum was divided by the number of ranks; the mean is over n numbers.",
        total / N * RANKS: "every rank's number was added again: a whole array was declared a partial.",
    }
    for rank, found in enumerate(tried.run.results):
        if not (isinstance(found, np.ndarray) and found.shape == (1,)):
            return Verdict(False, f"rank {rank} returned {found!r}; an array of shape (1,) is asked for, on every rank "
                                  "(.sum(keepdims=True) gives one).")
        if not np.allclose(found, total / N):
            mine = x[cut.of(rank).start:cut.of(rank).stop]
            own = "this is the rank's own part: the others' terms are missing." if np.allclose(found, mine.sum() / N) \
                else ("an empty slice has no mean, but it has a sum: 0." if np.isnan(found).any() else
                      "a mean of means is right only where all slices are equally long.")
            hint = next((words for value, words in known.items() if np.allclose(found, value)), own)
            return Verdict(False, f"rank {rank} returned {found}, the mean of {x} is {total / N}: {hint}")
    return _with_syncs(tried, 1, "Each rank's sum is a term; an all-reduce adds them, and n is known everywhere.")


def _weighted(weighted: Any) -> Verdict:
    """1.3: a + 2 b of two partial sums: added before the sum over ranks, so one sync is enough."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(RANKS, 5)), rng.normal(size=(RANKS, 5))
    tried = attempt(lambda tp: weighted(tp, minitp.Partial(a[tp.rank].copy(), tp), minitp.Partial(b[tp.rank].copy(),
                                                                                                 tp)), RANKS)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, tried.error)
    wanted = a.sum(0) + 2 * b.sum(0)
    for rank, found in enumerate(tried.run.results):
        if isinstance(found, minitp.Partial):
            return Verdict(False, "what you return is still a partial sum: every rank wants the whole.")
        if not (isinstance(found, np.ndarray) and found.shape == wanted.shape and np.allclose(found, wanted)):
            return Verdict(False, f"rank {rank} returned {found}, the whole a + 2 b is {wanted}.")
    return _with_syncs(tried, 1, "Scaling a partial and adding two of them is free: combine first, then reduce.")


def _with_syncs(tried: Attempt, enough: int, how: str) -> Verdict:
    """A right answer by the sync points it took."""
    used = 0 if tried.run is None else tried.run.sync_points
    if used > enough:
        return Verdict(False, f"the numbers are right, but it took {used} sync points; {enough} is enough. {how}")
    return Verdict(True, f"right, with {used} sync point{'s' * (used != 1)}. {how}")


EXERCISES = {
    "1.1": number(_payload, lambda found: f"{found:,} bytes: the whole array, at any number of ranks.",
                  hint="The payload is the whole array, once: its numbers times 4 bytes. The ranks don't enter."),
    "1.2": Exercise(_mean),
    "1.3": Exercise(_weighted),
}
