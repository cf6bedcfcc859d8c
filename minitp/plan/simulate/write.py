"""Simulated times as an ordinary trace: the events and marks of the lanes that are shown, and a header that says that
nobody measured them."""
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from minitp import __version__
from minitp.errors import ConfigError
from minitp.plan.job import Inference, Training
from minitp.plan.layout import AXES
from minitp.plan.simulate.classes import Lane
from minitp.plan.simulate.engine import Times
from minitp.plan.simulate.generation import plan_of
from minitp.plan.simulate.program import ENDS, NS, Run
from minitp.plan.simulate.stages import Step
from minitp.trace.file import Trace
from minitp.trace.predict import Steps, TrainingPlan
from minitp.trace.predict_header import DTYPES, described
from minitp.trace.schema import Event, Mark
from minitp.trace.simulated import WORLD

MOST_EVENTS = 500_000              # that a trace file can hold, and pages can open
STEP = "a training step"
_REASONS = {
    ("tp", "all_reduce"): "add the ranks' partial sums", ("tp", "all_reduce_max"): "the largest of all ranks",
    ("tp", "all_gather"): "lay the ranks' shards side by side",
    ("tp", "reduce_scatter"): "add the ranks' partial sums, keep own part",
    ("dp", "all_reduce"): "add the replicas' gradients",
    ("dp", "reduce_scatter"): "add the replicas' gradients, keep own part",
    ("dp", "all_gather"): "every replica needs the weights that others hold",
    ("pp", "all_reduce"): "clipping needs the length of the whole model's gradient",
    (ENDS, "all_reduce"): "both ends hold the table: its gradients are terms of one sum",
    ("pp", "send"): "what the next stage goes on with", ("pp", "receive"): "what the next stage goes on with"}


def written(run: Run, times: Times, shown: Sequence[int], header: dict[str, Any]) -> Trace:
    """The trace of some lanes. ConfigError where it is too large."""
    check_written(run, shown)
    rank = {lane: number for number, lane in enumerate(shown)}
    marks = [mark for lane in shown for mark in _marks(run, times, lane, rank[lane])]
    return Trace.of(_events(run, times, rank), marks, run=header,
                    clock={"offset_ns": [0] * len(shown), "error_ns": [0] * len(shown)})


def check_written(run: Run, shown: Sequence[int]) -> None:
    """ConfigError where the lanes have more events than a file can hold; none of them is made for it."""
    events = run.count(run.lanes[lane] for lane in shown)
    if events > MOST_EVENTS:
        raise ConfigError(f"{len(shown):,} lanes have {events:,} events together, and {MOST_EVENTS:,} are the most "
                          "that a trace is written with: show classes, or fewer micro-batches or new tokens")


def _events(run: Run, times: Times, rank: dict[int, int]) -> list[Event]:
    """Groups and peers are numbered among the ranks of the file."""
    groups: dict[tuple, list[int]] = {}
    for lane in rank:
        for axis in {step.axis for step in run.steps[lane]}:
            groups.setdefault(_group(run.lanes[lane], axis), []).append(lane)
    sent: dict[tuple, int] = {}
    numbers: dict[tuple, int] = {}
    for lane in rank:                                       # a message has its number from the order of sending
        for step in run.steps[lane]:
            if step.event.op == "send":
                way = run.lanes[lane].group("pp"), run.lanes[lane].place.pp, step.peer
                sent[way] = sent.get(way, -1) + 1
                numbers[run.lanes[lane].group("pp"), step.message] = sent[way]
    return [event for lane in rank for event in _of_lane(run, times, lane, rank, groups, numbers)]


def _group(lane: Lane, axis: str) -> tuple:
    return axis, lane.group("pp" if axis == ENDS else axis)


