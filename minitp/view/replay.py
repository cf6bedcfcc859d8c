"""The same run on another link: its measured computing kept, its moving replaced by the model of `minitp.plan`.

The replay is that of `minitp.plan.simulate.engine`: a rank does its own work as it was measured, arrives, and leaves
when what it waits for is there and the modeled time has passed; so arrivals and waits follow from the link. Collectives
find their time in `plan.network.collectives.best`, messages are the link's α + nβ. Control messages are left out, and
so is loading. What comes out is a model, never measured, and no place of minitp puts the two into one column.
"""
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.links import LINKS, Link
from minitp.plan.network.collectives import MODELS, best, has_model
from minitp.plan.simulate.engine import run
from minitp.plan.simulate.script import Script as EventScript
from minitp.plan.simulate.script import of_passes
from minitp.trace.failed import is_failed, no_whole_run
from minitp.trace.schema import MESSAGES
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
    trace, chosen = passes.trace, of_passes(passes.trace)
    if is_failed(trace.run):
        return f"{no_whole_run('replay').capitalize()}."
    if not len(chosen):
        return "This run has no passes with collectives in them: there is nothing to replay."
    unknown = [op for op in dict.fromkeys(trace.words("op")[chosen].tolist())
               if op not in MESSAGES and not has_model(op)]
    if unknown:
        return (f"This run's passes hold {plain(', '.join(unknown), 60)}; the model knows what collectives cost "
                f"({', '.join(MODELS)}), so this run is shown as measured only.")
    return ""


@dataclass(frozen=True)
class Script:
    """What of a run stays the same on every link: see `minitp.plan.simulate.script`."""
    passes: Passes
    events: EventScript

    @classmethod
    def of(cls, passes: Passes) -> "Script":
        """ConfigError where `can_replay` objects."""
        why = can_replay(passes)
        if why:
            raise ConfigError(why)
        return cls(passes, EventScript.of(passes.timeline))


def replay(script: Script, link: Link) -> Replay:
    """The tokens of the run with every sync taking the modeled time.

    ConfigError where ranks call the same collectives in different orders.
    """
    passes, event = script.passes, script.events.event
    prices = np.array([0.0 if kind.broken else link.seconds(kind.payload) if kind.op == "send" else
                       best(kind.op, kind.size, kind.payload, link)[1] for kind in script.events.kinds])
    enter, ready, leave = run(script.events.program(prices * 1e9))
    tokens, ranks = passes.work, max(len(passes.trace.ranks), 1)
    place = np.full(len(passes.rows), -1)
    place[[row.number for row in tokens]] = np.arange(len(tokens))
    token = place[passes.of_event[event]]
    end = np.zeros(len(tokens))
    np.maximum.at(end, token, leave)
    waiting, moving = (np.bincount(token, part, minlength=len(tokens)) / ranks
                       for part in (ready - enter, leave - ready))
    return Replay(link, tokens, waiting, moving, end, event, enter, ready, leave)


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
    if not rows or can_replay(passes) or np.isin(passes.trace.words("op")[of_passes(passes.trace)], MESSAGES).any():
        return None                            # messages belong to other cuts than that over p ranks
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
