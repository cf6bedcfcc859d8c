"""Partners at distances 1, 2, 4, …: after each round a rank has, or has summed, twice as much. lg p rounds.

Thakur, Rabenseifner & Gropp 2005. Recursive doubling pairs rank and rank xor 2ᵏ, which needs a power of two. For other
numbers do as MPICH does: movement by Bruck's exchange (1997), which works for any p; sums by a fold, in which r = p - q
ranks give their terms to a neighbor, q = 2^⌊lg p⌋ go on, and the r get the result at the end.
"""
from collections.abc import Callable, Sequence

from minitp.comm.algorithms.hops import Hop, Schedule


def all_gather(rank: int, size: int) -> Schedule:
    """Recursive doubling where p is a power of two, else Bruck's exchange."""
    if size & (size - 1) == 0:
        return _double(rank, [(piece,) for piece in range(size)], lambda place: place)
    rounds = (size - 1).bit_length()

    def held(by: int, round: int) -> tuple[int, ...]:
        return tuple((by + i) % size for i in range(min(1 << round, size - (1 << round))))

    return Schedule.of(rounds, (
        Hop(round, to=(rank - (1 << round)) % size, gives=held(rank, round),
            source=(rank + (1 << round)) % size, takes=held(rank + (1 << round), round)) for round in range(rounds)))


def reduce_scatter(rank: int, size: int) -> Schedule:
    """Recursive halving: each round gives away half of what is left and adds the other half. MPICH's fold before it."""
    fold = _Fold(rank, size)
    halves = fold.among([(2 * place, 2 * place + 1) if place < fold.extra else (place + fold.extra,)
                         for place in range(fold.left)]).backwards(adds=True)
    return fold.enter(size).then(halves).then(fold.leave((rank // 2 * 2,), keeps=False))


def all_reduce(rank: int, size: int) -> Schedule:
    """Recursive doubling: whole arrays are exchanged and added, so every rank has the sum after lg p rounds."""
    fold, everything = _Fold(rank, size), tuple(range(size))
    rounds = fold.left.bit_length() - 1
    hops: list[Hop] = []
    if fold.place is not None:
        partners = [fold.real(fold.place ^ 1 << round) for round in range(rounds)]
        hops = [Hop(round, partner, everything, partner, everything, adds=True)
                for round, partner in enumerate(partners)]
    return fold.enter(size).then(Schedule.of(rounds, hops)).then(fold.leave(everything, keeps=True))


def all_reduce_by_halving(rank: int, size: int) -> Schedule:
    """Rabenseifner 2004: reduce-scatter by halving, then all-gather by doubling, in q chunks."""
    fold = _Fold(rank, size)
    gather = fold.among([(chunk,) for chunk in range(fold.left)])
    return (fold.enter(fold.left).then(gather.backwards(adds=True)).then(gather)
            .then(fold.leave(tuple(range(fold.left)), keeps=True)))


def all_to_all(rank: int, size: int) -> Schedule:
    """Bruck's: in round k go the parts whose distance has bit k set; a part takes as many hops as that has bits."""
    rounds = (size - 1).bit_length()

    def on_the_way(at: int, round: int) -> tuple[int, ...]:
        distances = [d for d in range(size) if d >> round & 1]
        sources = [(at - d % (1 << round)) % size for d in distances]               # so far the lower bits are done
        return tuple(s * size + (s + d) % size for s, d in zip(sources, distances, strict=True))

    return Schedule.of(rounds, (
        Hop(round, to=(rank + (1 << round)) % size, gives=on_the_way(rank, round), source=(rank - (1 << round)) % size,
            takes=on_the_way((rank - (1 << round)) % size, round), keeps=False) for round in range(rounds)))


def all_to_all_pairwise(rank: int, size: int) -> Schedule:
    """Every part goes straight to its rank: p - 1 rounds, in each of them one partner to send to and one to hear."""
    return Schedule.of(size - 1, (
        Hop(distance - 1, to=(rank + distance) % size, gives=(rank * size + (rank + distance) % size,),
            source=(rank - distance) % size, takes=((rank - distance) % size * size + rank,), keeps=False)
        for distance in range(1, size)))


def _double(place: int, groups: Sequence[tuple[int, ...]], real: Callable[[int], int]) -> Schedule:
    """All-gather over len(groups) = 2ᵏ places; each starts with the pieces of its group. `real`: place → rank."""
    def block(of: int, round: int) -> tuple[int, ...]:
        start = of >> round << round
        return tuple(piece for group in groups[start:start + (1 << round)] for piece in group)

    rounds = len(groups).bit_length() - 1
    partners = [place ^ 1 << round for round in range(rounds)]
    return Schedule.of(rounds, (Hop(round, real(partner), block(place, round), real(partner), block(partner, round))
                                for round, partner in enumerate(partners)))


class _Fold:
    """p = q + r: of the first 2r ranks the even ones hand over to their odd neighbor; q places go on."""

    def __init__(self, rank: int, size: int):
        self.rank, self.left = rank, 1 << (size.bit_length() - 1)
        self.extra = size - self.left
        inside = rank < 2 * self.extra
        self.place = rank - self.extra if not inside else rank // 2 if rank % 2 else None
        self._partner = None if not inside else rank + 1 if self.place is None else rank - 1

    def real(self, place: int) -> int:
        return 2 * place + 1 if place < self.extra else place + self.extra

    def among(self, groups: Sequence[tuple[int, ...]]) -> Schedule:
        """All-gather by doubling among those that go on; the others rest."""
        rounds = self.left.bit_length() - 1
        return Schedule(rounds, ()) if self.place is None else _double(self.place, groups, self.real)

    def enter(self, pieces: int) -> Schedule:
        """The terms of those that rest go to their partners."""
        return self._with_partner(tuple(range(pieces)), outward=self.place is None, adds=True, keeps=False)

    def leave(self, pieces: tuple[int, ...], keeps: bool) -> Schedule:
        """The result comes back."""
        return self._with_partner(pieces, outward=self.place is not None, adds=False, keeps=keeps)

    def _with_partner(self, pieces: tuple[int, ...], outward: bool, adds: bool, keeps: bool) -> Schedule:
        if self._partner is None:
            return Schedule(int(self.extra > 0), ())
        return Schedule(1, (Hop(0, to=self._partner, gives=pieces, keeps=keeps) if outward else
                            Hop(0, source=self._partner, takes=pieces, adds=adds),))
