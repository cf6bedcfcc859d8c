"""A plan's terms as rows: what, by which formula, with which numbers put in, how many bytes, and who says so."""
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["weights", "gradients", "optimizer", "activations", "kv cache", "logits", "buffers", "reserve"]
KINDS: tuple[Kind, ...] = ("weights", "gradients", "optimizer", "activations", "kv cache", "logits", "buffers",
                           "reserve")
"""What fills a rank's memory, in the order in which it is drawn. `reserve` stands for what isn't modeled."""


@dataclass(frozen=True)
class Row:
    """One term of a rank's memory.

    formula  in the symbols of the literature; `numbers` is the same with this plan's numbers put in
    source   the paper and its equation, or the module of minitp that holds these arrays
    """
    kind: Kind
    term: str
    formula: str
    numbers: str
    bytes: int
    source: str
    note: str = ""

    @property
    def gb(self) -> float:
        """In units of 10⁹ bytes."""
        return self.bytes / 1e9

    @property
    def gib(self) -> float:
        """In units of 2³⁰ bytes."""
        return self.bytes / 2**30

    def to_plain(self) -> dict[str, Any]:
        """For JSON, with both units."""
        return {**asdict(self), "GB": self.gb, "GiB": self.gib}


def total(rows: Iterable[Row]) -> int:
    """Bytes of all rows together."""
    return sum(row.bytes for row in rows)


def by_kind(rows: Iterable[Row]) -> dict[Kind, int]:
    """Bytes of each kind that occurs, in the order of KINDS."""
    rows = list(rows)
    held = {kind: sum(row.bytes for row in rows if row.kind == kind) for kind in KINDS}
    there = {row.kind for row in rows}
    return {kind: size for kind, size in held.items() if kind in there}


@dataclass(frozen=True)
class TimeRow:
    """One term of a time: seconds, by a formula. A model of a machine, never measured."""
    term: str
    formula: str
    numbers: str
    seconds: float
    source: str
    note: str = ""

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)
