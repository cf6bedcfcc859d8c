"""The Ledger page's numbers: what the closed form foretells and what was recorded, side by side.

Recorded are the events of the planes data and sample, counted on every rank by itself; control messages, the program's
own, are listed apart, and so are events at which a fault was injected.
"""
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from minitp.errors import FileFormatError
from minitp.trace.check import compare, reached
from minitp.trace.export import chrome, csv
from minitp.trace.failed import is_failed, left_out_line
from minitp.trace.file import Trace
from minitp.trace.predict import Plan, TrainingPlan, forward_pass, plan_from_run, predict
from minitp.trace.schema import Expected
from minitp.trace.summary import Row, summarize, sums, total, working_phases
from minitp.trace.timeline import Timeline, codes
from minitp.trace.wording import count, kind_of_site, plain, share
from minitp.view.bill import Item, Met, bill, came_to_words, in_words
from minitp.view.passes import Passes

MOST_ROWS = 2_000                  # that a table on a page shows
MOST_SITES = 24                    # that a chart shows


class Line(NamedTuple):
    """One kind of collective. Recorded are the least and most of any rank; predicted is None without a closed form."""
    phase: str
    site: str
    op: str
    plane: str
    predicted: int | None
    recorded: tuple[int, int]
    predicted_bytes: int | None
    recorded_bytes: tuple[int, int]
    cut_off: bool = False

    @property
    def same(self) -> bool | None:
        """Whether every rank recorded exactly what was predicted; None where nothing could be, or where a run that
        failed is cut off before it."""
        if self.predicted is None:
            return None
        same = (self.recorded == (self.predicted, self.predicted)
                and self.recorded_bytes == (self.predicted_bytes, self.predicted_bytes))
        return None if self.cut_off and not same and self.recorded[1] <= self.predicted else same


