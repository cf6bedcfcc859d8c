"""The time of one training step on machines we don't have, and from it MFU, days and GPU hours.

  step = m · (products + sync points of the slowest stage) + bubble + sends between stages + exposed data parallelism
         + optimizer

Products run at the share of the peak that the device reaches: Device.flops_reached, one number for all shapes, with
what lies between products in it. A micro-batch of few hundred tokens takes longer to read the weights, above all those
of experts: `minitp plan simulate` has that, this sum hasn't. Collectives of the tp group stand in the way of what
follows and hide behind nothing. Data parallelism hides behind the passes that it can run beside, but for the first
layer's weights and the last gradients, and not while another axis takes the same link. What isn't modeled: launches,
stragglers, input, checkpoints, restarts, shapes that a device likes less. All of it is a model.

SC21 is Narayanan et al. 2021 (arXiv:2104.04473), KOR Korthikanti et al. 2022 (arXiv:2205.05198).
"""
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from minitp.plan import schedule
from minitp.plan.job import Training
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import LIBRARY, price
from minitp.plan.rows import TimeRow
from minitp.plan.speed import flops, traffic
from minitp.plan.speed.flops import PassFlops
from minitp.plan.speed.one_step import OneStep
from minitp.plan.speed.traffic import Traffic
from minitp.plan.units import seconds_in

IN_THE_WAY: tuple[traffic.Axis, ...] = ("tp", "sp", "ep")
"""Axes whose collectives nothing hides."""

NAMES = {"tp": "tensor parallelism", "sp": "sequence parallelism", "ep": "experts", "cp": "context parallelism",
         "pp": "sends between stages", "dp": "data parallelism"}


@dataclass(frozen=True)
class StepTime:
    """A training step of `sequences` sequences on `devices` devices.

    flops   of the whole step on all devices; `peak` of one device in FLOP/s
    stage   the slowest stage, whose time the step's is
    bubble  idle time as a share of the ideal time (SC21, section 2.2)
    hidden  what runs beside something else and so takes no time of its own, in seconds by axis
    moved   bytes that a rank sends in the step: of two layouts that take equally long the one that moves less is better
    """
    rows: tuple[TimeRow, ...]
    flops: PassFlops
    devices: int
    tokens: int
    peak: float
    stage: int
    bubble: float
    hidden: dict[str, float]
    moved: float
    training_tokens: float

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: forward and backward, nothing that is done again (Chowdhery et al. 2022)."""
        return flops.utilization(self.flops.model, self.seconds, self.devices, self.peak)

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: with what is computed again."""
        return flops.utilization(self.flops.hardware, self.seconds, self.devices, self.peak)

    @property
    def flops_per_device(self) -> float:
        """FLOP/s with what is computed again: what SC21 and BLOOM report."""
        return self.hfu * self.peak

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def tokens_per_s_each(self) -> float:
        """Of one device."""
        return self.tokens_per_s / self.devices

    @property
    def days(self) -> float | None:
        """For all tokens of the job; None where it names none."""
        return self.training_tokens / self.tokens_per_s / flops.DAY if self.training_tokens else None

    @property
    def device_hours(self) -> float | None:
        return None if self.days is None else self.days * 24 * self.devices

    def to_plain(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "MFU": self.mfu, "HFU": self.hfu, "FLOP/s a device": self.flops_per_device,
                "tokens/s": self.tokens_per_s, "tokens/s a device": self.tokens_per_s_each, "bubble": self.bubble,
                "days": self.days, "device hours": self.device_hours, "slowest stage": self.stage,
                "hidden s": self.hidden, "moved": self.moved, "rows": [row.to_plain() for row in self.rows]}


def training_step(model: PlannedModel, layout: Layout, job: Training, machine: Machine, *, overlap: bool = True,
                  policy: str = LIBRARY) -> StepTime:
    """One step. `overlap`: whether data parallelism runs beside the passes (False: all of it takes time of its own).

    ConfigError where the batch can't be dealt to the replicas, or the schedule can't take the micro-batches.
    """
    one = _Timed(model, layout, job, machine, 0, overlap, policy)
    one = replace(one, stage=one.slowest())
    rows, hidden = one.rows()
    moved = sum(row.sent for row, _ in one.priced)
    return StepTime(tuple(row for row in rows if row.seconds or row.note), flops.step(model, job), layout.devices,
                    job.batch * job.seq, one.peak, one.stage, one.bubble, hidden, moved, job.tokens)


def arithmetic(job: Training) -> str:
    """The number type of the products, by the bytes of an activation."""
    return {1: "fp8", 2: "bf16"}.get(int(job.precision.activations), "float32")


