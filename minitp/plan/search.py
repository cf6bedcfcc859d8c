"""Which layouts of a machine carry a job, which of them are fast, and why the others fail.

Every mesh tp · cp · pp · dp of all devices is tried; of each, what is left open of expert parallelism, chunks, ZeRO's
stage, recomputation and micro-batch. Memory comes first, as it costs little to work out; what fits is then given a
time. A mesh is judged by its best variant.
"""
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from typing import Literal

from minitp.errors import ConfigError
from minitp.plan import memory, positions
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import AXES, Layout, Place
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row
from minitp.plan.speed import decode, step
from minitp.plan.units import both
from minitp.trace.wording import count

RECOMPUTE: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
ZERO: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)
MOST = 10_000
"""Layouts that a search tries."""
MOST_DEVICES = 4096
"""Where `fewest` stops to look for more, unless told otherwise."""

Why = Literal["shape", "batch", "memory"]


@dataclass(frozen=True)
class Limits:
    """What a search may not change; None: it is left open.

    tp, pp, dp, cp  every divisor of the devices is tried
    ep              every number of replicas that the experts can be dealt to evenly
    zero            every stage; recompute: the least that fits
    micro_batch, chunks  1, 2, 4 … as long as it fits and the step gets faster
    sequence        of a training with tp: on, and the best of a mesh once more without
    reserve         share of a device that is kept free; `nominal`: of the size in its name
    """
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = 1
    ep: int | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    micro_batch: int | None = None
    chunks: int | None = None
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
        raise ConfigError(_no_mesh(machine.devices, limits))
    if (limits.ep or 1) > 1 and model.experts == 1:
        raise ConfigError(f"{model.name} is dense: it has no experts that ep = {limits.ep:,} ranks could share")
    best: list[Candidate] = []
    failed: list[Failure] = []
    tried = 0
    for mesh in meshes:
        plainest = Layout(**dict(zip(("tp", "cp", "pp", "dp"), mesh, strict=True)), ep=limits.ep or 1)
        why = unfit(model, plainest, job)
        if why is not None and why[0] == "shape":          # no variant would fit: one word for all of them
            failed.append(Failure(plainest, job, *why))
            tried += 1
            continue
        outcomes = _Outcomes(model, machine, job, limits, MOST - tried)
        outcomes.of_mesh(*mesh)
        tried += outcomes.tried
        if outcomes.best is not None:
            best.append(outcomes.best)
        elif outcomes.nearest is not None:
            failed.append(outcomes.nearest)
    return Found(machine, tried, sorted(best, key=_order), sorted(failed, key=_far))


def _order(one: Candidate) -> tuple[float, int]:
    """The fastest first; of those that differ by rounding errors the one that holds less."""
    return float(f"{one.seconds:.9g}"), one.held


def _far(miss: Failure) -> tuple[bool, int]:
    return miss.why != "memory", miss.missing


@dataclass
class _Outcomes:
    """What became of a mesh's variants: the best of those that fit, the nearest of the others. `left`: how many more
    may be tried."""
    model: PlannedModel
    machine: Machine
    job: Job
    limits: Limits
    left: int
    tried: int = 0
    best: Candidate | None = None
    nearest: Failure | None = None

    def of_mesh(self, tp: int, cp: int, pp: int, dp: int) -> None:
        """Experts over every share of the replicas; more chunks as long as that is faster; and at last the best once
        more without sequence parallelism, which saves memory always and time where sequences are long."""
        training, limits = isinstance(self.job, Training), self.limits
        sequence = limits.sequence if limits.sequence is not None else training and tp > 1
        for ep in _expert_degrees(self.model, dp * cp, limits.ep):
            last: Candidate | None = None
            for chunks in _chunks(self.model, pp if training else 1, limits.chunks):
                layout = Layout(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, sequence=sequence, chunks=chunks,
                                schedule="interleaved" if chunks > 1 else "1f1b")
                found = self._of_layout(layout)
                if found is None or (last is not None and _order(last) <= _order(found)):
                    break
                last = found
        if self.best and self.best.layout.sequence and limits.sequence is None:
            self._judge(replace(self.best.layout, sequence=False), self.best.job)

    def _of_layout(self, layout: Layout) -> Candidate | None:
        """The best of every micro-batch and ZeRO stage that is open, with as little computed again as fits: that takes
        time and saves memory, nothing else. Larger micro-batches hold more and leave a pipeline more idle: the first
        that doesn't fit, or isn't faster, is the last."""
        if isinstance(self.job, Inference):
            return self._judge(layout, self.job)
        limits, job = self.limits, self.job
        zeros = (limits.zero,) if limits.zero is not None else ZERO if layout.dp > 1 else ZERO[:1]
        recomputes = (limits.recompute,) if limits.recompute is not None else RECOMPUTE
        best: Candidate | None = None
        for size in _micro_batches(job.batch, layout.dp, limits.micro_batch):
            fit: list[Candidate] = []
            for zero in zeros:
                variants = (self._judge(replace(layout, zero=zero), replace(job, recompute=again, micro_batch=size))
                            for again in recomputes)
                fit += [one for one in [next(filter(None, variants), None)] if one is not None]
            found = min(fit, key=_order, default=None)
            if found is None or (best is not None and _order(best) <= _order(found)):
                break
            best = found
        return best

    def _judge(self, layout: Layout, job: Job) -> Candidate | None:
        """One layout, which is counted and kept if it is the best, or the nearest miss."""
        self.tried += 1
        if self.tried > self.left:
            raise ConfigError(f"more than {MOST:,} layouts: fix some degrees (--tp, --pp, --zero, --recompute)")
        outcome = judge(self.model, layout, job, self.machine, self.limits)
        if isinstance(outcome, Failure):
            self.nearest = min(filter(None, (self.nearest, outcome)), key=_far)
            return None
        self.best = min(filter(None, (self.best, outcome)), key=_order)
        return outcome


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
        needed, usable = both(judged.needed), both(capacity.usable)
        apart = f", {both(-judged.room)} too much" if needed == usable else ""
        return Failure(layout, job, "memory", f"needs {needed} of {usable}{apart}", -judged.room)
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
                if limits.dp in (None, dp) and dp * cp % (limits.ep or 1) == 0:
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