@dataclass(frozen=True)
class Ledger:
    """lines: predicted and recorded; silent: why there is no prediction, "" where there is one; differences: in
    sentences, also of order, shape, dtype and states; control and broken: counted apart."""
    timeline: Timeline
    plan: Plan | None
    silent: str
    lines: list[Line]
    differences: list[str]
    control: list["Apart"]
    broken: list["Apart"]

    @classmethod
    def of(cls, timeline: Timeline) -> "Ledger":
        trace = timeline.trace
        plan, events, silent, differences = None, [], "", []
        try:
            plan = plan_from_run(trace.run)
            events = predict(plan)
            differences = compare(trace, events, cut_off=is_failed(trace.run))
        except FileFormatError as error:
            silent = plain(error, 400)
        return cls(timeline, plan, silent, _lines(trace, None if silent else events), differences,
                   _apart(timeline, trace.words("plane") == "control"), _apart(timeline, trace.events["broken"]))

    @property
    def verdict(self) -> str:
        """One sentence: does the run hold exactly what was foretold?"""
        if self.silent:
            return "The closed form can't speak about this trace, so what was recorded stands alone."
        events, ranks = sum(line.predicted or 0 for line in self.lines), self.timeline.trace.run["ranks"]
        if not self.differences and self.failed:
            return self._of_beginning(events)
        if not self.differences:
            return (f"Predicted = recorded: all {count(events, 'event')} of each of {count(ranks, 'rank')}, in order, "
                    "with shape, dtype, states and bytes.")
        found = len(self.differences) - (self.differences[-1] == "and more")
        more = "more than " if self.differences[-1] == "and more" else ""
        what = "What this run recorded until it failed" if self.failed else "This run"
        return f"{what} is not what the closed form says: {more}{count(found, 'difference')}."

    @property
    def failed(self) -> bool:
        return is_failed(self.timeline.trace.run)

    def _of_beginning(self, predicted: int) -> str:
        """The verdict on a run that failed, where all that ended was foretold."""
        trace = self.timeline.trace
        few, many, beyond = reached(trace, predicted)
        return (f"{f'{few:,} to ' * (few < many)}{many:,} of {count(predicted, 'event')} had ended on each of "
                f"{count(trace.run['ranks'], 'rank')} when the run failed. These are as the closed form says, in "
                "order, with shape, dtype, states and bytes."
                + (f" {beyond:,} more are of a pass that the header doesn't tell of." if beyond else ""))

    @property
    def formula(self) -> str:
        """2L + 2 of this very model, or what a training step meets at, in words; "" without a closed form or passes."""
        if isinstance(self.plan, TrainingPlan):
            return in_words(self.plan, self.failed)
        if self.plan is None or not self.plan.passes:
            return ""
        each = list(forward_pass(self.plan, "decode", 0, 1))
        layers, passes = self.plan.placement.config.layers, len(self.plan.passes)
        inside = [event for event in each if event.site.startswith("layers.")]
        sites = Counter(kind_of_site(event.site) for event in inside)
        outside = [f"1 for the {'logits' if event.site == 'head' else event.site}" for event in each
                   if event not in inside]
        per_layer, spare = len(sites), len(each) - len(inside)
        general = f"{per_layer if per_layer > 1 else ''}L + {spare}"
        names = ", ".join(site.removeprefix("layers.*.") for site in sites)
        exchange = ("" if self.plan.gathered else " The logits stay cut: each token chosen adds one exchange of the "
                    "ranks' best, counted as a sample.")
        made, skipped = len(each) * passes, sum(row.times for row in self.broken)
        broken = f", {skipped:,} of them skipped on purpose" if skipped else ""
        came_to = came_to_words(count(passes, "pass"), count(made, "sync point"), self.failed)
        return (f"{general} = {per_layer} × {layers} + {spare} = {len(each)} sync points per pass: {per_layer} in each "
                f"of {count(layers, 'layer')} ({names}), {' and '.join(outside)}. A prompt and a single token meet "
                f"equally often; the prompt carries more bytes. {came_to}{broken}.{exchange}")

    @property
    def bill(self) -> list[Item]:
        """Of a training step; empty for other runs."""
        return bill(self.plan, (Met(line.phase, line.site, line.recorded, line.recorded_bytes) for line in self.lines))

    @cached_property
    def waiting(self) -> str:
        """The share of waiting in words, loading apart."""
        phases = [phase for phase in working_phases(self.timeline) if phase != "load"]
        row = total(self.timeline, None, phases)
        if not row.time:
            return "There is no time in passes: none had begun."
        left_out = left_out_line(self.timeline.trace)
        return (f"{share(row.waiting, row.time)} of the ranks' time in the passes was waiting for another rank, "
                f"{share(row.moving, row.time)} moving data, {share(row.computing, row.time)} computing."
                f"{f' {left_out}' if left_out else ''}")

    @cached_property
    def per_phase(self) -> list[Row]:
        return summarize(self.timeline, "phase", phases=working_phases(self.timeline))

    @cached_property
    def per_pass(self) -> tuple[list[Row], str]:
        """At most MOST_ROWS rows, with a note where there are more."""
        passes = Passes(self.timeline)
        chosen, inside = (np.flatnonzero(numbers >= 0) for numbers in (passes.of_event, passes.spans.in_pass))
        rows = sums(self.timeline, chosen, passes.of_event[chosen], [self.timeline.spans[i] for i in inside.tolist()],
                    passes.spans.in_pass[inside].tolist(), [row.name for row in passes.rows])
        if len(rows) <= MOST_ROWS:
            return rows, ""
        return rows[:MOST_ROWS], f"The first {MOST_ROWS:,} of {len(rows):,} passes; the trace has all of them."

    @cached_property
    def per_site(self) -> tuple[list[Row], str]:
        """The kinds of sites where most of the time goes, loading apart; at most MOST_SITES, with a note."""
        phases = [phase for phase in working_phases(self.timeline) if phase != "load"]
        rows = [row for row in summarize(self.timeline, "site", phases=phases) if row.time]
        longest = sorted(rows, key=lambda row: -row.time)[:MOST_SITES]
        note = f"The {MOST_SITES} of {len(rows):,} kinds of sites that take longest." if len(rows) > MOST_SITES else ""
        return longest, note


class Apart(NamedTuple):
    """Events that are no sync points of the model, or broken ones, by site, op and reason; `times` on one rank."""
    site: str
    op: str
    reason: str
    times: int
    payload: int
    time: int                       # ns, over all ranks


