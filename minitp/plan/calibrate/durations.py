"""What the collectives of a trace took: the measured side of every comparison with a model, and what one is fitted to.

A collective's time runs from the moment at which it can go on (the last rank, or the root, is there: `minitp.trace.
timeline`) until the last rank that waited for it has its result. So waiting for a late rank isn't in it; packing, MPI
and the scheduler are. That is what Hockney's longest path stands for.
"""
from typing import NamedTuple

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES
from minitp.trace.timeline import NOBODY, Timeline, waits_for


class Kind(NamedTuple):
    """Collectives that should take the same time: op, ranks of the group, payload in bytes."""
    op: str
    ranks: int
    payload: int


class Syncs(NamedTuple):
    """Each collective of a trace: the number of its first event, how many ranks took part, and s that it took."""
    event: np.ndarray
    ranks: np.ndarray
    seconds: np.ndarray


def per_sync(timeline: Timeline) -> Syncs:
    """In the order of the trace, without control messages, messages between two ranks, and what was broken on
    purpose."""
    trace = timeline.trace
    chosen = (~trace.where(plane="control") & ~trace.events["broken"] & ~np.isin(trace.words("op"), MESSAGES))
    syncs = int(timeline.sync.max(initial=-1)) + 1
    moving = np.where(waits_for(trace) == NOBODY, 0, timeline.moving)
    slowest, ranks, first = np.zeros(syncs, np.int64), np.zeros(syncs, np.int64), np.full(syncs, -1)
    np.maximum.at(slowest, timeline.sync[chosen], moving[chosen])
    np.add.at(ranks, timeline.sync[chosen], 1)
    numbers = np.flatnonzero(chosen)[::-1]
    first[timeline.sync[numbers]] = numbers                # the last assignment stays: the first event
    there = first >= 0
    return Syncs(first[there], ranks[there], slowest[there] / 1e9)


def durations(trace: Trace) -> dict[Kind, np.ndarray]:
    """Seconds of each collective, in the order of the trace, by kind."""
    op, payload = trace.words("op"), trace.events["payload"]
    found: dict[Kind, list[float]] = {}
    for event, ranks, seconds in zip(*(column.tolist() for column in per_sync(Timeline.of(trace))), strict=True):
        found.setdefault(Kind(op[event], ranks, int(payload[event])), []).append(seconds)
    return {kind: np.array(times) for kind, times in found.items()}
