"""How a model is laid out over devices: the degree of every kind of parallelism, and where its groups lie.

A layout is a mesh. Ranks are numbered with tp fastest, then cp, dp, pp (Megatron's order): neighbors share the most
traffic. So rank = ((stage · dp + replica) · cp + piece of the sequence) · tp + shard.
"""
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from math import prod
from typing import Literal, NamedTuple

from minitp.cut import Cut
from minitp.errors import ConfigError

Schedule = Literal["1f1b", "interleaved", "gpipe"]
AXES = ("tp", "cp", "dp", "pp")
"""The axes of the mesh, the fastest first."""
MOST_CHUNKS = 10_000
"""Of a pipeline whose layers are named one by one."""


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
    stage_layers    layers of each chunk in the order of the model, where they aren't as even as can be. Even: where
                    there are two interleaved chunks more than layers, the first and the last hold the ends alone
                    (Grattafiori et al. 2024, section 3.3.2)
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
        named = (0, *[1] * layers, 0) if self.ends_alone(layers) else self.stage_layers
        return _layers_of(layers, self.pp, self.chunks, named, stage)

    def layers_on(self, layers: int, stage: int) -> int:
        """How many layers `stage` holds."""
        return sum(map(len, self.layers_of(layers, stage)))

    def ends_alone(self, layers: int) -> bool:
        """Whether the first chunk holds the embedding and no layer, the last one the head and none."""
        return self.stage_layers is None and self.chunks > 1 and self.pp > 1 and self.pp * self.chunks == layers + 2

    def fills(self, layers: int) -> bool:
        """Whether there are layers for all chunks."""
        return self.stage_layers is not None or self.pp * self.chunks <= layers or self.ends_alone(layers)

    @cached_property
    def _even(self) -> bool:
        """Whether the chunks' layers would be the same, were they not named."""
        layers, plain = sum(self.stage_layers or ()), replace(self, stage_layers=None)
        return all(plain.layers_of(layers, stage) == self.layers_of(layers, stage) for stage in range(self.pp))

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
                  *([f"{self.chunks} chunks"] if self.chunks > 1 else []),
                  *([f"layers {shortly(self.stage_layers)}"] if self.stage_layers and not self._even else [])]
        return ", ".join([" × ".join(degrees) or "1 device", *extras])


def _digits(degree: int) -> str:
    """16384 as everybody writes it, 1,000,000 so that it can be read."""
    return f"{degree:,}" if degree >= 100_000 else f"{degree}"


@lru_cache(maxsize=8192)
def _layers_of(layers: int, pp: int, chunks: int, named: tuple[int, ...] | None, stage: int) -> tuple[range, ...]:
    """Kept: a search asks it of every stage of hundreds of layouts."""
    ends = _cut(layers, pp * chunks, named)
    return tuple(ends.of(chunk * pp + stage) for chunk in range(chunks))


@lru_cache(maxsize=1024)
def _cut(layers: int, chunks: int, named: tuple[int, ...] | None) -> Cut:
    if named is None:
        return Cut(layers, chunks)
    if sum(named) != layers:
        raise ConfigError(f"stage_layers add up to {sum(named)}, the model has {layers} layers")
    return Cut(layers, chunks, ends=tuple(accumulate(named)))


def shortly(stage_layers: Sequence[int]) -> str:
    """0,1x126,0: like numbers that follow each other written once."""
    runs = [(number, len(list(like))) for number, like in groupby(stage_layers)]
    return ",".join(f"{number}x{times}" if times > 1 else str(number) for number, times in runs)


def parse_stage_layers(text: str) -> tuple[int, ...]:
    """The layers of each chunk in the order of the model, as `shortly` writes them. ConfigError for anything else."""
    found: list[int] = []
    for part in text.split(","):
        number, _, times = part.strip().partition("x")
        if not number.isdecimal() or (times and not times.isdecimal()) or len(part) > 12 or part.strip().endswith("x"):
            raise ConfigError(f"layers of chunks are written 5,6x10,5: five, ten times six, five; got {text!r:.60}")
        found += [int(number)] * min(int(times or 1), MOST_CHUNKS + 1)
        if len(found) > MOST_CHUNKS:
            raise ConfigError(f"layers are named for more than {MOST_CHUNKS:,} chunks")
    return tuple(found)
