"""Weights, gradients and optimizer state of one rank, as terms: what a training or a generation holds at all times.

Numbers are counted by the placement: shards, what every rank of a tp group holds whole (norms, biases behind a row
cut), copies of kv heads, a tied table's second copy on a pipeline's last stage. ZeRO cuts them over d = dp replicas,
and experts over the dp · cp / ep replicas of an expert (Rajbhandari et al. 2020, section 5).
"""
from collections.abc import Iterator

from minitp.errors import ConfigError
from minitp.plan.formula import literal
from minitp.plan.job import Precision
from minitp.plan.layout import Layout
from minitp.plan.memory.rank_share import Share
from minitp.plan.memory.terms import Symbols, Term, rows
from minitp.plan.model import Held, Where
from minitp.plan.rows import Kind, Row

ZERO = "Rajbhandari et al. 2020 (ZeRO), section 3.1"
ZERO_CUT = "Rajbhandari et al. 2020 (ZeRO), sections 3.1 and 5: padded to whole numbers"
COUNT = "minitp.placement: numbers that this rank holds"
NAMES: dict[Where, str] = {"embedding": "embedding", "layer": "layers", "norm": "last norm", "head": "head"}
COPIES = "with copies of kv heads that several ranks need"
TIED = "tied: a copy of the embedding's table, whose gradients are summed with the first stage's each step"


def replicas(layout: Layout) -> tuple[int, int]:
    """Ranks that ZeRO cuts the dense parameters over, and the experts."""
    return layout.dp, layout.dp * layout.cp // layout.ep


def weights(share: Share, width: float, zero: int = 0) -> Iterator[Term]:
    """A term for each part of the model: shards, whole arrays, experts. `width`: bytes per number."""
    dense, experts = replicas(share.layout) if zero == 3 else (1, 1)
    for where, held in share.parts.items():
        layers = share.whole_layers if where == "layer" else 1
        count = "{0} · L" if where == "layer" else "{0}"
        for name, symbol, size, ranks in (("", "N", held.shard, dense), (", held whole", "N", held.whole, dense),
                                          (", experts", "N_e", held.expert, experts)):
            if size and layers:
                over = "d" if symbol == "N" else "d_e"
                yield Term("weights", NAMES[where] + name, _cut(width, count.format(symbol), over, ranks),
                           {symbol: size, "L": layers, over: ranks},
                           COUNT if ranks == 1 else f"{COUNT}; {ZERO_CUT}", _note(share, where, name))


def _cut(width: float, numbers: str, over: str, ranks: int) -> str:
    return f"{literal(width)} · " + (f"⌈{numbers}/{over}⌉" if ranks > 1 else numbers)


def _note(share: Share, where: Where, name: str) -> str:
    if where == "layer" and not name and share.kv_copied:
        return COPIES
    return TIED if where == "head" and share.config.tied else ""


def training(share: Share, precision: Precision) -> Iterator[Term]:
    """Weights, gradients and optimizer state, by what ZeRO's stage cuts."""
    zero = share.layout.zero
    yield from weights(share, precision.weights, zero)
    held = Held()
    for where, part in share.parts.items():
        held = held.plus(part.times(share.whole_layers) if where == "layer" else part)
    dense, experts = replicas(share.layout)
    yield from _trained("N", "d", {"N": held.shard + held.whole, "d": dense}, zero, precision, "")
    if held.expert:
        yield from _trained("N_e", "d_e", {"N_e": held.expert, "d_e": experts}, zero, precision, ", experts")


def _trained(numbers: str, over: str, symbols: Symbols, zero: int, precision: Precision, name: str) -> Iterator[Term]:
    kept: tuple[tuple[Kind, str, float, int], ...] = (
        ("gradients", "gradients", precision.gradients, 2), ("optimizer", "master weights", precision.master, 1),
        ("optimizer", "first moment", precision.moments / 2, 1),
        ("optimizer", "second moment", precision.moments / 2, 1))
    for kind, what, width, stage in kept:
        ranks = int(symbols[over]) if zero >= stage else 1
        yield Term(kind, what + name, _cut(width, numbers, over, ranks), symbols, ZERO if ranks == 1 else ZERO_CUT)


def bare(parameters: int, *, zero: int = 0, d: int = 1, tp: int = 1, precision: Precision | None = None) -> list[Row]:
    """The states of a bare number of parameters, of whatever model, cut evenly over tp ranks and by ZeRO over d.

    With d replicas 16 P, 4 P + 12 P/d, 2 P + 14 P/d and 16 P/d bytes (Rajbhandari et al. 2020, table 1), each array
    rounded up to whole numbers.
    """
    if parameters < 1 or d < 1 or tp < 1 or zero not in (0, 1, 2, 3):
        raise ConfigError(f"states need at least 1 parameter and 1 rank and a ZeRO stage of 0 to 3, got {parameters:,} "
                          f"parameters, d = {d}, tp = {tp}, stage {zero}")
    precision = precision or Precision()
    symbols = {"N": -(-parameters // tp), "d": d}
    ranks = d if zero == 3 else 1
    weights = Term("weights", "weights", _cut(precision.weights, "N", "d", ranks), symbols,
                   ZERO if ranks == 1 else ZERO_CUT, f"N = ⌈{parameters:,}/{tp}⌉" if tp > 1 else "")
    return rows([weights, *_trained("N", "d", symbols, zero, precision, "")])
