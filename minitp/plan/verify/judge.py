"""Published beside planned: a verdict for each case, by its kind."""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any, Literal

from minitp.errors import MinitpError
from minitp.plan.verify.case import Case, Unreadable
from minitp.plan.verify.keys import check_keys
from minitp.plan.verify.registry import Planned, find
from minitp.plan.verify.units import factor
from minitp.trace.wording import plain

Verdict = Literal["lands", "looked up", "misses", "stays out", "lands inside", "as listed", "not as listed", "ratio",
                  "not judged"]
MISSES: tuple[Verdict, ...] = ("misses", "lands inside", "not as listed", "not judged")
ROUNDING = 1e-9
"""Relative: two sums of floats in another order, when a tolerance is met to the last digit."""
SUSPICIOUS = 1000.0
"""An estimate so many times off, either way, is of something else than what was measured: a unit, most likely."""


@dataclass(frozen=True)
class Outcome:
    """What became of one row.

    planned     in the unit of the row; None where it could not be planned, and `reason` says why
    difference  (planned - published)/published
    margin      within which planned and published count as the same
    by_accuracy whether that is the formula's accuracy, as the row's tolerance is as wide as its disagreement
    assumed     what no input tells and the value depends on, each with what told it: the row's name, source or note
    unused      inputs that are known, and that the formula didn't need
    """
    line: int
    id: str
    verdict: Verdict
    kind: str = ""
    source: str = ""
    model: str = ""
    quantity: str = ""
    published: float | None = None
    planned: float | None = None
    unit: str = ""
    difference: float | None = None
    margin: float | None = None
    by_accuracy: bool = False
    assumed: tuple[str, ...] = ()
    formula: str = ""
    reason: str = ""
    note: str = ""
    unused: tuple[str, ...] = ()

    @property
    def missed(self) -> bool:
        return self.verdict in MISSES

    @property
    def ratio(self) -> float | None:
        """planned / published"""
        return None if self.difference is None else 1 + self.difference

    @property
    def suspicious(self) -> bool:
        """Whether an estimate is of another order altogether than what was measured."""
        return self.verdict == "ratio" and self.ratio is not None and not 1 / SUSPICIOUS <= self.ratio <= SUSPICIOUS

    def to_plain(self) -> dict[str, Any]:
        """For JSON: numbers that JSON has."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        return {**{name: str(value) if isinstance(value, float) and not isfinite(value) else value
                   for name, value in values.items()}, "missed": self.missed, "suspicious": self.suspicious,
                "unused": list(self.unused),
                "assumed": list(self.assumed)}


def judge(row: Case | Unreadable) -> Outcome:
    """One row. Whatever can't be planned is `not judged`, with the reason, and counts as a miss."""
    if isinstance(row, Unreadable):
        return Outcome(row.line, row.id, "not judged", reason=row.reason)
    told = Outcome(row.line, row.id, "not judged", row.kind, row.source, row.model, row.quantity, row.published,
                   unit=row.unit, note=row.note)
    case = row.fresh()
    try:
        check_keys(case.inputs)
        quantity = find(case.quantity)
        unit = factor(case.unit, quantity.dimension, quantity.gb)
        planned = quantity.plan(case)
        value = planned.value / unit
    except (MinitpError, ArithmeticError) as error:
        return replace(told, reason=str(error))
    told = replace(told, formula=planned.formula, assumed=tuple(case.assumed))
    if not isfinite(value):
        return replace(told, reason="the planned value is not finite")
    if not value and row.published:
        return replace(told, reason=f"the plan is 0, of something published as {row.published:g} {plain(row.unit, 24)}")
    apart = _apart(value, row.published)
    return replace(told, verdict=verdict(row, planned, apart), planned=value, difference=apart,
                   margin=margin(row, planned), by_accuracy=by_accuracy(row, planned),
                   unused=tuple(key for key in case.inputs if key not in case.inputs.used))


def _apart(planned: float, published: float) -> float:
    if planned == published:
        return 0.0
    return (planned - published) / abs(published) if published else inf


def margin(case: Case, planned: Planned) -> float | None:
    """Within which planned and published are the same value.

    A known disagreement must lie outside what the formula can be blamed for: where its row's tolerance is as wide as
    the disagreement that it describes (a fine-tuning table 276 % off has 2.8), the formula's own accuracy holds.
    """
    return planned.accuracy if by_accuracy(case, planned) else case.tolerance


def by_accuracy(case: Case, planned: Planned) -> bool:
    """Whether the formula's accuracy is the margin, not the row's tolerance."""
    return case.kind == "known_disagreement" and case.tolerance is not None and planned.accuracy < case.tolerance


def verdict(case: Case, planned: Planned, apart: float) -> Verdict:
    """By the row's kind; see `Outcome`."""
    if case.kind == "measured":
        return "ratio"
    inside = abs(apart) <= (margin(case, planned) or 0.0) + ROUNDING
    if case.kind == "known_disagreement":
        return "lands inside" if inside else "stays out"
    if case.kind == "catalogue":
        return "as listed" if inside else "not as listed"
    if inside and planned.looked_up:
        return "looked up"
    return "lands" if inside else "misses"


def verify(rows: Iterable[Case | Unreadable]) -> list[Outcome]:
    """All of them, in order."""
    return [judge(row) for row in rows]


def counts(outcomes: Sequence[Outcome]) -> dict[str, dict[Verdict, int]]:
    """kind → verdict → how many, in the order in which they come."""
    table: dict[str, dict[Verdict, int]] = {}
    for outcome in outcomes:
        row = table.setdefault(outcome.kind or "unreadable", {})
        row[outcome.verdict] = row.get(outcome.verdict, 0) + 1
    return table
