"""Things cut over ranks: the one rule that layers, collectives and the loader share. It knows nothing of models."""
from dataclasses import dataclass

from minitp.errors import ConfigError

Slices = tuple[slice, ...]
"""Where a piece lies in an array: one slice for each axis."""


@dataclass(frozen=True)
class Cut:
    """`size` things cut over `ranks` in whole units: as even as units allow, larger shards first.

    A rank may get nothing. `ends`, where given, replaces the even rule by each rank's own end (see `Placement.cut`).
    """
    size: int
    ranks: int
    unit: int = 1
    ends: tuple[int, ...] | None = None

    def __post_init__(self):
        if self.ranks < 1 or self.unit < 1 or self.size < 0:
            raise ConfigError(f"can't cut {self.size} in units of {self.unit} over {self.ranks} ranks: "
                              "ranks and units start at 1, sizes at 0")
        if self.ends is not None and (len(self.ends) != self.ranks or self.ends[-1] != self.size
                                      or sorted((0, *self.ends)) != [0, *self.ends]):
            raise ConfigError(f"the ends {self.ends} are no cut of {self.size} over {self.ranks} ranks")

    def of(self, rank: int) -> range:
        """The indices that `rank` holds."""
        if not 0 <= rank < self.ranks:
            raise ConfigError(f"rank {rank} is not one of 0…{self.ranks - 1}")
        if self.ends is not None:
            return range(self.ends[rank - 1] if rank else 0, self.ends[rank])
        units, extra = divmod(-(-self.size // self.unit), self.ranks)
        start = units * rank + min(rank, extra)
        stop = start + units + (rank < extra)
        return range(min(start * self.unit, self.size), min(stop * self.unit, self.size))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(self.of(rank)) for rank in range(self.ranks))

    def times(self, factor: int) -> "Cut":
        """The same cut counted in smaller things: a cut of heads as a cut of rows (factor = head size)."""
        ends = None if self.ends is None else tuple(end * factor for end in self.ends)
        return Cut(self.size * factor, self.ranks, self.unit * factor, ends)
