"""Everything through the root, one message after the other: p - 1 rounds, and the root's link carries them all.

The simplest that works, and what programs without a communication library do (distributed-llama up to today).
"""
from minitp.comm.algorithms.hops import Hop, Schedule


def scatter(rank: int, size: int, root: int) -> Schedule:
    """The root sends each rank its piece."""
    return _from_root(rank, size, root, lambda other: (other,), keeps=False)


def broadcast(rank: int, size: int, root: int) -> Schedule:
    """The root sends each rank everything."""
    return _from_root(rank, size, root, lambda _: tuple(range(size)), keeps=True)


def _from_root(rank: int, size: int, root: int, pieces, keeps: bool) -> Schedule:
    if rank != root:
        return Schedule(size - 1, (Hop((rank - root) % size - 1, source=root, takes=pieces(rank)),))
    others = [(root + distance) % size for distance in range(1, size)]
    return Schedule.of(size - 1, (Hop(round, to=other, gives=pieces(other), keeps=keeps)
                                  for round, other in enumerate(others)))
