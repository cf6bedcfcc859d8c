"""Every rank talks to its two neighbors only: p - 1 rounds or twice that, in which all links carry small messages.

Patarasuk & Yuan 2009: no all-reduce moves fewer bytes per rank. Its price is latency: the rounds grow with p.
"""
from minitp.comm.algorithms.hops import Hop, Schedule


def all_gather(rank: int, size: int, direction: int = 1) -> Schedule:
    """In every round each rank passes on the piece that it got in the round before; its own first."""
    return Schedule.of(size - 1, (
        Hop(round, to=(rank + direction) % size, gives=((rank - direction * round) % size,),
            source=(rank - direction) % size, takes=((rank - direction * (round + 1)) % size,))
        for round in range(size - 1)))


def reduce_scatter(rank: int, size: int) -> Schedule:
    """A piece's sum travels once around, each rank adds its term, and it ends where it belongs."""
    return all_gather(rank, size, direction=-1).backwards(adds=True)


def scatter(rank: int, size: int, root: int) -> Schedule:
    """The farthest piece leaves the root first and each is passed on, so that all arrive in the last round."""
    place = (rank - root) % size

    def hop(round: int) -> Hop | None:
        goes, comes = size - 1 - round + place, size - 2 - round + place         # whose piece, by place
        return _pass_on(round, rank, size, (root + goes) % size if place < goes < size else None,
                        (root + comes) % size if 0 < place <= comes < size else None, keeps=False)

    return Schedule.of(size - 1, map(hop, range(size - 1)))


def broadcast(rank: int, size: int, root: int) -> Schedule:
    """A pipelined chain: while a rank passes chunk c on, chunk c + 1 arrives."""
    place = (rank - root) % size

    def hop(round: int) -> Hop | None:
        goes, comes = round - place, round - place + 1
        return _pass_on(round, rank, size, goes if place < size - 1 and 0 <= goes < size else None,
                        comes if place > 0 and 0 <= comes < size else None, keeps=True)

    return Schedule.of(2 * (size - 1), map(hop, range(2 * (size - 1))))


def all_to_all(rank: int, size: int) -> Schedule:
    """Every part is passed on until it is there: in each round a rank takes what is for it out of what arrived."""
    def in_hand(source: int, round: int) -> tuple[int, ...]:
        return tuple(source * size + (source + distance) % size for distance in range(round + 1, size))

    return Schedule.of(size - 1, (
        Hop(round, to=(rank + 1) % size, gives=in_hand((rank - round) % size, round),
            source=(rank - 1) % size, takes=in_hand((rank - round - 1) % size, round), keeps=False)
        for round in range(size - 1)))


def _pass_on(round: int, rank: int, size: int, goes: int | None, comes: int | None, keeps: bool) -> Hop | None:
    """To the right goes one piece, from the left comes one; either may be none."""
    if goes is None and comes is None:
        return None
    to, gives = (None, ()) if goes is None else ((rank + 1) % size, (goes,))
    source, takes = (None, ()) if comes is None else ((rank - 1) % size, (comes,))
    return Hop(round, to, gives, source, takes, keeps=keeps)
