"""The calls that ranks were in when a run failed, as sync points without an end: the gate that never lets go.

Nothing is known of such a call but what its ranks asked for. Its states and its reason are those of the same call of
another pass or layer, where one ended; else those that its op has always.
"""
from functools import partial
from math import prod
from typing import Any

import numpy as np

from minitp.comm.states import TRANSITIONS
from minitp.trace.columns import LARGEST
from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES, Event, Unfinished
from minitp.trace.timeline import Timeline, codes
from minitp.trace.wording import kind_of_site

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}


def with_unfinished(timeline: Timeline) -> Timeline:
    """The same with the calls that never ended as events too, behind all others. Where a call ended on no rank, those
    in it wait until nobody looked any more.

    Ranks that met in one place for different things, as only a broken program does, are in two syncs there.
    """
    trace, rows = timeline.trace, timeline.trace.unfinished_rows()
    if not rows:
        return timeline
    lost = Trace.of(map(partial(_event, _examples(trace)), rows), run={"ranks": trace.run["ranks"]})
    both = Trace.join([trace, lost], trace.run, trace.clock)
    made, events = Timeline.of(both), both.events
    taken = events["leave"] - events["enter"]
    ended = np.zeros(int(made.sync.max()) + 1, bool)
    ended[made.sync[:len(trace)]] = True
    waiting = np.where(ended[made.sync], made.waiting, taken)
    message = np.isin(both.words("op"), MESSAGES)
    what = (np.where(message, -1, events[name]) for name in ("op", "site"))
    return Timeline(both, waiting, taken - waiting, codes(made.sync, *what))


def _examples(trace: Trace) -> dict[tuple[str, str], Event]:
    """An event for each op and kind of site."""
    _, first = np.unique(codes(trace.events["op"], trace.events["site"]), return_index=True)
    events = [trace.event(number) for number in first.tolist()]
    return {(event.op, kind_of_site(event.site)): event for event in events if not event.broken}


def _event(known: dict[tuple[str, str], Event], call: Unfinished) -> Event:
    like = known.get((call.op, kind_of_site(call.site)))
    before, after = TRANSITIONS.get(call.op, ("", "")) if like is None else (like.before, like.after)
    said: dict[str, Any] = {name: getattr(call, name) for name in Unfinished._fields}
    return Event(
        **said, plane="sample" if like is not None and like.plane == "sample" else "data", chunk=None,
        reason="" if like is None else like.reason, draft=None, before=before, after=after,
        payload=min(prod(call.shape) * _BYTES.get(call.dtype, 0), LARGEST), start=None, wait=None, complete=None,
        wire=None, broken=False, caller="" if like is None else like.caller)
