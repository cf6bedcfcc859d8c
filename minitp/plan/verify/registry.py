"""The quantities that published tables print, by name: each a function of a case."""
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from minitp.plan.verify.case import Case, CaseError
from minitp.trace.wording import plain


@dataclass(frozen=True)
class Planned:
    """What the planner says of one case.

    value     in the base unit of the quantity: bytes, seconds, FLOP, a share of 1, …
    formula   as it was put in, in the symbols of the literature
    accuracy  how near this formula comes to published values (relative). A value that is known to disagree must be
              farther away than this: the tolerance of such a row may be as wide as the disagreement itself
    looked_up whether the value is a published table's own, put where it was asked for, and no formula's
    """
    value: float
    formula: str
    accuracy: float = 0.05
    looked_up: bool = False


@dataclass(frozen=True)
class Quantity:
    """A name, its dimension (of `verify.units`), the function, and what a plain "GB" is worth in its sources."""
    name: str
    dimension: str
    plan: Callable[[Case], Planned]
    gb: float = 1e9


QUANTITIES: dict[str, Quantity] = {}


def quantity(dimension: str, *names: str, gb: float = 1e9) -> Callable[[Callable[[Case], Planned]],
                                                                       Callable[[Case], Planned]]:
    """Registers a function of a case under the names that the CSV files use."""
    def register(plan: Callable[[Case], Planned]) -> Callable[[Case], Planned]:
        for name in names:
            if name in QUANTITIES:
                raise ValueError(f"the quantity {name} is registered twice")
            QUANTITIES[name] = Quantity(name, dimension, plan, gb)
        return plan
    return register


def find(name: str) -> Quantity:
    """CaseError for a quantity that nobody plans, with those that look like it."""
    import minitp.plan.verify.quantities  # noqa: F401  (registers them; its modules import this one)
    if name not in QUANTITIES:
        near = get_close_matches(name, QUANTITIES, 3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise CaseError(f"the quantity {plain(name, 60)!r} isn't known{hint}")
    return QUANTITIES[name]
