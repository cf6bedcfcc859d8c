"""Puzzle: the gradient of a KV head that two ranks hold is a sum over its copies."""
from dataclasses import replace

import numpy as np

from minitp.comm.states import shard
from minitp.config import TINY
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World
from minitp.placement import Placement

_STORY = """\
*Needs lessons 07 and 09.*

In grouped-query attention several query heads share one KV head. Cut by query heads, a KV head whose group is spread
over two ranks is held by both, as a copy. After backward each copy has the gradient of the query heads of its own rank:
the two are terms of one sum. If they aren't added, the copies drift apart after the first step, and nothing complains.

**Given** on each rank: `dk` (K_p, E, D), its KV heads' gradient from its own query heads; `held`, a list with one range
for each rank: the global numbers of the KV heads that the rank holds. `held[tp.rank]` are the heads of `dk`, in order.
**Return** the gradient of this rank's KV heads (K_p, E, D): the same on every rank that holds the head. **Budget:** one
sync point, of the size of the heads that more than one rank holds; a head with one holder has nothing to wait for."""


def _placements() -> list[Placement]:
    """Heads on ranks where some KV heads are copied and others not."""
    found = [Placement(replace(TINY, heads=K * shared, kv_heads=K), ranks)
             for K in range(3, 6) for shared in range(2, 5) for ranks in range(3, 6)]
    return [one for one in found if 0 < len(_copied(_held(one))) < one.config.kv_heads]


def _held(placement: Placement) -> list[range]:
    return [placement.kv_heads(rank) for rank in range(placement.ranks)]


def _copied(held: list[range]) -> list[int]:
    """The KV heads that more than one rank holds."""
    return [k for k in range(max(own.stop for own in held)) if sum(k in own for own in held) > 1]


def _world(rng: np.random.Generator) -> World:
    fitting = _placements()
    placement = fitting[int(rng.integers(len(fitting)))]
    c, held = placement.config, _held(placement)
    E, D = 2 * int(rng.integers(8, 12)), int(rng.integers(90, 120))
    of_heads = rng.normal(size=(c.heads, E, D))                                   # what each query head contributes
    grads = [np.stack([of_heads[[h for h in placement.heads.of(rank) if h // c.heads_per_kv == k]].sum(0) for k in own])
             for rank, own in enumerate(held)]
    total = of_heads.reshape(c.kv_heads, c.heads_per_kv, E, D).sum(1)
    one = total[0].nbytes
    return World(inputs=[{"dk": dk, "held": held} for dk in grads], truth=[total[own.start:own.stop] for own in held],
                 names=("dk",), state=shard(0), mistakes=_mistakes(grads, held, total),
                 budget=Budget(sync_points=1, payload=len(_copied(held)) * one,
                               memory=(2 * len(_copied(held)) + max(map(len, held))) * one))


def _mistakes(grads: list[np.ndarray], held: list[range], total: np.ndarray) -> list[Mistake]:
    ranks = len(held)
    copies = np.array([sum(k in own for own in held) for k in range(len(total))])[:, None, None]
    first = np.stack([next(dk[k - own.start] for dk, own in zip(grads, held, strict=True) if k in own)
                      for k in range(len(total))])
    slots = max(map(len, held))
    by_slot = np.sum([np.concatenate([dk, np.zeros((slots - len(dk), *dk.shape[1:]))]) for dk in grads], axis=0)

    def cut(whole: np.ndarray, words: str) -> Mistake:
        return Mistake([whole[own.start:own.stop] for own in held], words)

    return [
        Mistake(grads, "each rank returned what its own query heads gave. A KV head that two ranks hold has two terms: "
                       "its copies now differ, and would drift apart."),
        cut(total / copies, "a copied head's gradient was divided by its number of copies. Its copies saw different "
                            "query heads: their gradients are terms of a sum, not estimates of one mean."),
        cut(total * copies, "a copied head came out as many times too large as it has holders: its sum was summed over "
                            "the holders again."),
        cut(total * ranks, f"the gradient is {ranks} times too large: every rank put the whole sum into another sum."),
        Mistake([dk + np.where(copies[own.start:own.stop] > 1, total[own.start:own.stop], 0)
                 for dk, own in zip(grads, held, strict=True)],
                "a copied head has this rank's term twice: the sum over the copies holds it already. Put the sum in "
                "its place, don't add it."),
        Mistake([dk + total[own.start:own.stop] for dk, own in zip(grads, held, strict=True)],
                "this rank's term is in it twice: the sum over the ranks holds it already. Put the sum in its place, "
                "don't add it."),
        cut(first, "every holder returned the first holder's term. Copies of a weight are equal; their gradients are "
                   "not, until they are added."),
        Mistake([by_slot[:len(dk)] for dk in grads],
                "the ranks' heads were added by their place in `dk`. Place 0 is another head on another rank: lay each "
                "head at its global number first, zeros elsewhere."),
    ]


PUZZLES = (Puzzle(name="kv-copies", title="A KV head with two holders", story=_STORY, arguments=("dk", "held"),
                  world=_world,
                  errors={"don't make the same collective call":
                          "ranks hold different numbers of heads, so their `dk` are no terms of one sum as they are. "
                          "Lay each head at its own place in an array that is the same for all, zeros elsewhere."}),)
