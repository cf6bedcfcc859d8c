"""Exercises of lesson 14: what may go over which wire."""
from math import floor
from typing import Any

import numpy as np

from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.plan import catalogue
from minitp.plan.network.curve import sync_point
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named

RANKS, PER_MACHINE, N = 4, 2, 6


def _sequences() -> int:
    """14.1: sequences whose tokens together, in one message over InfiniBand, take longer than α."""
    infiniband, (_, each) = catalogue.link("ib-hdr"), sync_point(catalogue.model("llama-2-70b"))
    return floor(infiniband.latency_s * infiniband.bytes_per_s / each) + 1


def _slow_hop() -> float:
    """14.2: µs that a hop may take until RDMA with it is as slow as TCP on the same wire: the difference of their α."""
    asked = named(QUESTIONS, "switch").ask().numbers
    messages = asked["bare hop s"] / _switch()
    return (asked["bare tcp on the same wire s"] - asked["bare plain s"]) / messages * 1e6


def _switch() -> float:
    return catalogue.switches()["infiniband-switch"].latency_s


def _two_levels(all_reduce: Any) -> Verdict:
    """14.3: `all_reduce(tp, x)` from messages; each rank sends half of x to the other machine."""
    terms = np.random.default_rng(14).integers(-9, 10, (RANKS, N)).astype(float)
    tried = attempt(lambda tp: all_reduce(tp, terms[tp.rank].copy()), RANKS)
    if tried.blank:
        return BLANK
    if tried.run is None:
        return Verdict(False, tried.error)
    if any(event.peer is None for event in tried.run.events):
        return Verdict(False, "a collective does this for you; build it from exchange, send and receive.")
    wrong = [rank for rank, y in enumerate(tried.run.results)
             if not (isinstance(y, np.ndarray) and y.shape == (N,) and np.allclose(y, terms.sum(0)))]
    if wrong:
        return Verdict(False, _why(wrong[0], tried.run.results[wrong[0]], terms))
    crossed = [sum(event.payload for event in tried.run.trace if event.op == "send" and event.rank == rank
                   and event.peer is not None and event.peer // PER_MACHINE != rank // PER_MACHINE)
               for rank in range(RANKS)]
    half = terms[0].nbytes // 2
    if max(crossed) > half:
        return Verdict(False, f"right, but a rank sends {max(crossed)} bytes to the other machine where {half} do. Let "
                              "its neighbor add up one half and itself the other before anything crosses.")
    within = max(sum(event.payload for event in tried.run.trace if event.op == "send" and event.rank == rank)
                 for rank in range(RANKS)) - half
    inside = ("a reduce-scatter inside, an all-reduce between, an all-gather inside." if within <= 2 * half else
              f"an all-reduce between; inside a rank sends {within} bytes, and {2 * half} would do.")
    return Verdict(True, f"right: {' + '.join(map(str, crossed))} bytes cross. Each all by itself would have sent "
                         f"{terms[0].nbytes} a rank. This is {inside}")


def _why(rank: int, got: Any, terms: np.ndarray) -> str:
    """What a wrong sum is, where it is a known mistake."""
    first = rank // PER_MACHINE * PER_MACHINE
    told = f"rank {rank} returned {got}, the sum of all terms is {terms.sum(0)}."
    if isinstance(got, np.ndarray) and got.shape == (N,):
        if np.allclose(got, terms[first:first + PER_MACHINE].sum(0)):
            return told + " That is its own machine's sum: the other machine's is missing."
        if np.allclose(got, terms[rank % PER_MACHINE::PER_MACHINE].sum(0)):
            return told + " That is the sum over one rank of each machine: the neighbors' terms are missing."
        if np.allclose(np.roll(got, N // 2), terms.sum(0)):
            return told + " Both halves are right and have changed places: a rank's own isn't always the first."
    if isinstance(got, np.ndarray) and got.size == N // 2:
        return told + " That is one half: after the sum, neighbors exchange their halves."
    return told


EXERCISES = {
    "14.1": number(_sequences, lambda n: f"{n} sequences: above n½. Below it, one sequence more costs little on the "
                                         "wire.",
                   hint="Divide n½ by the bytes of one sequence, and take the next whole number."),
    "14.2": number(_slow_hop, lambda hop: f"{hop:.0f} µs, the difference between the two α: as much as "
                                          f"{hop / _switch() / 1e6:.0f} switches.",
                   hint="Both have the same number of messages and the same bytes; what differs is α.", tolerance=0.02),
    "14.3": Exercise(_two_levels),
}
