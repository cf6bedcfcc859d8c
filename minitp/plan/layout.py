"""How a model is laid out over devices: the degree of every kind of parallelism, and where its groups lie.

A layout is a mesh. Ranks are numbered with tp fastest, then cp, dp, pp (Megatron's order): neighbors share the most
traffic. So rank = ((stage · dp + replica) · cp + piece of the sequence) · tp + shard.
"""
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

from minitp.cut import Cut
from minitp.errors import ConfigError

Schedule = Literal["1f1b", "interleaved", "gpipe"]
AXES = ("tp", "cp", "dp", "pp")
"""The axes of the mesh, the fastest first."""


class Place(NamedTuple):
    """Where a rank stands in the mesh: one coordinate for each axis."""
    tp: int
    cp: int
    dp: int
    pp: int


@dataclass(frozen=True)
class Layout:
    """The degrees of a mesh of tp · cp · dp · pp devices.

    tp, pp, dp, cp  tensor, pipeline, data, context parallel degree
    ep              expert parallel degree: experts are spread over `ep` of the dp · cp replicas; it divides them
    sequence        sequence parallelism: norms, dropout and residual stream are cut over the tp group as well
    zero            0: nothing, 1: optimizer state, 2: and gradients, 3: and weights are cut over the dp group
    schedule        of the pipeline; `chunks` model chunks on each stage where it is interleaved
    stage_layers    layers of each chunk in the order of the model, where they aren't as even as can be
    embedding, cut  as `Placement` takes them
    """
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    sequence: bool = False
    zero: Literal[0, 1, 2, 3] = 0
    schedule: Schedule = "1f1b"
    chunks: int = 1
    stage_layers: tuple[int, ...] | None = None
    embedding: Literal["vocab", "hidden"] = "vocab"
    cut: Literal["even", "balanced"] = "even"

    def __post_init__(self):
        for name in (*AXES, "ep", "chunks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.zero not in (0, 1, 2, 3):
            raise ConfigError(f"ZeRO has the stages 0, 1, 2 and 3, not {self.zero!r}")
        if self.schedule not in ("1f1b", "interleaved", "gpipe"):
            raise ConfigError(f"a pipeline's schedule is 1f1b, interleaved or gpipe, not {self.schedule!r}")
        if self.chunks > 1 and self.schedule != "interleaved":
            raise ConfigError(f"{self.chunks} chunks a stage need the schedule `interleaved`, not {self.schedule}")
        if (self.dp * self.cp) % self.ep:
            raise ConfigError(f"ep = {self.ep} must divide dp · cp = {self.dp * self.cp}: experts are spread over the "
                              "replicas of the rest of the model")
        if self.stage_layers is not None and len(self.stage_layers) != self.pp * self.chunks:
            raise ConfigError(f"stage_layers needs a number for each of {self.pp * self.chunks} chunks, got "
                              f"{len(self.stage_layers)}")

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def replica(self) -> int:
        """Devices that hold the model once (with ZeRO 0): tp · cp · pp."""
        return self.tp * self.pp * self.cp

    def layers_of(self, layers: int, stage: int) -> tuple[range, ...]:
        """The layers of a model of `layers` that `stage` holds: a range for each of its chunks, in order.

        Chunk c of stage s is part c · pp + s of the model (Narayanan et al. 2021, section 2.2).
        """
        ends = self._cut(layers)
        return tuple(ends.of(chunk * self.pp + stage) for chunk in range(self.chunks))

    def layers_on(self, layers: int, stage: int) -> int:
        """How many layers `stage` holds."""
        return sum(map(len, self.layers_of(layers, stage)))

    def _cut(self, layers: int) -> Cut:
        if self.stage_layers is None:
            return Cut(layers, self.pp * self.chunks)
        if sum(self.stage_layers) != layers:
            raise ConfigError(f"stage_layers add up to {sum(self.stage_layers)}, the model has {layers} layers")
        ends = tuple(sum(self.stage_layers[:n + 1]) for n in range(len(self.stage_layers)))
        return Cut(layers, len(ends), ends=ends)

    @cached_property
    def strides(self) -> dict[str, int]:
        """How far apart two neighbors of an axis are, in ranks."""
        return {axis: prod(getattr(self, faster) for faster in AXES[:n]) for n, axis in enumerate(AXES)}

    def place(self, rank: int) -> Place:
        """The coordinates of a rank."""
        return Place(*(rank // self.strides[axis] % getattr(self, axis) for axis in AXES))

    def rank(self, place: Place) -> int:
        """The inverse of `place`."""
        return sum(getattr(place, axis) * self.strides[axis] for axis in AXES)

    def group(self, axis: str, rank: int) -> range:
        """The ranks that meet `rank` on an axis, in order."""
        stride, size = self.strides[axis], getattr(self, axis)
        first = rank - getattr(self.place(rank), axis) * stride
        return range(first, first + stride * size, stride)

    def __str__(self) -> str:
        """TP8 × PP16 × DP64, ZeRO-1."""
        degrees = [f"{axis.upper()}{_digits(getattr(self, axis))}" for axis in ("tp", "cp", "pp", "dp", "ep")
                   if getattr(self, axis) > 1]
        extras = [*([f"ZeRO-{self.zero}"] if self.zero else []), *(["SP"] if self.sequence else []),
                  *([f"{self.chunks} chunks"] if self.chunks > 1 else [])]
        return ", ".join([" × ".join(degrees) or "1 device", *extras])


def _digits(degree: int) -> str:
    """16384 as everybody writes it, 1,000,000 so that it can be read."""
    return f"{degree:,}" if degree >= 100_000 else f"{degree}"
