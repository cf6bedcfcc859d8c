"""The passes of a run: what each took, as computing, waiting and moving.

The prompt, then one per token; in training forward, backward and optimizer; loading is one too (`minitp.trace.passes`).
Times of a pass are means over the ranks, so that they compare between runs on different numbers of ranks.
"""
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.passes import PassNumbers
from minitp.trace.timeline import Spent, Timeline
from minitp.trace.wording import plain
from minitp.view.header import words_of


@dataclass(frozen=True)
class Pass(Spent):
    """One pass: begin and end in ns since the run's start, and how its time was spent, means over the ranks.

    number    among the passes of the run, loading included: what `token` means in an address, on Watch as on Timeline.
              Words count tokens, steps and micro-batches from 1 (`name`)
    """
    number: int
    phase: str
    step: int | None
    micro_batch: int | None         # None too where no step of the run has more than one
    word: str                       # the text that it produced, "" where there is none
    begin: int
    end: int
    sync_points: int                # of one rank: collectives of the planes data and sample

    @property
    def name(self) -> str:
        return pass_name(self.phase, self.step, self.micro_batch)


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
    def numbers(self) -> PassNumbers:
        return PassNumbers.of(self.timeline)

    @property
    def of_event(self) -> np.ndarray:
        """For each event the number of its pass, -1 where none of the model's data moved."""
        return self.numbers.of_event

    @cached_property
    def spans(self) -> Spans:
        words = {word: number for number, word in enumerate(self.trace.strings)}
        rows = [(rank, enter, leave, before, words[phase], -1 if step is None else step,
                 -1 if micro_batch is None else micro_batch)
                for rank, phase, step, micro_batch, _, before, enter, leave in self.timeline.spans]
        rank, enter, leave, before, *key = np.array(rows, np.int64).reshape(-1, 7).T
        return Spans(rank, enter, leave, before, self.numbers.owner(key[0], key[1], key[2], leave))

    @cached_property
    def unfinished(self) -> np.ndarray:
        """For each unfinished call the number of its pass, -1 where nothing of that pass has ended."""
        lost = self.trace.unfinished
        return self.numbers.owner(lost["phase"], lost["step"], lost["micro_batch"], lost["leave"])

    @cached_property
    def cut_off(self) -> np.ndarray:
        """Which of the compute spans lie in a pass of which nothing but unfinished calls is known."""
        lost = {(call.phase, call.step, call.micro_batch) for call, number in
                zip(self.trace.unfinished_rows(), self.unfinished.tolist(), strict=True) if number < 0}
        if not lost:                   # most runs: they have many spans to look through
            return np.zeros(len(self.spans.in_pass), bool)
        return np.array([(span.phase, span.step, span.micro_batch) in lost for span in self.timeline.spans], bool) & (
            self.spans.in_pass < 0)

    @cached_property
    def rows(self) -> list[Pass]:
        passes, n, events = self.numbers, len(self.numbers), self.trace.events
        ranks = max(len(self.trace.ranks), 1)
        inside = self.of_event >= 0

        def added(at: np.ndarray, amounts: np.ndarray) -> list[float]:
            return (np.bincount(at[at >= 0], amounts[at >= 0], minlength=n) / ranks).tolist()

        spans, numbers = self.spans, self.of_event
        begin, end = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
        for at, enter, leave in ((numbers[inside], events["enter"][inside], events["leave"][inside]),
                                 (spans.in_pass[spans.in_pass >= 0], spans.enter[spans.in_pass >= 0],
                                  spans.leave[spans.in_pass >= 0])):
            np.minimum.at(begin, at, enter)
            np.maximum.at(end, at, leave)
        phases = [self.trace.strings[phase] for phase in passes.phase.tolist()]
        one_batch = passes.micro_batch.max(initial=0) == 0
        steps, micro_batches = ([None if number < 0 else number for number in column.tolist()]
                                for column in (passes.step, np.where(one_batch, -1, passes.micro_batch)))
        columns = zip(range(n), phases, steps, micro_batches, self._words(phases, steps), begin.tolist(), end.tolist(),
                      self.sync_points.tolist(), strict=True)
        spent = zip(added(spans.in_pass, spans.leave - spans.enter), added(numbers, self.timeline.waiting),
                    added(numbers, self.timeline.moving), strict=True)
        return [Pass(*column, computing=computing, waiting=waiting, moving=moving)
                for column, (computing, waiting, moving) in zip(columns, spent, strict=True)]

    def _words(self, phases: list[str], steps: list[int | None]) -> list[str]:
        """The text that each pass made, as the run's header has it."""
        words = words_of(self.trace.run).pieces
        return [_shown(words[step]) if phase in ("prefill", "decode") and step is not None and step < len(words) else ""
                for phase, step in zip(phases, steps, strict=True)]

    @cached_property
    def sync_points(self) -> np.ndarray:
        """Per pass, how often a rank met the others (of the rank with most), control messages left out."""
        ranks, rank = np.unique(self.trace.events["rank"], return_inverse=True)
        data, n = self.of_event >= 0, len(self.numbers)
        cells = np.bincount(self.of_event[data] * len(ranks) + rank[data], minlength=n * len(ranks))
        return cells.reshape(n, len(ranks)).max(axis=1, initial=0)

    @property
    def unit(self) -> str:
        """What a pass is to a reader: of a generation a token."""
        return "token" if all(row.phase in ("prefill", "decode") for row in self.work) else "pass"

    @cached_property
    def work(self) -> list[Pass]:
        """The passes but for loading."""
        return [row for row in self.rows if row.phase != "load"]


def pass_name(phase: str, step: int | None, micro_batch: int | None = None) -> str:
    """A pass as every page and the player say it: by the token that it makes (token 2), or by its place in training
    (step 2, forward of micro-batch 1); counted from 1."""
    if phase == "prefill" and step is not None:
        return "prompt → first token"
    if phase == "decode" and step is not None:
        return f"token {step + 1}"
    if phase == "evaluate" and step is not None:
        return f"evaluation after step {step}" + ("" if micro_batch is None else f", batch {micro_batch + 1}")
    named = (plain(phase, 20) or "run") + ("" if micro_batch is None else f" of micro-batch {micro_batch + 1}")
    return named if step is None else f"step {step + 1}, {named}"


def _shown(word: str) -> str:
    """A token's text on one line, with what can't be seen made visible."""
    return plain(word.replace("\n", "⏎"), 24) or "␣" * bool(word)
