"""What a collective refuses before anything moves: each check says what was brought, which rule it broke, what works.

These see one rank only. That the ranks agree with each other is what checked mode compares.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np

from minitp.comm.packing import shape_of
from minitp.comm.partial import Partial
from minitp.cut import Cut, Slices
from minitp.errors import CollectiveError, StateError

_SUMMED = "iufc"                 # kinds of numbers that MPI can sum; bool and 16-bit floats are refused by name


def movable(array: Any, op: str) -> Any:
    """`array`, if it is one and not a partial sum."""
    if isinstance(array, Partial):
        raise StateError(f"{op} moves arrays as they are; this is a partial sum: each rank's term would be taken for "
                         "the answer. Make it whole (all_reduce) or a shard (reduce_scatter)")
    if getattr(array, "dtype", None) is None or np.dtype(array.dtype).hasobject:
        raise StateError(f"{op} moves arrays of numbers, not {type(array).__name__}")
    return array


def summable(partial: Any, op: str) -> Partial:
    """`partial`, if it is one and of numbers that every MPI sums right."""
    if not isinstance(partial, Partial):
        raise StateError(f"{op} sums the ranks' terms, so it takes a Partial; this is a {type(partial).__name__}. "
                         "If it really is one term of a sum, say so: Partial(array, group)")
    dtype = np.dtype(partial.dtype)
    if dtype.kind not in _SUMMED or not dtype.isnative or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise StateError(f"{op} can't sum {dtype}: 16-bit floats would be rounded at every hop, and MPI has no sum of "
                         "booleans or of another machine's byte order. Cast the partial up first: "
                         "partial.astype('float32')")
    return partial


def comparable(array: Any, site: str) -> Any:
    """`array`, if it is one of real numbers that every MPI compares alike."""
    dtype = np.dtype(movable(array, "all_reduce_max").dtype)
    if dtype.kind not in "iuf" or not dtype.isnative or (dtype.itemsize == 2 and dtype.kind == "f"):
        raise StateError(f"all_reduce_max at {site} can't compare {dtype}: MPI knows integers and 32- or 64-bit floats "
                         "of this machine's byte order. Cast it up first: array.astype('float32')")
    return array


def check_root(op: str, site: str, root: int, size: int) -> None:
    if not 0 <= root < size:
        raise CollectiveError(f"{op} at {site}: root {root} is not one of the ranks 0…{size - 1}")


def axis_of(op: str, site: str, shape: tuple[int, ...], axis: int) -> int:
    """`axis` counted from the start, if there is such an axis."""
    if not -len(shape) <= axis < len(shape):
        raise CollectiveError(f"{op} at {site}: an array of shape {shape} has no axis {axis} to cut")
    return axis % len(shape)


def cut_axis(op: str, site: str, shape: tuple[int, ...], axis: int, cut: Cut, size: int, rank: int | None) -> int:
    """`axis` counted from the start, if `cut` is of `size` ranks and fits: the array's own rank `rank`, None: all."""
    axis = axis_of(op, site, shape, axis)
    if cut.ranks != size:
        raise CollectiveError(f"{op} at {site}: the cut is over {cut.ranks} ranks, the group has {size}")
    wanted = cut.size if rank is None else len(cut.of(rank))
    if shape[axis] != wanted:
        who = "the array" if rank is None else f"rank {rank}"
        raise CollectiveError(f"{op} at {site}: {who} brings {shape[axis]} along axis {axis}, but by the cut of "
                              f"{cut.size} over {cut.ranks} ranks it should be {wanted}")
    return axis


def pieces_axis(op: str, site: str, shape: tuple[int, ...], axis: int, pieces: Sequence[Slices], size: int) -> int:
    """`axis` counted from the start, if there is a piece for each rank, cut along this axis alone."""
    axis = axis_of(op, site, shape, axis)
    if len(pieces) != size:
        raise CollectiveError(f"{op} at {site}: {len(pieces)} pieces for {size} ranks")
    for rank, piece in enumerate(pieces):
        if len(piece) != len(shape) or any(n != shape[i] for i, n in enumerate(shape_of(shape, piece)) if i != axis):
            raise CollectiveError(f"{op} at {site}: the piece of rank {rank}, {piece}, is not a slice of {shape} "
                                  f"along axis {axis} alone")
    return axis