def _of_lane(run: Run, times: Times, lane: int, rank: dict[int, int], groups: dict[tuple, list[int]],
             numbers: dict[tuple, int]) -> list[Event]:
    first, one, met = run.first[lane], run.lanes[lane], dict[str, int]()
    columns = (column[first:run.first[lane + 1]].round().astype(int).tolist() for column in (times.enter, times.leave))
    stages = {axis: {run.lanes[other].place.pp: n for n, other in enumerate(groups[_group(one, axis)])}
              for axis in {step.axis for step in run.steps[lane]}}
    lowest = {axis: rank[groups[_group(one, axis)][0]] for axis in stages}
    made = []
    for step, enter, leave in zip(run.steps[lane], *columns, strict=True):
        if step.message:
            sequence = numbers.get((one.group("pp"), step.message), 0)
            peer = stages["pp"].get(step.peer)
        else:
            sequence, peer = met.get(step.axis, 0), None
            met[step.axis] = sequence + 1
        made.append(_event(rank[lane], step, lowest[step.axis], sequence, peer, enter, leave))
    return made


def _event(rank: int, step: Step, group: int, sequence: int, peer: int | None, enter: int, leave: int) -> Event:
    what = step.event
    reason = "the tokens that were chosen" if what.plane == "sample" and step.message else _REASONS.get(
        (step.axis, what.op), "")
    return Event(rank, step.axis, group, sequence, what.plane, what.op, None, peer, None, what.site, reason, what.phase,
                 what.step, what.micro_batch, None, what.before, what.after, what.shape, what.dtype, what.payload,
                 enter, leave, None, None, None, None, False, "")


def _marks(run: Run, times: Times, lane: int, rank: int) -> list[Mark]:
    at, now, made = run.first[lane], 0.0, []
    factor = run.noise.factor(run.device(lane))
    for one in run.passes[lane]:
        at += len(one.steps)
        end = float(times.leave[at - 1]) + one.tail * factor * NS if one.steps else now + one.tail * factor * NS
        made.append(Mark(rank, one.phase, one.step, one.micro_batch, round(now), round(end)))
        now = end
    return made


# --- the header -------------------------------------------------------------------------------------------------------


def header_of(run: Run, shown: Sequence[int], warnings: Sequence[str] = ()) -> dict[str, Any]:
    """Of the trace of some lanes."""
    layout = run.layout
    placement = run.model.placement(layout.tp, layout.embedding, layout.cut)
    axes = [axis for axis in AXES if getattr(layout, axis) > 1]
    ranks = [{"device": run.device(lane), **{axis: getattr(run.lanes[lane].place, axis) for axis in axes},
              "stands_for": run.lanes[lane].stands_for} for lane in shown]
    told = {"machine": run.machine.name, "devices": layout.devices, "layout": str(layout), "model of": what(run),
            "seed": run.noise.seed, "jitter": run.noise.jitter,
            "stragglers": [{"device": one.device, "factor": one.factor} for one in run.noise.stragglers],
            "ranks": ranks, **({"warnings": list(warnings)} if warnings else {})}
    return {**header(len(shown), told), **described(placement), **_closed_form(run),
            "mesh": {axis: getattr(layout, axis) for axis in reversed(axes)},
            "model": run.model.config.to_dict() | {"name": run.model.name}}


def header(ranks: int, told: dict[str, Any]) -> dict[str, Any]:
    """What every simulated trace says of itself."""
    return {"id": uuid.uuid4().hex[:12], "created": datetime.now(UTC).isoformat(timespec="seconds"), "command": [],
            "world": WORLD, "ranks": ranks, "versions": {"minitp": __version__}, "simulated": told}


def what(run: Run) -> str:
    return STEP if isinstance(run.job, Training) else "a generation"


def _closed_form(run: Run) -> dict[str, Any]:
    """What `minitp trace check` goes by, for what runs today: tensor parallelism alone, in a type that NumPy has."""
    layout, steps = run.layout, run.steps[0]
    if layout.devices != layout.tp or layout.sequence or any(step.axis != "tp" for step in steps) or any(
            step.event.dtype not in DTYPES for step in steps):
        return {}
    placement = run.model.placement(layout.tp, layout.embedding, layout.cut)
    if isinstance(run.job, Inference):
        return {"generation": plan_of(run.model, layout, run.job, run.job.batch).to_run()["generation"]}
    batches = tuple((run.job.micro_batch, run.job.seq) for _ in range(run.job.micro_batches(1)))
    plan = TrainingPlan(placement, "float32", [Steps(0, 1, batches)], run.job.recompute)
    return {"training": plan.to_run()["training"]}
