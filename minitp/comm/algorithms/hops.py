"""A schedule is data: the hops of one rank in a collective, in order. It can be counted, drawn and tested alone.

Pieces are numbered: piece r of an array is the one that rank r has or gets. Where a rank has something for every other
(all-to-all), part s · p + d is what goes from rank s to rank d.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Hop(NamedTuple):
    """One rank in one round: it sends the pieces `gives` to rank `to`, takes `takes` from `source`, or both at once.

    `adds`: what comes is a term and is added to what is here. `keeps`: what goes stays here, too.
    """
    round: int
    to: int | None = None
    gives: tuple[int, ...] = ()
    source: int | None = None
    takes: tuple[int, ...] = ()
    adds: bool = False
    keeps: bool = True


@dataclass(frozen=True)
class Schedule:
    """The hops of one rank; `rounds` counts those of the whole collective, in some of which this rank may rest."""
    rounds: int
    hops: tuple[Hop, ...]

    @classmethod
    def of(cls, rounds: int, hops: Iterable[Hop | None]) -> "Schedule":
        return cls(rounds, tuple(hop for hop in hops if hop is not None))

    def then(self, other: "Schedule") -> "Schedule":
        """One after the other."""
        later = tuple(hop._replace(round=hop.round + self.rounds) for hop in other.hops)
        return Schedule(self.rounds + other.rounds, self.hops + later)

    def backwards(self, *, adds: bool = False) -> "Schedule":
        """The same messages in reverse: a scatter becomes a gather and, adding, a broadcast a reduce and an all-gather
        a reduce-scatter. It holds where each piece reaches each rank once."""
        return Schedule(self.rounds, tuple(Hop(self.rounds - 1 - hop.round, hop.source, hop.takes, hop.to, hop.gives,
                                               adds, keeps=False) for hop in reversed(self.hops)))

    def keeping(self) -> "Schedule":
        """The same, but what goes stays as well."""
        return Schedule(self.rounds, tuple(hop._replace(keeps=True) for hop in self.hops))

    def of_parts(self, parts: Callable[[int], tuple[int, ...]]) -> "Schedule":
        """The same messages with each piece replaced by its parts."""
        def all_parts(pieces: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(part for piece in pieces for part in parts(piece))
        return Schedule(self.rounds, tuple(hop._replace(gives=all_parts(hop.gives), takes=all_parts(hop.takes))
                                           for hop in self.hops))
