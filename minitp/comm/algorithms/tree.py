"""A binomial tree: in each round every rank that has something sends half of its ranks' share on. ⌈lg p⌉ rounds.

Thakur, Rabenseifner & Gropp 2005, section 4. Ranks are counted from the root: `place` 0 is the root. The subtree of
place c that was reached in a step of `half` is c … c + half - 1, as far as there are ranks.
"""
from collections.abc import Callable

from minitp.comm.algorithms.hops import Hop, Schedule


def scatter(rank: int, size: int, root: int) -> Schedule:
    """Each message carries the pieces of a whole subtree."""
    return _down(rank, size, root, lambda subtree: tuple((root + place) % size for place in subtree), keeps=False)


def broadcast(rank: int, size: int, root: int) -> Schedule:
    """Each message carries everything; the number of ranks that have it doubles in each round."""
    return _down(rank, size, root, lambda _: tuple(range(size)), keeps=True)


def _down(rank: int, size: int, root: int, pieces: Callable[[range], tuple[int, ...]], keeps: bool) -> Schedule:
    rounds, place = (size - 1).bit_length(), (rank - root) % size

    def hop(round: int) -> Hop | None:
        half = 1 << (rounds - 1 - round)
        child = place + half
        if place % (2 * half) == 0 and child < size:
            return Hop(round, to=(root + child) % size, gives=pieces(subtree(child, half)), keeps=keeps)
        if place % (2 * half) == half:
            return Hop(round, source=(root + place - half) % size, takes=pieces(subtree(place, half)))
        return None

    def subtree(top: int, half: int) -> range:
        return range(top, min(top + half, size))

    return Schedule.of(rounds, map(hop, range(rounds)))
