"""A measured run on a machine that we don't have: its own work kept, its syncs priced by `minitp.plan.network`."""
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.machine import Machine
from minitp.plan.network.collectives import has_model
from minitp.plan.simulate.classes import check_stragglers
from minitp.plan.simulate.engine import Program, Times, run
from minitp.plan.simulate.prices import of_sync
from minitp.plan.simulate.program import NS, Noise
from minitp.plan.simulate.queue import Queues
from minitp.plan.simulate.result import Simulation, shares
from minitp.plan.simulate.script import Script, of_passes
from minitp.plan.simulate.write import header
from minitp.trace.failed import is_failed, no_whole_run
from minitp.trace.file import Trace
from minitp.trace.simulated import is_simulated
from minitp.trace.timeline import Timeline

_OF_THE_MACHINE = ("cores", "ranks_per_core", "hosts", "host_of_rank", "blas_threads", "emulated")
"""What a header says of the machine that was measured on."""


def replayed(trace: Trace, machine: Machine, speed: float, noise: Noise, queue: bool,
             progress: Callable[[int, int], None]) -> Simulation:
    """See `minitp.plan.simulate.replaying`."""
    _check(trace, machine, speed)
    check_stragglers(noise.stragglers, trace.run["ranks"])
    script = Script.of(Timeline.of(trace))
    prices = np.array([0.0 if kind.broken else NS * of_sync(machine, kind.op, float(kind.payload), kind.ranks).seconds
                       for kind in script.kinds])
    program = script.program(prices, speed)
    if queue:
        program = _queued(program, script, machine)
    rank = program.rank
    own = program.own * np.array([noise.factor(device) for device in rank.tolist()])
    for one in np.unique(rank).tolist():
        mine = rank == one
        own[mine] = noise.spans(one, own[mine], np.zeros(int(mine.sum()), int))[0]
    program = replace(program, own=own)
    times = run(program, progress)
    made, ends = _trace(trace, script, times, own, speed, noise)
    first = [*np.flatnonzero(np.diff(rank, prepend=-1)).tolist(), len(rank)]
    left = [float(times.leave[last - 1]) for last in first[1:]]
    lasts = [max(ends.get(one, 0.0), leave) for one, leave in zip(rank[first[:-1]].tolist(), left, strict=True)]
    tails = [last - leave for last, leave in zip(lasts, left, strict=True)]
    axis, end = trace.words("axis")[script.event].tolist(), max(lasts)
    made.run |= _header(trace, made, machine, speed, noise)
    spent = shares(times, first, axis, [1 / len(left)] * len(left), tails, end)
    return Simulation(made.run, lambda: made, "a replay", end / NS, spent, len(left), len(left), len(rank))


def _queued(program: Program, script: Script, machine: Machine) -> Program:
    """The same with transfers that queue for the ports of boxes; every rank is one device."""
    queues, took = Queues(machine), dict[int, float]()
    there: dict[int, list[tuple[str, int, int]]] = {}
    ops = script.trace.words("op")[script.event].tolist()
    for number, op, rank in zip(program.sync.tolist(), ops, program.rank.tolist(), strict=True):
        there.setdefault(number, []).append((op, rank, 1))
    for number, kind in zip(program.sync.tolist(), script.kind.tolist(), strict=True):
        if number not in took:
            what = script.kinds[kind]
            took[number] = 0.0 if what.broken else queues.seconds(number, what.op, float(what.payload), what.ranks,
                                                                  there[number])
    price = np.array([took[number] for number in program.sync.tolist()]) * NS
    return replace(program, price=price, ports=queues.held, free=queues.free)


def _check(trace: Trace, machine: Machine, speed: float) -> None:
    if is_simulated(trace.run):
        raise ConfigError("this trace is a simulated one: its times are a model's, and there is nothing measured in it "
                          "to replay")
    if is_failed(trace.run):
        raise ConfigError(no_whole_run("replay"))
    if not 0 < speed < 1e9:
        raise ConfigError(f"ranks compute a number of times as fast as measured, above 0, not {speed:g} times")
    data = of_passes(trace)
    if not len(data):
        raise ConfigError("this run has no passes with collectives in them: there is nothing to replay")
    unknown = [op for op in dict.fromkeys(trace.words("op")[data].tolist())
               if op not in ("send", "receive") and not has_model(op)]
    if unknown:
        raise ConfigError(f"this run holds {', '.join(unknown)[:60]}, and nobody has a model of what that costs")
    if max(trace.ranks) >= machine.devices:
        raise ConfigError(f"the run had {max(trace.ranks) + 1:,} ranks, and {machine.name} has {machine.devices:,} "
                          "devices: name a larger one, as 2x…, or --gpus")


