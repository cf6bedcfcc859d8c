"""The time of one token, and of a prompt, on a machine we don't have.

A decode step reads every weight once for all its sequences, and each sequence's keys and values; it computes little. So
its time is bytes over bandwidth (Pope et al. 2023, section 3; kipply 2022), plus 2L + 2 sync points that follow one
another: small messages, whose latency counts and not their bytes. A prompt is the other way round: it computes.

  time of a stage = max(bytes of weights / bandwidth, their operations / peak) + the same of the KV cache + sync points

Where a context is cut over cp ranks, each has its piece of the cache and of the scores; a prompt's tokens are dealt to
them, one new token is not, and each does all of its products.

Rates are what the device reaches (Device.bandwidth_reached, flops_reached). Sync points and payloads are those of
minitp.trace.predict; each is priced by plan.network. Stages of a pipeline work one after the other. All of it is a
model; sampling and the tokenizer aren't in it.
"""
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, NamedTuple

from minitp.errors import ConfigError
from minitp.plan.job import FLOAT32_BYTES, TOKEN_BYTES, Inference, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import LIBRARY, Price, price
from minitp.plan.network.boundaries import boundaries
from minitp.plan.rows import TimeRow
from minitp.plan.speed import flops
from minitp.plan.speed.reading import Ends, Read, bytes_read
from minitp.plan.speed.syncs import PREDICTED, on_stage, syncs
from minitp.plan.units import seconds_in

ROOFLINE = "Pope et al. 2023, section 3; rates reached: the device's source"


@dataclass(frozen=True)
class PassTime:
    """One forward pass, of one new token (or of a prompt) of each of `sequences` sequences.

    memory_s, compute_s   of the seconds, those bound by bytes read and those bound by operations
    latency_s, moving_s   of sync points and messages: waiting for hops, and moving bytes
    syncs                 sync points of the tp group, one after the other
    bytes_read            by the rank that reads the most
    """
    rows: tuple[TimeRow, ...]
    sequences: int
    tokens: int
    memory_s: float
    compute_s: float
    latency_s: float
    moving_s: float
    syncs: int
    bytes_read: float

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def network_s(self) -> float:
        return self.latency_s + self.moving_s

    @property
    def tokens_per_s_each(self) -> float:
        """Of one sequence."""
        return self.tokens / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """Of all sequences together."""
        return self.sequences * self.tokens_per_s_each

    @property
    def bound(self) -> Literal["memory", "compute", "network"]:
        """What takes most of the time."""
        shares: dict[Literal["memory", "compute", "network"], float] = {
            "memory": self.memory_s, "compute": self.compute_s, "network": self.network_s}
        return max(shares, key=lambda name: shares[name])

    def to_plain(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "tokens/s each": self.tokens_per_s_each, "tokens/s": self.tokens_per_s,
                "memory s": self.memory_s, "compute s": self.compute_s, "latency s": self.latency_s,
                "moving s": self.moving_s, "sync points": self.syncs, "bytes read": self.bytes_read,
                "bound": self.bound, "rows": [row.to_plain() for row in self.rows]}


def token(model: PlannedModel, layout: Layout, job: Inference, machine: Machine, *, context: int | None = None,
          ends: Ends = "cut", policy: str = LIBRARY, groups: int = 1) -> PassTime:
    """One new token of each sequence, where `context` tokens of each are cached (None: all that the job's will be).

    groups: in how many the batch follows itself through a pipeline's stages. With one, all stages but one are idle;
    with as many as stages, each works on another group, and all sequences get a token in the time of one group's pass.
    policy: which algorithm the sync points take, as plan.network.price has it.
    """
    each = ceil(job.batch / layout.dp)
    if not 1 <= groups <= min(layout.pp, each):
        raise ConfigError(f"{each} sequences a replica can't follow one another through {layout.pp} stages in {groups} "
                          "groups: no more work at once than there are stages, and each needs a sequence")
    cached = job.context if context is None else context
    together = replace(job, batch=ceil(job.batch / groups))
    time = _Forward(model, layout, together, machine, 1, float(cached), ends, policy).time()
    return replace(time, sequences=job.batch)


