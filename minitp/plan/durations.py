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


def durations(trace: Trace, steps: range | None = None) -> dict[Kind, np.ndarray]:
    """Seconds of each collective, in the order of the trace, by kind; `steps`: of these alone.

    Left out are control messages, messages between two ranks, and what was broken on purpose.
    """
    timeline, events = Timeline.of(trace), trace.events
    op = trace.words("op")
    chosen = (trace.words("plane") != "control") & ~events["broken"] & ~np.isin(op, MESSAGES)
    if steps is not None:
        chosen &= (events["step"] >= steps.start) & (events["step"] < steps.stop)
    syncs = int(timeline.sync.max(initial=-1)) + 1
    moving = np.where(waits_for(trace) == NOBODY, 0, timeline.moving)
    slowest, ranks, first = np.zeros(syncs, np.int64), np.zeros(syncs, np.int64), np.full(syncs, -1)
    np.maximum.at(slowest, timeline.sync[chosen], moving[chosen])
    np.add.at(ranks, timeline.sync[chosen], 1)
    numbers = np.flatnonzero(chosen)[::-1]
    first[timeline.sync[numbers]] = numbers
    found: dict[Kind, list[int]] = {}
    for sync in np.flatnonzero(first >= 0).tolist():
        event = int(first[sync])
        found.setdefault(Kind(op[event], int(ranks[sync]), int(events["payload"][event])), []).append(sync)
    return {kind: slowest[numbers] / 1e9 for kind, numbers in found.items()}
