"""Costs as comments in MPICH's sources print them, where they aren't what the algorithm's messages add up to."""
from math import floor, log2


def rabenseifner(ranks: int, size: float, alpha: float, beta: float, gamma: float) -> float:
    """An all-reduce over ranks that are no power of two (allreduce.c):

    (2⌊lg p⌋ + 2)α + (2(p − 1)/p + 2)nβ + n(1 + (p − 1)/p)γ. The halving itself runs over 2^⌊lg p⌋ ranks, so the
    messages add up to a little less: `minitp.plan.network.collectives`.
    """
    others = (ranks - 1) / ranks
    return (2 * floor(log2(ranks)) + 2) * alpha + (2 * others + 2) * size * beta + size * (1 + others) * gamma
