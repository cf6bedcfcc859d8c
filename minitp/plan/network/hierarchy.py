"""A collective over several levels of a network as collectives within one level each, one after the other.

  shards    every level but the last cuts the array into shards, each of which crosses the next level on a rail of its
            own: an all-reduce is a reduce-scatter inside, all-reduces of n/g between, an all-gather inside (Cho et al.
            2019, BlueConnect; NCCL's tree does it per channel)
  in turn   an all-reduce of the whole array at each level: fewest messages, every member sends all of it outside
  leaders   one member of each unit speaks for all: reduce, all-reduce among leaders, broadcast (MPICH's node-aware
            collectives)

A plan is data: which op at which level on which share of the payload. What it costs is plan.network's.
"""
from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import NamedTuple

Met = tuple[tuple[int, int], ...]
"""(level, members that meet there), innermost first, only levels at which more than one meet."""


class Part(NamedTuple):
    """One collective within a level.

    share     of the payload: the whole array of this collective as a share of the whole array of all
    crossing  members of a unit of the level below that are at it at once, each with a shard of its own
    """
    level: int
    op: str
    ranks: int
    share: Fraction
    crossing: int


Plan = tuple[Part, ...]
Rule = Callable[[str, Met, Fraction, int], Plan]

INSIDE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "all_reduce": (("reduce_scatter",), ("all_gather",)),
    "reduce_scatter": (("reduce_scatter",), ()),
    "all_gather": ((), ("all_gather",)),
    "broadcast": (("scatter",), ("all_gather",)),
    "reduce": (("reduce_scatter",), ("gather",)),
    "scatter": (("scatter",), ()),
    "gather": ((), ("gather",)),
}
"""By shards: what is done inside a unit before and after the shards cross to others by the same op."""

LED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "all_reduce": (("reduce",), ("broadcast",)),
    "reduce_scatter": (("reduce",), ("scatter",)),
    "all_gather": (("gather",), ("broadcast",)),
    "broadcast": ((), ("broadcast",)),
    "reduce": (("reduce",), ()),
    "scatter": ((), ("scatter",)),
    "gather": (("gather",), ()),
    "all_to_all": (("gather",), ("scatter",)),
}
"""By leaders: what is done inside a unit before and after the leaders do the same op."""


def shards(op: str, met: Met, share: Fraction = Fraction(1), crossing: int = 1) -> Plan:
    """Each level divides what the next one has to move."""
    (level, members), *others = met
    rest = tuple(others)
    if not rest:
        return (Part(level, op, members, share, crossing),)
    outside = shards(op, rest, share / members, crossing * members)
    if op == "all_to_all":                     # inside a unit each member collects what goes out on its rail
        return (Part(level, op, members, share / _all(rest), crossing), *outside)
    before, after = INSIDE[op]
    return (*(Part(level, part, members, share, crossing) for part in before), *outside,
            *(Part(level, part, members, share, crossing) for part in after))


def in_turn(op: str, met: Met, share: Fraction = Fraction(1), crossing: int = 1) -> Plan:
    """The same op on the whole array at each level; only sums bear it."""
    (level, members), *others = met
    here = Part(level, op, members, share, crossing)
    return (here, *in_turn(op, tuple(others), share, crossing * members)) if others else (here,)


def leaders(op: str, met: Met, share: Fraction = Fraction(1), crossing: int = 1) -> Plan:
    """One member of each unit takes part outside. What only concerns its own unit is that unit's share."""
    (level, members), *others = met
    rest = tuple(others)
    if not rest:
        return (Part(level, op, members, share, crossing),)
    before, after = LED[op]
    own = {"gather": share / _all(rest), "scatter": share / _all(rest)}
    return (*(Part(level, part, members, own.get(part, share), crossing) for part in before),
            *leaders(op, rest, share, crossing),
            *(Part(level, part, members, own.get(part, share), crossing) for part in after))


def plans(op: str, met: Met) -> dict[str, Plan]:
    """Every way to do `op` over more than one level, by name; none over a single one."""
    if len(met) < 2:
        return {}
    ways: dict[str, Rule] = {"shards": shards, "leaders": leaders}
    if op == "all_reduce":
        ways["in turn"] = in_turn
    return {name: way(op, met, Fraction(1), 1) for name, way in ways.items()}


def _all(met: Met) -> int:
    return prod(members for _, members in met)
