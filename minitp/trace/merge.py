"""From one recording per rank to one trace: clocks compared, rows gathered, times put on one clock.

    align_clocks(comm)                                    # when the run starts, on every rank
    info = run_info(comm, model=config.to_dict(), …)
    …                                                     # the run
    trace = collect(comm, comm.recorder, info)            # when it has ended, on every rank: the Trace on rank 0

Threads share a clock. So do the processes of one machine, but whether ranks share a machine is measured, not assumed.
"""
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.cut import Cut
from minitp.errors import CollectiveError
from minitp.trace.emulated import emulated_part
from minitp.trace.file import Trace
from minitp.trace.info import complete_info, local_facts, run_info
from minitp.trace.kept import once
from minitp.trace.recorder import Clock, Recorder
from minitp.trace.schema import CHECK, TIMES, Event, Unfinished
from minitp.trace.timeline import sync_numbers
from minitp.trace.values import as_plain

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

__all__ = ["align_clocks", "collect", "of_threads", "run_info"]

ROUND_TRIPS = 12                   # per rank; the quickest counts, so a few that the scheduler stretches do no harm
_SITE = "trace.clock"


def align_clocks(comm: "Communicator") -> Clock:
    """Measure how far each rank's clock is ahead of rank 0's; every rank keeps the answer in its recorder.

    Rank 0 sends to rank r, which answers with its time. That time lies between sending and receiving; taken as the
    middle of the quickest round trip, it is wrong by at most half of it. A difference no larger than that error is
    taken as none: one machine has one clock, and correcting by noise would only blur it.
    """
    if comm.size == 1 or comm.transport.world == "threads":
        clock = Clock((0,) * comm.size, (0,) * comm.size)
    else:
        with comm.recorder.mark("clock"):
            measured = [_compare_clock(comm, rank) for rank in range(1, comm.size)]
            agreed = comm.share(measured, site=_SITE, reason="tell every rank how far the clocks differ")
        clock = Clock((0, *(offset for offset, _ in agreed)), (0, *(error for _, error in agreed)))
    comm.recorder.clock = clock
    return clock


def _compare_clock(comm: "Communicator", rank: int) -> tuple[int, int]:
    """(offset, error) of `rank`'s clock in ns, as rank 0 sees it; other ranks return zeros."""
    trips = [_round_trip(comm, rank) for _ in range(ROUND_TRIPS)]
    return offset_of(trips) if comm.rank == 0 else (0, 0)


def _round_trip(comm: "Communicator", rank: int) -> tuple[int, int, int]:
    """(sent, the other's time, received): only rank 0 learns all three."""
    sent = time.perf_counter_ns()
    answer = sent
    if comm.rank == 0:
        comm.send(np.array([sent]), to=rank, site=_SITE, reason="ask for the time", plane="control")
        answer = int(comm.receive(shape=(1,), dtype=np.int64, source=rank, site=_SITE, reason="hear the time",
                                  plane="control")[0])
    elif comm.rank == rank:
        comm.receive(shape=(1,), dtype=np.int64, source=0, site=_SITE, reason="be asked the time", plane="control")
        comm.send(np.array([time.perf_counter_ns()]), to=0, site=_SITE, reason="tell the time", plane="control")
    return sent, answer, time.perf_counter_ns()


