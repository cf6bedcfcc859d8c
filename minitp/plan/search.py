"""Which layouts of a machine carry a job, which of them are fast, and why the others fail.

Every mesh tp · cp · pp · dp of all devices is tried, with every ZeRO stage, recomputation and micro-batch that is left
open. Memory comes first, as it costs little to work out; what fits is then given a time. A mesh is judged by its best
variant.
"""
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import isqrt
from typing import Literal

from minitp.errors import ConfigError
from minitp.plan import memory, positions
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row
from minitp.plan.speed import decode, step
from minitp.plan.units import both

MICRO_BATCHES = (1, 2, 4, 8)
RECOMPUTE: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
ZERO: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
MOST = 20_000                      # candidates of a search

Why = Literal["shape", "batch", "memory"]


@dataclass(frozen=True)
class Limits:
    """What a search may not change; None: every value is tried. `reserve`: share of a device that is kept free."""
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = 1
    ep: int | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    micro_batch: int | None = None
    chunks: int = 1
    sequence: bool | None = None
    reserve: float = memory.RESERVE
    nominal: bool = False


@dataclass(frozen=True)
class Candidate:
    """A layout that fits. `held`: bytes of its fullest rank, which stands at `place`; `room`: bytes left there beside
    the reserve. `time`: of a token (generation) or a step (training)."""
    model: PlannedModel = field(repr=False)
    layout: Layout
    job: Job
    place: Place
    held: int
    room: int
    time: "decode.PassTime | step.StepTime" = field(repr=False)

    @property
    def rows(self) -> list[Row]:
        """The memory of the fullest rank by its terms."""
        return memory.rows(self.model, self.layout, self.job, self.place)

    @property
    def seconds(self) -> float:
        return self.time.seconds


@dataclass(frozen=True)
class Failure:
    """A layout that can't carry the job. `missing`: bytes on its fullest rank, where memory is what it lacks."""
    layout: Layout
    job: Job
    why: Why
    text: str
    missing: int = 0


@dataclass(frozen=True)
class Found:
    """The outcome: `best` first, one for each mesh; `failed` likewise, those that miss the least memory first."""
    machine: Machine
    tried: int
    best: list[Candidate]
    failed: list[Failure]

    @property
    def reasons(self) -> dict[str, int]:
        """How many meshes failed for each reason."""
        return dict(Counter(failure.why for failure in self.failed))


def search(model: PlannedModel, machine: Machine, job: Job, limits: Limits | None = None) -> Found:
    """The layouts of all devices of `machine`, the fastest first. ConfigError where the limits leave none."""
    limits = limits or Limits()
    meshes = list(_meshes(machine.devices, limits))
    if not meshes:
        raise ConfigError(f"no mesh of {machine.devices:,} devices has {_asked(limits)}: their product must divide the "
                          "number of devices")
    best, failed, tried = [], [], 0
    for mesh in meshes:
        fit: list[Candidate] = []
        misses: list[Failure] = []
        for layout, variant in _variants(mesh, job, limits):
            tried += 1
            if tried > MOST:
                raise ConfigError(f"more than {MOST:,} layouts: fix some degrees (--tp, --pp, --zero, --recompute)")
            outcome = judge(model, layout, variant, machine, limits)
            if isinstance(outcome, Candidate):
                fit.append(outcome)
            else:
                misses.append(outcome)
        if fit:
            best.append(min(fit, key=lambda one: (one.seconds, one.held)))
        elif misses:
            failed.append(min(misses, key=lambda miss: (miss.why != "memory", miss.missing)))
    return Found(machine, tried, sorted(best, key=lambda one: (one.seconds, one.held)),
                 sorted(failed, key=lambda miss: (miss.why != "memory", miss.missing)))


def judge(model: PlannedModel, layout: Layout, job: Job, machine: Machine,
          limits: Limits | None = None) -> Candidate | Failure:
    """One layout: does it carry the job, and how fast?"""
    limits = limits or Limits()
    why = unfit(model, layout, job)
    if why is not None:
        return Failure(layout, job, *why)
    capacity = Capacity.of(machine.device, limits.reserve, nominal=limits.nominal)
    judged = verdict(model, layout, job, capacity)
    if judged.place is None or not judged.fits:
        text = (f"the fullest device needs {both(judged.needed)}, {both(-judged.room)} more than the "
                f"{both(capacity.usable)} it may use")
        return Failure(layout, job, "memory", text, -judged.room)
    time = (decode.token(model, layout, job, machine) if isinstance(job, Inference)
            else step.training_step(model, layout, job, machine))
    return Candidate(model, layout, job, judged.place, judged.needed, judged.room, time)


