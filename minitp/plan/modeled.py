"""What a machine's description says of a collective in a run of our own: a time, and how wrong it may be."""
from collections.abc import Mapping
from dataclasses import dataclass

from minitp.plan.calibrate.durations import Kind
from minitp.plan.machine import Machine
from minitp.plan.network import price
from minitp.plan.network.collectives import COSTS_AS, has_model

TOKEN = "token"
"""What of a calibration's errors is that of a whole token, not of a collective."""


@dataclass(frozen=True)
class Stated:
    """The error that the calibration states for an op's table: median and largest relative error.

    spread: interquartile, over the lower quartile that the table has. Some sizes jump between two levels, and a run has
    its lower quartile on the other one.
    """
    median: float
    worst: float
    spread: float = 0.0

    def covers(self, modeled: float, measured: float) -> bool:
        """Whether a measured time is as near as is stated: off by the largest error, or above by the spread."""
        return abs(modeled / measured - 1) <= self.worst or modeled <= measured <= modeled * (1 + self.spread)


def modeled(kind: Kind, machine: Machine) -> tuple[float | None, str]:
    """(s, the table or the algorithm that says so); None for an op without a model, and for one rank: nothing moves."""
    if kind.ranks == 1 or not has_model(kind.op):
        return None, ""
    found = price(kind.op, kind.payload, machine.meeting(kind.ranks), machine)
    return found.seconds, "table" if found.measured else f"α + nβ, {found.algorithm}"


def stated(kind: Kind, machine: Machine) -> Stated | None:
    """What the machine's calibration says of this op on so many ranks."""
    return stated_for(kind.op, kind.ranks, machine)


def stated_for(what: str, ranks: int, machine: Machine) -> Stated | None:
    """The same, of an op or a TOKEN. The machine's file may be a stranger's."""
    errors = machine.measured.get("errors", {})
    found = errors.get(error_key(what, ranks)) if isinstance(errors, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    numbers = [float(number) for number in (found.get("median"), found.get("worst"), found.get("spread", 0.0))
               if isinstance(number, (int, float)) and 0 <= number < 1e6]
    return Stated(*numbers) if len(numbers) == 3 else None


def error_key(op: str, ranks: int) -> str:
    """The name of an op's error among the facts of a calibration."""
    return f"{COSTS_AS.get(op, op)} on {ranks}"