@dataclass(frozen=True)
class _Timed(OneStep):
    """What the step takes."""
    overlap: bool
    policy: str

    @cached_property
    def peak(self) -> float:
        return self.machine.device.peak(arithmetic(self.job))

    def slowest(self) -> int:
        """The stage with the most to compute; where the stages' groups lie differently on boxes, the slowest."""
        if len({self._spreads(stage) for stage in range(self.layout.pp)}) == 1:
            return flops.slowest_stage(self.model, self.layout, self.job.seq)
        return max(flops.stages(self.model, self.layout, self._spreads),
                   key=lambda stage: self.takes(self.micro_batch(stage).hardware) + self._waits(stage))

    def _spreads(self, stage: int) -> tuple[tuple[int, ...], ...]:
        return self.machine.spreads(self.layout, stage)

    def _waits(self, stage: int) -> float:
        """Seconds that a stage's micro-batch waits for what nothing hides."""
        moved = traffic.step(self.model, self.layout, self.job, self.machine, stage)
        return sum(row.count * price(row.op, row.payload, row.meeting, self.machine, policy=self.policy).seconds
                   for row in moved if row.axis in IN_THE_WAY and row.phase != "optimizer") / self.m

    @cached_property
    def bubble(self) -> float:
        """As a share of the ideal time, were all stages alike."""
        return schedule.bubble(self.layout.schedule, self.layout.pp, self.m, self.layout.chunks)

    def micro_batch(self, stage: int) -> PassFlops:
        """Operations of a micro-batch on the slowest rank of a stage."""
        numbers = flops.on_stage(self.model, self.layout, stage, self.job.seq)
        return flops.passes(numbers.times(self.job.micro_batch * self.tokens), self.job.recompute)

    def takes(self, operations: float) -> float:
        return operations / (self.peak * self.machine.device.flops_reached)

    @cached_property
    def priced(self) -> list[tuple[Traffic, float]]:
        """What a rank of the slowest stage moves, and the seconds that like collectives take together."""
        moved = traffic.step(self.model, self.layout, self.job, self.machine, self.stage)
        return [(row, row.count * self._price(row.op, row.payload, row.meeting)) for row in moved]

    def rows(self) -> tuple[list[TimeRow], dict[str, float]]:
        """The step's terms in order, and what is hidden behind them."""
        mine = self.micro_batch(self.stage)
        products = self._products(mine)
        priced = self.priced
        ways = list(self._in_the_way(priced))
        context, hidden_context = self._context(priced, mine)
        ideal = products.seconds + sum(row.seconds for row in (*ways, *context))
        sends = [self._row(NAMES["pp"], [(row, time) for row, time in priced if row.axis == "pp"])]
        data, hidden_data = self._data(priced, ideal / self.m, mine)
        hidden = {"cp": hidden_context, "dp": hidden_data}
        return ([products, *ways, *context, self._bubble(ideal, products.seconds / self.m), *sends, *data,
                 self._optimizer()], {axis: time for axis, time in hidden.items() if time})

    def _products(self, mine: PassFlops) -> TimeRow:
        reached = self.machine.device.flops_reached
        again = f", {mine.recomputed.total / mine.hardware:.0%} of it done again" if mine.recomputed.total else ""
        if self.job.recompute == "selective":
            printed = mine.hardware + 2 * mine.recomputed.total
            again += (f"; KOR's equation 8 (1 + s/3h, not s/4.5h) counts attention's backward pass as done again, too: "
                      f"an HFU {printed / mine.hardware - 1:.1%} higher")
        return TimeRow("products", "m · operations of the slowest stage's rank / (peak · share reached)",
                       f"{self.m} · {mine.hardware / 1e12:,.4g} TFLOP / ({self.peak / 1e12:,.4g} TFLOP/s · "
                       f"{reached:.4g})", self.m * self.takes(mine.hardware), "plan.flops; SC21, appendix",
                       f"stage {self.stage} of {self.layout.pp}{again}")

    def _price(self, op: str, payload: float, meeting: tuple[int, ...]) -> float:
        """Seconds of one collective."""
        return price(op, payload, meeting, self.machine, policy=self.policy).seconds

    def _row(self, term: str, priced: list[tuple[Traffic, float]], exposed: float | None = None,
             note: str = "") -> TimeRow:
        """Like collectives of an axis together."""
        numbers = " + ".join(f"{row.count:,} · {seconds_in(time / row.count)} ({row.op}, {row.payload:,.0f} B)"
                             for row, time in priced)
        total, formula = sum(time for _, time in priced), "collectives · their price"
        if exposed is not None and exposed < total:
            formula += " − what runs beside the passes"
            numbers += f" − {seconds_in(total - exposed)}"
        return TimeRow(term, formula, numbers, total if exposed is None else exposed,
                       "; ".join(dict.fromkeys(row.source for row, _ in priced)) + "; priced by plan.network", note)

    def _in_the_way(self, priced: list[tuple[Traffic, float]]) -> Iterator[TimeRow]:
        for axis in IN_THE_WAY:
            like = [(row, time) for row, time in priced if row.axis == axis]
            if like:
                yield self._row(NAMES[axis], like)

    def _context(self, priced: list[tuple[Traffic, float]], mine: PassFlops) -> tuple[list[TimeRow], float]:
        """A ring's hops run beside the scores of the piece before."""
        like = [(row, time) for row, time in priced if row.axis == "cp"]
        if not like:
            return [], 0.0
        total = sum(time for _, time in like)
        beside = self.m * self.takes(mine.forward.scores + mine.backward.scores + mine.recomputed.scores)
        exposed = max(0.0, total - beside)
        return [self._row(NAMES["cp"], like, exposed, _hidden(total - exposed))], total - exposed

    def _bubble(self, ideal: float, products: float) -> TimeRow:
        """Filling and draining: the other stages' time for one micro-batch, by chunks. Stages may differ."""
        layout, between = self.layout, ideal / self.m - products
        others = {stage: count - (stage == self.stage)
                  for stage, count in flops.stages(self.model, layout, self._spreads).items()}
        mean = sum(count * (self.takes(self.micro_batch(stage).hardware) + between + self._more(stage))
                   for stage, count in others.items()) / max(1, layout.pp - 1)
        return TimeRow("pipeline bubble", "(p − 1)/(v·m) of the ideal time, by the other stages' mean",
                       f"{self.bubble:.4g} · {self.m} · {seconds_in(mean)}", self.bubble * self.m * mean,
                       "plan.schedule; SC21, section 2.2")

    def _more(self, stage: int) -> float:
        """Seconds that a micro-batch of another stage waits longer, where its groups lie otherwise on the boxes."""
        alike = self._spreads(stage) == self._spreads(self.stage)
        return 0.0 if alike else self._waits(stage) - self._waits(self.stage)

    def _data(self, priced: list[tuple[Traffic, float]], each: float,
              mine: PassFlops) -> tuple[list[TimeRow], float]:
        """By phase: forward or backward passes hide what runs beside them, the optimizer's gather the next forward.

        A link carries one thing at a time: while another axis uses one of theirs, nothing runs beside. And the first
        layer's weights must be there before its pass begins, the last gradients are there only when it has ended: a
        layer's share of each is never hidden.
        """
        like = [(row, time) for row, time in priced if row.axis == "dp"]
        if not like:
            return [], 0.0
        beside = max(0.0, each - self._busy(priced, [row for row, _ in like]) / self.m)
        forward = beside * mine.forward.total / mine.hardware
        window = {"forward": forward, "backward": beside - forward, "optimizer": forward}
        exposed = total = 0.0
        for phase, seconds in window.items():
            rows = [(row, time) for row, time in like if row.phase == phase]
            passes = self.m if any(row.part for row, _ in rows) else 1         # with every micro-batch, or once a step
            took = sum(time for _, time in rows)
            bare = self._bare([row for row, _ in rows if phase != "backward" or row.op != "all_gather"])
            exposed += max(0.0, bare, took - passes * seconds) if self.overlap else took
            total += took
        return [self._row(NAMES["dp"], like, exposed, _hidden(total - exposed))], total - exposed

    def _bare(self, rows: list[Traffic]) -> float:
        """Seconds of a layer's share of what a pass moves, the stage's ends among it: alike for all stages of ZeRO."""
        moved: dict[tuple[str, tuple[int, ...]], float] = {}
        for row in rows:
            kind = row.op, row.meeting
            moved[kind] = moved.get(kind, 0.0) + row.payload * (row.count / self.m if row.part else row.count)
        return sum(self._price(op, size / max(1, self.layers), meeting) for (op, meeting), size in moved.items())

    def _busy(self, priced: list[tuple[Traffic, float]], like: list[Traffic]) -> float:
        """Seconds of a step in which another axis' collectives take a link that these take, too."""
        mine = {level for row in like for level, size in row.wire.items() if size}
        return sum(time for row, time in priced
                   if row.axis in (*IN_THE_WAY, "pp") and mine & {level for level, size in row.wire.items() if size})

    def _optimizer(self) -> TimeRow:
        """Reads gradients, reads and writes the copy that is updated and the moments, writes weights: memory's work."""
        device = self.machine.device
        mine, size = updated(self.model, self.layout, self.job, Place(0, 0, 0, self.stage))
        written = "2·(master + moments) + weights" if self.job.precision.master else "2·(weights + moments)"
        return TimeRow("optimizer", f"numbers · (gradients + {written}) / bandwidth",
                       f"{mine / 1e9:.4g}e9 · {size / max(mine, 1):.4g} B / ({device.bandwidth / 1e9:,.5g} GB/s · "
                       f"{device.bandwidth_reached:.4g})", size / (device.bandwidth * device.bandwidth_reached),
                       "Adam, once a step")


def updated(model: PlannedModel, layout: Layout, job: Training, place: Place) -> tuple[float, float]:
    """Numbers that the rank at `place` updates once a step, and the bytes that this reads and writes: where no master
    copy is kept, the weights are what is read and updated."""
    dense, experts = (layout.dp, layout.dp * layout.cp // layout.ep) if layout.zero else (1, 1)
    mine = sum((part.shard + part.whole) / dense + part.expert / experts
               for part in model.on_stage(layout, place).values())
    kept = job.precision
    return mine, mine * (kept.gradients + 2 * kept.optimizer + kept.weights * (1 if kept.master else 2))


def _hidden(seconds: float) -> str:
    return (f"{seconds_in(seconds)} of its price run beside the passes and take no time of their own, as far as the "
            "passes are long and their links free") if seconds else ""
