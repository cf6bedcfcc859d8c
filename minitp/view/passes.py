"""The passes of a run, one per token: what each took, as computing, waiting and moving.

A pass is a (phase, step) in which the model's data moved: the prompt, then one per token; loading is one too. Times of
a pass are means over the ranks, so that they compare between runs on different numbers of ranks.
"""
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.timeline import Timeline, codes
from minitp.trace.wording import plain
from minitp.view.header import words_of


class Pass(NamedTuple):
    """One pass; begin and end in ns since the run's start, the parts in ns, means over the ranks.

    number    among the passes of the run, loading included: what `token` means in an address, on Watch as on Timeline.
              Words count the tokens from 1 (`name`)
    """
    number: int
    phase: str
    step: int | None
    word: str                       # the text that it produced, "" where there is none
    begin: int
    end: int
    sync_points: int                # of one rank: collectives of the planes data and sample
    computing: float
    waiting: float
    moving: float

    @property
    def time(self) -> float:
        return self.computing + self.waiting + self.moving

    @property
    def name(self) -> str:
        return pass_name(self.phase, self.step)


class Spans(NamedTuple):
    """The compute spans as columns."""
    rank: np.ndarray
    enter: np.ndarray
    leave: np.ndarray
    before: np.ndarray              # number of the event that it leads to, -1: its mark ends
    in_pass: np.ndarray             # number of its pass, -1 for none


@dataclass(frozen=True)
class Passes:
    """All passes of a trace, and which events and spans belong to which."""
    timeline: Timeline

    @property
    def trace(self) -> Trace:
        return self.timeline.trace

    @cached_property
    def _keys(self) -> dict[tuple[int, int], int]:
        """(phase as a number of `strings`, step or -1) → pass, in the order in which they begin."""
        events = self.trace.events
        work = np.flatnonzero(self.trace.words("plane") != "control")
        order = work[np.argsort(events["enter"][work], kind="stable")]
        phase, step = events["phase"][order], events["step"][order]
        first = np.sort(np.unique(codes(phase, step), return_index=True)[1])
        return {pair: n for n, pair in enumerate(zip(phase[first].tolist(), step[first].tolist(), strict=True))}

    @cached_property
    def of_event(self) -> np.ndarray:
        """For each event the number of its pass, -1 where none of the model's data moved."""
        events = self.trace.events
        _, one, kind = np.unique(codes(events["phase"], events["step"]), return_index=True, return_inverse=True)
        pairs = zip(events["phase"][one].tolist(), events["step"][one].tolist(), strict=True)
        return np.array([self._keys.get(pair, -1) for pair in pairs], np.int64)[kind]

    @cached_property
    def spans(self) -> Spans:
        words = {word: number for number, word in enumerate(self.trace.strings)}
        rows = self.timeline.spans
        rank, phase, step, _, _, before, enter, leave = zip(*rows, strict=True) if rows else ((),) * 8
        passes = [self._keys.get((words[word], -1 if number is None else number), -1)
                  for word, number in zip(phase, step, strict=True)]
        columns = (np.array(column, np.int64) for column in (rank, enter, leave, before, passes))
        return Spans(*columns)

    @cached_property
    def rows(self) -> list[Pass]:
        n, events = len(self._keys), self.trace.events
        ranks = max(len(self.trace.ranks), 1)
        inside = self.of_event >= 0

        def added(at: np.ndarray, amounts: np.ndarray) -> np.ndarray:
            return np.bincount(at[at >= 0], amounts[at >= 0], minlength=n) / ranks

        spans, numbers = self.spans, self.of_event
        begin, end = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
        for at, enter, leave in ((numbers[inside], events["enter"][inside], events["leave"][inside]),
                                 (spans.in_pass[spans.in_pass >= 0], spans.enter[spans.in_pass >= 0],
                                  spans.leave[spans.in_pass >= 0])):
            np.minimum.at(begin, at, enter)
            np.maximum.at(end, at, leave)
        parts = (added(spans.in_pass, spans.leave - spans.enter), added(numbers, self.timeline.waiting),
                 added(numbers, self.timeline.moving))
        words = words_of(self.trace.run).pieces
        made = []
        for (phase, step), i in self._keys.items():
            name = self.trace.strings[phase]
            word = _shown(words[step]) if name in ("prefill", "decode") and 0 <= step < len(words) else ""
            made.append(Pass(i, name, None if step < 0 else step, word, int(begin[i]), int(end[i]),
                             int(self.sync_points[i]), *(float(part[i]) for part in parts)))
        return made

    @cached_property
    def sync_points(self) -> np.ndarray:
        """Per pass, how often a rank met the others (of the rank with most), control messages left out."""
        ranks, rank = np.unique(self.trace.events["rank"], return_inverse=True)
        data = (self.trace.words("plane") != "control") & (self.of_event >= 0)
        cells = np.bincount(self.of_event[data] * len(ranks) + rank[data], minlength=len(self._keys) * len(ranks))
        return cells.reshape(len(self._keys), len(ranks)).max(axis=1, initial=0)

    @cached_property
    def tokens(self) -> list[Pass]:
        """The passes but for loading."""
        return [row for row in self.rows if row.phase != "load"]


def pass_name(phase: str, step: int | None, micro_batch: int | None = None) -> str:
    """A pass by the token that it makes, counted from 1, as every page and the player say it: token 2."""
    if phase == "prefill" and step is not None:
        return "prompt → first token"
    if phase == "decode" and step is not None:
        return f"token {step + 1}"
    named = (plain(phase, 20) or "run") + ("" if micro_batch is None else f" of micro-batch {micro_batch + 1}")
    return named if step is None else f"step {step + 1}, {named}"


def _shown(word: str) -> str:
    """A token's text on one line, with what can't be seen made visible."""
    return plain(word.replace("\n", "⏎"), 24) or "␣" * bool(word)