def offset_of(trips: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """(offset, error) from round trips (sent, the other's time, received); offset 0 where it is within the error."""
    sent, answer, received = min(trips, key=lambda trip: trip[2] - trip[0])
    offset, error = answer - (sent + received) // 2, -(-(received - sent) // 2)
    return (0 if abs(offset) <= error else offset), error


def collect(comm: "Communicator", recorder: Recorder, run: dict[str, Any],
            held: Mapping[str, int] | None = None) -> Trace | None:
    """The trace of the run so far: a Trace on rank 0, None on the others. Every rank calls it.

    Call it outside all marks: one that hasn't ended isn't recorded yet. What this sends itself is not in the trace: the
    recorder is paused. Clocks that were not compared when the run started are compared now. `held`: bytes that this
    rank holds, by kind, for the header's `memory`.
    """
    mine = pack(recorder, held)
    with recorder.pause(), comm.recorder.pause():
        clock = comm.recorder.clock if comm.recorder.clock is not None else align_clocks(comm)
        texts = _gather_text(comm, mine)
    return None if texts is None else joined(texts, clock, run)


def of_threads(recorders: Sequence[Recorder], run: dict[str, Any]) -> Trace:
    """The trace of ranks that were threads of this process, by rank, once all have ended: nothing has to be sent."""
    return joined([pack(recorder) for recorder in recorders], None, run)


def joined(parts: Sequence[str | None], clock: Clock | None, run: dict[str, Any]) -> Trace:
    """One trace of what `pack` made on every rank; None: of this rank nothing is known. clock None: one for all."""
    if clock is None:
        clock = Clock((0,) * len(parts), (0,) * len(parts))
    packed = [json.loads(pack(Recorder(rank)) if part is None else part) for rank, part in enumerate(parts)]
    bases = [one["base"] - offset if one["base"] is not None else None
             for one, offset in zip(packed, clock.offset_ns, strict=True)]
    zero = min((base for base in bases if base is not None), default=0)
    traces = [_shifted(Trace.from_plain(one["trace"]), 0 if base is None else base - zero)
              for one, base in zip(packed, bases, strict=True)]
    told = [one for one in packed if one["about"]]
    if told:                           # by the rank that was furthest: its passes are also those of the others
        run = run | max(told, key=lambda one: len(one["trace"]["events"]["rank"]))["about"]
    run = run | emulated_part([delay for one in packed for delay in one["facts"]["delays"]])
    if None not in parts:
        run = complete_info(run, [one["facts"] for one in packed])
    trace = Trace.join(traces, run, {"offset_ns": list(clock.offset_ns), "error_ns": list(clock.error_ns)})
    trace.values = once(trace.values, sync_numbers(trace))
    return trace


def pack(recorder: Recorder, held: Mapping[str, int] | None = None, *, cut_off: bool = False) -> str:
    """This rank's rows as JSON, times since its own first one: a machine's clock may say more than JSON can carry.

    cut_off: the run failed. Then also the marks that the rank is in, and what it knows of the header. It may go on
    while this looks, so what refers to something is taken before it: values, events, the marks and passes of these.
    """
    kept, events = list(recorder.values), list(recorder.events)
    marks, about = (recorder.marks_so_far(), _about(recorder)) if cut_off else (recorder.marks, {})
    values = [{"event": event, "before": as_plain(before), "after": as_plain(after)} for event, before, after in kept]
    begins = [*(event.enter for event in events[:1]), *(mark.enter for mark in marks),
              *(call.enter for call in recorder.unfinished[:1])]
    base = min(begins, default=None)
    trace = Trace.of(events, marks, values=values, unfinished=_still_unfinished(recorder.unfinished, events),
                     arrays=[(of, as_plain(copy) or {}) for of, copy in recorder.inner],
                     weights=[(of, as_plain(copy) or {}) for of, copy in recorder.weights],
                     run={"ranks": recorder.rank + 1})
    trace = _shifted(trace, -(base or 0))
    facts = local_facts() | {"delays": sorted(recorder.delays)} | ({} if held is None else {"held": dict(held)})
    return json.dumps({"base": base, "facts": facts, "trace": trace.to_plain(), "about": about})


def _about(recorder: Recorder) -> dict[str, Any]:
    try:
        return recorder.about()
    except Exception:                  # it looks at a run that was broken off; the recording must not be lost by that
        return {}


def _still_unfinished(calls: Sequence[Unfinished], events: Sequence[Event]) -> list[Unfinished]:
    """Without those that have ended since: a rank that isn't stuck goes on while it is asked for its recording. Each
    once: one that failed then, or whose rank was asked twice, is noted twice."""
    by_key: dict[tuple, Unfinished] = {}
    for call in calls:
        by_key.setdefault(_key(call), call)
    ended = {_key(event) for event in events if event.reason != CHECK} if calls else set()
    return [call for key, call in by_key.items() if key not in ended]


def _key(call: Event | Unfinished) -> tuple[Any, ...]:
    return call.axis, call.group, call.sequence, call.op, call.peer


def _shifted(trace: Trace, by: int) -> Trace:
    for table in (trace.events, trace.marks, trace.unfinished):
        for name in TIMES:
            if name in table:
                table[name] = np.where(table[name] < 0, table[name], table[name] + by)
    return trace


def _gather_text(comm: "Communicator", text: str) -> list[str] | None:
    """Every rank's text on rank 0."""
    data = np.frombuffer(text.encode(), np.uint8)
    lengths = comm.all_gather(np.array([data.size]), axis=0, cut=Cut(comm.size, comm.size), site="trace.collect",
                              reason="how long each rank's recording is", plane="control")
    ends = tuple(int(end) for end in np.cumsum(lengths))
    if ends[-1] >= 2**31:
        raise CollectiveError(f"the ranks' recordings are {ends[-1]:,} bytes together, more than one message can "
                              "carry: record fewer steps, or without values")
    whole = comm.gather(data, axis=0, cut=Cut(ends[-1], comm.size, ends=ends), site="trace.collect",
                        reason="bring the ranks' recordings together", plane="control")
    if whole is None:
        return None
    starts = (0, *ends[:-1])
    return [bytes(whole[start:end]).decode() for start, end in zip(starts, ends, strict=True)]

