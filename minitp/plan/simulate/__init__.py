"""Watching machines we don't have: a schedule, or a measured run, played event by event on a described machine.

    trace = simulated(model, layout, job, machine).trace            # 16,384 GPUs, by their classes
    trace = replay(Trace.read("run.json.gz"), machine).trace        # a run of ours, as it would go there

What comes out is an ordinary trace whose header says `simulated`: a model, not measured. Ranks that do the same at the
same time are simulated once (`classes`); times of syncs are those of `minitp.plan.network`, own work is counted by
`minitp.plan.speed.flops` or, in a replay, as it was measured. Nothing overlaps, and launches, data loading and
checkpoints aren't in it.
"""
from collections.abc import Callable, Sequence
from functools import partial

from minitp.errors import ConfigError
from minitp.plan import schedule
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate.classes import SHOWS, Show, Straggler, lanes_of, shown
from minitp.plan.simulate.engine import run
from minitp.plan.simulate.planned import planned
from minitp.plan.simulate.program import NS, Noise, Run
from minitp.plan.simulate.replaying import replayed
from minitp.plan.simulate.result import Simulation, shares
from minitp.plan.simulate.write import check_written, header_of, what, written
from minitp.plan.units import duration
from minitp.trace.file import Trace
from minitp.trace.wording import count

MOST_EVENTS = 4_000_000            # of all simulated ranks: a quarter of a minute
MOST_TOKENS = 10**12               # beyond, a trace's whole numbers of 64 bits can't hold the bytes
Progress = Callable[[int, int], None]


def simulated(model: PlannedModel, layout: Layout, job: Job, machine: Machine, *,
              stragglers: Sequence[Straggler] = (), jitter: float = 0.0, seed: int = 0, show: Show = "classes",
              queue: bool = False, warnings: Sequence[str] = (), to_write: bool = True,
              progress: Progress = lambda _done, _total: None) -> Simulation:
    """A training step, or a generation, of a model in a layout on a machine.

    stragglers  devices that compute longer             jitter, seed  of a lognormal factor on every span of own work
    queue       transfers wait in turn for the ports of a box (`queue`), instead of always sharing them
    show        which ranks are in the trace: one of each class, the stages of one pipeline, one tp group, or all
    warnings    what a reader must know of it, for the trace's header
    to_write    refuse a trace that is too large at once; else only when it is asked for

    ConfigError where the layout doesn't fit the machine, the model or the job, or what is shown is too much.
    """
    _check(layout, job, machine, show)
    lanes = lanes_of(model, layout, stragglers, jitter, show)
    one = Run(model, layout, job, machine, lanes, Noise(tuple(stragglers), jitter, seed), queue)
    _check_size(one)
    chosen = shown(lanes, show, stragglers, layout)
    if to_write:
        check_written(one, chosen)
    times = run(one.program, progress)
    tails = [float(one.tails(n)[-1]) * one.noise.factor(one.device(n)) * NS for n in range(len(lanes))]
    end = _checked(max(float(times.leave[last - 1]) + tail for last, tail in zip(one.first[1:], tails, strict=True)))
    axis = [step.axis for steps in one.steps for step in steps]
    weight = [lane.stands_for / layout.devices for lane in lanes]
    header = header_of(one, chosen, warnings)
    return Simulation(header, partial(written, one, times, chosen, header), what(one), end / NS,
                      shares(times, one.first, axis, weight, tails, end), len(lanes), layout.devices, len(axis),
                      planned(model, layout, job, machine, bool(stragglers or jitter)))


def _check(layout: Layout, job: Job, machine: Machine, show: Show) -> None:
    if show not in SHOWS:
        raise ConfigError(f"shown are {', '.join(SHOWS)}, not {show!r}")
    if layout.devices > machine.devices:
        raise ConfigError(f"{layout} takes {layout.devices:,} devices, and {machine.name} has {machine.devices:,}")
    if isinstance(job, Training):
        schedule.check(layout.schedule, layout.pp, job.micro_batches(layout.dp), layout.chunks)
    for axis in ("cp", "ep"):
        if getattr(layout, axis) > 1:
            raise ConfigError(f"{axis} > 1 is planned but not simulated: `minitp plan` counts what it moves")
    tokens = job.batch * (job.context if isinstance(job, Inference) else job.seq)
    if tokens > MOST_TOKENS:
        raise ConfigError(f"{tokens:,} tokens are more than the {MOST_TOKENS:,} that a simulation is made of")
    if isinstance(job, Inference) and job.new < 1:
        raise ConfigError("a generation makes 1 new token or more")


def _checked(end: float) -> float:
    """The ns of the end; ConfigError where a trace's whole numbers of 64 bits can't hold them."""
    if not end < 2**62:
        raise ConfigError(f"this takes {duration(end / NS)}, and a trace holds times up to {duration(2**62 / NS)}")
    return end


def _check_size(one: Run) -> None:
    """Refuse what would take minutes and fill the memory, from the sizes alone."""
    events = one.count(one.lanes)
    if events > MOST_EVENTS:
        raise ConfigError(f"{count(len(one.lanes), 'rank')} would meet at {events:,} events, and {MOST_EVENTS:,} are "
                          "the most that are simulated: take fewer micro-batches or new tokens, show classes, leave "
                          "out jitter")


def replay(trace: Trace, machine: Machine, *, speed: float = 1.0, stragglers: Sequence[Straggler] = (),
           jitter: float = 0.0, seed: int = 0, queue: bool = False,
           progress: Progress = lambda _done, _total: None) -> Simulation:
    """A measured run on a machine: ranks 0, 1, … are its devices, their own work as measured, divided by `speed`.

    ConfigError where the machine has fewer devices than the run had ranks, or its collectives have no model.
    """
    return replayed(trace, machine, speed, Noise(tuple(stragglers), jitter, seed), queue, progress)
