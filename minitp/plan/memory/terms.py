"""A term of a rank's memory before it is worded: a formula and what its symbols stand for on this rank.

Words cost more than numbers, so a search computes many terms and words only those that it shows.
"""
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minitp.plan import formula
from minitp.plan.formula import Number
from minitp.plan.rows import Kind, Row

SYMBOLS = {
    "N": "numbers that this rank holds of this part", "N_e": "numbers of the experts that it holds",
    "d": "ranks that ZeRO cuts over", "d_e": "ranks that ZeRO cuts experts over",
    "L": "layers of this stage", "m": "micro-batches that wait here for their backward pass",
    "l": "layers of each chunk times the micro-batches that wait there, added up",
    "b": "sequences at once on this rank", "s": "tokens of a sequence",
    "s_c": "tokens of a sequence on this rank (context parallelism cuts them)",
    "s_t": "of those, this rank's where sequence parallelism cuts them as well",
    "T": "tokens of a sequence in the cache, on this rank",
    "n": "tokens of a pass on this rank: a piece of the prompts, at least one token of each sequence",
    "n_t": "of those, this rank's where sequence parallelism cuts them",
    "h": "hidden size", "a": "query heads of this rank", "k": "kv heads of this rank", "e": "head size",
    "F": "feed-forward rows of this rank", "V": "vocabulary rows of this rank", "V_all": "vocabulary rows of the model",
    "A": "experts that a token visits", "E": "experts of the model", "E_r": "experts of this rank, of each layer",
    "E_p": "ranks that share a layer's experts",
}
"""What the letters of these formulas mean. Bare numbers are bytes per number, and how many arrays there are."""

Symbols = Mapping[str, Number]


class Term(NamedTuple):
    """A row to be: `formula` in the letters of `symbols`."""
    kind: Kind
    name: str
    formula: str
    symbols: Symbols
    source: str
    note: str = ""

    def size(self) -> int:
        """Bytes, rounded up where a type's bytes aren't whole."""
        return formula.value(self.formula, self.symbols)

    def times(self, factor: str, symbols: Symbols) -> "Term":
        return self._replace(formula=f"{self.formula} · {factor}", symbols=symbols)


def legend(rows: Iterable[Row]) -> dict[str, str]:
    """The letters that these rows' formulas have, in the order of SYMBOLS, and what they mean."""
    there = {letter for row in rows for letter in formula.letters(row.formula)}
    return {letter: meaning for letter, meaning in SYMBOLS.items() if letter in there}


def rows(terms: Iterable[Term]) -> list[Row]:
    """The terms in words, those of 0 bytes left out."""
    worded = (formula.row(*term) for term in terms)
    return [row for row in worded if row.bytes]


def total(terms: Iterable[Term]) -> int:
    """Bytes of all terms together."""
    return sum(term.size() for term in terms)
