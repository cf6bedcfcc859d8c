"""The four states of an array with respect to a group of ranks, and the collectives that change them.

  whole         every rank holds the same complete array
  shard(axis)   this rank holds its slice along `axis`
  partial       full shape, but the answer is the sum over the ranks
  on root       one rank holds it, the others nothing

Multiplying changes a state for free (whole · columns → shard, shard · rows → partial); changing it back costs a
collective. The tables below are read by the communicator, the recorder and the closed form alike.
"""
from dataclasses import dataclass
from functools import cache
from typing import Literal


@dataclass(frozen=True)
class State:
    """One of the four; `axis` is the cut axis of a shard: of an activation counted from the end, as batches and rows
    come before it; of a parameter counted from the start, as in the placement."""
    kind: Literal["whole", "shard", "partial", "on root"]
    axis: int | None = None

    def __str__(self) -> str:
        return self.kind if self.axis is None else f"shard({self.axis})"


WHOLE = State("whole")
PARTIAL = State("partial")
ON_ROOT = State("on root")


def shard(axis: int) -> State:
    return State("shard", axis)


# op → the kinds before and after. Sends, receives and barriers move no array of the model.
TRANSITIONS: dict[str, tuple[str, str]] = {
    "all_reduce": ("partial", "whole"),
    "reduce_scatter": ("partial", "shard"),
    "all_gather": ("shard", "whole"),
    "all_to_all": ("shard", "shard"),
    "scatter": ("on root", "shard"),
    "broadcast": ("on root", "whole"),
    "gather": ("shard", "on root"),
    "reduce": ("partial", "on root"),
}


def transition(op: str, axis: int | None = None, to_axis: int | None = None) -> tuple[State, State]:
    """The states before and after `op`; `axis` is that of the shard on either side (`to_axis`: all-to-all's second)."""
    before, after = TRANSITIONS[op]
    return (State(before, axis if before == "shard" else None),  # type: ignore[arg-type]
            State(after, (axis if to_axis is None else to_axis) if after == "shard" else None))  # type: ignore[arg-type]


@cache
def state_names(op: str, axis: int | None, to_axis: int | None) -> tuple[str, ...]:
    """Before and after, as a trace has them."""
    return ("whole", "whole") if op == "barrier" else tuple(map(str, transition(op, axis, to_axis)))
