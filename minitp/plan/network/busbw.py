"""Bus bandwidth, as nccl-tests prints it, and back: what of S/t would cross each rank's link.

S is defined by each op, and it isn't always what a rank holds: of an all-gather it is all that a rank ends with, of a
scatter the root's array. It is minitp's payload but for an all-to-all, whose payload is all ranks' arrays and whose S
is one rank's.
Beyond one machine bus bandwidth is no wire rate: most of a ring's hops stay inside.
"""
from fractions import Fraction

from minitp.errors import ConfigError
from minitp.plan.network.collectives import COSTS_AS


def factor(op: str, ranks: int) -> Fraction:
    """Bytes that cross each rank's link as a share of S, at the least (nccl-tests, doc/PERFORMANCE.md): 2(N−1)/N for an
    all-reduce, (N−1)/N where pieces move, 1 for a broadcast, a reduce or a message. ConfigError for anything else."""
    if ranks < 2:
        raise ConfigError(f"bus bandwidth is about 2 ranks or more, {ranks} was asked for")
    others = Fraction(ranks - 1, ranks)
    factors = {"all_reduce": 2 * others, "reduce_scatter": others, "all_gather": others, "all_to_all": others,
               "scatter": others, "gather": others, "broadcast": Fraction(1), "reduce": Fraction(1),
               "send": Fraction(1)}
    op = COSTS_AS.get(op, op)
    if op not in factors:
        raise ConfigError(f"{op!r} has no bus bandwidth; {', '.join(factors)} have one")
    return factors[op]


def share_of_payload(op: str, ranks: int) -> Fraction:
    """S as a share of the payload that a trace counts."""
    return Fraction(1, ranks) if op == "all_to_all" else Fraction(1)


def bus_bandwidth(op: str, ranks: int, size: float, seconds: float) -> float:
    """Bytes/s by the time that S = `size` bytes took."""
    return float(factor(op, ranks)) * size / seconds


def seconds_at(op: str, ranks: int, size: float, busbw: float) -> float:
    """Seconds that S = `size` bytes take by the bus bandwidth: the inverse."""
    return float(factor(op, ranks)) * size / busbw


def two_levels(payload: float, per_machine: int, machines: int, inside: float, card: float) -> tuple[float, float]:
    """(least, most) seconds of an all-reduce over machines with a network card for each rank, by bandwidth alone.

    Reduce-scatter inside, all-reduces of n/g on g rails, all-gather inside: at best the three overlap and the busiest
    level is what is seen, at worst they follow one another.
    """
    within = seconds_at("all_reduce", per_machine, payload, inside)
    between = seconds_at("all_reduce", machines, payload / per_machine, card)
    return max(within, between), within + between
