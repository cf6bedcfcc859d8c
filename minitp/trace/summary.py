"""A trace in numbers: how often the ranks met, what moved, and how their time was spent.

Counts and payloads are those of one rank (where ranks differ, of the rank with most): a sync point is one event in the
life of a rank, and its payload the same number on all. Times are added over ranks. What a rank computes is counted with
the sync that it leads to.
"""
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitp.errors import ConfigError
from minitp.trace.file import Trace
from minitp.trace.passes import PassNumbers
from minitp.trace.schema import CHECK, MESSAGES
from minitp.trace.timeline import Span, Spent, Sync, Timeline, codes
from minitp.trace.wording import STEP, kind_of_site, plain

BY = ("phase", "token", "step", "site", "reason", "op", "rank")
TAIL = "(after the last sync)"
NO_PHASE = "(no phase)"


@dataclass(frozen=True)
class Row(Spent):
    """One line of a summary; times in whole ns."""
    key: str
    passes: int                     # in which data moved, as `minitp.trace.passes` counts them
    sync_points: int                # collectives that the mathematics needs, and that took place
    messages: int                   # between two ranks, data plane
    sample: int
    control: int
    broken: int                     # collectives that were skipped on purpose
    payload: int                    # bytes of the sync points, and of the messages sent

    @property
    def meets(self) -> int:
        """Everything but control messages."""
        return self.sync_points + self.messages + self.sample

    def to_dict(self) -> dict[str, Any]:
        """Plain data; the shares are of this row's own time."""
        whole = self.time or 1
        return vars(self) | {"computing_share": self.computing / whole, "waiting_share": self.waiting / whole,
                             "moving_share": self.moving / whole}


def summarize(timeline: Timeline, by: str = "phase", rank: int | None = None,
              phases: Iterable[str] | None = None) -> list[Row]:
    """The rows in the order in which they first occur; `by` is one of BY.

    With `rank`, of that rank alone; with `phases`, of those alone.
    `site` groups the layers and parts the ops: "layers.*.mlp.down · all_reduce". `token` is phase and step, `step` has
    all phases of a training step in one row; these count from 1, as in the run's log.
    Raises ConfigError for a `by` or a rank that isn't there.
    """
    if by not in BY:
        raise ConfigError(f"a trace can't be summed up by {by!r}; it can by {', '.join(BY)}")
    trace = timeline.trace
    if rank is not None and rank not in trace.ranks:
        raise ConfigError(f"rank {rank} is not in this trace; it holds {_listed(trace.ranks)}")
    chosen, spans = _chosen(timeline, rank, phases)
    keys = event_keys(trace, by)
    span_keys = _span_keys(spans, by, keys)
    first: dict[str, int] = {}
    for key in [*(keys[i] for i in chosen.tolist()), *span_keys]:
        first.setdefault(key, len(first))
    if by == "rank":
        first = {key: i for i, key in enumerate(sorted(first, key=lambda key: int(key.split()[1])))}
    return sums(timeline, chosen, np.array([first[keys[i]] for i in chosen], np.int64), spans,
                 [first[key] for key in span_keys], list(first))


def total(timeline: Timeline, rank: int | None = None, phases: Iterable[str] | None = None) -> Row:
    """Everything in one row; with `phases`, of those alone."""
    chosen, spans = _chosen(timeline, rank, phases)
    return sums(timeline, chosen, np.zeros(len(chosen), np.int64), spans, [0] * len(spans), ["all"])[0]


def working_phases(timeline: Timeline) -> list[str]:
    """The phases in which the model's data moved: not, say, the comparing of clocks."""
    trace = timeline.trace
    data = trace.words("plane") != "control"
    return list(dict.fromkeys(trace.words("phase")[data].tolist()))


def broken_sites(trace: Trace) -> list[str]:
    """The sites whose sync was skipped on purpose, in order, as plain words."""
    sites = trace.words("site")[np.flatnonzero(trace.events["broken"])].tolist()
    return list(dict.fromkeys(plain(site) for site in sites))


def crowded(trace: Trace) -> bool:
    """Whether some host had more ranks than cores; every view of waits must then say so."""
    per_core, cores = trace.run.get("ranks_per_core"), trace.run.get("cores")
    return isinstance(per_core, (int, float)) and per_core > 1 and type(cores) is int and 1 <= cores < 2**31


def arrivals(timeline: Timeline) -> list[Sync]:
    """Where the ranks arrive at each sync point of more than one rank, in the order of the trace; without those that
    never ended on some rank of a run that failed: who came last isn't known.

    In checked mode on MPI the ranks meet before each collective, to compare it: there they arrive, and there they wait.
    """
    trace = timeline.trace
    check = trace.words("reason") == CHECK
    sync_point = (trace.words("plane") == "data") & ~np.isin(trace.words("op"), MESSAGES) & ~trace.events["broken"]
    calls = list(zip(*(trace.events[name].tolist() for name in ("axis", "group", "sequence")), strict=True))
    lost = {call for call, op in zip(zip(*(trace.unfinished[name].tolist() for name in ("axis", "group", "sequence")),
                                         strict=True), trace.words("op", "unfinished").tolist(), strict=True)
            if op not in MESSAGES}                                 # those are counted on their own
    checked = {calls[event]: timeline.sync_of(event) for event in np.flatnonzero(check).tolist()}
    return [checked.get(calls[sync.events[0]], sync) for sync in timeline.syncs
            if len(sync.events) > 1 and sync_point[sync.events[0]] and calls[sync.events[0]] not in lost]


