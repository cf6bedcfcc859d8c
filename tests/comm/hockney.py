"""What hops should cost and count, worked out apart from the code that makes them."""
from collections.abc import Callable, Mapping
from fractions import Fraction

from minitp.comm.algorithms import Schedule


def longest_path(schedules: list[Schedule], alpha: Fraction, beta: Fraction, piece: Fraction,
                 gamma: Fraction = Fraction(0)) -> Fraction:
    """When the last rank is done: a message takes α + nβ from when both ends are ready, and nγ more where its taker
    adds it to what is there; an exchange is done when both of its messages are. `piece` is the size of a piece as a
    share of the payload."""
    ready = [Fraction(0)] * len(schedules)
    for round in range(schedules[0].rounds):
        ends: dict[int, Fraction] = {}
        for rank, plan in enumerate(schedules):
            for hop in plan.hops:
                if hop.round == round and hop.to is not None:
                    size = piece * len(hop.gives)
                    end = max(ready[rank], ready[hop.to]) + alpha + beta * size
                    adds = any(taken.adds for taken in schedules[hop.to].hops
                               if (taken.round, taken.source) == (round, rank))
                    for side, done in ((rank, end), (hop.to, end + gamma * size * adds)):
                        ends[side] = max(ends.get(side, done), done)
        ready = [ends.get(rank, time) for rank, time in enumerate(ready)]
    return max(ready)


def up(p: int) -> int:
    return (p - 1).bit_length()


def children(v: int, p: int) -> int:
    """How many a place of the binomial tree sends to."""
    return sum(v % 2 ** (k + 1) == 0 and v + 2**k < p for k in range(up(p)))


def subtree(v: int, p: int) -> int:
    """How many places hang on place v, itself with them."""
    return p if v == 0 else min(v & -v, p - v)


def folded(rank: int, p: int, inner: tuple[int, int], enters: int, leaves: int) -> tuple[int, int]:
    """`inner` for a rank that goes on; in a fold even ones only give theirs away and odd ones bring results back."""
    extra = p - 2 ** (p.bit_length() - 1)
    if rank < 2 * extra:
        return (1, enters) if rank % 2 == 0 else (inner[0] + 1, inner[1] + leaves)
    return inner


def plus(*parts: tuple[int, int]) -> tuple[int, int]:
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def sent(op: str, algorithm: str, rank: int, p: int, root: int) -> tuple[int, int]:
    """(messages, pieces) that `rank` sends."""
    v, lg = (rank - root) % p, p.bit_length() - 1
    q = 2**lg

    def same(op: str, algorithm: str = algorithm) -> tuple[int, int]:
        return sent(op, algorithm, rank, p, root)

    not_root = int(v > 0)
    forms: Mapping[tuple[str, str], Callable[[], tuple[int, int]]] = {
        ("scatter", "star"): lambda: (0, 0) if v else (p - 1, p - 1),
        ("scatter", "ring"): lambda: (p - 1 - v, p - 1 - v),
        ("scatter", "tree"): lambda: (children(v, p), subtree(v, p) - 1),
        ("gather", "star"): lambda: (not_root, not_root),
        ("gather", "ring"): lambda: (not_root * (p - v), not_root * (p - v)),
        ("gather", "tree"): lambda: (not_root, not_root * subtree(v, p)),
        ("broadcast", "star"): lambda: (0, 0) if v else (p - 1, p * (p - 1)),
        ("broadcast", "ring"): lambda: (p, p) if v < p - 1 else (0, 0),
        ("broadcast", "tree"): lambda: (children(v, p), children(v, p) * p),
        ("broadcast", "doubling"): lambda: plus(same("scatter", "tree"), same("all_gather")),
        ("reduce", "star"): lambda: (not_root, not_root * p),
        ("reduce", "ring"): lambda: (not_root * p, not_root * p),
        ("reduce", "tree"): lambda: (not_root, not_root * p),
        ("reduce", "doubling"): lambda: plus(same("reduce_scatter"), same("gather", "tree")),
        ("all_gather", "ring"): lambda: (p - 1, p - 1),
        ("all_gather", "doubling"): lambda: (up(p), p - 1),
        ("reduce_scatter", "ring"): lambda: (p - 1, p - 1),
        ("reduce_scatter", "doubling"): lambda: folded(rank, p, (lg, p - 1 - (rank % 2 and rank < 2 * (p - q))), p, 1),
        ("all_reduce", "ring"): lambda: (2 * (p - 1), 2 * (p - 1)),
        ("all_reduce", "doubling"): lambda: folded(rank, p, (lg, lg * p), p, p),
        ("all_reduce", "halving"): lambda: folded(rank, p, (2 * lg, 2 * (q - 1)), q, q),
        ("all_to_all", "ring"): lambda: (p - 1, p * (p - 1) // 2),
        ("all_to_all", "doubling"): lambda: (up(p), sum(d.bit_count() for d in range(p))),
        ("all_to_all", "pairwise"): lambda: (p - 1, p - 1),
    }
    halves = {"all_gather": ("gather", "broadcast"), "reduce_scatter": ("reduce", "scatter"),
              "all_reduce": ("reduce", "broadcast")}
    if (op, algorithm) in forms:
        return forms[op, algorithm]()
    if op == "all_to_all":                                   # a piece of the gather and of the scatter is p parts
        messages, pieces = plus(same("gather"), same("scatter"))
        return messages, pieces * p
    return plus(*map(same, halves[op]))
