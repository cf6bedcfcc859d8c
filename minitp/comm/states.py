"""The four states of an array with respect to a group of ranks, and the collectives that change them.

  whole         every rank holds the same complete array
  shard(axis)   this rank holds its slice along `axis`
  partial       full shape, but the answer is the sum over the ranks
  on root       one rank holds it, the others nothing

Multiplying changes a state for free (whole · columns → shard, shard · rows → partial); changing it back costs a
collective. The tables below are read by the communicator, the recorder, the closed form and the app alike.
"""
from dataclasses import dataclass
from functools import cache
from typing import Literal

from minitp.errors import StateError


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
    "all_reduce_max": ("partial", "whole"),               # the answer is the largest of the terms, not their sum
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


# --- what is free, and what must be paid first -----------------------------------------------------------------------

Split = Literal["columns", "rows", "whole"]
"""How a matrix of y = x · M is held (M is Wᵀ, the stored W transposed): each rank its columns, its rows, or all."""

PRODUCTS: dict[tuple[str, Split], str] = {
    ("whole", "whole"): "whole",
    ("whole", "columns"): "shard",         # own columns of M give own columns of y
    ("shard", "rows"): "partial",          # own columns of x meet own rows of M: one term of the sum
    ("partial", "whole"): "partial",       # (a + b) M = a M + b M
}
"""Kind of x and split of M → kind of y. What isn't here is no product: x must be changed first."""

ADMITS: dict[str, tuple[str, ...]] = {
    "activation": ("whole", "shard"),      # entry by entry, but act(a + b) ≠ act(a) + act(b)
    "heads": ("whole", "shard"),           # rotary, softmax: head by head, a head is on one rank; not linear
    "norm": ("whole",),                    # the mean is over the whole row
    "residual": ("whole",),                # x is whole: added to a partial sum it would count p times
    "sample": ("whole",),                  # the largest of all logits
}
"""Step → the kinds of array it may be applied to; it leaves the kind as it is."""

SLICE = "slice"
"""The one change that costs nothing: a rank takes its part of what it holds whole."""

CHANGES: dict[tuple[str, str], str] = {
    ("whole", "shard"): SLICE,
    **{kinds: op for op, kinds in TRANSITIONS.items()
       if "on root" not in kinds and kinds[0] != kinds[1] and op != "all_reduce_max"}}
"""Kinds before and after → what changes one into the other, on all ranks alike. A partial here is one of a sum."""


def product(state: State, split: Split) -> State:
    """The state of x · M for x in `state`. StateError where x must be changed first, and into what."""
    kind = PRODUCTS.get((state.kind, split))
    if kind is None or state.axis not in (None, -1):
        fitting = " or ".join(before for before, how in PRODUCTS if how == split)
        raise StateError(f"x is {state} and the matrix is held {'whole' if split == 'whole' else f'by {split}'}: the "
                         f"product takes an x that is {fitting}. Change it first, by a collective or a slice")
    return shard(-1) if kind == "shard" else State(kind)  # type: ignore[arg-type]


def admits(step: str, state: State) -> bool:
    """Whether `step`, one of ADMITS, may be applied to an array in `state`."""
    return state.kind in ADMITS[step]
