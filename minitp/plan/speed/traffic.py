"""What a training step moves: for every axis of the mesh the collectives of a rank, their bytes, and which level of the
machine they go over.

Those of tensor parallelism are the closed form that a run's trace is checked against (minitp.trace.predict), in another
number type. The others are counted here, as planner.md's section 4 and its papers do:

  sp   an all-reduce is a reduce-scatter and an all-gather, with the norms between them cut along the sequence (KOR)
  cp   K and V go round a ring, cp − 1 hops a layer, twice as much backward (Liu et al. 2023, ring attention)
  pp   b·s·h a boundary, micro-batch and direction; over the slow link only 1/tp of it (Narayanan et al. 2021, 4.1)
  dp   gradients and weights by ZeRO's stage (Rajbhandari et al. 2020, section 7), for m micro-batches a step. What is
       cut and whole for one layer at a time (gradients from ZeRO-2 on, weights in ZeRO-3) moves layer by layer: as
       many collectives, each with its latency. The rest is summed and gathered once a step, counted as one
  ep   tokens to their experts and back, forward and backward (Lepikhin et al. 2020, GShard)

`payload` is one collective's whole array, as the trace counts it. `wire` is what a rank sends in a step where each
level cuts the array for the next one (plan.hierarchy, "shards") and rings move it: the least that must be sent.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, Literal

from minitp.plan.job import Training
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel, Where
from minitp.plan.network.boundaries import boundaries, boundary
from minitp.plan.network.collectives import COSTS_AS, cost
from minitp.plan.network.hierarchy import shards
from minitp.plan.speed import flops
from minitp.plan.speed.one_step import OneStep
from minitp.plan.speed.syncs import PREDICTED, copies, on_stage, syncs

Axis = Literal["tp", "sp", "cp", "pp", "dp", "ep"]
ZERO = "Rajbhandari et al. 2020, section 7"


@dataclass(frozen=True)
class Traffic:
    """Like collectives of one rank in one step: `count` of them, `payload` bytes each.

    meeting  how the group's members meet at the machine's levels
    wire     bytes that a rank sends, by level, in the whole step; `per_link`: through each port, all devices at once
    part     of what moves with every micro-batch, part by part of the model: of which part one collective is
    """
    axis: Axis
    term: str
    phase: str
    op: str
    payload: float
    count: int
    meeting: tuple[int, ...]
    wire: dict[str, float]
    per_link: dict[str, float]
    formula: str
    source: str
    note: str = ""
    part: Where | None = None

    @property
    def sent(self) -> float:
        """Bytes a rank sends in a step, over all levels."""
        return sum(self.wire.values())

    def to_plain(self) -> dict[str, Any]:
        return {"axis": self.axis, "term": self.term, "phase": self.phase, "op": self.op, "count": self.count,
                "payload": self.payload, "meeting": list(self.meeting), "sent": self.sent, "sent by level": self.wire,
                "per link": self.per_link, "formula": self.formula, "source": self.source, "note": self.note,
                "part": self.part}


# --- what is on the wire --------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def wire_shares(op: str, meeting: tuple[int, ...]) -> tuple[float, ...]:
    """Bytes that a rank sends at each level, as shares of the payload."""
    shares = [Fraction(0)] * len(meeting)
    met = tuple((level, members) for level, members in enumerate(meeting) if members > 1)
    if not met:
        return tuple(map(float, shares))
    if op == "send":
        shares[met[-1][0]] = Fraction(1)
        return tuple(map(float, shares))
    for part in shards(COSTS_AS.get(op, op), met):
        by = "pairwise" if part.op == "all_to_all" else "ring"
        shares[part.level] += part.share * cost(part.op, by, part.ranks).volume
    return tuple(map(float, shares))


# --- a training step ------------------------------------------------------------------------------------------------


def step(model: PlannedModel, layout: Layout, job: Training, machine: Machine, stage: int | None = None,
         scatter_gather: bool = True) -> list[Traffic]:
    """Everything that a rank of `stage` (None: the one with most to compute) sends in a step, by axis.

    scatter_gather: without sequence parallelism all tp ranks hold the same b·s·h; each sends 1/tp of it to the next
    stage, where the pieces are gathered. False: each sends all of it.
    """
    if stage is None:
        stage = flops.slowest_stage(model, layout, job.seq)
    one = _Moved(model, layout, job, machine, stage, scatter_gather)
    parts = (one.tensor(), one.context(), one.pipeline(), one.data(), one.experts(), one.owed())
    return [row for part in parts for row in part if row.count and row.payload and prod(row.meeting) > 1]


@dataclass(frozen=True)
class _Moved(OneStep):
    """What the step moves."""
    scatter_gather: bool

    @property
    def stream(self) -> float:
        """Bytes of a micro-batch between two layers."""
        return self.job.micro_batch * self.tokens * self.model.config.hidden * self.job.precision.activations

    def row(self, axis: Axis, term: str, phase: str, op: str, payload: float, count: int, meeting: tuple[int, ...],
            formula: str, source: str, note: str = "", shares: tuple[tuple[float, ...], ...] | None = None,
            part: Where | None = None) -> Traffic:
        """`shares`: of the payload at each level, of this stage's ranks and of all on the mean, where these differ."""
        own, mean = shares or (wire_shares(op, meeting),) * 2
        wire, per_link, below = {}, {}, 1
        for level, mine, each in zip(self.machine.levels, own, mean, strict=True):
            if mine:
                wire[level.name] = mine * payload * count
            if each:
                per_link[level.name] = each * payload * count * (below / level.ports if level.ports else 1)
            below *= level.size
        return Traffic(axis, term, phase, op, payload, count, meeting, wire, per_link, formula, source, note, part)

    def tensor(self) -> Iterator[Traffic]:
        """The sync points of the tp group. The loss's are of float32."""
        meeting, precision = self.machine.spread(self.layout, "tp", self.stage), self.job.precision
        for sync in syncs(self.model, self.layout, self.job.micro_batch, self.tokens, self.job.recompute):
            there = on_stage(self.layout, self.stage, sync.part, self.model.config.layers)
            count = sync.times * there * self.m
            payload = sync.elements * (precision.logits if sync.logits else precision.activations)
            ops = ("reduce_scatter", "all_gather") if self.layout.sequence and not sync.logits else (sync.op,)
            for op in ops if sync.op == "all_reduce" else (sync.op,):
                yield self.row("sp" if len(ops) == 2 else "tp", f"sync points, {sync.part}", sync.phase, op, payload,
                               count, meeting, "b·s numbers" if sync.part == "loss" else "b·s·h numbers",
                               "KOR, section 4.2.2, of the sync points of " + PREDICTED if len(ops) == 2 else PREDICTED)

    def context(self) -> Iterator[Traffic]:
        """K and V of a rank's piece of the sequence, passed on to the next rank cp − 1 times."""
        if self.layout.cp == 1:
            return
        placement = self.model.placement(self.layout.tp, self.layout.embedding, self.layout.cut)
        width = max(len(placement.kv_heads(rank)) for rank in range(self.layout.tp)) * self.model.config.head_size
        piece = 2 * self.job.micro_batch * self.tokens * width * self.job.precision.activations
        hops = self.layers * (self.layout.cp - 1) * self.m
        again = int(self.job.recompute == "full")
        meeting = self.machine.spread(self.layout, "cp", self.stage)           # a ring is as slow as its worst hop
        for phase, times, what in (("forward", 1, "K, V"), ("backward", 2 + again, "K, V and their gradients")):
            yield self.row("cp", f"ring attention, {what}", phase, "send", piece, hops * times, meeting,
                           "(cp − 1) · 2·b·s/cp·(kv heads)·e a layer", "Liu et al. 2023", "behind attention's products")

    def pipeline(self) -> Iterator[Traffic]:
        """What goes to the next stage and to the one before, and a tied table's gradient between the ends."""
        layout, last = self.layout, self.layout.pp - 1
        if not last:
            return
        every = boundaries(self.machine, layout)[:last + (layout.chunks > 1)]
        worst = max(every, key=lambda one: one.level).meeting               # the slowest holds up the others
        mean = tuple(sum(level) / len(every) for level in zip(*(one.shares for one in every), strict=True))
        cut = layout.tp if layout.sequence or self.scatter_gather else 1
        inside = self.machine.spread(layout, "tp", self.stage)
        for phase, end in (("forward", last), ("backward", 0)):
            count = self.m * (layout.chunks - (self.stage == end))
            other = (self.stage + (1 if end else -1)) % layout.pp
            yield self.row("pp", "to the next stage" if end else "to the stage before", phase, "send",
                           self.stream / cut, count, worst, "b·s·h/tp" if cut > 1 else "b·s·h", "SC21, section 4.1",
                           shares=(boundary(self.machine, layout, self.stage, other).shares, mean))
            if cut > 1 and not layout.sequence:
                comes = self.m * (layout.chunks - (self.stage == last - end))
                yield self.row("tp", "gather of what comes from a stage", phase, "all_gather", self.stream, comes,
                               inside, "b·s·h", "SC21, section 4.1")
        if self.model.config.tied and self.stage in (0, last):
            table = self.model.on_stage(layout, Place(0, 0, 0, last))["head"].total
            yield self.row("pp", "gradient of the tied table", "optimizer", "all_reduce",
                           table * self.job.precision.gradients, 1,
                           boundary(self.machine, layout, 0, last).meeting, "V·h/tp", "SC21: Megatron")

    def data(self) -> Iterator[Traffic]:
        """Gradients and weights of what the rank holds. ZeRO cuts dense ones over dp (pieces of a context hold the same
        and add up their shares), experts over the replicas of each."""
        layout, held = self.layout, self.model.on_stage(self.layout, Place(0, 0, 0, self.stage))
        if "norm" in held:                                                   # too small to travel alone
            held["head"] = held["head"].plus(held.pop("norm"))
        dense = {part: mine.shard + mine.whole for part, mine in held.items()}
        bytes_each = self.job.precision.gradients
        replicas = layout.dp * layout.cp
        if layout.zero and layout.cp > 1:
            yield from self._replicas("weights", dense, self.machine.spread(layout, "dp"))
            yield self.row("dp", "gradients of a context's pieces", "backward", "all_reduce",
                           sum(dense.values()) * bytes_each / layout.dp, 1, self.machine.spread(layout, "cp"), "P/d",
                           ZERO)
        else:
            yield from self._replicas("weights", dense, self.machine.meeting(replicas, layout.tp, layout.devices))
        yield from self._replicas("experts", {part: mine.expert for part, mine in held.items()},
                                  self.machine.meeting(replicas // layout.ep, layout.tp * layout.ep,
                                                       layout.devices))

    def _replicas(self, what: str, held: dict[Where, int], meeting: tuple[int, ...]) -> Iterator[Traffic]:
        """By ZeRO's stage, of the numbers that are held of each part. P = all of them: 2P, 2P, (m + 1)P and 3mP, each
        times (d − 1)/d."""
        zero, precision, numbers = self.layout.zero, self.job.precision, sum(held.values())
        if zero < 2:
            yield self.row("dp", f"gradients of {what}", "backward", "reduce_scatter" if zero else "all_reduce",
                           numbers * precision.gradients, 1, meeting, "P", ZERO)
        else:
            yield from self._by_part(f"gradients of {what}", "backward", "reduce_scatter", held, precision.gradients,
                                     meeting)
        if zero in (1, 2):
            yield self.row("dp", f"updated {what}", "optimizer", "all_gather", numbers * precision.weights, 1, meeting,
                           "P", ZERO)
        if zero == 3:
            for phase in ("forward", "backward"):
                yield from self._by_part(f"{what} for a pass", phase, "all_gather", held, precision.weights, meeting)

    def _by_part(self, term: str, phase: str, op: str, held: dict[Where, int], bytes_each: float,
                 meeting: tuple[int, ...]) -> Iterator[Traffic]:
        """With every micro-batch a collective of each layer, and one of each of the stage's ends."""
        for part, numbers in held.items():
            times = max(self.layers, 1) if part == "layer" else 1
            yield self.row("dp", f"{term}, {part}", phase, op, numbers / times * bytes_each,
                           times * self.m, meeting,
                           "P/L a layer and micro-batch" if part == "layer" else "P a micro-batch", ZERO, part=part)

    def experts(self) -> Iterator[Traffic]:
        """Each token goes to its `active` experts and comes back, forward and backward. The load is taken as even."""
        layout, model = self.layout, self.model
        if model.experts == 1 or layout.ep == 1:
            return
        payload = layout.ep * self.stream * model.active / (layout.tp if layout.sequence else 1)
        meeting = self.machine.spread_of(layout.ep, layout.tp, layout, self.stage)
        again = 2 if self.job.recompute == "full" else 0
        for phase, times in (("forward", 2), ("backward", 2 + again)):
            yield self.row("ep", "tokens to their experts and back", phase, "all_to_all", payload,
                           times * self.layers * self.m, meeting, "k·b·s·h numbers of each rank",
                           "Lepikhin et al. 2020")

    def owed(self) -> Iterator[Traffic]:
        """Once a step over the tp group: copied kv heads' gradients; with sequence parallelism those of norms, too."""
        layout, bytes_each = self.layout, self.job.precision.gradients
        inside, owed = self.machine.spread(layout, "tp", self.stage), copies(self.model, layout) * self.layers
        yield self.row("tp", "gradients of copied kv heads", "optimizer", "all_reduce", owed * bytes_each, 1, inside,
                       "of k and v", PREDICTED)
        if layout.sequence:
            whole = self.model.held("layer", layout.tp, 0).whole * self.layers
            yield self.row("sp", "gradients of norms and biases", "optimizer", "all_reduce", whole * bytes_each, 1,
                           inside, "of what every rank holds", "KOR, section 4.2.2")


def by_axis(rows: list[Traffic]) -> dict[Axis, float]:
    """Bytes that a rank sends in a step, by axis, in the order in which they first occur."""
    sums: dict[Axis, float] = {}
    for row in rows:
        sums[row.axis] = sums.get(row.axis, 0.0) + row.sent
    return sums
