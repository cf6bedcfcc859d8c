"""Puzzle: one table is embedding and head, and its gradient gets both contributions, once."""
import numpy as np

from minitp.comm.states import shard
from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World, whole_for_shards

_STORY = """\
*Needs lessons 05 and 09.*

The smallest language model that ties its table: `x = E[ids]`, `logits = x · Eᵀ`. `E` is cut along the vocabulary, so it
serves twice: a rank looks up the words it has (and adds 0 for the others), and computes the logits of the same words.
Going back, E is met twice, too: as head it gets `dlogitsᵀ · x`, as embedding it gets, in the row of each token's word,
the gradient of that token's `x`. Both are added into the one table, each once.

**Given** on each rank: its rows `E_p` (V_p, D) of the table; `start`, the id of the first; the whole `ids` (T,), in
which words repeat; `dlogits` (T, V_p), the loss's gradient at its own words' logits: a shard along the vocabulary.
**Return** the gradient of `E_p` (V_p, D): a shard. **Budget:** two sync points, each of the size of `x` (T, D); the
table itself, of V rows, doesn't move."""


def _world(rng: np.random.Generator) -> World:
    ranks, T, D = int(rng.integers(4, 7)), int(rng.integers(14, 20)), int(rng.integers(40, 56))
    V = ranks * int(rng.integers(90, 110)) + int(rng.integers(1, ranks))          # never divides evenly
    cut = Cut(V, ranks)
    E, dlogits = rng.normal(size=(V, D)), rng.normal(size=(T, V))
    ids = rng.integers(0, V, T)
    ids[:4] = V - 1, cut.of(1).start, ids[4], ids[4]                              # ends of shards; one word three times
    held = [slice(own.start, own.stop) for own in map(cut.of, range(ranks))]
    x = E[ids]
    as_head, as_embedding = dlogits.T @ x, _rows(ids, dlogits @ E, V)
    truth = [(as_head + as_embedding)[own] for own in held]
    return World(inputs=[{"E_p": E[own], "start": own.start, "ids": ids, "dlogits": dlogits[:, own]} for own in held],
                 truth=truth, names=("the gradient",), state=shard(0),
                 mistakes=_mistakes(E, dlogits, ids, held),
                 budget=Budget(sync_points=2, payload=2 * x.nbytes, memory=3 * truth[0].nbytes + 4 * x.nbytes))


def _rows(ids: np.ndarray, dx: np.ndarray, V: int) -> np.ndarray:
    """(V, D) zeros, but for the sum of the rows of dx whose id is this one."""
    rows = np.zeros((V, dx.shape[1]))
    np.add.at(rows, ids, dx)
    return rows


def _mistakes(E: np.ndarray, dlogits: np.ndarray, ids: np.ndarray, held: list[slice]) -> list[Mistake]:
    ranks, V, x, dx = len(held), len(E), E[ids], dlogits @ E
    as_head, as_embedding = dlogits.T @ x, _rows(ids, dx, V)
    once = as_head.copy()
    once[ids] += dx                                                              # of a repeated word the last row alone
    owns = [(own.start <= ids) & (ids < own.stop) for own in held]
    partly = [dlogits[:, own].T @ np.where(mine[:, None], x, 0) for own, mine in zip(held, owns, strict=True)]
    terms = [_rows(ids, dlogits[:, own] @ E[own], V)[own] for own in held]

    def cut(whole: np.ndarray, words: str) -> Mistake:
        return Mistake([whole[own] for own in held], words)

    return [
        cut(as_head, "this is the head's contribution alone. The same table is the embedding: the gradient of each "
                     "token's x belongs into the row of its word."),
        cut(as_embedding, "this is the embedding's contribution alone. The same table is the head: dlogitsᵀ · x "
                          "belongs to it, too."),
        cut(once, "a word that comes several times got one of its tokens' gradients only: `d[rows] += …` and "
                  "`d[rows] = …` write each row once. np.add.at adds all."),
        Mistake([as_head[own] + term for own, term in zip(held, terms, strict=True)],
                "the head's part is right. The embedding's part used this rank's term of dx alone: dlogits_p · E_p is "
                "one term of a sum over the vocabulary, and must be summed before it goes into the table."),
        Mistake([part + as_embedding[own] for part, own in zip(partly, held, strict=True)],
                "the embedding's part is right. The head's part used this rank's own lookups, zeros for the words of "
                "other ranks: x must be summed over the ranks first."),
        Mistake([part + term for part, term in zip(partly, terms, strict=True)],
                "neither x nor dx was summed over the ranks: both were this rank's term of a sum."),
        cut(as_head + ranks * as_embedding, f"the embedding's contribution came in {ranks} times, once from each "
                                            "rank. After its sum dx is whole: every row has one owner, who adds it "
                                            "once."),
        cut(ranks * (as_head + as_embedding), f"the gradient is {ranks} times too large: it was whole, or one "
                                              "rank's own, when it was summed over the ranks."),
        whole_for_shards(as_head + as_embedding, ranks, "gradient"),
    ]


PUZZLES = (Puzzle(name="tied-table", title="One table, two uses", story=_STORY,
                  arguments=("E_p", "start", "ids", "dlogits"), world=_world,
                  errors={"IndexError": "a rank has no row for a word of another rank. Look up only where start ≤ id < "
                                        "start + V_p; elsewhere its term is 0."}),)
