"""Who is simulated for whom: the mesh parted into classes of ranks that do the same at the same time.

Along each axis the coordinates are parted: those in one part are alike wherever the others stand. A lane is one part of
each axis, and the rank with the first coordinates stands for all. Stages of a pipeline are never alike. Ranks of a tp
group are, where their shards have equal sizes; replicas are, unless one of them has a straggler: then its coordinates
are parts of their own, and the others go on sharing. Jitter makes all ranks differ. Within a group that meets again and
again the last of a part is drawn from the distribution of the largest, which loses nothing; replicas are simulated one
by one, up to JITTERED of them, so the slowest of very many may be a little slower than the slowest found.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal, NamedTuple

from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.plan.layout import AXES, Layout, Place
from minitp.plan.model import PlannedModel

Show = Literal["classes", "pipeline", "tp", "all"]
SHOWS: tuple[Show, ...] = ("classes", "pipeline", "tp", "all")
JITTERED = 8                       # replicas that are simulated each on its own where there is jitter
MOST_LANES = 4096

Part = tuple[int, ...]
"""Coordinates of an axis that are alike; the first stands for all."""


class Straggler(NamedTuple):
    """A device that computes `factor` times as long as the others."""
    device: int
    factor: float


@dataclass(frozen=True)
class Lane:
    """One simulated rank, and its part of each axis."""
    place: Place
    parts: tuple[Part, ...]                    # in the order of AXES

    @property
    def stands_for(self) -> int:
        return prod(map(len, self.parts))

    def mates(self, axis: str) -> int:
        """How many others of its group along an axis it stands for."""
        return len(self.parts[AXES.index(axis)]) - 1

    def group(self, axis: str) -> Place:
        """Equal for the lanes that are in one group of an axis."""
        return self.place._replace(**{axis: 0})


def lanes_of(model: PlannedModel, layout: Layout, stragglers: Sequence[Straggler] = (), jitter: float = 0.0,
             show: Show = "classes") -> list[Lane]:
    """The lanes, by device. ConfigError for a straggler that isn't there, or more lanes than can be simulated."""
    check_stragglers(stragglers, layout.devices)
    places = [layout.place(one.device) for one in stragglers]
    singled = {axis: {getattr(place, axis) for place in places} for axis in AXES}
    parts = {"tp": _parted(_alike(model, layout), singled["tp"]),
             "cp": _parted([tuple(range(layout.cp))], singled["cp"]),
             "dp": _parted(_replicas(layout.dp, jitter), singled["dp"]),
             "pp": _single(layout.pp)}
    if show in ("tp", "all"):
        parts["tp"] = _single(layout.tp)
    if show == "all":
        parts |= {"cp": _single(layout.cp), "dp": _single(layout.dp)}
    number = prod(map(len, parts.values()))
    if number > MOST_LANES:
        raise ConfigError(f"{number:,} ranks would be simulated one by one, and {MOST_LANES:,} are the most: show "
                          "classes, a pipeline or one tp group instead of all, or name fewer stragglers")
    lanes = [Lane(Place(*(part[0] for part in some)), some) for some in product(*(parts[axis] for axis in AXES))]
    return sorted(lanes, key=lambda lane: layout.rank(lane.place))


def check_stragglers(stragglers: Sequence[Straggler], devices: int) -> None:
    """ConfigError for one that isn't there, or a factor that can't be."""
    for one in stragglers:
        if not 0 <= one.device < devices:
            raise ConfigError(f"the straggler {one.device} is no device of 0…{devices - 1}")
        if not 0 < one.factor < 1e6:
            raise ConfigError(f"a straggler computes a number of times as long, above 0, not {one.factor:g} times")


def shown(lanes: Sequence[Lane], show: Show, stragglers: Sequence[Straggler], layout: Layout) -> list[int]:
    """Which lanes are written, by their index: those of the first straggler's pipeline or tp group, where there is
    one, else of the first device's."""
    at = layout.place(stragglers[0].device if stragglers else 0)
    fixed = {"pipeline": ("tp", "cp", "dp"), "tp": ("cp", "dp", "pp")}.get(show, ())
    return [n for n, lane in enumerate(lanes)
            if all(getattr(at, axis) in lane.parts[AXES.index(axis)] for axis in fixed)]


def _single(size: int) -> list[Part]:
    return [(n,) for n in range(size)]


def _alike(model: PlannedModel, layout: Layout) -> list[Part]:
    """The ranks of a tp group by the sizes of all their shards."""
    placement = model.placement(layout.tp, layout.embedding, layout.cut)
    cuts = [parameter for parameter in placement.parameters
            if parameter.cut_axis is not None and parameter.name.startswith(("layers.0.", "embedding.", "head."))]
    found: dict[tuple, list[int]] = {}
    for rank in range(layout.tp):
        found.setdefault(tuple(placement.shape(parameter, rank) for parameter in cuts), []).append(rank)
    return [tuple(ranks) for ranks in found.values()]


def _replicas(dp: int, jitter: float) -> list[Part]:
    cut = Cut(dp, min(dp, JITTERED) if jitter else 1)
    return [tuple(cut.of(n)) for n in range(cut.ranks)]


def _parted(parts: Sequence[Part], singled: set[int]) -> list[Part]:
    """The same with some coordinates as parts of their own; no straggler on this axis: nothing changes."""
    if not singled:
        return list(parts)
    left = [rest for part in parts if (rest := tuple(n for n in part if n not in singled))]
    return sorted([*left, *((n,) for n in singled)])
