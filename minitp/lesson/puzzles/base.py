"""What a puzzle is: a story, a world made from a seed, a budget, and the mistakes that are known by their value.

A puzzle's module has PUZZLES, a tuple of them, and its name stands in `minitp.lesson.puzzles.MODULES`. Nothing is
typed: sizes are drawn, and truth, budget and the values of known mistakes are computed from what was drawn.
"""
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitp.comm.states import WHOLE, State
from minitp.errors import ConfigError

Value = Any
"""What a rank returns: an array or a number, or a tuple of them where a puzzle asks for several."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one rank may spend; all are upper limits.

    sync_points  collectives
    payload      bytes of the whole arrays that its collectives move, as in a trace
    memory       the most bytes it may hold at once beyond what it was given. Its result counts, and so does what a
                 collective holds for a moment: `all_reduce` of a Partial a second copy of the array, `all_gather` the
                 whole twice, where the pieces don't lie one after the other. A few kB for Python's own things are added
                 when it is compared (`minitp.lesson.puzzles.spent.ALLOWANCE`): draw sizes large enough that the
                 mistake you mean costs more than that.
    messages     sends to single ranks; 0 where collectives are to be used
    sent         bytes of these
    ring         bytes that a rank sends for its collectives if each goes once around a ring or, an all-reduce, twice (a
                 model: `minitp.plan.network.collectives`); None where they are not counted
    """
    sync_points: int
    payload: int
    memory: int
    messages: int = 0
    sent: int = 0
    ring: int | None = None


@dataclass(frozen=True)
class Mistake:
    """A wrong result whose cause is known. results: of each rank; words: what was done, and the remedy."""
    results: Sequence[Value]
    words: str


@dataclass(frozen=True, kw_only=True)
class World:
    """One instance of a puzzle.

    inputs    of each rank, named as the puzzle's arguments and in their order; every rank gets copies of its own
    truth     what each rank must return
    state     the state that the result must have, or one for each where `names` has several
    names     what the returned things are called
    mistakes  tried in order; those that don't differ from the truth in this world never match
    """
    inputs: Sequence[Mapping[str, Any]]
    truth: Sequence[Value]
    budget: Budget
    mistakes: Sequence[Mistake] = ()
    state: State | tuple[State, ...] = WHOLE
    names: tuple[str, ...] = ("y",)

    @property
    def ranks(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    """name: "bias-once", whose function is `bias_once(tp, …)`; story: markdown, what is wrong and what is asked.

    arguments  of the function after `tp`, in order
    world      made from a random number generator; it draws sizes, too, uneven ones somewhere, and maybe the ranks.
               Sizes and indices come from rng's whole numbers, values from `normal` and `uniform` (see drawn())
    errors     pieces of an error's text, and what else to say where an attempt fails with it
    """
    name: str
    title: str
    story: str
    arguments: tuple[str, ...]
    world: Callable[[np.random.Generator], World]
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def function(self) -> str:
        return self.name.replace("-", "_")

    @property
    def blank(self) -> str:
        """The function as the reader finds it."""
        return f"def {self.function}({', '.join(('tp', *self.arguments))}):\n    ..."

    def drawn(self, seed: int, repeat: int = 0) -> World:
        """The world of a seed; the same seed makes other numbers in another puzzle.

        repeat: of the same seed a world of the same sizes, indices and budget, whose real numbers are others.
        ConfigError where the seed isn't a whole number, 0 or more.
        """
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise ConfigError(f"seed={seed!r}: worlds are made from a whole number, 0 or more: seed=7")
        key = [seed, *self.name.encode()]
        return self.world(_Repeated(key, repeat) if repeat else np.random.default_rng(key))


class _Repeated(np.random.Generator):
    """Draws whole numbers as default_rng(key) does, and real ones from a stream of its own.

    What isn't used is drawn all the same: the whole numbers that follow depend on it.
    """

    def __init__(self, key: list[int], repeat: int):
        super().__init__(np.random.PCG64(key))
        self._other = np.random.default_rng([repeat, *key])

    def normal(self, *args: Any, **more: Any) -> Any:
        super().normal(*args, **more)
        return self._other.normal(*args, **more)

    def uniform(self, *args: Any, **more: Any) -> Any:
        super().uniform(*args, **more)
        return self._other.uniform(*args, **more)


# --- mistakes that many puzzles share -------------------------------------------------------------------------------


def own_terms(terms: Sequence[np.ndarray], name: str = "y") -> Mistake:
    """Every rank returned its term of the sum."""
    return Mistake(terms, f"each rank returned its own term of {name}: the state is still partial. The answer is the "
                          "sum over the ranks, so a sum has to come before the return.")


def times_too_many(truth: Sequence[np.ndarray], name: str = "y") -> Mistake:
    """Something whole was summed over the ranks."""
    ranks = len(truth)
    return Mistake([ranks * one for one in truth], f"{name} came out {ranks} times too large, on {ranks} ranks: what "
                                                   "was whole already was summed over the ranks.")


def largest_term(terms: Sequence[np.ndarray], name: str = "y") -> Mistake:
    """A maximum instead of a sum."""
    return Mistake([np.maximum.reduce(list(terms))] * len(terms),
                   f"this is the largest of the ranks' terms of {name}, entry by entry. They are terms of a sum: "
                   "all_reduce, not all_reduce_max.")


def shards_for_whole(shards: Sequence[np.ndarray], name: str = "y") -> Mistake:
    """Every rank returned its piece where the whole is asked for."""
    return Mistake(shards, f"each rank returned its shard of {name}, which is right as far as it goes. Asked for is "
                           "the whole: lay the pieces side by side (all_gather).")


def whole_for_shards(whole: np.ndarray, ranks: int, name: str = "y") -> Mistake:
    """Every rank returned everything where its piece is asked for."""
    return Mistake([whole] * ranks, f"every rank returned the whole {name}. Asked for is a shard: this rank's piece "
                                    "alone.")


def everywhere(value: Value, ranks: int, words: str) -> Mistake:
    """A mistake that shows the same value on all ranks."""
    return Mistake([value] * ranks, words)
