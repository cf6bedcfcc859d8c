"""Floating-point operations of a model: counted from the placement's matrices, and the closed forms that papers print.

A multiply-add is two operations. A token costs 2 for every element of a matrix that it is multiplied with, and for
attention's scores and sums 4 · (width of the query heads) for every position it attends to; backward costs twice the
forward pass. Norms, biases, softmax, rotary positions and the table's lookup aren't counted: their time is memory's.

CONVENTION: attention counts every position of the sequence for every token, as the papers do, though a causal mask
hides half of them. `causal=True` counts (s + 1)/2 a token. What a fused attention kernel computes again on the chip
isn't counted either.

  B sequences   s tokens of each   h hidden   L layers   V vocabulary   P parameters   T tokens of a training

SC21 is Narayanan et al. 2021 (arXiv:2104.04473), KOR Korthikanti et al. 2022 (arXiv:2205.05198).
"""
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from minitp.errors import ConfigError
from minitp.plan.job import Recompute, Training
from minitp.plan.layout import Layout
from minitp.plan.model import PlannedModel

DAY = 86_400


class Flops(NamedTuple):
    """Operations by part of the model. `projections` are q, k, v and o; `scores` QKᵀ and its product with V."""
    projections: float = 0.0
    scores: float = 0.0
    mlp: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        return sum(self)

    @property
    def layers(self) -> float:
        """All but the head."""
        return self.total - self.head

    def plus(self, other: "Flops") -> "Flops":
        return Flops(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Flops":
        return Flops(*(factor * part for part in self))


@dataclass(frozen=True)
class PassFlops:
    """Of a training step, or of a rank's share of it. `model` is what MFU counts, `hardware` what HFU counts."""
    forward: Flops
    backward: Flops
    recomputed: Flops

    @property
    def model(self) -> float:
        return self.forward.total + self.backward.total

    @property
    def hardware(self) -> float:
        return self.model + self.recomputed.total

    def times(self, factor: float) -> "PassFlops":
        return PassFlops(*(part.times(factor) for part in (self.forward, self.backward, self.recomputed)))


class Matrices(NamedTuple):
    """Matrix elements that a token is multiplied with on one rank: in ONE layer, and in the head."""
    projections: int
    mlp: int
    head: int
    width: int                                      # of this rank's query heads together, for attention's scores


# --- counted --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def matrices(model: PlannedModel, tp: int = 1, rank: int = 0, cut: Literal["even", "balanced"] = "even",
             embedding: Literal["vocab", "hidden"] = "vocab") -> Matrices:
    """What rank `rank` of a tp group multiplies a token with, by its placement (a copied kv head counts on each).

    Of experts those that a token visits, and the router, which every rank has whole. Who is home to an expert is the
    business of ep: with the load even, as counted here, it doesn't change a rank's operations.
    """
    placement = model.cuts(tp, embedding, cut)
    projections = mlp = 0
    for parameter in placement.parameters:
        if parameter.name.startswith("layers.0.") and len(parameter.shape) == 2:
            size = prod(placement.shape(parameter, rank))
            projections += size if ".attention." in parameter.name else 0
            mlp += size * model.active if ".mlp." in parameter.name else 0
    if model.experts > 1:
        mlp += model.config.hidden * model.experts
    head = placement.parameter("embedding.weight" if model.config.tied else "head.weight")
    width = len(placement.heads.of(rank)) * model.config.head_size
    return Matrices(projections, mlp, prod(placement.shape(head, rank)), width)


def per_token(model: PlannedModel, context: float, *, layers: int | None = None, head: bool = True,
              share: Matrices | None = None) -> Flops:
    """A forward pass of one token that attends to `context` positions (a mean over tokens is fine: it is linear).

    `layers` of the model's (None: all), and a rank's `share` of their matrices (None: the whole).
    """
    mine = share or matrices(model)
    count = model.config.layers if layers is None else layers
    return Flops(2.0 * count * mine.projections, 4.0 * count * mine.width * context, 2.0 * count * mine.mlp,
                 2.0 * mine.head if head else 0.0)


def attended(seq: int, causal: bool = False) -> float:
    """Positions that a token attends to, on average over a sequence; see CONVENTION above."""
    return (seq + 1) / 2 if causal else float(seq)


def passes(forward: Flops, recompute: Recompute = "none") -> PassFlops:
    """Forward, backward (twice as much), and what is computed again: whole layers (not the head), or their scores."""
    again = {"none": Flops(), "selective": Flops(scores=forward.scores), "full": forward._replace(head=0.0)}[recompute]
    return PassFlops(forward, forward.times(2), again)


def step(model: PlannedModel, job: Training, causal: bool = False) -> PassFlops:
    """A whole training step of `job.batch` sequences, on all devices together."""
    forward = per_token(model, attended(job.seq, causal)).times(job.batch * job.seq)
    return passes(forward, job.recompute)


