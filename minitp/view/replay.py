"""The same run on another link: its measured computing kept, its moving replaced by the model of `minitp.plan`.

An event-driven replay: a rank does its own work as it was measured, arrives, and leaves when what it waits for is there
and the modeled time has passed; so arrivals and waits follow from the link. Collectives find their time in
`minitp.plan.collectives.best`. Control messages are left out, and so is loading. What comes out is a model, never
measured, and no place of minitp puts the two into one column.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.collectives import MODELS, best
from minitp.plan.links import LINKS, Link
from minitp.trace.timeline import LAST, ROOT, is_root, waits_for
from minitp.trace.wording import count, duration, plain
from minitp.view.passes import Pass, Passes

MOST_RANKS = 64                    # of the curve over ranks


@dataclass(frozen=True)
class Replay:
    """What the model gives: one entry per token, ns, means over the ranks; `computing` is the measured one.

    end     (tokens,) when the last rank leaves the token's last sync, ns after the first token began
    enter, ready, leave   per replayed event, on the same clock; `event` is its number in the trace
    """
    link: Link
    tokens: list[Pass]
    waiting: np.ndarray
    moving: np.ndarray
    end: np.ndarray
    event: np.ndarray
    enter: np.ndarray
    ready: np.ndarray
    leave: np.ndarray

    @property
    def computing(self) -> np.ndarray:
        return np.array([row.computing for row in self.tokens])


def can_replay(passes: Passes) -> str:
    """Why this run can't be replayed, in words; "" where it can."""
    trace, chosen = passes.trace, _chosen(passes)
    if not len(chosen):
        return "This run has no passes with collectives in them: there is nothing to replay."
    unknown = [op for op in dict.fromkeys(trace.words("op")[chosen].tolist()) if op not in MODELS]
    if unknown:
        return (f"This run's passes hold {plain(', '.join(unknown), 60)}; the model knows what collectives cost "
                f"({', '.join(MODELS)}), so this run is shown as measured only.")
    return ""


def replay(passes: Passes, link: Link) -> Replay:
    """The tokens of the run with every collective taking the modeled time. ConfigError where `can_replay` objects."""
    why = can_replay(passes)
    if why:
        raise ConfigError(why)
    trace, chosen = passes.trace, _chosen(passes)
    own, rank, sync = _own_work(passes, chosen), trace.events["rank"][chosen], passes.timeline.sync[chosen]
    enter, ready, leave = _run(own, rank, sync, waits_for(trace)[chosen], is_root(trace)[chosen],
                               _costs(passes, chosen, link))
    tokens, ranks = passes.tokens, max(len(trace.ranks), 1)
    place = np.full(len(passes.rows), -1)
    place[[row.number for row in tokens]] = np.arange(len(tokens))
    token = place[passes.of_event[chosen]]
    end = np.zeros(len(tokens))
    np.maximum.at(end, token, leave)
    waiting, moving = (np.bincount(token, part, minlength=len(tokens)) / ranks
                       for part in (ready - enter, leave - ready))
    return Replay(link, tokens, waiting, moving, end, chosen, enter, ready, leave)


def _chosen(passes: Passes) -> np.ndarray:
    """The events that are replayed: all of the tokens but for control messages, rank by rank, in order of time."""
    trace, tokens = passes.trace, [row.number for row in passes.tokens]
    mine = np.flatnonzero(np.isin(passes.of_event, tokens) & (trace.words("plane") != "control"))
    return mine[np.lexsort((trace.events["enter"][mine], trace.events["rank"][mine]))]


def _own_work(passes: Passes, chosen: np.ndarray) -> np.ndarray:
    """What each rank does by itself before each chosen event, ns: all of its time that lies in no event.

    A rank begins as far behind the first one as it was measured to.
    """
    events = passes.trace.events
    start = min((row.begin for row in passes.tokens), default=0)
    order = np.lexsort((events["enter"], events["rank"]))
    rank, enter, leave = (events[name][order] for name in ("rank", "enter", "leave"))
    same = np.diff(rank, prepend=-1) == 0
    before = np.where(same, np.concatenate([[0], leave[:-1]]), start)
    gaps = np.cumsum(np.where(enter >= start, np.maximum(enter - np.maximum(before, start), 0), 0))
    done = np.empty(len(order), np.int64)
    done[order] = gaps                                             # up to each event, over all ranks before it too
    first = np.diff(events["rank"][chosen], prepend=-1) != 0
    begins = {int(r): int(gaps[i - 1]) if i else 0 for i, r in zip(np.flatnonzero(~same), rank[~same], strict=True)}
    base = np.concatenate([[0], done[chosen][:-1]])
    base[first] = [begins[r] for r in events["rank"][chosen][first].tolist()]
    return done[chosen] - base


