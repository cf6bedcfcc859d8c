"""The same run on another link: its measured computing kept, its moving replaced by the model of `minitp.plan`.

An event-driven replay: a rank does its own work as it was measured, arrives, and leaves when what it waits for is there
and the modeled time has passed; so arrivals and waits follow from the link. Collectives find their time in
`minitp.plan.collectives.best`. Control messages are left out, and so is loading. What comes out is a model, never
measured, and no place of minitp puts the two into one column.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.collectives import MODELS, best, has_model
from minitp.plan.links import LINKS, Link
from minitp.trace.file import Trace
from minitp.trace.timeline import LAST, ROOT, codes, is_root, waits_for
from minitp.trace.wording import STEP, count, duration, plain
from minitp.view.passes import Pass, Passes

MOST_RANKS = 64                    # of the curve over ranks


@dataclass(frozen=True)
class Replay:
    """What the model gives: one entry per token, ns, means over the ranks.

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
    def passes(self) -> list[Pass]:
        """The tokens with the model's waiting and moving in place of the measured."""
        return [replace(row, waiting=waiting, moving=moving) for row, waiting, moving in
                zip(self.tokens, self.waiting.tolist(), self.moving.tolist(), strict=True)]


def can_replay(passes: Passes) -> str:
    """Why this run can't be replayed, in words; "" where it can."""
    trace, chosen = passes.trace, _chosen(passes)
    if not len(chosen):
        return "This run has no passes with collectives in them: there is nothing to replay."
    unknown = [op for op in dict.fromkeys(trace.words("op")[chosen].tolist()) if not has_model(op)]
    if unknown:
        return (f"This run's passes hold {plain(', '.join(unknown), 60)}; the model knows what collectives cost "
                f"({', '.join(MODELS)}), so this run is shown as measured only.")
    return ""


@dataclass(frozen=True)
class Script:
    """What of a run stays the same on every link; one entry per replayed event, ordered by rank and time.

    own     ns of a rank's own work before the event
    groups  the events of each sync, in an order in which they can be worked out one after the other
    kinds   the different (op, ranks, payload); kind: which of them each event is
    rule    LAST, ROOT, … as in `minitp.trace.timeline`; at_root: the event's rank is the root
    """
    passes: Passes
    event: np.ndarray
    own: np.ndarray
    first: np.ndarray               # whether it is its rank's first
    groups: list[list[int]]
    kinds: list[tuple[str, int, int]]
    kind: np.ndarray
    rule: np.ndarray
    at_root: np.ndarray

    @classmethod
    def of(cls, passes: Passes) -> "Script":
        """ConfigError where `can_replay` objects, or where ranks call the same collectives in different orders."""
        why = can_replay(passes)
        if why:
            raise ConfigError(why)
        trace, chosen = passes.trace, _chosen(passes)
        first = np.diff(trace.events["rank"][chosen], prepend=-1) != 0
        groups = _groups(passes.timeline.sync[chosen], first)
        return cls(passes, chosen, _own_work(passes, chosen), first, groups, *_kinds(trace, chosen, groups),
                   waits_for(trace)[chosen], is_root(trace)[chosen])


def replay(script: Script, link: Link) -> Replay:
    """The tokens of the run with every collective taking the modeled time."""
    passes = script.passes
    prices = np.array([best(op, ranks, payload, link)[1] * 1e9 for op, ranks, payload in script.kinds])
    enter, ready, leave = _run(script, prices[script.kind].tolist())
    tokens, ranks = passes.work, max(len(passes.trace.ranks), 1)
    place = np.full(len(passes.rows), -1)
    place[[row.number for row in tokens]] = np.arange(len(tokens))
    token = place[passes.of_event[script.event]]
    end = np.zeros(len(tokens))
    np.maximum.at(end, token, leave)
    waiting, moving = (np.bincount(token, part, minlength=len(tokens)) / ranks
                       for part in (ready - enter, leave - ready))
    return Replay(link, tokens, waiting, moving, end, script.event, enter, ready, leave)


def _chosen(passes: Passes) -> np.ndarray:
    """The events that are replayed: all of the tokens but for control messages, rank by rank, in order of time."""
    trace, tokens = passes.trace, [row.number for row in passes.work]
    mine = np.flatnonzero(np.isin(passes.of_event, tokens) & (trace.words("plane") != "control"))
    return mine[np.lexsort((trace.events["enter"][mine], trace.events["rank"][mine]))]


def _own_work(passes: Passes, chosen: np.ndarray) -> np.ndarray:
    """What each rank does by itself before each chosen event, ns: all of its time that lies in no event.

    A rank begins as far behind the first one as it was measured to.
    """
    events = passes.trace.events
    start = min(row.begin for row in passes.work)
    order = np.lexsort((events["enter"], events["rank"]))
    rank, enter, leave = (events[name][order] for name in ("rank", "enter", "leave"))
    same = np.diff(rank, prepend=-1) == 0
    before = np.maximum(np.where(same, np.concatenate([[0], leave[:-1]]), start), start)
    gaps = np.cumsum(np.where(enter >= start, np.maximum(enter - before, 0), 0))
    done = np.empty(len(order), np.int64)
    done[order] = gaps                                             # up to each event, over all ranks before it too
    owner = events["rank"][chosen]
    starts = np.flatnonzero(~same)
    base = np.concatenate([[0], done[chosen][:-1]])
    first = np.diff(owner, prepend=-1) != 0
    at = starts[np.searchsorted(rank[starts], owner[first])]       # where this rank's events begin
    base[first] = np.where(at > 0, gaps[at - 1], 0)
    return done[chosen] - base


