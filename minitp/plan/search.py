"""Which layouts of a machine carry a job, which of them are fast, and why the others fail.

Every mesh tp · cp · pp · dp of all devices is tried; of each, what is left open of expert parallelism, chunks, ZeRO's
stage, recomputation and micro-batch. Memory comes first, as it costs little to work out; what fits is then given a
time. A mesh is judged by its best variant.
"""
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from minitp.errors import ConfigError
from minitp.plan import memory, positions
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import Layout, Place, shortly
from minitp.plan.limits import (
    RECOMPUTE,
    ZERO,
    Limits,
    chunks,
    expert_degrees,
    meshes,
    micro_batches,
    no_mesh,
    undealt,
    variants,
)
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row
from minitp.plan.speed import decode, step
from minitp.plan.units import both

MOST = 10_000
"""Layouts that a search tries."""
MOST_DEVICES = 4096
"""Where `fewest` stops to look for more, unless told otherwise."""

Why = Literal["shape", "batch", "memory"]


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
    def reasons(self) -> dict[Why, int]:
        """How many meshes failed for each reason."""
        return dict(Counter(failure.why for failure in self.failed))


def search(model: PlannedModel, machine: Machine, job: Job, limits: Limits | None = None) -> Found:
    """The layouts of all devices of `machine`, the fastest first. ConfigError where the limits leave none."""
    limits = limits or Limits()
    tried_meshes = list(meshes(machine.devices, limits))
    if not tried_meshes:
        raise ConfigError(no_mesh(machine.devices, limits))
    if (limits.ep or 1) > 1 and model.experts == 1:
        raise ConfigError(f"{model.name} is dense: it has no experts that ep = {limits.ep:,} ranks could share")
    if limits.stage_layers is not None and sum(limits.stage_layers) != model.config.layers:
        raise ConfigError(f"the chunks' layers {shortly(limits.stage_layers)} add up to {sum(limits.stage_layers):,}, "
                          f"{model.name} has {model.config.layers:,}")
    best: list[Candidate] = []
    failed: list[Failure] = []
    left: list[tuple[int, int, int, int]] = []
    for tp, cp, pp, dp in tried_meshes:
        named = limits.stage_layers if limits.stage_layers and len(limits.stage_layers) == pp else None
        plainest = Layout(tp=tp, cp=cp, pp=pp, dp=dp, ep=limits.ep or 1, stage_layers=named)
        undone = undealt(pp, limits, isinstance(job, Training))
        why: tuple[Why, str] | None = ("shape", undone) if undone else unfit(model, plainest, job)
        if why is not None and why[0] == "shape":          # no variant would fit: one word for all of them
            failed.append(Failure(plainest, job, *why))
        else:
            left.append((tp, cp, pp, dp))
    if len(left) * variants(job, limits) > MOST:
        raise _too_many()
    tried = len(failed)
    for mesh in left:
        outcomes = _Outcomes(model, machine, job, limits, MOST - tried)
        outcomes.of_mesh(*mesh)
        tried += outcomes.tried
        if outcomes.best is not None:
            best.append(outcomes.best)
        elif outcomes.nearest is not None:
            failed.append(outcomes.nearest)
    return Found(machine, tried, sorted(best, key=_order), sorted(failed, key=_far))


def _too_many() -> ConfigError:
    return ConfigError(f"more than {MOST:,} layouts: fix some degrees (--tp, --pp, --zero, --recompute)")


def _order(one: Candidate) -> tuple[float, float, int]:
    """The fastest first; of those that differ by rounding errors the one that moves less, then the one that holds
    less: what a step hides costs no time in a model, but links that are needed for nothing stay free."""
    moved = one.time.moved if isinstance(one.time, step.StepTime) else 0.0
    return float(f"{one.seconds:.9g}"), moved, one.held


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
        for ep in expert_degrees(self.model, dp * cp, limits.ep):
            last: Candidate | None = None
            for each in chunks(self.model, pp, limits) if training else (1,):
                layout = Layout(tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, sequence=sequence, chunks=each,
                                schedule="interleaved" if each > 1 else "1f1b", stage_layers=limits.stage_layers)
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
        for size in micro_batches(job.batch, layout.dp, limits.micro_batch):
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
            raise _too_many()
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
    if not layout.fills(config.layers):
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


def wholly_fixed(limits: Limits, found: Found) -> bool:
    """Whether the limits left one layout: then it is that one that was asked about, and nothing was searched."""
    open_ = [] if isinstance(_job_of(found), Inference) else [limits.zero, limits.recompute, limits.micro_batch]
    mesh = [limits.tp, limits.pp, limits.dp]
    return len(found.best) + len(found.failed) == 1 and any(mesh) and None not in open_


def _job_of(found: Found) -> Job:
    return (found.best or found.failed)[0].job


def fewest(model: PlannedModel, machine: Machine, job: Job | Callable[[Machine], Job], limits: Limits | None = None,
           most: int = MOST_DEVICES, least: float = 0) -> tuple[Machine, Found] | None:
    """The smallest number of such machines that carries the job: 1, 2, 3 … 8 of them, then 16, 32 …; None where none
    does up to `most` devices.

    job    may depend on the machine: a batch with a sequence for each device
    least  devices that are needed by bytes alone: fewer aren't tried
    """
    boxes = [n for n in (*range(1, 9), *(2**k for k in range(4, 13))) if least <= n * machine.per_machine <= most]
    for n in boxes:
        if n > 1 and len(machine.levels) < 2:
            return None
        larger = machine.with_devices(n * machine.per_machine)
        try:
            found = search(model, larger, job(larger) if callable(job) else job, limits)
        except ConfigError:
            continue
        if found.best:
            return larger, found
    return None