def prefill(model: PlannedModel, layout: Layout, job: Inference, machine: Machine, *, ends: Ends = "cut",
            policy: str = LIBRARY) -> PassTime:
    """The pass over the prompts: the time to the first token. Half of attention is masked, and skipped.

    A pipeline takes the sequences one after the other, each stage working on another one.
    """
    attended = flops.attended(job.prompt, causal=True)
    return _Forward(model, layout, job, machine, job.prompt, attended, ends, policy).time()


class _Term(NamedTuple):
    """A row, and what of it waits for which part of the machine. `stage`: where it is spent, None between stages."""
    row: TimeRow
    memory_s: float = 0.0
    compute_s: float = 0.0
    latency_s: float = 0.0
    moving_s: float = 0.0
    points: int = 0


@dataclass(frozen=True)
class _Forward:
    """One question: a pass over `tokens` tokens of each sequence, each of which attends to `attended` positions."""
    model: PlannedModel
    layout: Layout
    job: Inference
    machine: Machine
    tokens: int
    attended: float
    ends: Ends
    policy: str

    @property
    def sequences(self) -> int:
        """On one replica."""
        return ceil(self.job.batch / self.layout.dp)

    @property
    def in_turn(self) -> int:
        """How many batches a pipeline takes one after the other: a prompt's sequences; a decode step goes as one."""
        return self.sequences if self.layout.pp > 1 and self.tokens > 1 else 1

    def time(self) -> PassTime:
        """One batch through all stages, then the others, each as far behind as the slowest stage takes."""
        terms, slowest, reads = [], 0.0, 0.0
        for stage, count in flops.stages(self.model, self.layout, self._spreads).items():
            here = list(self._stage(stage, count))
            terms += here
            slowest = max(slowest, sum(term.row.seconds for term in here) / count)
            reads = max(reads, self._read(stage).total)
        terms += self._messages()
        if self.in_turn > 1:
            terms.append(self._behind(slowest))
        return PassTime(tuple(term.row for term in terms), self.job.batch, self.tokens,
                        sum(term.memory_s for term in terms), sum(term.compute_s for term in terms),
                        sum(term.latency_s for term in terms), sum(term.moving_s for term in terms),
                        sum(term.points for term in terms), reads)

    def _spreads(self, stage: int) -> tuple[tuple[int, ...], ...]:
        return self.machine.spreads(self.layout, stage)

    def _read(self, stage: int) -> Read:
        """Of the tp rank that reads the most there. Where cuts aren't even the first ranks have more."""
        reads = (bytes_read(self.model, self.layout, self.one_batch, Place(rank, 0, 0, stage), ends=self.ends,
                            context=self.attended if self.tokens == 1 else self.tokens, tokens=self.tokens)
                 for rank in {0, self.layout.tp - 1})
        return max(reads, key=lambda read: read.total)

    @property
    def one_batch(self) -> Inference:
        """What passes the stages at once."""
        return replace(self.job, batch=ceil(self.sequences / self.in_turn) * self.layout.dp)

    def _stage(self, stage: int, count: int) -> Iterator[_Term]:
        """What `count` stages like this one take, one after the other."""
        read, at = self._read(stage), f" on {count} stages" if count > 1 else ""
        sequences, cp = ceil(self.sequences / self.in_turn), self.layout.cp
        here = ceil(self.tokens / cp)                                   # one new token is worked on by every piece
        share = flops.on_stage(self.model, self.layout, stage, self.attended)
        rows = here if self.job.every_row else 1                        # whose logits are wanted
        head = 2.0 * flops.matrices(self.model).head if share.head and self.ends == "copied" else share.head
        products = ((share.projections + share.mlp) * here + head * rows) * sequences
        yield self._roofline(f"weights{at}", read.weights, products, count)
        yield self._roofline(f"KV cache{at}", read.cache, share.scores * sequences * self.tokens / cp, count)
        yield from self._syncs(stage, count, at)

    def _roofline(self, term: str, size: float, operations: float, count: int) -> _Term:
        """Whichever takes longer: to read, or to compute."""
        device = self.machine.device
        peak = device.peak(self.job.activations)
        reading = count * size / (device.bandwidth * device.bandwidth_reached)
        computing = count * operations / (peak * device.flops_reached)
        times = f"{count} · " if count > 1 else ""
        if reading >= computing:
            row = TimeRow(f"read {term}", "bytes / (bandwidth · share reached)",
                          f"{times}{size / 1e9:.4g} GB / ({device.bandwidth / 1e9:,.5g} GB/s · "
                          f"{device.bandwidth_reached:.4g})", reading, ROOFLINE)
            return _Term(row, memory_s=reading)
        row = TimeRow(f"products with {term}", "operations / (peak · share reached)",
                      f"{times}{operations / 1e12:.4g} TFLOP / ({peak / 1e12:,.4g} TFLOP/s · "
                      f"{device.flops_reached:.4g})", computing, ROOFLINE)
        return _Term(row, compute_s=computing)

    def _syncs(self, stage: int, count: int, at: str) -> Iterator[_Term]:
        """The sync points of the tp group, merging of a cut cache, and the exchange of experts."""
        rows, (meeting, pieces, experts) = None if self.job.every_row else 1, self._spreads(stage)
        batch, tokens = ceil(self.sequences / self.in_turn), ceil(self.tokens / self.layout.cp)
        size = bytes_of(self.job.activations)
        for sync in syncs(self.model, self.layout, batch, tokens, rows=rows):
            if sync.part != "layer" and self.ends == "copied":
                continue
            times = count * sync.times * on_stage(self.layout, stage, sync.part, self.model.config.layers)
            payload = sync.elements * (FLOAT32_BYTES if sync.logits else size)
            if times:
                yield self._priced(f"sync points, {sync.part}{at}", sync.op, payload, times, meeting, PREDICTED, True)
        layers = count * self.layout.layers_on(self.model.config.layers, stage)
        heads = max(len(self.model.cuts(self.layout.tp).heads.of(rank)) for rank in range(self.layout.tp))
        if self.layout.cp > 1:
            numbers = batch * tokens * heads * (self.model.config.head_size + 2)
            yield self._priced(f"merge what each piece of the cache gives{at}", "all_reduce", numbers * size, layers,
                               pieces, "maximum, sum and output of each head: Milakov & Gimelshein 2018")
        if self.layout.ep > 1 and self.model.experts > 1:
            numbers = self.layout.ep * batch * tokens * self.model.active * self.model.config.hidden
            yield self._priced(f"tokens to their experts and back{at}", "all_to_all", numbers * size, 2 * layers,
                               experts, "Lepikhin et al. 2020")

    def _messages(self) -> Iterator[_Term]:
        """From stage to stage, and the chosen token back to the first."""
        if self.layout.pp == 1:
            return
        batch, (*onward, back) = ceil(self.sequences / self.in_turn), boundaries(self.machine, self.layout)
        numbers = batch * ceil(self.tokens / self.layout.cp) * self.model.config.hidden
        for meeting, times in Counter(one.meeting for one in onward).items():
            yield self._priced("to the next stage", "send", numbers * bytes_of(self.job.activations), times, meeting,
                               "b·s·h numbers a boundary")
        yield self._priced("the chosen tokens to the first stage", "send", TOKEN_BYTES * batch, 1,
                           back.meeting, f"{TOKEN_BYTES} bytes each")

    def _priced(self, term: str, op: str, payload: float, times: int, meeting: tuple[int, ...], source: str,
                point: bool = False) -> _Term:
        """`times` collectives alike, one after the other."""
        each: Price = price(op, payload, meeting, self.machine, policy=self.policy)
        starts = f", {seconds_in(each.launch_s)} of each around it" if each.launch_s else ""
        row = TimeRow(term, f"times · ({each.formula})",
                      f"{times} · {seconds_in(each.seconds)} ({op}, {payload:,.0f} B, {each.algorithm}{starts})",
                      times * each.seconds, f"{source}; {each.source}")
        return _Term(row, latency_s=times * each.latency_s,
                     moving_s=times * (each.seconds - each.latency_s), points=times if point else 0)

    def _behind(self, slowest: float) -> _Term:
        """The other batches that follow the first through the pipeline."""
        waits = (self.in_turn - 1) * slowest
        return _Term(TimeRow("other sequences, each a stage behind", "(sequences − 1) · slowest stage",
                             f"{self.in_turn - 1} · {seconds_in(slowest)}", waits, "Huang et al. 2019, GPipe"),
                     compute_s=waits)