def _groups(sync: np.ndarray, first: np.ndarray) -> list[list[int]]:
    """Let the ranks go: a sync can be worked out once every rank that takes part stands before it."""
    members: dict[int, list[int]] = {}
    for event, number in enumerate(sync.tolist()):
        members.setdefault(number, []).append(event)
    syncs, begins = sync.tolist(), [*first.tolist(), True]
    missing = {number: len(events) for number, events in members.items()}
    standing, groups = np.flatnonzero(first).tolist(), []
    while standing:
        number = syncs[standing.pop()]
        missing[number] -= 1
        if not missing[number]:
            groups.append(members[number])
            standing += [event + 1 for event in members[number] if not begins[event + 1]]
    if len(groups) < len(members):
        raise ConfigError("this run can't be replayed: its ranks call the same collectives in different orders")
    return groups


def _kinds(trace: Trace, chosen: np.ndarray, groups: list[list[int]]) -> tuple[list[tuple[str, int, int]], np.ndarray]:
    """The different (op, ranks, payload) of the chosen events, and which of them each one is."""
    ranks = np.empty(len(chosen), np.int64)
    for group in groups:
        ranks[group] = len(group)
    op, payload = (trace.events[name][chosen] for name in ("op", "payload"))
    _, one, kind = np.unique(codes(op, ranks, payload), return_index=True, return_inverse=True)
    rows = zip(*(column[one].tolist() for column in (op, ranks, payload)), strict=True)
    return [(trace.strings[word], size, load) for word, size, load in rows], kind


def _run(script: Script, price: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When each event is entered, is ready and is left, ns since the first token began."""
    work, begins = script.own.tolist(), script.first.tolist()
    until_last, until_root = (script.rule == LAST).tolist(), (script.rule == ROOT).tolist()
    at_root = script.at_root.tolist()
    enter, ready, leave = ([0.0] * len(work) for _ in range(3))
    for group in script.groups:
        last = given = 0.0
        for event in group:
            arrival = enter[event] = work[event] + (0.0 if begins[event] else leave[event - 1])
            last = arrival if arrival > last else last
            given = arrival if at_root[event] else given
        for event in group:
            there = last if until_last[event] else given if until_root[event] else 0.0
            ready[event] = there if there > enter[event] else enter[event]
            leave[event] = ready[event] + price[event]
    return np.array(enter), np.array(ready), np.array(leave)


# --- cutting further ------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """A link and what a token takes on it, by the model: s for each number of ranks from 1 on; `best` of them."""
    link: Link
    seconds: list[float]
    best: int


class Cutting(NamedTuple):
    """Where cutting further stops paying: s of computing per token if it divides evenly, and a curve per link."""
    what: str                       # decode pass, prefill pass, training step
    unit: str                       # token or step
    sync_points: int
    computing: float                # of one unit, over all ranks together
    curves: list[Curve]


_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("training step", STEP), ("decode pass", ("decode",)), ("prefill pass", ("prefill",)))


def cutting(passes: Passes, links: Sequence[Link] = LINKS, most: int = MOST_RANKS) -> Cutting | None:
    """What a token or step of this run would take on 1 … `most` ranks; None where there is nothing to go by.

    Assumed: the measured computing of all ranks together divides evenly over p ranks; syncs keep their payloads.
    """
    there = {row.phase for row in passes.work}
    what, phases = next((kind for kind in _KINDS if there.intersection(kind[1])), ("", ()))
    rows = [row for row in passes.work if row.phase in phases]
    if not rows or can_replay(passes):
        return None
    n = len({row.step for row in rows}) if phases == STEP else len(rows)
    computing = sum(row.computing for row in rows) / n * len(passes.trace.ranks) / 1e9
    if not computing:                          # a trace without marks, say
        return None
    syncs = _syncs_of(passes, rows)
    curves = []
    for link in links:
        seconds = [computing / p + sum(n * best(op, p, payload, link)[1] for (op, payload), n in syncs.items())
                   / n for p in range(1, most + 1)]
        curves.append(Curve(link, seconds, 1 + int(np.argmin(seconds))))
    met = sum(row.sync_points for row in rows) // n if phases == STEP else max(row.sync_points for row in rows)
    return Cutting(what, "step" if phases == STEP else "token", met, computing, curves)


def _syncs_of(passes: Passes, rows: list[Pass]) -> Counter[tuple[str, int]]:
    """How often each (op, payload) occurs in these passes, each sync once."""
    trace = passes.trace
    chosen = np.isin(passes.of_event, [row.number for row in rows])
    mine = np.flatnonzero(chosen & (trace.words("plane") != "control"))
    one = mine[np.unique(passes.timeline.sync[mine], return_index=True)[1]]
    return Counter(zip(trace.words("op")[one].tolist(), trace.events["payload"][one].tolist(), strict=True))


def cutting_lines(found: Cutting) -> list[str]:
    """The minimum of each curve in words."""
    lines = []
    for curve in found.curves:
        alone, least, last = curve.seconds[0], min(curve.seconds), len(curve.seconds)
        faster = f"{duration(least * 1e9)} a {found.unit} there, {alone / least:.3g} times as fast as on 1"
        if curve.best == 1:
            said = f"it never pays: 1 rank is the quickest, with {duration(alone * 1e9)} a {found.unit}"
        elif curve.best == last:
            said = f"it pays up to {count(last, 'rank')}, the most shown: {faster}"
        else:
            said = (f"it stops paying at {count(curve.best, 'rank')}: {faster}; on {count(last, 'rank')} a "
                    f"{found.unit} would take {duration(curve.seconds[-1] * 1e9)}")
        lines.append(f"{curve.link.name}: {said}.")
    return lines
