"""Puzzle: the cross-entropy of logits that stay cut over the vocabulary."""
from typing import Any

import numpy as np

from minitp.cut import Cut
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World, everywhere

_STORY = """\
*Needs lesson 05.*

The loss of a token with logits z and target t is `log Σⱼ exp zⱼ − z_t`. Its logits are cut over the vocabulary. The sum
runs over all words, and only one rank has the target's logit; but both are one number a token, where the logits are V.
These logits are large: `exp` of them overflows, so the largest must be taken off first, and it must be the same one on
all ranks.

**Given** on each rank: `logits` (T, V_p), a shard along the vocabulary; `start`, the id of its first column; the whole
`targets` (T,), ids of the whole vocabulary.
**Return** the losses (T,), whole: one for each token, the same on every rank. **Budget:** two sync points, and no more
bytes than three numbers of every rank for each token take. (What doesn't wait for each other can travel together.)"""


def _world(rng: np.random.Generator) -> World:
    ranks, T = int(rng.integers(3, 6)), int(rng.integers(20, 30))
    V = ranks * int(rng.integers(140, 180)) + int(rng.integers(1, ranks))         # never divides evenly
    cut = Cut(V, ranks)
    logits = rng.normal(size=(T, V)) * 2 + rng.uniform(800, 900, size=(T, 1))
    targets = rng.integers(0, V, T)
    targets[:3] = V - 1, cut.of(1).start, cut.of(1).start - 1                     # ends of shards, the last word
    z_t, largest = logits[np.arange(T), targets], logits.max(-1)
    losses = np.log(np.exp(logits - largest[:, None]).sum(-1)) + largest - z_t
    held = [cut.of(rank) for rank in range(ranks)]
    inputs: list[dict[str, Any]] = [
        {"logits": logits[:, own.start:own.stop], "start": own.start, "targets": targets} for own in held]
    return World(inputs=inputs, truth=[losses] * ranks, names=("the array of losses",),
                 mistakes=_mistakes(logits, targets, held),
                 budget=Budget(sync_points=2, payload=3 * ranks * losses.nbytes,
                               memory=3 * inputs[0]["logits"].nbytes + 12 * ranks * losses.nbytes))


def _mistakes(logits: np.ndarray, targets: np.ndarray, held: list[range]) -> list[Mistake]:
    ranks, rows = len(held), np.arange(len(logits))
    z_t, largest = logits[rows, targets], logits.max(-1)
    total = np.exp(logits - largest[:, None]).sum(-1)
    losses = np.log(total) + largest - z_t
    shards = [logits[:, own.start:own.stop] for own in held]
    tops = [z.max(-1) for z in shards]
    sums = [np.exp(z - top[:, None]).sum(-1) for z, top in zip(shards, tops, strict=True)]
    owns = [(own.start <= targets) & (targets < own.stop) for own in held]
    wrapped, clipped = (sum(z[rows, fit(targets - own.start, len(own))] for z, own in zip(shards, held, strict=True))
                        for fit in (lambda column, n: column % n, lambda column, n: column.clip(0, n - 1)))
    return [
        *(everywhere(np.full(len(logits), one), ranks,
                     f"every loss is {one}: exp of a logit overflowed, or all of them became 0. Take off the largest "
                     "logit of all ranks before exp, and add it back after the log.")
          for one in (np.inf, -np.inf, np.nan)),
        everywhere(losses + np.log(ranks), ranks,
                   f"every loss is too large by log {ranks}: the exponentials were counted {ranks} times, once with "
                   "each rank. What is summed over the ranks must be each rank's own words alone."),
        Mistake([np.log(s) + top - np.where(mine, z_t, 0) for s, top, mine in zip(sums, tops, owns, strict=True)],
                "each rank returned the loss over its own words, as if there were no others. The sum of exponentials "
                "and the target's logit must come from all ranks."),
        Mistake([np.log(s) + top - z_t for s, top in zip(sums, tops, strict=True)],
                "the target's logit is right, but each rank's sum of exponentials is over its own words alone."),
        Mistake([np.log(total) + largest - np.where(mine, z_t, 0) for mine in owns],
                "the log of the sum is right, but only the rank that has the target's word took off its logit. The "
                "others need it, too: they add 0 to a sum over the ranks."),
        Mistake([np.log(sum(sums)) + top - z_t for top in tops],
                "each rank took off its own largest logit, so the exponentials that were added up are not of the same "
                "scale. First the largest of all ranks, then exp."),
        everywhere(np.log(total) - z_t, ranks,
                   "the largest logit was taken off before exp and never added back. log Σ exp zⱼ is the log of the "
                   "scaled sum, plus the largest."),
        *(everywhere(np.log(total) + largest - picked, ranks,
                     "ranks that don't have the target's word added some other word's logit: `targets - start` is no "
                     "column of theirs. Such a rank adds 0.") for picked in (wrapped, clipped)),
        everywhere(losses.mean(), ranks, "this is the mean over the tokens. Asked for is one loss for each token."),
        everywhere(losses.sum(), ranks, "this is the sum over the tokens. Asked for is one loss for each token."),
        everywhere(-losses, ranks, "the sign is wrong: the loss is log Σ exp zⱼ − z_t, not its negative."),
    ]


PUZZLES = (Puzzle(name="sharded-loss", title="The loss, without gathering", story=_STORY,
                  arguments=("logits", "start", "targets"), world=_world,
                  errors={"IndexError": "a rank has no column for a target that is another rank's word. Look up only "
                                        "where start ≤ target < start + V_p; elsewhere its term is 0."}),)