def stragglers(timeline: Timeline) -> dict[int, int]:
    """For each rank, at how many sync points of more than one rank it was the last to arrive."""
    counts = dict.fromkeys(timeline.trace.ranks, 0)
    for sync in arrivals(timeline):
        counts[sync.last_rank] += 1
    return counts


def as_plain(timeline: Timeline, by: Iterable[str] = BY, rank: int | None = None) -> dict[str, Any]:
    """The summary as plain data, for `minitp trace show --json`."""
    phases = working_phases(timeline)
    return {"run": timeline.trace.run, "clock": timeline.trace.clock, "events": len(timeline.trace),
            "total": total(timeline, rank, phases).to_dict(),
            "last_to_arrive": {str(r): count for r, count in stragglers(timeline).items()},
            "unfinished": [call._asdict() | {"shape": list(call.shape)} for call in timeline.trace.unfinished_rows()],
            "by": {name: [row.to_dict() for row in summarize(timeline, name, rank)] for name in by}}


# --- how the rows are made ---------------------------------------------------------------------------------------


def _chosen(timeline: Timeline, rank: int | None, phases: Iterable[str] | None) -> tuple[np.ndarray, list[Span]]:
    """The numbers of the events, and the spans, that are asked for."""
    trace, phases = timeline.trace, None if phases is None else set(phases)
    wanted = np.ones(len(trace), bool) if rank is None else trace.events["rank"] == rank
    if phases is not None:
        wanted &= np.isin(trace.events["phase"], [i for i, word in enumerate(trace.strings) if word in phases])
    spans = [span for span in timeline.spans
             if (rank is None or span.rank == rank) and (phases is None or span.phase in phases)]
    return np.flatnonzero(wanted), spans


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:20])) + (f" and {len(ranks) - 20} more" if len(ranks) > 20 else "") or "none"


def _of_step(by: str, phase: str, step: int | None) -> str:
    """The row of a phase and step, by phase, token or step."""
    if by == "phase" or step is None or step < 0:
        return phase or NO_PHASE
    if phase in STEP:
        return f"{'step' if by == 'step' else phase} {step + 1}"
    return f"{phase or NO_PHASE} {step}"


def event_keys(trace: Trace, by: str) -> list[str]:
    """The row that each event belongs to."""
    if by == "rank":
        return [f"rank {rank}" for rank in trace.events["rank"].tolist()]
    if by in ("token", "step"):
        return [_of_step(by, phase, step) for phase, step in
                zip(trace.words("phase").tolist(), trace.events["step"].tolist(), strict=True)]
    if by == "site":
        kinds = [kind_of_site(word) for word in trace.strings]
        return [f"{kinds[site]} · {trace.strings[op]}" for site, op in
                zip(trace.events["site"].tolist(), trace.events["op"].tolist(), strict=True)]
    return [word or NO_PHASE for word in trace.words(by).tolist()]


def _span_keys(spans: list[Span], by: str, event_keys: list[str]) -> list[str]:
    if by == "rank":
        return [f"rank {span.rank}" for span in spans]
    if by in ("phase", "token", "step"):
        return [_of_step(by, span.phase, span.step) for span in spans]
    return [TAIL if span.before < 0 else event_keys[span.before] for span in spans]


def sums(timeline: Timeline, chosen: np.ndarray, row_of: np.ndarray, spans: list[Span], span_rows: list[int],
         keys: list[str]) -> list[Row]:
    """The rows named `keys`: sums over the chosen events, by number, and spans; each belongs to a row."""
    trace, events = timeline.trace, {name: column[chosen] for name, column in timeline.trace.events.items()}
    ranks, rank_of = np.unique(events["rank"], return_inverse=True)
    shape = len(keys), max(len(ranks), 1)

    def of_one_rank(which: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        cell = row_of[which] * shape[1] + rank_of[which]
        table = np.bincount(cell, None if weights is None else weights[which], minlength=shape[0] * shape[1])
        return table.reshape(shape).max(axis=1)

    def over_ranks(rows: Any, weights: Any) -> np.ndarray:
        return np.bincount(np.asarray(rows, np.int64), np.asarray(weights, float), minlength=len(keys))

    op, plane = trace.words("op")[chosen], trace.words("plane")[chosen]
    broken, message = events["broken"], np.isin(op, MESSAGES)
    data = (plane == "data") & ~broken
    number = PassNumbers.of(timeline).of_event[chosen]
    passes = np.flatnonzero(number >= 0)
    one = np.unique(codes(row_of[passes], rank_of[passes], number[passes]), return_index=True)[1]
    counts = (
        of_one_rank(passes[one]),
        of_one_rank(np.flatnonzero(data & ~message)), of_one_rank(np.flatnonzero(data & message)),
        of_one_rank(np.flatnonzero(plane == "sample")), of_one_rank(np.flatnonzero(plane == "control")),
        of_one_rank(np.flatnonzero(broken)),
        of_one_rank(np.flatnonzero(data & (op != "receive")), events["payload"].astype(float)))
    times = {"computing": over_ranks(span_rows, [span.leave - span.enter for span in spans]),
             "waiting": over_ranks(row_of, timeline.waiting[chosen]),
             "moving": over_ranks(row_of, timeline.moving[chosen])}
    return [Row(key, *(int(column[i]) for column in counts), **{name: int(column[i]) for name, column in times.items()})
            for i, key in enumerate(keys)]
