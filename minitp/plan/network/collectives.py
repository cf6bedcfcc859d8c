"""What a collective costs on a link, by algorithm: hops · α + volume · n · β + reduced · n · γ (Hockney 1994).

  p        ranks; ⌈lg p⌉ and ⌊lg p⌋ are its logarithm to base 2, rounded; q = 2^⌊lg p⌋, r = p - q
  n        payload: bytes of the whole array, as the trace counts it (after a gather, before a scatter or reduce)
  α, β     seconds per message and per byte of the link
  hops     messages that must follow one another, on the longest path through the collective
  volume   bytes on that path as a share of n
  γ        seconds to add up one byte; 0 unless asked for: a processor adds faster than most networks bring
  reduced  bytes added up on that path as a share of n

The pieces are taken as equal, and a rank sends one message and receives one at a time. The hops are those of
minitp.comm.algorithms: tests hold the two together. Where p is not a power of two the formulas are those of what MPICH
does: Bruck's exchange for all-gather and all-to-all, and for sums by halving or doubling a fold: r ranks give their
terms away first and get the result last. The formulas in words leave γ out: it is added to the same bytes on the
messages that carry terms.

Sources: Thakur, Rabenseifner & Gropp 2005 (TRG; Thakur & Gropp 2003 before it); Bruck et al. 1997; Rabenseifner
2004; van de Geijn's broadcast in Barnett et al. 1994; Patarasuk & Yuan 2009 for the ring. All of it is a model.
"""
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from minitp.errors import ConfigError
from minitp.plan.links import Link


@dataclass(frozen=True)
class Cost:
    """The longest path of a collective: its hops, and the bytes moved and added up as shares of the payload."""
    hops: int
    volume: Fraction
    reduced: Fraction = Fraction(0)

    def __add__(self, other: "Cost") -> "Cost":
        """One after the other."""
        return Cost(self.hops + other.hops, self.volume + other.volume, self.reduced + other.reduced)

    def summing(self) -> "Cost":
        """The same messages where what comes is a term of a sum: every byte that moves is added to one that is here."""
        return Cost(self.hops, self.volume, self.volume)


@dataclass(frozen=True)
class Model:
    """Cost as a function of p, its formula in words and where it is from."""
    cost: Callable[[int], Cost]
    formula: str
    source: str

    def formula_of(self, ranks: int) -> str:
        """The half of it that holds for so many ranks, where it has one for powers of two and one for the rest."""
        power, _, rest = self.formula.partition("; p ≠ 2^k: ")
        return rest if rest and ranks & (ranks - 1) else power


def _up(p: int) -> int:
    """⌈lg p⌉"""
    return (p - 1).bit_length()


def _down(p: int) -> int:
    """⌊lg p⌋"""
    return p.bit_length() - 1


def _others(p: int) -> Fraction:
    """(p - 1)/p: all pieces but one's own."""
    return Fraction(p - 1, p)


_FOLD = Cost(2, Fraction(2), Fraction(1))
"""The whole array to a neighbor, who adds it, and the result back."""


def _star_pieces(p: int) -> Cost:
    return Cost(p - 1, _others(p))


def _star_whole(p: int) -> Cost:
    return Cost(p - 1, Fraction(p - 1))


def _tree_pieces(p: int) -> Cost:
    return Cost(_up(p), _others(p))


def _tree_whole(p: int) -> Cost:
    return Cost(_up(p), Fraction(_up(p)))


def _chain(p: int) -> Cost:
    """p chunks down a chain of p ranks, each passed on while the next arrives: p - 1 until the first is through, then
    p - 1 more."""
    return Cost(2 * (p - 1), 2 * _others(p))


def _halving(p: int) -> Cost:
    """Reduce-scatter by recursive halving. After a fold of r, q ranks go on, the first r of them for two pieces each.
    The first of all is on the longest path: it takes the pieces of its half, quarter, … of the q."""
    steps = _down(p)
    q, r = 1 << steps, p - (1 << steps)
    taken = sum((q >> k) + min(r, q >> k) for k in range(1, steps + 1))
    halved = Cost(steps, Fraction(taken, p)).summing()
    return halved + Cost(2, 1 + Fraction(1, p), Fraction(1)) if r else halved


def _doubling(p: int) -> Cost:
    """All-reduce by recursive doubling: the whole array at every hop; a fold costs two more."""
    doubled = Cost(_down(p), Fraction(_down(p))).summing()
    return doubled if p & (p - 1) == 0 else doubled + _FOLD


