"""Whether results are right, and if not, what is wrong with them in words: a known mistake, a state, a value."""
from collections.abc import Sequence
from typing import Any

import numpy as np

from minitp.comm.partial import Partial
from minitp.comm.states import State
from minitp.launcher.telling import name_ranks
from minitp.lesson.puzzles.base import World
from minitp.trace.wording import dimensions

_LARGEST_INT = 1 << 63
_WANTED = {"whole": "every rank returns all of it", "shard": "each rank returns its own piece",
           "partial": "each rank returns its term of the sum"}


def wrong(world: World, results: Sequence[Any]) -> list[str]:
    """What is wrong, at most a line for each returned thing and one in all where the cause is known; [] if nothing."""
    if all(map(same, results, world.truth)):
        return []
    known = next((mistake for mistake in world.mistakes if all(map(same, results, mistake.results))
                  and not all(map(same, mistake.results, world.truth))), None)
    if known is not None:
        return [known.words]
    names, states = world.names, world.state if isinstance(world.state, tuple) else (world.state,)
    if len(names) == 1:
        return [_of_one(names[0], states[0], results, world.truth)]
    for rank, result in enumerate(results):
        if not isinstance(result, tuple) or len(result) != len(names):
            return [f"asked for are {len(names)} things, ({', '.join(names)}); rank {rank} returned {_kind(result)}."]
    return [_of_one(name, state, *parts) for name, state, *parts in
            zip(names, states, zip(*results, strict=True), zip(*world.truth, strict=True), strict=True)
            if not all(map(same, *parts))]


def same(got: Any, wanted: Any) -> bool:
    """Equal but for rounding: half the digits of the type in which the truth was computed. Whole numbers: equal."""
    if isinstance(wanted, tuple):
        return isinstance(got, tuple) and len(got) == len(wanted) and all(map(same, got, wanted))
    if not _is_numbers(got) or np.shape(got) != np.shape(wanted):
        return False
    if not np.size(wanted):
        return True
    if not np.all(np.isfinite(wanted)):
        return np.array_equal(got, wanted, equal_nan=True)
    return bool(np.all(np.abs(np.subtract(got, wanted, dtype=complex)) <= _tolerance(wanted)))


def _tolerance(wanted: Any) -> float:
    wanted = np.asarray(wanted)
    if wanted.dtype.kind not in "fc":
        return 0.0
    return float(np.sqrt(np.finfo(wanted.dtype).eps) * np.abs(wanted).max(initial=0))


def _is_numbers(value: Any) -> bool:
    """Of NumPy's own kinds alone: what a class of somebody's, or a mask, says of its equality is no number."""
    if type(value) is int:
        return abs(value) < _LARGEST_INT
    if type(value) in (bool, float, *np.sctypeDict.values()):
        return np.asarray(value).dtype.kind in "biufc"
    return type(value) is np.ndarray and value.dtype.kind in "biufc"


def _of_one(name: str, state: State, results: Sequence[Any], truth: Sequence[Any]) -> str:
    """Of one returned thing: its type, its shape, which ranks have it right, by how much it is off."""
    asked = f"Asked for is {name} in the state {state}: {_WANTED.get(state.kind, 'one rank returns it')}."
    for check in (_type, _shape, _finite, _some_ranks, _factor):
        if words := check(name, results, truth):
            return f"{words} {asked}"
    rank = next(rank for rank, (got, wanted) in enumerate(zip(results, truth, strict=True)) if not same(got, wanted))
    off = np.abs(np.subtract(results[rank], truth[rank], dtype=complex))
    return (f"{name} has the right shape and wrong numbers: {np.count_nonzero(off > _tolerance(truth[rank])):,} of "
            f"{off.size:,} differ on rank {rank}, by up to {off.max():.3g}, where the largest should be "
            f"{np.abs(truth[rank]).max():.3g}. {asked}")


def _type(name: str, results: Sequence[Any], truth: Sequence[Any]) -> str:
    for rank, got in enumerate(results):
        if isinstance(got, Partial):
            return f"rank {rank} returned a Partial: {name} is still one term of a sum. all_reduce makes it whole, " \
                   "reduce_scatter a shard."
        if got is None:
            without = [r for r, other in enumerate(results) if other is None]
            return f"{name_ranks(without)} returned nothing: None. (reduce and gather leave their answer on the root.)"
        if not _is_numbers(got):
            return f"rank {rank} returned {_kind(got)} for {name}."
    return ""


def _finite(name: str, results: Sequence[Any], truth: Sequence[Any]) -> str:
    """Once the shapes are right: an array that somebody broadcast may claim any size."""
    rank = next((rank for rank, got in enumerate(results) if not np.all(np.isfinite(got))), None)
    return "" if rank is None else f"{name} of rank {rank} has numbers that are none: NaN or infinity."


def _shape(name: str, results: Sequence[Any], truth: Sequence[Any]) -> str:
    for rank, (got, wanted) in enumerate(zip(results, truth, strict=True)):
        if np.shape(got) != np.shape(wanted):
            return (f"{name} of rank {rank} has the shape {dimensions(np.shape(got))}; it should be "
                    f"{dimensions(np.shape(wanted))}.")
    return ""


def _some_ranks(name: str, results: Sequence[Any], truth: Sequence[Any]) -> str:
    fine = [rank for rank, (got, wanted) in enumerate(zip(results, truth, strict=True)) if same(got, wanted)]
    others = [rank for rank in range(len(results)) if rank not in fine]
    return f"{name} is right on {name_ranks(fine)} and wrong on {name_ranks(others)}." if fine else ""


def _factor(name: str, results: Sequence[Any], truth: Sequence[Any]) -> str:
    """One factor on all ranks, if that is all that is wrong."""
    got, wanted = (np.concatenate([np.ravel(one) for one in many]) for many in (results, truth))
    norm = np.vdot(wanted, wanted)
    factor = float(np.real(np.vdot(wanted, got) / norm)) if norm else 0.0
    if not factor or not same(got, factor * wanted):
        return ""
    return f"{name} is {factor:.4g} times what it should be, on {len(results)} ranks."


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if type(value) is int:
        return f"a whole number of {value.bit_length():,} bits"
    if isinstance(value, np.ndarray):
        plain = type(value) is np.ndarray
        return f"an array of {value.dtype}" if plain else f"a {type(value).__name__}, which is no plain array,"
    return "None" if value is None else f"a {type(value).__name__}"