def _trace(trace: Trace, script: Script, times: Times, own: np.ndarray, speed: float,
           noise: Noise) -> tuple[Trace, dict[int, float]]:
    """The same events and marks at their new times; and when each rank's last mark ends, ns."""
    order = np.sort(script.event)                                     # as they lie in the trace
    place = np.empty(len(trace), np.int64)
    place[order] = np.arange(len(order))
    at = place[script.event]
    events = {name: column[order].copy() for name, column in trace.events.items()}
    for name, column in (("enter", times.enter), ("leave", times.leave)):
        events[name][at] = column.round().astype(np.int64)
    for name in ("start", "wait", "complete"):                        # how a call was overlapped isn't modeled
        events[name][:] = -1
    marks, ends = _marks(trace, script, times, own, speed, noise)
    keep = set(order.tolist())
    values = [value | {"event": int(place[value["event"]])}
              | ({"after_of": int(place[value["after_of"]])} if value.get("after_of") is not None else {})
              for value in trace.values if value["event"] in keep and value.get("after_of", value["event"]) in keep]
    ranks = trace.run["ranks"]
    clock = {"offset_ns": [0] * ranks, "error_ns": [0] * ranks}
    return Trace(dict(trace.run), clock, trace.strings, trace.shapes, events, marks, values, trace.arrays,
                 trace.weights), ends


def _marks(trace: Trace, script: Script, times: Times, own: np.ndarray, speed: float,
           noise: Noise) -> tuple[dict[str, np.ndarray], dict[int, float]]:
    """A mark begins and ends where its rank has done as much of its own work as it had in the measured run; those of
    what isn't replayed are gone."""
    clock, owner = script.work, trace.events["rank"][script.event]
    entered = trace.events["enter"][script.event]
    there = np.isin(trace.marks["phase"], np.unique(trace.events["phase"][script.event]))
    measured = {name: column[there] for name, column in trace.marks.items()}
    marks = {name: column.copy() for name, column in measured.items()}
    ends: dict[int, float] = {}
    for rank in trace.ranks:
        mine, of_rank = np.flatnonzero(owner == rank), marks["rank"] == rank
        before, after = clock.until(rank, entered[mine]), noise.factor(rank) / speed
        for name in ("enter", "leave"):
            when = measured[name][of_rank]
            behind = np.searchsorted(entered[mine], when, side="left")    # events entered before
            since = clock.until(rank, when) - np.concatenate([[0], before])[behind]
            spans = np.append(np.diff(before, prepend=0), 0.0)[behind]
            scale = np.where(spans > 0, np.append(own[mine], 0.0)[behind] / np.maximum(spans, 1), after)
            new = np.concatenate([[0.0], times.leave[mine]])[behind] + since * scale
            marks[name][of_rank] = new.round().astype(np.int64)
            ends[rank] = max(ends.get(rank, 0.0), float(new.max(initial=0.0)))
    return marks, ends


def _header(trace: Trace, made: Trace, machine: Machine, speed: float, noise: Noise) -> dict[str, object]:
    told = {"machine": machine.name, "devices": trace.run["ranks"], "model of": "a measured run's replay",
            "measured": str(trace.run.get("id", ""))[:40], "speed": speed, "seed": noise.seed, "jitter": noise.jitter,
            "stragglers": [{"device": one.device, "factor": one.factor} for one in noise.stragglers],
            "ranks": [{"device": rank, "stands_for": 1} for rank in range(trace.run["ranks"])]}
    for key in _OF_THE_MACHINE:
        made.run.pop(key, None)
    for key in ("generation", "training"):
        plan = made.run.get(key)
        if isinstance(plan, dict) and "load" in plan:                     # what was scattered isn't replayed
            made.run[key] = plan | {"load": "slice"}
    return header(trace.run["ranks"], told) | {"command": trace.run.get("command", [])}