def slowest_share(model: PlannedModel, layout: Layout) -> Matrices:
    """The share of the rank of a tp group that has the most to do (heads or vocabulary may not divide)."""
    return _slowest_share(model, layout.tp, layout.cut, layout.embedding)


@lru_cache(maxsize=1024)
def _slowest_share(model: PlannedModel, tp: int, cut: Literal["even", "balanced"],
                   embedding: Literal["vocab", "hidden"]) -> Matrices:
    shares = (matrices(model, tp, rank, cut, embedding) for rank in range(tp))
    return max(shares, key=lambda mine: mine.projections + mine.mlp)


def on_stage(model: PlannedModel, layout: Layout, stage: int, context: float) -> Flops:
    """A forward pass of one token through the slowest rank of one stage. The head is on the last stage.

    Context parallelism is not in it: a rank sees fewer tokens, each with its whole context.
    """
    return per_token(model, context, layers=layout.layers_on(model.config.layers, stage), head=stage == layout.pp - 1,
                     share=slowest_share(model, layout))


def slowest_stage(model: PlannedModel, layout: Layout, context: float) -> int:
    """The stage with the most to compute, the first of several alike."""
    return max(stages(model, layout), key=lambda stage: on_stage(model, layout, stage, context).total)


def stages(model: PlannedModel, layout: Layout, apart: Callable[[int], Hashable] = lambda stage: None
           ) -> dict[int, int]:
    """The first stage of each kind, and how many are like it: the ends, and those between by their number of layers.
    `apart`: of a stage, what else tells it from others."""
    first: dict[tuple[int, bool, bool, Hashable], int] = {}
    count: dict[int, int] = {}
    for stage in range(layout.pp):
        kind = layout.layers_on(model.config.layers, stage), stage == 0, stage == layout.pp - 1, apart(stage)
        like = first.setdefault(kind, stage)
        count[like] = count.get(like, 0) + 1
    return count


# --- as papers print them -------------------------------------------------------------------------------------------


def gpt_full(batch: float, seq: float, layers: float, hidden: float, vocab: float) -> float:
    """SC21, equation 3: 96·B·s·L·h²·(1 + s/6h + V/16Lh), a step of a GPT with full recomputation (what HFU counts)."""
    return (96 * batch * seq * layers * hidden ** 2
            * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden)))


def gpt_model(batch: float, seq: float, layers: float, hidden: float, vocab: float) -> float:
    """KOR, equation 7: 72·B·L·s·h²·(1 + s/6h + V/12hL), a step's forward and backward (what MFU counts)."""
    return (72 * batch * layers * seq * hidden ** 2
            * (1 + seq / (6 * hidden) + vocab / (12 * hidden * layers)))


def gpt_selective(batch: float, seq: float, layers: float, hidden: float, vocab: float) -> float:
    """KOR, equation 8: 72·B·L·s·h²·(1 + s/3h + V/12hL), with attention's scores computed again, as printed.

    It takes attention's part twice whole (12·Bs²h a layer); computed again is only its forward pass, 4·Bs²h, and that
    is what `step` counts: 1 + s/4.5h. For GPT-3 the printed form is 1.8 % more.
    """
    return (72 * batch * layers * seq * hidden ** 2
            * (1 + seq / (3 * hidden) + vocab / (12 * hidden * layers)))


def training_flops(parameters: float, tokens: float, recompute: Recompute = "none") -> float:
    """The short forms: 6·P·T, and 8·P·T with full recomputation. Without attention's scores; tables count whole."""
    if recompute == "selective":
        raise ConfigError("there is no short form for selective recomputation: 6PT counts no attention scores")
    return (8 if recompute == "full" else 6) * parameters * tokens


# --- utilization and time -------------------------------------------------------------------------------------------


def utilization(flops: float, seconds: float, devices: int, peak: float) -> float:
    """Share of the peak: MFU with a step's model FLOPs, HFU with its hardware FLOPs (Chowdhery et al. 2022, app. B)."""
    return flops / (seconds * devices * peak)


def training_days(flops: float, devices: float, flops_per_device: float) -> float:
    """Days for so many operations at so many reached per second and device. SC21, equation 4, with 8PT or longer."""
    return flops / (devices * flops_per_device) / DAY


def device_hours(flops: float, flops_per_device: float) -> float:
    """GPU hours: however many devices share them."""
    return flops / flops_per_device / 3600


def touched(experts: int, active: int, tokens: float) -> float:
    """How many experts `tokens` tokens visit, where each picks `active` at random: E·(1 − (1 − k/E)ᵗ)."""
    return experts * (1 - (1 - active / experts) ** tokens)
