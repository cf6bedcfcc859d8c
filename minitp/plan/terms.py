"""A term of a rank's memory before it is worded: named factors whose product is its bytes.

Formula, numbers and bytes of a `Row` all come from the same factors, so that they can't say different things. Words
cost more than products, so a search multiplies many terms and words only those that it shows.
"""
from collections.abc import Iterable, Sequence
from math import ceil, prod
from typing import NamedTuple

from minitp.plan.rows import Kind, Row

SYMBOLS = {
    "N": "numbers that this rank holds of this part", "N_e": "numbers of the experts that it holds",
    "d": "ranks that ZeRO cuts over", "d_e": "ranks that ZeRO cuts experts over",
    "L": "layers of this stage", "l": "layers times micro-batches that wait there",
    "m": "micro-batches that wait there", "b": "sequences at once on this rank", "s": "tokens of a sequence",
    "s_c": "tokens of a sequence on this rank (context parallelism cuts them)",
    "s_t": "of those, this rank's where sequence parallelism cuts them as well",
    "T": "tokens of a sequence in the cache, on this rank", "n_e": "tokens that visit the experts of this rank",
    "h": "hidden size", "a": "query heads of this rank", "k": "kv heads of this rank", "e": "head size",
    "F": "feed-forward rows of this rank", "V": "vocabulary rows of this rank", "V_all": "vocabulary rows of the model",
    "A": "experts that a token visits", "E": "experts of the model",
}
"""What the letters of formulas mean. A bare number is bytes per number, or how many arrays there are."""

Value = int | float


class Factor(NamedTuple):
    """`text`: the value in words, where it isn't just the number."""
    symbol: str
    value: Value
    text: str = ""


class Term(NamedTuple):
    """The product of its factors, rounded up to whole bytes; `plus`: terms of one micro-batch that are added up and
    then multiplied with the factors."""
    kind: Kind
    name: str
    factors: tuple[Factor, ...]
    source: str
    note: str = ""
    plus: tuple["Term", ...] = ()

    def size(self) -> int:
        """Whole bytes. Python's whole numbers stay exact at any size; a fraction comes from block-wise types."""
        size = prod(factor[1] for factor in self.factors)
        if self.plus:
            size *= sum(term.size() for term in self.plus)
        return size if type(size) is int else ceil(size)


def factors(*named: tuple[str, Value] | tuple[str, Value, str]) -> tuple[Factor, ...]:
    """From pairs (symbol, value). A whole float (2.0 bytes) becomes whole; 1.0625 stays."""
    return tuple(Factor(one[0], whole(one[1]), *one[2:]) for one in named)


def per(value: float, symbol: str = "") -> Factor:
    """A factor that formulas show as its number: bytes per number, or a count."""
    return Factor(symbol or f"{value:g}", whole(value))


def whole(value: Value) -> Value:
    """2.0 -> 2: products of whole numbers are exact."""
    return value if type(value) is int or value % 1 else int(value)


def cut_over(symbol: str, value: int, over: str, ranks: int) -> Factor:
    """⌈value / ranks⌉: an array that is cut evenly over ranks and padded; the bare value on one rank."""
    if ranks == 1:
        return Factor(symbol, value)
    return Factor(f"⌈{symbol}/{over}⌉", -(-value // ranks), f"⌈{value:,}/{ranks:,}⌉")


def row(term: Term) -> Row:
    """The term in words."""
    return Row(term.kind, term.name, _formula(term), _numbers(term), term.size(), term.source, term.note)


def rows(terms: Iterable[Term]) -> list[Row]:
    """The terms in words, those of 0 bytes left out."""
    return [row(term) for term in terms if term.size()]


def total(terms: Iterable[Term]) -> int:
    """Bytes of all terms together."""
    return sum(term.size() for term in terms)


def _formula(term: Term) -> str:
    return _joined([factor.symbol for factor in term.factors], [_formula(part) for part in term.plus])


def _numbers(term: Term) -> str:
    return _joined([factor.text or _plain(factor.value) for factor in term.factors], [_numbers(p) for p in term.plus])


def _joined(product: Sequence[str], parts: Sequence[str]) -> str:
    if not parts:
        return " · ".join(product)
    inner = " + ".join(parts)
    return " · ".join([*product, f"({inner})"]) if product else inner


def _plain(value: Value) -> str:
    return f"{value:,}" if type(value) is int else f"{value:g}"