def _costs(passes: Passes, chosen: np.ndarray, link: Link) -> np.ndarray:
    """The modeled time of each event's collective, ns."""
    trace = passes.trace
    size = np.bincount(passes.timeline.sync[chosen])[passes.timeline.sync[chosen]]
    price = cache(lambda op, ranks, payload: best(op, ranks, payload, link)[1] * 1e9)
    return np.array([price(op, ranks, payload) for op, ranks, payload in zip(
        trace.words("op")[chosen].tolist(), size.tolist(), trace.events["payload"][chosen].tolist(), strict=True)])


def _run(own: np.ndarray, rank: np.ndarray, sync: np.ndarray, rule: np.ndarray, root: np.ndarray, cost: np.ndarray
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Let the ranks go: a sync is worked out once every rank that takes part stands before it."""
    work, price, until_last, until_root = own.tolist(), cost.tolist(), (rule == LAST).tolist(), (rule == ROOT).tolist()
    members: dict[int, list[int]] = {}
    for event, number in enumerate(sync.tolist()):
        members.setdefault(number, []).append(event)
    syncs, is_first, at_root = sync.tolist(), (np.diff(rank, prepend=-1) != 0).tolist(), root.tolist()
    enter, ready, leave = ([0.0] * len(work) for _ in range(3))
    missing = {number: len(events) for number, events in members.items()}
    standing = [event for event, first in enumerate(is_first) if first]
    while standing:
        event = standing.pop()
        enter[event] = work[event] + (0.0 if is_first[event] else leave[event - 1])
        missing[syncs[event]] -= 1
        if missing[syncs[event]]:
            continue
        group = members[syncs[event]]
        last = max(enter[e] for e in group)
        given = max((enter[e] for e in group if at_root[e]), default=0.0)
        for e in group:
            ready[e] = max(enter[e], last if until_last[e] else given if until_root[e] else 0.0)
            leave[e] = ready[e] + price[e]
        standing += [e + 1 for e in group if e + 1 < len(work) and not is_first[e + 1]]
    if any(missing.values()):
        raise ConfigError("this run can't be replayed: its ranks call the same collectives in different orders")
    return np.array(enter), np.array(ready), np.array(leave)


# --- cutting further ------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A link and what a token takes on it, by the model: s for each number of ranks from 1 on; `best` of them."""
    link: Link
    seconds: list[float]
    best: int


class Cutting(NamedTuple):
    """Where cutting further stops paying: s of computing per token if it divides evenly, and a curve per link."""
    phase: str
    sync_points: int
    computing: float                # of one token, over all ranks together
    curves: list[Curve]


def cutting(passes: Passes, links: Sequence[Link] = LINKS, most: int = MOST_RANKS) -> Cutting | None:
    """What a token of this run would take on 1 … `most` ranks; None where there is nothing to go by.

    Assumed: the measured computing of all ranks together divides evenly over p ranks; syncs keep their payloads.
    """
    phase = "decode" if any(row.phase == "decode" for row in passes.tokens) else "prefill"
    tokens = [row for row in passes.tokens if row.phase == phase]
    if not tokens or can_replay(passes):
        return None
    computing = sum(row.computing for row in tokens) / len(tokens) * len(passes.trace.ranks) / 1e9
    syncs = _syncs_of(passes, tokens)
    curves = []
    for link in links:
        seconds = [computing / p + sum(n * best(op, p, payload, link)[1] for (op, payload), n in syncs.items())
                   / len(tokens) for p in range(1, most + 1)]
        curves.append(Curve(link, seconds, 1 + int(np.argmin(seconds))))
    return Cutting(phase, max(row.sync_points for row in tokens), computing, curves)


def _syncs_of(passes: Passes, tokens: list[Pass]) -> Counter[tuple[str, int]]:
    """How often each (op, payload) occurs in these tokens, each sync once."""
    trace = passes.trace
    chosen = np.isin(passes.of_event, [row.number for row in tokens])
    mine = np.flatnonzero(chosen & (trace.words("plane") != "control"))
    one = mine[np.unique(passes.timeline.sync[mine], return_index=True)[1]]
    return Counter(zip(trace.words("op")[one].tolist(), trace.events["payload"][one].tolist(), strict=True))


def cutting_lines(found: Cutting) -> list[str]:
    """The minimum of each curve in words."""
    lines = []
    for curve in found.curves:
        alone, least, last = curve.seconds[0], min(curve.seconds), len(curve.seconds)
        faster = f"{duration(least * 1e9)} a token there, {alone / least:.3g} times as fast as on 1"
        if curve.best == 1:
            said = f"it never pays: 1 rank is the quickest, with {duration(alone * 1e9)} a token"
        elif curve.best == last:
            said = f"it pays up to {count(last, 'rank')}, the most shown: {faster}"
        else:
            said = (f"it stops paying at {count(curve.best, 'rank')}: {faster}; on {count(last, 'rank')} a token would "
                    f"take {duration(curve.seconds[-1] * 1e9)}")
        lines.append(f"{curve.link.name}: {said}.")
    return lines
