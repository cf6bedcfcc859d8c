"""Puzzle: the length of a gradient of which some is cut, some whole, and some held by two ranks."""
from collections.abc import Callable

import numpy as np

from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World, everywhere

_STORY = """\
*Needs lesson 09.*

Clipping needs the length of the whole model's gradient: the root of the sum of the squares of all its numbers, each
counted once. Each rank has its own pieces of the matrices that are cut, the same gradient of the norms' weights as all
others, and perhaps a KV head that another rank holds, too (already summed over its copies). Count what is whole on
every rank, and the norm comes out too large, the more so the more ranks: the steps are clipped too hard, and nothing
complains.

**Given** on each rank: `gradients`, its arrays by name; `holders`, by the same names the ranks that hold this very
array: `[2]` is a shard of rank 2's own, `[0, 1]` a head that two have, all ranks a whole array.
**Return** the norm, one number, whole: the same on every rank. **Budget:** one sync point, of one number."""


def _world(rng: np.random.Generator) -> World:
    ranks, D = int(rng.integers(3, 6)), int(rng.integers(180, 220))
    F = ranks * int(rng.integers(20, 30)) + int(rng.integers(1, ranks))           # never divides evenly
    pair = sorted(int(rank) for rank in rng.permutation(ranks)[:2])
    down, gain, head = rng.normal(size=(D, F)), 3 * rng.normal(size=(3, D)), 2 * rng.normal(size=(8, D))
    mine: list[dict[str, np.ndarray]] = []
    holders: list[dict[str, list[int]]] = []
    for rank in range(ranks):
        own = Cut(F, ranks).of(rank)
        mine.append({"mlp.down.weight": down[:, own.start:own.stop], "norm.weight": gain})
        holders.append({"mlp.down.weight": [rank], "norm.weight": list(range(ranks))})
        if rank in pair:
            mine[rank]["attention.k.weight"], holders[rank]["attention.k.weight"] = head, pair
    norm = float(np.sqrt(sum((one ** 2).sum() for one in (down, gain, head))))
    return World(inputs=[{"gradients": one, "holders": of} for one, of in zip(mine, holders, strict=True)],
                 truth=[norm] * ranks, names=("the norm",), mistakes=_mistakes(mine, holders, norm),
                 budget=Budget(sync_points=1, payload=np.float64().nbytes,
                               memory=max(one.nbytes for of in mine for one in of.values())))


def _mistakes(mine: list[dict[str, np.ndarray]], holders: list[dict[str, list[int]]], norm: float) -> list[Mistake]:
    ranks = len(mine)
    squares = [{name: float((one ** 2).sum()) for name, one in of.items()} for of in mine]

    def every(weigh: Callable[[int], float]) -> float:
        """The sum over all ranks' arrays of their squares, each times weigh(number of holders)."""
        return sum(square * weigh(len(of[name])) for own, of in zip(squares, holders, strict=True)
                   for name, square in own.items())

    def known(square: float, words: str) -> Mistake:
        return everywhere(square ** 0.5, ranks, words)

    whole = every(lambda n: (n == ranks) / n)
    times = every(lambda n: 1) ** 0.5 / norm
    return [
        known(every(lambda n: 1), f"{times:.2f} times too large: every rank counted all that it has, so what is whole "
                                  f"came in {ranks} times and the copied head twice. Each number counts once."),
        known(every(lambda n: 1 if 1 < n < ranks else 1 / n),
              "the whole arrays count once, as they should, but the head that two ranks hold came in twice."),
        known(every(lambda n: 1 if n == ranks else 1 / n),
              f"the copied head counts once, as it should, but what is whole came in {ranks} times."),
        known(every(lambda n: n == 1), "only what one rank alone holds was counted. The rest counts, too: once."),
        known(every(lambda n: n < ranks), "the whole arrays are missing, and the copied head came in twice."),
        known(every(lambda n: (n < ranks) / n), "the whole arrays are missing. They belong to the model as the others "
                                                "do, once."),
        known(every(lambda n: 1 / ranks), f"everything was divided by {ranks}. Only what is held by all of them is in "
                                          "the sum that often."),
        known(every(lambda n: 1 / n ** 2), "shards count once, but what several ranks hold counts too little: a number "
                                           "was divided by its holders before it was squared."),
        everywhere(sum(sum(own.values()) ** 0.5 for own in squares), ranks,
                   "the ranks' norms were added up. Lengths don't add: sum the squares over the ranks, then take the "
                   "root."),
        everywhere(norm ** 2, ranks, "this is the sum of the squares. The norm is its root, taken after the sum over "
                                     "the ranks."),
        Mistake([sum(own.values()) ** 0.5 for own in squares],
                "each rank returned the norm of what it has itself. The others' squares are missing."),
        Mistake([sum(own[name] / len(of[name]) for name in own) ** 0.5 for own, of in
                 zip(squares, holders, strict=True)],
                "each rank returned its own part of the norm. The others' squares are missing."),
        everywhere(max(sum(own.values()) for own in squares) ** 0.5, ranks,
                   "this is the largest of the ranks' norms. The squares are terms of a sum."),
        known(norm ** 2 - whole + whole * ranks ** 2,
              f"what is whole came in {ranks} times before it was squared: its gradient was summed over the ranks, "
              "though it was complete on each of them."),
    ]


PUZZLES = (Puzzle(name="global-norm", title="The norm of all gradients", story=_STORY,
                  arguments=("gradients", "holders"), world=_world),)
