"""Which syncs a chain of steps needs: the cheapest way from state to state, by the rules of `minitp.comm.states`.

Nothing here knows what is usual. A step says what it admits, a change says what it turns into what; the way with the
fewest syncs is found, among those the one with the fewest bytes, and among those the one that moves least.
"""
from dataclasses import dataclass
from functools import lru_cache

from minitp.comm.states import CHANGES, PRODUCTS, SLICE, WHOLE, Split, State, admits, product, shard

Cost = tuple[int, int, int]
"""Syncs; numbers per token in them; halves moved: an all-reduce is a reduce-scatter and an all-gather."""


@dataclass(frozen=True)
class Step:
    """A product with a matrix held in the way `split`, or (None) a step that stands in ADMITS under `rule`.

    width    numbers per token of what it gives, over all ranks
    axis     the placement's name of the axis along which that is cut, where it is a shard
    without  changes that can't be made before it
    """
    name: str
    width: int
    axis: str
    split: Split | None = None
    rule: str = ""
    without: tuple[str, ...] = ()

    def gives(self, state: State) -> State | None:
        """The state of what comes out; None where `state` isn't admitted."""
        if self.split is not None:
            return product(state, self.split) if (state.kind, self.split) in PRODUCTS else None
        return state if admits(self.rule, state) else None


@dataclass(frozen=True)
class Link:
    """A step of the chain as it is done: its input is `before`, is changed by `change` (None: stays) to `taken`, and
    gives `after`. `width` and `axis` are those of the input."""
    step: Step
    before: State
    change: str | None
    taken: State
    after: State
    width: int
    axis: str

    @property
    def syncs(self) -> bool:
        """Whether the change before this step sends anything."""
        return self.change not in (None, SLICE)


@lru_cache(maxsize=256)
def solve(width: int, axis: str, steps: tuple[Step, ...]) -> tuple[Link, ...]:
    """The cheapest chain from a whole array of `width` numbers per token to a whole one.

    A slice is taken as late as it can be: of two ways that cost the same the one found first is kept, and the array
    that is left as it is is looked at first.
    """
    paths: dict[State, tuple[Cost, tuple[Link, ...]]] = {WHOLE: ((0, 0, 0), ())}
    for step in steps:
        found: dict[State, tuple[Cost, tuple[Link, ...]]] = {}
        for before, (cost, links) in paths.items():
            for change, taken in ((None, before), *_changes(before)):
                after = None if change in step.without else step.gives(taken)
                if after is None:
                    continue
                total = _add(cost, _price(change, width))
                if after not in found or total < found[after][0]:
                    found[after] = total, (*links, Link(step, before, change, taken, after, width, axis))
        paths, width, axis = found, step.width, step.axis
    return paths[WHOLE][1]


def _changes(state: State) -> list[tuple[str, State]]:
    return [(change, shard(-1) if after == "shard" else State(after))  # type: ignore[arg-type]
            for (before, after), change in CHANGES.items() if before == state.kind]


def _price(change: str | None, width: int) -> Cost:
    if change in (None, SLICE):
        return 0, 0, 0
    return 1, width, 2 if change == "all_reduce" else 1


def _add(a: Cost, b: Cost) -> Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
