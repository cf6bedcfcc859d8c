"""An oracle for tests: bytes on the wire of a collective built from messages, rank by rank: counted, not estimated.

The schedules are those that minitp.comm.algorithms plays; their messages are what a trace of them holds. What MPI or
NCCL sends inside its own collectives is not known.
"""
from fractions import Fraction
from typing import NamedTuple

from minitp.comm.algorithms import chunks, schedule
from minitp.errors import ConfigError
from minitp.plan.network.collectives import COSTS_AS, model


class Moved(NamedTuple):
    """Bytes that one rank sends and receives, and its messages each way."""
    sent: Fraction
    received: Fraction
    sends: int
    receives: int


def moved(op: str, algorithm: str, ranks: int, payload: int) -> list[Moved]:
    """By rank; rank 0 is the root. The pieces are taken as equal, so bytes may be fractions."""
    if ranks < 1 or payload < 0:
        raise ConfigError(f"bytes on the wire need 1 rank or more and a payload of 0 bytes or more, not {ranks} and "
                          f"{payload}")
    op = COSTS_AS.get(op, op)
    model(op, algorithm)
    piece = Fraction(payload, ranks**2 if op == "all_to_all" else chunks(op, algorithm, ranks))
    counted = []
    for rank in range(ranks):
        hops = schedule(op, algorithm, rank, ranks, 0).hops
        counted.append(Moved(piece * sum(len(hop.gives) for hop in hops if hop.to is not None),
                             piece * sum(len(hop.takes) for hop in hops if hop.source is not None),
                             sum(hop.to is not None for hop in hops), sum(hop.source is not None for hop in hops)))
    return counted


def bytes_at_root(op: str, algorithm: str, ranks: int, payload: int) -> Moved:
    """What passes through the root's link: of a star everything, (p−1) times the payload each way for an all-reduce;
    of a ring no more than through any other's."""
    return moved(op, algorithm, ranks, payload)[0]