def _rabenseifner(p: int) -> Cost:
    """Halving, then doubling, over q ranks; a fold costs two messages of the whole array more."""
    q = 1 << _down(p)
    halved = Cost(2 * _down(p), 2 * _others(q), _others(q))
    return halved if p == q else halved + _FOLD


def _ring_to_all(p: int) -> Cost:
    """Parts of n/p² passed on along the ring: p - 1 of them in the first step, then p - 2, …"""
    return Cost(p - 1, Fraction(p - 1, 2 * p))


def _bruck_to_all(p: int) -> Cost:
    """In step k go the parts whose distance has bit k set."""
    return Cost(_up(p), Fraction(sum(distance.bit_count() for distance in range(p)), p * p))


def _pairwise(p: int) -> Cost:
    return Cost(p - 1, Fraction(p - 1, p * p))


def _summing(part: Callable[[int], Cost]) -> Callable[[int], Cost]:
    """The same messages, carrying terms of a sum."""
    return lambda p: part(p).summing()


def _then(*parts: Callable[[int], Cost]) -> Callable[[int], Cost]:
    """One collective after another."""
    return lambda p: sum((part(p) for part in parts[1:]), parts[0](p))


_STAR, _TRG, _RING = "each rank has one message with the root", "TRG 2005", "Patarasuk & Yuan 2009"
_CHAIN = "a pipelined chain of p chunks"

MODELS: dict[str, dict[str, Model]] = {
    "scatter": {
        "star": Model(_star_pieces, "(p−1)α + (p−1)/p·nβ", _STAR),
        "ring": Model(_star_pieces, "(p−1)α + (p−1)/p·nβ", "the farthest piece is sent first and passed on"),
        "tree": Model(_tree_pieces, "⌈lg p⌉α + (p−1)/p·nβ", f"binomial tree, {_TRG}"),
    },
    "gather": {
        "star": Model(_star_pieces, "(p−1)α + (p−1)/p·nβ", _STAR),
        "ring": Model(_star_pieces, "(p−1)α + (p−1)/p·nβ", "scatter's ring, backwards"),
        "tree": Model(_tree_pieces, "⌈lg p⌉α + (p−1)/p·nβ", f"binomial tree, {_TRG}"),
    },
    "broadcast": {
        "star": Model(_star_whole, "(p−1)(α + nβ)", _STAR),
        "ring": Model(_chain, "2(p−1)(α + n/p·β)", _CHAIN),
        "tree": Model(_tree_whole, "⌈lg p⌉(α + nβ)", f"binomial tree, {_TRG}"),
        "doubling": Model(_then(_tree_pieces, _tree_pieces), "2⌈lg p⌉α + 2(p−1)/p·nβ",
                          f"van de Geijn: scatter, then all-gather; {_TRG}"),
    },
    "reduce": {
        "star": Model(_summing(_star_whole), "(p−1)(α + nβ)", _STAR),
        "ring": Model(_summing(_chain), "2(p−1)(α + n/p·β)", _CHAIN),
        "tree": Model(_summing(_tree_whole), "⌈lg p⌉(α + nβ)", f"binomial tree, {_TRG}"),
        "doubling": Model(_then(_halving, _tree_pieces), "reduce-scatter by halving + ⌈lg p⌉α + (p−1)/p·nβ",
                          "Rabenseifner 2004: reduce-scatter, then gather"),
    },
    "all_gather": {
        "star": Model(_then(_star_pieces, _star_whole), "2(p−1)α + ((p−1)/p + p−1)nβ", "gather, then broadcast"),
        "ring": Model(_star_pieces, "(p−1)α + (p−1)/p·nβ", _TRG),
        "tree": Model(_then(_tree_pieces, _tree_whole), "2⌈lg p⌉α + ((p−1)/p + ⌈lg p⌉)nβ", "gather, then broadcast"),
        "doubling": Model(_tree_pieces, "⌈lg p⌉α + (p−1)/p·nβ", f"recursive doubling; p ≠ 2^k: Bruck; {_TRG}"),
    },
    "reduce_scatter": {
        "star": Model(_then(_summing(_star_whole), _star_pieces), "2(p−1)α + ((p−1)/p + p−1)nβ",
                      "reduce, then scatter"),
        "ring": Model(_summing(_star_pieces), "(p−1)α + (p−1)/p·nβ", _RING),
        "tree": Model(_then(_summing(_tree_whole), _tree_pieces), "2⌈lg p⌉α + ((p−1)/p + ⌈lg p⌉)nβ",
                      "reduce, then scatter"),
        "doubling": Model(_halving, "lg p·α + (p−1)/p·nβ; p ≠ 2^k: (⌊lg p⌋+2)α + (p+1 + Σₖ(q/2ᵏ + min(r, q/2ᵏ)))/p·nβ",
                          f"recursive halving; p ≠ 2^k: a fold; {_TRG}"),
    },
    "all_reduce": {
        "star": Model(_then(_summing(_star_whole), _star_whole), "2(p−1)(α + nβ)", "reduce, then broadcast"),
        "ring": Model(_then(_summing(_star_pieces), _star_pieces), "2(p−1)α + 2(p−1)/p·nβ",
                      f"reduce-scatter, then all-gather; {_RING}"),
        "tree": Model(_then(_summing(_tree_whole), _tree_whole), "2⌈lg p⌉(α + nβ)", "reduce, then broadcast"),
        "doubling": Model(_doubling, "lg p·(α + nβ); p ≠ 2^k: (⌊lg p⌋+2)(α + nβ)", f"recursive doubling, {_TRG}"),
        "halving": Model(_rabenseifner, "2 lg p·α + 2(p−1)/p·nβ; p ≠ 2^k: (2⌊lg p⌋+2)α + (2(q−1)/q + 2)nβ",
                         "Rabenseifner 2004: reduce-scatter by halving, then all-gather by doubling"),
    },
    "all_to_all": {
        "star": Model(_then(_star_pieces, _star_pieces), "2(p−1)α + 2(p−1)/p·nβ", "gather, then scatter"),
        "ring": Model(_ring_to_all, "(p−1)α + (p−1)/(2p)·nβ", "every part is passed on until it is there"),
        "tree": Model(_then(_tree_pieces, _tree_pieces), "2⌈lg p⌉α + 2(p−1)/p·nβ", "gather, then scatter"),
        "doubling": Model(_bruck_to_all, "⌈lg p⌉α + (bits set in 0…p−1)/p²·nβ", "Bruck et al. 1997"),
        "pairwise": Model(_pairwise, "(p−1)α + (p−1)/p²·nβ", f"pairwise exchange, {_TRG}"),
    },
}

