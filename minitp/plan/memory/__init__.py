"""The memory of every rank of a layout, for a training or for generating text: rows by kind, and what isn't modeled.

Each row is a product of sizes that the placement, the layout and the schedule tell (see `terms`, `states`,
`activations`, `buffers`, `serving`). Ranks that hold equally much are counted once.
"""
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.plan.job import Inference, Job, Training, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.memory import activations, buffers, serving, states, terms
from minitp.plan.memory.rank_share import shards, share
from minitp.plan.memory.terms import Term
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row


@dataclass(frozen=True)
class Unmodeled:
    """Memory that no row counts: what it is, how much it has been, who says so, and where it is met."""
    what: str
    size: str
    source: str
    met: Literal["always", "training", "experts"] = "always"


UNMODELED = (
    Unmodeled("context of the device's driver and libraries", "0.5 to 1.5 GB a device",
              "no formula is published; nvidia-smi in BLOOM's trials shows 5 to 25 % more than these rows, for all of "
              "this list together (bigscience tr11, chronicles-prequel)"),
    Unmodeled("fragmentation of the allocator", "some percent; more where sizes vary",
              "Rajbhandari et al. 2020 (ZeRO), section 3.2: out of memory with over 30 % free, in extreme cases"),
    Unmodeled("buffers inside the communication library", "4 MiB for each channel and peer",
              "NCCL's documentation: NCCL_BUFFSIZE"),
    Unmodeled("buckets of data parallelism and ZeRO, prefetched layers", "25 MiB to several GB, by its options",
              "DeepSpeed issue 4527: 14.3 GiB on a card where its estimator says 0.5", "training"),
    Unmodeled("gradients of activations inside a layer's backward pass", "a few arrays of b·s·h; of the logits one",
              "not counted by Korthikanti et al. 2022, section 4, either: they count what is kept", "training"),
    Unmodeled("workspaces of matrix products", "4 to 32 MiB for each handle",
              "cuBLAS's documentation: cublasSetWorkspace"),
    Unmodeled("experts that more tokens visit than others", "up to the router's capacity factor",
              "Fedus et al. 2021 (Switch), section 2.2", "experts"),
    Unmodeled("rotary tables, token ids, targets; norms kept in float32 beside quantized matrices", "some MB",
              "small beside everything else"),
)
RESERVE = 0.1
"""Share of a device's memory that is kept free for what isn't modeled, unless told otherwise."""


def unmodeled(model: PlannedModel, job: Job) -> list[Unmodeled]:
    """What isn't modeled of this model's job."""
    met = {"always", *(["training"] if isinstance(job, Training) else []), *(["experts"] if model.experts > 1 else [])}
    return [one for one in UNMODELED if one.met in met]


def rows(model: PlannedModel, layout: Layout, job: Job, place: Place) -> list[Row]:
    """What the rank at `place` holds at most: a row for each term, those of 0 bytes left out.

    ConfigError for a place that isn't in the layout, or a batch that can't be dealt to its replicas.
    """
    if not all(0 <= getattr(place, axis) < getattr(layout, axis) for axis in place._fields):
        raise ConfigError(f"{place} lies outside of the layout {layout}")
    return terms.rows(terms_of(model, layout, job, place))


def ranks(model: PlannedModel, layout: Layout, job: Job) -> dict[Place, list[Row]]:
    """The rows of each kind of rank: one place for every different stage, tp shard and share of the experts."""
    return {place: rows(model, layout, job, place)
            for stage in range(layout.pp) for place in _places(model, layout, stage)}


@lru_cache(maxsize=1024)
def worst(model: PlannedModel, layout: Layout, job: Job) -> tuple[Place, tuple[Row, ...]]:
    """The rank that holds most (of equals the first), and its rows."""
    place, _ = fullest(model, layout, job)
    return place, tuple(rows(model, layout, job, place))


@lru_cache(maxsize=8192)
def fullest(model: PlannedModel, layout: Layout, job: Job) -> tuple[Place, int]:
    """The rank that holds most and how many bytes: what a search asks, without words, in about half a millisecond.

    Only ranks that can be it are counted.
    """
    places = [place for stage in _stages(model, layout) for place in _places(model, layout, stage)]
    sizes = {place: terms.total(terms_of(model, layout, job, place)) for place in places}
    place = max(places, key=lambda place: (sizes[place], -layout.rank(place)))
    return place, sizes[place]


def most_bytes(model: PlannedModel, layout: Layout, job: Job) -> int:
    """Bytes of the rank that holds most."""
    return fullest(model, layout, job)[1]


def terms_of(model: PlannedModel, layout: Layout, job: Job, place: Place) -> Iterator[Term]:
    """The rows of `place` before they are worded."""
    mine = share(model, layout, place)
    if isinstance(job, Training):
        yield from states.training(mine, job.precision)
        yield from activations.training(mine, job)
        yield from buffers.training(mine, job)
    elif isinstance(job, Inference):
        yield from states.weights(mine, bytes_of(job.weights))
        yield from serving.inference(mine, job)
    else:
        raise ConfigError(f"memory is planned for an Inference or a Training, not for {job!r}")


def _places(model: PlannedModel, layout: Layout, stage: int) -> list[Place]:
    """One place of `stage` for every different shard and share of the experts: of equals the first rank.

    Sequences, micro-batches and tokens are dealt with the larger shares first: replica 0 holds most of them.
    """
    experts = Cut(model.experts, layout.ep)
    first: dict[int, int] = {}
    for rank in range(layout.ep if model.experts > 1 else 1):
        first.setdefault(len(experts.of(rank)), rank)
    return [Place(shard, rank % layout.cp, rank // layout.cp, stage)
            for shard in shards(model, layout.tp, layout.embedding, layout.cut) for rank in first.values()]


def _stages(model: PlannedModel, layout: Layout) -> list[int]:
    """Stages that can hold most: both ends, and of inner stages with the same layers the first, where the most
    micro-batches wait."""
    inner: dict[tuple[int, ...], int] = {}
    for stage in range(1, layout.pp - 1):
        inner.setdefault(tuple(map(len, layout.layers_of(model.config.layers, stage))), stage)
    return sorted({0, *inner.values(), layout.pp - 1})
