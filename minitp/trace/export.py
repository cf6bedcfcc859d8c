"""A trace for other programs: Chrome's trace event format (Perfetto, chrome://tracing) and CSV."""
import csv as csv_module
import os
from pathlib import Path
from typing import Any

from minitp.trace.failed import is_failed
from minitp.trace.file import Trace
from minitp.trace.schema import Event
from minitp.trace.simulated import is_simulated
from minitp.trace.timeline import Timeline
from minitp.trace.wording import PHASES, TextStream, dimensions, pass_name

NEVER_ENDED = " (never ended)"      # behind the op of an unfinished call
CSV_COLUMNS = (*Event._fields, "waiting", "moving")


def chrome(trace: Trace) -> dict[str, Any]:
    """The object form of the trace event format: one process, one thread per rank, complete events.

    Categories: compute, wait, move, never ended, which don't overlap; and phase, the passes that they lie in (decode 3;
    forward 0 · micro-batch 2). Times are µs with fractions, as the format wants; ranks are threads 0, 1, ….
    """
    timeline = Timeline.of(trace)
    about = (" (simulated: a model, not measured)" * is_simulated(trace.run)
             + " (this run failed)" * is_failed(trace.run))
    made = [_named("process_name", 0, name=f"minitp {_model_name(trace)}".strip() + about)]
    for rank in trace.ranks:
        made += [_named("thread_name", rank, name=f"rank {rank}"), _named("thread_sort_index", rank, sort_index=rank)]
    for mark in trace.mark_rows():
        args = {"what": PHASES.get(mark.phase, ""), "phase": mark.phase, "step": mark.step,
                "micro_batch": mark.micro_batch}
        made.append(_complete(pass_name(mark.phase, mark.step, mark.micro_batch), "phase", mark.rank, mark.enter,
                              mark.leave, args))
    for span in timeline.spans:
        args = {"phase": span.phase, "step": span.step, "micro_batch": span.micro_batch}
        made.append(_complete(timeline.name_of(span), "compute", span.rank, span.enter, span.leave, args))
    for event, waiting in zip(trace, timeline.waiting.tolist(), strict=True):
        args = {"site": event.site, "reason": event.reason, "shape": dimensions(event.shape), "dtype": event.dtype,
                "payload_bytes": event.payload, "before": event.before, "after": event.after, "plane": event.plane,
                "phase": event.phase, "step": event.step, "micro_batch": event.micro_batch,
                "sequence": event.sequence, "broken": event.broken}
        then = event.enter + waiting
        if waiting:
            made.append(_complete(f"wait: {event.op}", "wait", event.rank, event.enter, then, args))
        name = f"{event.op}, skipped" if event.broken else event.op
        made.append(_complete(name, "move", event.rank, then, event.leave, args))
    for call in trace.unfinished_rows():
        args = {"site": call.site, "shape": dimensions(call.shape), "dtype": call.dtype, "phase": call.phase,
                "step": call.step, "micro_batch": call.micro_batch, "sequence": call.sequence}
        made.append(_complete(call.op + NEVER_ENDED, "never ended", call.rank, call.enter, call.leave, args))
    return {"traceEvents": made, "displayTimeUnit": "ns", "otherData": {"format": "made by minitp", "run": trace.run}}


def _model_name(trace: Trace) -> str:
    model = trace.run.get("model")
    return str(model.get("name", "")) if isinstance(model, dict) else ""


def _named(what: str, rank: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 0, "tid": rank, "args": args}


def _complete(name: str, category: str, rank: int, enter: int, leave: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": rank, "ts": enter / 1000,
            "dur": (leave - enter) / 1000, "args": args}


def csv(trace: Trace, file: str | os.PathLike | TextStream) -> None:
    """One row per event under the names of the columns, then waiting and moving; ns, bytes, 1x1x576; empty is none.
    Below them the calls that never ended: without what they would have been, and without a leave.

    `file` is a path or a text stream opened with newline="".
    """
    if isinstance(file, (str, os.PathLike)):
        with Path(file).open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            return csv(trace, stream)
    timeline = Timeline.of(trace)
    writer = csv_module.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for event, waiting, moving in zip(trace, timeline.waiting.tolist(), timeline.moving.tolist(), strict=True):
        row = event._replace(shape="x".join(map(str, event.shape)), broken=int(event.broken))  # type: ignore[arg-type]
        writer.writerow((*row, waiting, moving))
    for call in trace.unfinished_rows():
        known = call._asdict() | {"op": call.op + NEVER_ENDED, "shape": "x".join(map(str, call.shape)), "leave": None}
        writer.writerow([known.get(name) for name in CSV_COLUMNS])
    return None
