"""Exercises of lesson 06: count and price the sync points."""
from typing import Any

import numpy as np

from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import has_shape, is_near, meetings, met, on_ranks
from minitp.placement import Placement
from minitp.plan import catalogue
from minitp.plan.links import LINKS
from minitp.plan.network.collectives import cost
from minitp.trace.predict import GenerationPlan, predict

RANKS, D = 3, 5


def _counted(model: str, passes: list[tuple[str, int]], batch: int = 1) -> int:
    """Sync points of such passes, by the closed form."""
    placement = Placement(catalogue.model(model).config, RANKS)
    return len(predict(GenerationPlan(placement, "slice", "float32", batch, passes, choices=0)))


def _half() -> float:
    """The payload at which a ring of 8 waits as long as it carries: hops · α = volume · n · β."""
    path, link = cost("all_reduce", "ring", 8), LINKS[1]
    return path.hops * link.latency_s * link.bytes_per_s / float(path.volume)


def _parallel_block(block: Any) -> Verdict:
    """6.3: x + attention + mlp, from partial sums, with one sync."""
    rng = np.random.default_rng(6)
    x, ours, theirs = rng.normal(size=D), rng.normal(size=(RANKS, D)), rng.normal(size=(RANKS, D))
    run = on_ranks(lambda tp: block(tp, x.copy(), lambda _: ours[tp.rank].copy(), lambda _: theirs[tp.rank].copy()),
                   RANKS)
    if isinstance(run, Verdict):
        return run
    wanted = x + ours.sum(0) + theirs.sum(0)
    for rank, y in enumerate(run.results):
        if not has_shape(y, wanted.shape):
            return Verdict(False, f"rank {rank} returned {y!r}; an array of shape {wanted.shape} is asked for.")
        if is_near(y, wanted - x + RANKS * x):
            return Verdict(False, f"x is in the sum {RANKS} times: it is whole, so add it once, after the sync.")
        if is_near(y, wanted - x):
            return Verdict(False, "this is the sum of both without x, which the block adds them to.")
        if is_near(y, x + ours[rank] + theirs[rank]):
            return Verdict(False, f"rank {rank} returned x and its own two terms: the other ranks' terms are missing.")
        if not is_near(y, wanted):
            return Verdict(False, f"rank {rank} returned {y.round(3)}, right is {wanted.round(3)}.")
    if meetings(run) > 1:
        return Verdict(False, f"right, with {met(run)}: partial + partial is partial, so add the two terms first and "
                              "sum once.")
    return Verdict(True, f"right, with {met(run)}.")


EXERCISES = {
    "6.1": number(lambda: _counted("llama-3.1-405b", [("decode", 1)], 16),
                  lambda found: f"2L + 2 = {found}, shared by 16 tokens.",
                  hint="A pass has 2L + 2, whatever it carries."),
    "6.2": number(lambda: _counted("smollm2-135m", [("prefill", 50)] + 9 * [("decode", 1)]),
                  lambda found: f"{found}: 10 passes, the prompt's among them.",
                  hint="Count passes, not tokens: one for the whole prompt, which gives the first new token, and one "
                       "for each of the others."),
    "6.3": Exercise(_parallel_block),
    "6.4": number(_half, lambda found: f"{found:,.0f} bytes: p·α/β. The factor 2(p − 1) cancels.", tolerance=0.01,
                  hint="Set 2(p − 1)·α equal to 2(p − 1)/p·n·β and solve for n; β is one over the bandwidth."),
}
