"""Exercises of lesson 08: collectives by hand."""
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.cut import Cut
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import has_shape, on_ranks
from minitp.lesson.hops import Hops, hops
from minitp.plan.network.collectives import cost

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

RANKS, N = 8, 16_384
_STUCK = "Where every rank sends first, nobody receives: `tp.exchange` does both at once."
_LENGTH = "What comes has the sender's length, and parts differ: say in `shape` how long the part is that comes."


def _by_messages(fn: "Callable[[Communicator], Any]", ranks: int, wanted: np.ndarray) -> Verdict | Hops:
    """What fn's messages came to, where every rank returns `wanted` and none took a collective; else what is wrong."""
    run = on_ranks(fn, ranks, _hint)
    if isinstance(run, Verdict):
        return run
    ready = {event.op for event in run.trace if event.peer is None}
    if ready:
        return Verdict(False, f"this took {', '.join(sorted(ready))}, a collective that is there already: build it "
                              "from send, receive and exchange.")
    for rank, result in enumerate(run.results):
        if not has_shape(result, wanted.shape):
            return Verdict(False, f"on {ranks} ranks, rank {rank} returned {result!r}; an array of shape "
                                  f"{wanted.shape} is asked for.")
        if not np.array_equal(result, wanted):
            return Verdict(False, f"on {ranks} ranks, rank {rank} returned {result}, right is {wanted}.")
    return hops(run.trace)


def _hint(error: str) -> str:
    """What may be done about an error."""
    return _STUCK if "wait for each other" in error else _LENGTH if "expects" in error else ""


def _ring_all_gather(gather: Any) -> Verdict:
    """8.3: p - 1 rounds in which each rank passes on what came in the round before."""
    for ranks in (3, 5):
        cut, whole = Cut(2 * ranks + 1, ranks), np.arange(2.0 * ranks + 1)
        parts = [whole[cut.of(rank).start:cut.of(rank).stop] for rank in range(ranks)]
        found = _by_messages(_with_parts(gather, parts, cut), ranks, whole)
        if isinstance(found, Verdict):
            return found
        if found.rounds > ranks - 1 or found.messages != ranks * (ranks - 1):
            return Verdict(False, f"right, but {found.rounds} rounds and {found.messages} messages on {ranks} ranks. A "
                                  f"ring needs p − 1 rounds of p messages: {ranks - 1} and {ranks * (ranks - 1)}.")
        if found.busiest > whole.nbytes - min(part.nbytes for part in parts):
            return Verdict(False, f"right, but a rank sent {found.busiest} bytes of a vector of {whole.nbytes}: pass "
                                  "on only the part that came last.")
    return Verdict(True, "right on 3 and 5 ranks: p − 1 rounds, and a rank sends every part but one once.")


def _with_parts(gather: Any, parts: list[np.ndarray], cut: Cut) -> "Callable[[Communicator], Any]":
    return lambda tp: gather(tp, parts[tp.rank].copy(), cut)


def _tree_broadcast(broadcast: Any) -> Verdict:
    """8.4: whoever has the array hands it on."""
    whole = np.arange(1.0, 8.0)
    for ranks in (4, 6, 7):
        found = _by_messages(lambda tp: broadcast(tp, None if tp.rank else whole.copy(), whole.shape), ranks, whole)
        if isinstance(found, Verdict):
            return found
        rounds = cost("broadcast", "tree", ranks).hops
        if found.rounds > rounds:
            return Verdict(False, f"right, but {found.rounds} rounds on {ranks} ranks, where {rounds} are enough: let "
                                  "ranks that have it already send, too, so that in each round twice as many have it.")
        if found.messages > ranks - 1:
            return Verdict(False, f"right, but {found.messages} messages on {ranks} ranks: each rank needs it once.")
    return Verdict(True, "right on 4, 6 and 7 ranks: ⌈lg p⌉ rounds, p − 1 messages.")


EXERCISES = {
    "8.1": number(lambda: cost("all_reduce", "star", RANKS).hops,
                  lambda found: f"2(p − 1) = {found}, one after the other.",
                  hint="Each of the others sends it one message and gets one."),
    "8.2": number(lambda: float(cost("all_reduce", "ring", RANKS).volume) * N,
                  lambda found: f"2(p − 1) chunks of n/p: {found:,.0f} bytes.",
                  hint="Count the chunks that a rank sends: p − 1 to add, p − 1 to gather, each of n/p bytes."),
    "8.3": Exercise(_ring_all_gather),
    "8.4": Exercise(_tree_broadcast),
}
