"""What a simulation gives: the trace of the ranks that are shown, and where the time of all devices went."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from minitp.plan.simulate.engine import Times
from minitp.plan.simulate.planned import Planned
from minitp.trace.file import Trace


@dataclass(frozen=True)
class Share:
    """Seconds of a simulated run, the mean over all devices: by what it is, and on which axis of the mesh."""
    what: str                       # computing, moving, waiting
    axis: str                       # "": on none; waiting then is for the others to end


@dataclass(frozen=True)
class Simulation:
    """A simulated run. `shares`: mean seconds of a device; they add up to `seconds`.

    run         the header of its trace; `make`: the trace, which may be too large to be written (ConfigError)
    what        a training step, a generation, a replay
    seconds     from the first rank's begin to the last one's end
    simulated   how many ranks were simulated one by one, for `devices` of them; `events`: of those
    planned     what the planner's formulas say of the same; None of a replay
    """
    run: dict[str, Any]
    make: Callable[[], Trace] = field(repr=False)
    what: str
    seconds: float
    shares: dict[Share, float]
    simulated: int
    devices: int
    events: int
    planned: Planned | None = None

    @cached_property
    def trace(self) -> Trace:
        """Of the ranks that are shown; made when it is asked for."""
        return self.make()

    def to_plain(self) -> dict[str, Any]:
        return {"of": self.what, "seconds": self.seconds, "devices": self.devices, "simulated ranks": self.simulated,
                "events": self.events, "header": self.run["simulated"],
                "planned": None if self.planned is None else self.planned.to_plain(),
                "shares": [{**vars(share), "seconds": seconds} for share, seconds in self.shares.items()]}


def shares(times: Times, first: Sequence[int], axis: Sequence[str], weight: Sequence[float], tails: Sequence[float],
           end: float) -> dict[Share, float]:
    """Where the time went. `first`: the number of each lane's first event, and one more; `axis` of each event.

    weight  of each lane, 1 together      tails  ns of each lane's own work after its last event      end  ns
    """
    begin = np.concatenate([[0.0], times.leave[:-1]])
    begin[list(first[:-1])] = 0.0
    each = np.repeat(np.array(weight), np.diff(first)) / 1e9
    whole = np.array(weight) / 1e9
    rest = end - np.array([times.leave[last - 1] for last in first[1:]]) - np.array(tails)
    found = {Share("computing", ""): float(((times.enter - begin) * each).sum() + (np.array(tails) * whole).sum())}
    names = np.array(axis, object)
    for name in dict.fromkeys(axis):
        mine = names == name
        found[Share("moving", name)] = float(((times.leave - times.ready) * each)[mine].sum())
        found[Share("waiting", name)] = float(((times.ready - times.enter) * each)[mine].sum())
    found[Share("waiting", "")] = float((rest * whole).sum())
    return {share: seconds for share, seconds in found.items() if seconds > 1e-12 or share.what == "computing"}