ALGORITHMS: dict[str, tuple[str, ...]] = {op: tuple(models) for op, models in MODELS.items()}
"""op → the algorithms that have an implementation and a cost. Scatter and gather by halving are the binomial tree."""


COSTS_AS = {"all_reduce_max": "all_reduce"}
"""Ops that move what another moves: a maximum takes the same messages as a sum."""


def has_model(op: str) -> bool:
    """Whether it is known what this op costs."""
    return COSTS_AS.get(op, op) in MODELS


def models_of(op: str) -> dict[str, Model]:
    """The cost models of an op by algorithm; ConfigError where there are none."""
    if not has_model(op):
        raise ConfigError(f"there is no cost model of {op!r}; there is one of {', '.join(MODELS)}")
    return MODELS[COSTS_AS.get(op, op)]


def model(op: str, algorithm: str) -> Model:
    """The cost model; ConfigError where there is none of that name."""
    models = models_of(op)
    if algorithm not in models:
        raise ConfigError(f"{op} has no algorithm {algorithm!r}; it has {', '.join(models)}")
    return models[algorithm]


def cost(op: str, algorithm: str, ranks: int) -> Cost:
    """The longest path of `op` over `ranks` ranks, before a link gives it a time."""
    if ranks < 1:
        raise ConfigError(f"a collective needs 1 rank or more, {ranks} was asked for")
    return model(op, algorithm).cost(ranks)


def seconds(op: str, algorithm: str, ranks: int, payload: float, link: Link, gamma: float = 0.0) -> float:
    """hops · α + volume · payload · β + reduced · payload · γ: a model. `payload` in bytes of the whole array, `gamma`
    in seconds per byte added up; 0 s on one rank."""
    if payload < 0:
        raise ConfigError(f"a payload is 0 bytes or more, {payload} was asked for")
    path = cost(op, algorithm, ranks)
    return (path.hops * link.latency_s + float(path.volume) * payload / link.bytes_per_s
            + float(path.reduced) * payload * gamma)


def best(op: str, ranks: int, payload: float, link: Link, gamma: float = 0.0) -> tuple[str, float]:
    """(algorithm, seconds) of the cheapest by this model; of several alike the first in ALGORITHMS."""
    times = {algorithm: seconds(op, algorithm, ranks, payload, link, gamma) for algorithm in models_of(op)}
    winner = min(times, key=times.__getitem__)
    return winner, times[winner]