def _expert_degrees(model: PlannedModel, replicas: int, fixed: int | None) -> Iterable[int]:
    """Shares of the replicas that a layer's experts can be dealt to evenly; of a dense model 1."""
    if fixed is not None:
        return [fixed]
    return [n for n in range(1, min(replicas, model.experts) + 1) if replicas % n == 0 and model.experts % n == 0]


def _chunks(model: PlannedModel, pp: int, fixed: int | None) -> Iterator[int]:
    """1, 2, 4 … model chunks a stage, as long as each has a layer."""
    if fixed is not None:
        yield fixed
        return
    chunks = 1
    while chunks == 1 or (pp > 1 and pp * chunks <= model.config.layers):
        yield chunks
        chunks *= 2


def _micro_batches(batch: int, dp: int, fixed: int | None) -> Iterator[int]:
    """1, 2, 4 … sequences at once, as long as the batch can be dealt so; where it can't at all, 1."""
    size = fixed or 1
    yield size
    while fixed is None and batch % (dp * 2 * size) == 0:
        size *= 2
        yield size


def _no_mesh(devices: int, limits: Limits) -> str:
    """Why no mesh is as it was asked for, and what would work."""
    asked = {axis: getattr(limits, axis) for axis in AXES if (getattr(limits, axis) or 1) > 1 or axis == "dp"}
    given = {axis: degree for axis, degree in asked.items() if degree is not None}
    product = prod(given.values())
    if devices % product == 0 and (limits.ep or 1) > 1:
        of = f"{count(devices, 'device')} with {_named(given)}" if given else count(devices, "device")
        return f"ep = {limits.ep:,} must divide dp · cp, and no mesh of {of} has such replicas"
    if len(given) > 1:
        not_so = "not" if limits.dp else "which doesn't divide"
        return (f"{_named(given)} are {count(product, 'device')} together, {not_so} {count(devices, 'device')}: "
                f"--gpus {max(product, devices // product * product):,} would work")
    (axis, degree), = given.items()
    would = ", ".join(f"{n:,}" for n in divisors(devices)[:12])
    near = sorted({max(degree, devices // degree * degree), -(-devices // degree) * degree})
    return (f"{axis} {degree:,} doesn't divide {count(devices, 'device')}: {would} would, or --gpus "
            + " or ".join(f"{n:,}" for n in near))


def _named(given: dict[str, int]) -> str:
    return ", ".join(f"{axis} {degree:,}" for axis, degree in given.items())


def wholly_fixed(limits: Limits, found: Found) -> bool:
    """Whether the limits left one layout: then it is that one that was asked about, and nothing was searched."""
    open_ = [] if isinstance(_job_of(found), Inference) else [limits.zero, limits.recompute, limits.micro_batch]
    mesh = [limits.tp, limits.pp, limits.dp]
    return len(found.best) + len(found.failed) == 1 and any(mesh) and None not in open_


def _job_of(found: Found) -> Job:
    return (found.best or found.failed)[0].job


def fewest(model: PlannedModel, machine: Machine, job: Job, limits: Limits | None = None,
           most: int = MOST_DEVICES) -> tuple[Machine, Found] | None:
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
