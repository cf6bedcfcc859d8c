"""A model as the planner sees it: a ModelConfig, and what released models have beyond what minitp runs.

How many numbers a rank holds is asked of the placement, parameter by parameter; here they are only added up by where
they lie in the model, and told apart by what divides them: tp (a shard), ep (an expert), or nothing (a whole one).
"""
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from minitp.config import ModelConfig
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.placement import Parameter, Placement
from minitp.plan.job import whole_number
from minitp.plan.layout import Layout, Place

Where = Literal["embedding", "layer", "norm", "head"]


class Held(NamedTuple):
    """Numbers that one rank holds of one part of the model.

    shard    of parameters cut over tp        whole   of parameters that every rank of the tp group holds
    expert   of expert weights, cut over ep (and tp)
    """
    shard: int = 0
    whole: int = 0
    expert: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def plus(self, other: "Held") -> "Held":
        return Held(*(mine + its for mine, its in zip(self, other, strict=True)))

    def times(self, factor: int) -> "Held":
        return Held(*(part * factor for part in self))


@dataclass(frozen=True)
class PlannedModel:
    """One model of the catalogue or of a config file.

    experts, active   MLPs beside each other in a layer, and how many of them a token visits (1, 1: a dense model)
    positions         rotary or a learned table as in `config`, or `alibi`: no parameters, and no rotary angles
    embedding_norm    a norm right after the embedding (BLOOM)
    second_norm       a parallel block whose MLP has a norm of its own (GPT-NeoX)
    published         parameters as they were published, 0 where they weren't; what is planned with is counted
    model_parallel    ranks that the published files are cut for, 0 where that isn't known
    trained_on        tokens of its published training, 0 where that isn't known
    """
    config: ModelConfig
    experts: int = 1
    active: int = 1
    alibi: bool = False
    embedding_norm: bool = False
    source: str = ""
    second_norm: bool = False
    published: int = 0
    model_parallel: int = 0
    note: str = ""
    trained_on: int = 0

    def __post_init__(self):
        for size in ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab", "positions"):
            whole_number(f"{size} of {self.name}", getattr(self.config, size))
        if not 1 <= self.active <= self.experts:
            raise ConfigError(f"{self.active} of {self.experts} experts can't be visited by a token")

    @property
    def name(self) -> str:
        return self.config.name or "model"

    @property
    def parameters(self) -> int:
        """All numbers of the model, each once."""
        return self._count(self.experts)

    @property
    def active_parameters(self) -> int:
        """Those that one token is multiplied with."""
        return self._count(self.active)

    def _count(self, experts: int) -> int:
        parts = (self.held(where, 1, 0, 1, 0) for where in ("embedding", "norm", "head"))
        layer = self.held("layer", 1, 0, 1, 0)
        dense = sum(part.total for part in parts) + self.config.layers * (layer.shard + layer.whole)
        return dense + self.config.layers * layer.expert // self.experts * experts

    def placement(self, tp: int, embedding: Literal["vocab", "hidden"] = "vocab",
                  cut: Literal["even", "balanced"] = "even") -> Placement:
        """Who holds what over a tp group."""
        return _placement(self.config, tp, embedding, cut)

    def cuts(self, tp: int, embedding: Literal["vocab", "hidden"] = "vocab",
             cut: Literal["even", "balanced"] = "even") -> Placement:
        """The placement of ONE layer and the ends: all layers are cut alike, and laying out one of them is quick."""
        return _cuts(self.config, tp, embedding, cut)

    def held(self, where: Where, tp: int, rank: int, ep: int = 1, expert_rank: int = 0,
             embedding: Literal["vocab", "hidden"] = "vocab", cut: Literal["even", "balanced"] = "even") -> Held:
        """What `rank` of the tp group and of the ep group holds of the embedding, ONE layer, the last norm or the head.

        A tied head is the embedding's table and holds nothing of its own (a pipeline's last stage has a copy of it:
        see `on_stage`).
        """
        return _held(self, where, tp, rank, ep, expert_rank, embedding, cut)

    def on_stage(self, layout: Layout, place: Place) -> dict[Where, Held]:
        """What the rank at `place` holds, by part of the model: all layers of its stage, the ends on their stages."""
        expert_rank = (place.dp * layout.cp + place.cp) % layout.ep

        def held(where: Where) -> Held:
            return self.held(where, layout.tp, place.tp, layout.ep, expert_rank, layout.embedding, layout.cut)

        parts: dict[Where, Held] = {}
        if place.pp == 0:
            parts["embedding"] = held("embedding")
        parts["layer"] = held("layer").times(layout.layers_on(self.config.layers, place.pp))
        if place.pp == layout.pp - 1:
            parts["norm"] = held("norm")
            parts["head"] = held("head")
            if self.config.tied and layout.pp > 1:                       # its own copy of the table, summed each step
                table = self.cuts(layout.tp, layout.embedding, layout.cut)
                parameter = table.parameter("embedding.weight")
                parts["head"] = Held(shard=prod(table.shape(parameter, place.tp)))
        return parts


@lru_cache(maxsize=256)
def _placement(config: ModelConfig, tp: int, embedding: Literal["vocab", "hidden"],
               cut: Literal["even", "balanced"]) -> Placement:
    return Placement(config, tp, embedding, cut)


@lru_cache(maxsize=4096)
def _cuts(config: ModelConfig, tp: int, embedding: Literal["vocab", "hidden"],
          cut: Literal["even", "balanced"]) -> Placement:
    return Placement(replace(config, layers=1), tp, embedding, cut)


@lru_cache(maxsize=4096)
def _held(model: PlannedModel, where: Where, tp: int, rank: int, ep: int, expert_rank: int,
          embedding: Literal["vocab", "hidden"], cut: Literal["even", "balanced"]) -> Held:
    """Kept: a search asks the same of hundreds of layouts."""
    placement = model.cuts(tp, embedding, cut)
    held = Held()
    for parameter in _parts(placement, where):
        if model.alibi and parameter.name.startswith("positions."):
            continue
        size = prod(placement.shape(parameter, rank))
        if model.experts > 1 and ".mlp." in parameter.name:
            mine = len(Cut(model.experts, ep).of(expert_rank))
            held = held.plus(Held(expert=size * mine))
        else:
            held = held.plus(Held(whole=size) if parameter.cut_axis is None else Held(shard=size))
    if (where == "embedding" and model.embedding_norm) or (where == "layer" and model.second_norm):
        held = held.plus(Held(whole=model.config.hidden * (2 if model.config.norm == "layer" else 1)))
    if where == "layer" and model.experts > 1:
        held = held.plus(Held(whole=model.config.hidden * model.experts))                # the router
    return held


def _parts(placement: Placement, where: Where) -> list[Parameter]:
    """The parameters of a part of the model; all layers are alike, so `layer` is the first."""
    begins = {"embedding": ("embedding.", "positions."), "layer": ("layers.0.",), "norm": ("norm.",),
              "head": ("head.",)}[where]
    return [parameter for parameter in placement.parameters if parameter.name.startswith(begins)]
