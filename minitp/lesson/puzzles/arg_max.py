"""Puzzle: the winner of logits that are cut over the vocabulary, without gathering them."""
import numpy as np

from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World, everywhere

_STORY = """\
*Needs lesson 05.*

Greedy decoding takes the word with the largest logit. The head is cut over the vocabulary, so each rank has the logits
of its own words, and a copy of all of them on every rank would cost far more than the answer is worth: of each rank's
words only one can win.

**Given** on each rank: `logits` (B, V_p), a shard along the vocabulary, and `start`, the id of its first column. The
logits are rounded, so several words may share the largest one: then the smallest id wins, as in `np.argmax`.
**Return** the winners' ids (B,), whole: the same on every rank. **Budget:** two sync points, and no more bytes than one
number and one id of every rank for each row take."""


def _world(rng: np.random.Generator) -> World:
    ranks, B = int(rng.integers(3, 6)), int(rng.integers(20, 30))
    V = ranks * int(rng.integers(140, 180)) + int(rng.integers(1, ranks))         # never divides evenly
    cut = Cut(V, ranks)
    logits = np.round(rng.normal(size=(B, V)), 1)
    tied = rng.permutation(B)[:B // 2]                                            # rows whose winner has two equals
    logits[tied, rng.integers(0, V, len(tied))] = logits[tied, rng.integers(0, V, len(tied))] = 5.0
    shards = [logits[:, held.start:held.stop] for held in map(cut.of, range(ranks))]
    starts = [cut.of(rank).start for rank in range(ranks)]
    ids = logits.argmax(-1)
    return World(inputs=[{"logits": z, "start": start} for z, start in zip(shards, starts, strict=True)],
                 truth=[ids] * ranks, names=("the array of ids",), mistakes=_mistakes(shards, starts, ids),
                 budget=Budget(sync_points=2, payload=2 * ranks * ids.nbytes,
                               memory=shards[0].nbytes + 8 * ranks * ids.nbytes))


def _mistakes(shards: list[np.ndarray], starts: list[int], ids: np.ndarray) -> list[Mistake]:
    ranks, largest = len(shards), np.max([z.max(-1) for z in shards], axis=0)
    own = [z.argmax(-1) + start for z, start in zip(shards, starts, strict=True)]
    rivals = np.array([np.where(z.max(-1) == largest, mine, -1) for z, mine in zip(shards, own, strict=True)])
    winner = np.argmax(rivals >= 0, axis=0)                                       # the first rank that has the largest
    return [
        Mistake(own, "each rank returned the best of its own words. The ranks must compare their largest logits before "
                     "anyone knows the winner."),
        Mistake([mine - start for mine, start in zip(own, starts, strict=True)],
                "these are columns of each rank's shard. A word's id is its column plus `start`, and the ranks must "
                "still compare their largest logits."),
        everywhere(ids - np.array(starts)[winner], ranks,
                   "the right rank won, but this is the column in its shard. The word's id is that plus its `start`."),
        everywhere(winner, ranks, "this is the number of the rank that won. Asked for is the id of its word."),
        everywhere(rivals.max(0), ranks,
                   "right, except where two ranks share the largest logit: there the larger id won. Of equals the "
                   "smallest id is asked for; the largest of the negated ids is the negated smallest."),
        everywhere(np.where(rivals < 0, 0, rivals).sum(0), ranks,
                   "right, except where two ranks share the largest logit: there both ids were added. Of equals one "
                   "must win, the smallest; a sum can't choose."),
        everywhere(np.max(own, axis=0), ranks,
                   "this is the largest of the ids that the ranks propose. An id says nothing about its logit: a rank "
                   "whose best logit isn't the largest of all must not take part with its id."),
        everywhere(np.sum(own, axis=0), ranks, "the ranks' ids were added up. A sum of ids is no id."),
        everywhere(largest, ranks, "these are the largest logits. Asked for are the ids of their words."),
    ]


PUZZLES = (Puzzle(name="arg-max", title="The winner, without gathering", story=_STORY, arguments=("logits", "start"),
                  world=_world),)