def unfit(model: PlannedModel, layout: Layout, job: Job) -> tuple[Why, str] | None:
    """Why a job can't be laid out so at all, whatever the memory; None where it can."""
    config = model.config
    if layout.pp * layout.chunks > config.layers:
        return "shape", f"{config.layers} layers can't fill {layout.pp * layout.chunks} pipeline chunks"
    if layout.tp > config.heads:
        return "shape", f"{config.heads} heads can't keep {layout.tp} tensor parallel ranks at work"
    if layout.ep > 1 and model.experts == 1:
        return "shape", f"{model.name} is dense: it has no experts to spread over {layout.ep} ranks"
    if layout.ep > model.experts:
        return "shape", f"{model.experts} experts can't be spread over {layout.ep} ranks"
    if positions.refused(model) and (told := positions.beyond(model, job)):
        return "shape", told
    if isinstance(job, Inference):
        if job.batch < layout.dp:
            return "batch", f"a batch of {job.batch} leaves some of {layout.dp} replicas without a sequence"
        return None
    if job.batch % (layout.dp * job.micro_batch):
        return "batch", (f"a batch of {job.batch:,} can't be dealt to {layout.dp:,} replicas in micro-batches of "
                         f"{job.micro_batch}")
    if layout.schedule == "interleaved" and job.micro_batches(layout.dp) % layout.pp:
        return "batch", f"{job.micro_batches(layout.dp)} micro-batches are no multiple of {layout.pp} stages"
    if layout.cp > job.seq:
        return "shape", f"a sequence of {job.seq:,} tokens can't be cut into {layout.cp:,} pieces"
    return None


def _meshes(devices: int, limits: Limits) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, pp, dp) with the product `devices`."""
    for tp in _degrees(devices, limits.tp):
        for cp in _degrees(devices // tp, limits.cp):
            for pp in _degrees(devices // tp // cp, limits.pp):
                dp = devices // tp // cp // pp
                if limits.dp in (None, dp):
                    yield tp, cp, pp, dp


def _degrees(devices: int, fixed: int | None) -> Iterable[int]:
    """The divisors, or the one that was asked for if it is one."""
    if fixed is not None:
        return [fixed] if devices % fixed == 0 else []
    return divisors(devices)


def divisors(number: int) -> list[int]:
    """In rising order, found in as many trials as its square root."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def _variants(mesh: tuple[int, int, int, int], job: Job, limits: Limits) -> Iterator[tuple[Layout, Job]]:
    """The layouts of a mesh, and the job in the forms that are left open."""
    tp, cp, pp, dp = mesh
    sequence = limits.sequence if limits.sequence is not None else tp > 1 and isinstance(job, Training)
    schedule: Literal["interleaved", "1f1b"] = "interleaved" if limits.chunks > 1 else "1f1b"
    layout = Layout(tp=tp, pp=pp, dp=dp, cp=cp, ep=limits.ep or 1, sequence=sequence, schedule=schedule,
                    chunks=limits.chunks)
    if isinstance(job, Inference):
        yield layout, job
        return
    zeros = (limits.zero,) if limits.zero is not None else ZERO if dp > 1 else ZERO[:1]
    recomputes = (limits.recompute,) if limits.recompute is not None else RECOMPUTE
    micro: tuple[int, ...] = (limits.micro_batch,) if limits.micro_batch is not None else MICRO_BATCHES
    micro = tuple(size for size in micro if job.batch % (dp * size) == 0) or micro[:1]
    for zero, recompute, size in product(zeros, recomputes, micro):
        yield replace(layout, zero=zero), replace(job, recompute=recompute, micro_batch=size)


def _asked(limits: Limits) -> str:
    given = [f"{axis} {getattr(limits, axis)}" for axis in ("tp", "cp", "pp", "dp") if getattr(limits, axis)]
    return ", ".join(given) or "these degrees"


def fewest(model: PlannedModel, machine: Machine, job: Job, limits: Limits | None = None,
           most: int = 4096) -> tuple[Machine, Found] | None:
    """The smallest number of such machines that carries the job: 1, 2, 3 … 8 of them, then 16, 32 …; None where none
    does up to `most` devices."""
    boxes = [n for n in (*range(1, 9), *(2**k for k in range(4, 13))) if n * machine.per_machine <= most]
    for n in boxes:
        if n > 1 and len(machine.levels) < 2:
            return None
        larger = machine.with_devices(n * machine.per_machine)
        try:
            found = search(model, larger, job, limits)
        except ConfigError:
            continue
        if found.best:
            return larger, found
    return None