# --- downloads ------------------------------------------------------------------------------------------------------


def chrome_file(trace: Trace) -> bytes:
    """For Perfetto and chrome://tracing, gzipped, which both open."""
    return gzip.compress(json.dumps(chrome(trace)).encode(), 6, mtime=0)


def csv_file(trace: Trace) -> bytes:
    text = io.StringIO(newline="")
    csv(trace, text)
    return text.getvalue().encode("utf-8", "backslashreplace")


# --- counting -----------------------------------------------------------------------------------------------------

_Key = tuple[str, str, str, str]


def _lines(trace: Trace, predicted: Iterable[Expected] | None) -> list[Line]:
    recorded = _recorded(trace)
    times, payload = Counter[_Key](), Counter[_Key]()
    for event in predicted or ():
        key = (event.phase, kind_of_site(event.site), event.op, event.plane)
        times[key] += 1
        payload[key] += event.payload
    lines = []
    for key in dict.fromkeys([*times, *recorded]):
        counts, sizes = recorded.get(key, ((0, 0), (0, 0)))
        known = predicted is not None
        lines.append(Line(*key, times[key] if known else None, counts, payload[key] if known else None, sizes,
                          is_failed(trace.run)))
    return lines[:MOST_ROWS]


def _recorded(trace: Trace) -> dict[_Key, tuple[tuple[int, int], tuple[int, int]]]:
    """(phase, kind of site, op, plane) → least and most of any rank: how often, and bytes together."""
    events = trace.events
    mine = np.flatnonzero(trace.words("plane") != "control")
    kinds = {word: number for number, word in enumerate(dict.fromkeys(map(kind_of_site, trace.strings)))}
    kind = np.array([kinds[kind_of_site(word)] for word in trace.strings], np.int64)[events["site"][mine]]
    phase, op, plane = (events[name][mine] for name in ("phase", "op", "plane"))
    _, first, row = np.unique(codes(phase, kind, op, plane), return_index=True, return_inverse=True)
    present = np.unique(events["rank"][mine])
    rank = np.searchsorted(present, events["rank"][mine])
    shape = len(first), max(len(present), 1)
    cell = row * shape[1] + rank
    times, sizes = (np.bincount(cell, weights, minlength=shape[0] * shape[1]).reshape(shape)
                    for weights in (None, events["payload"][mine].astype(float)))
    names, found = list(kinds), {}
    silent = is_failed(trace.run) and len(present) < trace.run["ranks"]      # it would have come to it, and hasn't
    for i in np.argsort(first).tolist():
        at = first[i]
        key = (trace.strings[phase[at]], names[kind[at]], trace.strings[op[at]], trace.strings[plane[at]])
        found[key] = _least_and_most(times[i], silent), _least_and_most(sizes[i], silent)
    return found


def _least_and_most(of_ranks: np.ndarray, silent: bool) -> tuple[int, int]:
    return 0 if silent else int(of_ranks.min()), int(of_ranks.max())


def _apart(timeline: Timeline, chosen: np.ndarray) -> list[Apart]:
    """Times and bytes are of the rank with most."""
    trace, mine = timeline.trace, np.flatnonzero(chosen)
    words = zip(*(trace.words(name)[mine].tolist() for name in ("site", "op", "reason")), strict=True)
    keys = [(kind_of_site(site), op, reason) for site, op, reason in words]
    ranks, payloads = (trace.events[name][mine].tolist() for name in ("rank", "payload"))
    spent = (trace.events["leave"] - trace.events["enter"])[mine].tolist()
    times, sizes, time = Counter[tuple](), Counter[tuple](), Counter[tuple]()
    for key, rank, payload, ns in zip(keys, ranks, payloads, spent, strict=True):
        times[key, rank] += 1
        sizes[key, rank] += payload
        time[key] += ns
    most, largest = Counter[tuple](), Counter[tuple]()
    for (key, rank), n in times.items():
        most[key] = max(most[key], n)
        largest[key] = max(largest[key], sizes[key, rank])
    return [Apart(site, op, reason, n, largest[site, op, reason], time[site, op, reason])
            for (site, op, reason), n in list(most.items())[:MOST_ROWS]]
