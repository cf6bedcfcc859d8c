"""From logits to the next token, the same on every rank: whole logits, or shards with only the winners exchanged.

A draw is an arg-max: with temperature times noise from Gumbel's distribution added to the logits, the largest entry is
a sample from the softmax (Gumbel 1954; Maddison et al. 2014). The noise depends on (seed, row of the batch, step, token
id) alone, so the same seed gives the same token at any number of ranks, gathered or sharded, whatever the other rows
are; equal prompts in one batch draw different tokens. Ties: the lowest id.
"""
from dataclasses import dataclass
from math import isfinite

import numpy as np

from minitp.comm import Communicator
from minitp.cut import Cut
from minitp.errors import ConfigError, NumericsError
from minitp.layers import Logits


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; top_k 0 and top_p 1 keep everything. top_k is applied first, then top_p."""
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self):
        if not (isfinite(self.temperature) and self.temperature >= 0):
            raise ConfigError(f"temperature must be 0 (greedy) or a positive number, got {self.temperature}")
        if self.top_k < 0:
            raise ConfigError(f"top-k must be 0 (all tokens) or a positive number, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top-p must lie above 0 and at most at 1, got {self.top_p}")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"the seed must lie between 0 and 2**63 - 1, got {self.seed}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def candidates(self, vocab: Cut) -> int:
        """How many winners each rank offers where logits are sharded: its best k, two for the gap, or all it has."""
        return min(max(2, 0 if self.greedy else self.top_k), max(vocab.sizes))

    def check_sharded(self) -> None:
        """top-p alone needs the probability of every token, so it can't be told from each shard's best few."""
        if not self.greedy and self.top_p < 1 and not self.top_k:
            raise ConfigError("top-p on sharded logits needs top-k as well: the ranks exchange their best k tokens "
                              "only. Add --top-k 50, or gather the logits")


@dataclass(frozen=True)
class Choice:
    """The next token of each sequence, and how far it lies above the second best: its safety in float32.

    Of greedy choices the distance of two logits; of draws that of two logits with their noise.
    """
    tokens: np.ndarray                # (B,) int
    gaps: np.ndarray                  # (B,) float


def choose(logits: Logits, sampling: Sampling, step: int, group: Communicator) -> Choice:
    """The next tokens, from logits (B, 1, V) whole or sharded. With shards: one exchange in the plane `sample`."""
    scores = group.arrays.to_host(logits.array)[:, -1, :]
    if not np.isfinite(scores).all():
        raise NumericsError(f"the logits of token {step} hold NaN or infinities, so no token is the best: the weights "
                            "hold some, or the activations overflowed. --dtype float64 tells the two apart")
    if logits.cut is None:
        ids = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    else:
        scores, ids = _winners(scores, logits.cut, sampling, step, group)
    picked = [_pick(scores[b], ids[b], sampling, b, step) for b in range(len(scores))]
    return Choice(np.array([token for token, _ in picked]), np.array([gap for _, gap in picked]))


def noise(seed: int, sequence: int, step: int, vocab: int) -> np.ndarray:
    """Gumbel noise for every token id, by counter: no state that ranks could disagree on."""
    key = np.array([seed, (sequence << 32) + step], np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).gumbel(size=vocab)


def _pick(scores: np.ndarray, ids: np.ndarray, sampling: Sampling, sequence: int, step: int) -> tuple[int, float]:
    """(token, gap) among candidates: greedy, or top-k, then top-p, then the arg-max with noise."""
    if not sampling.greedy:
        order = np.lexsort((ids, -scores))                               # by score, ties by the lowest id
        if sampling.top_k:
            order = order[:sampling.top_k]
        if sampling.top_p < 1:
            order = order[_nucleus(scores[order], sampling)]
        scores, ids = scores[order], ids[order]
        scores = _with_noise(scores, noise(sampling.seed, sequence, step, int(ids.max()) + 1)[ids], sampling)
    best = scores.max()
    others = np.delete(scores, int(scores.argmax()))
    return int(ids[scores == best].min()), float(best) - float(others.max(initial=-np.inf))


def _nucleus(ordered: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Which of the scores, best first, the smallest set with probability top-p holds. Holtzman et al. 2020."""
    with np.errstate(over="ignore"):                                     # the best is 0: no exp overflows
        probability = np.exp((ordered.astype(np.float64) - float(ordered[0])) / sampling.temperature)
    probability /= probability.sum()
    return np.cumsum(probability) - probability < sampling.top_p         # the first is always inside


def _with_noise(scores: np.ndarray, gumbel: np.ndarray, sampling: Sampling) -> np.ndarray:
    """logit + temperature · noise: the same arg-max as logit / temperature + noise, finite at any temperature."""
    return scores.astype(np.float64) + min(sampling.temperature, 1e300) * gumbel


def _winners(scores: np.ndarray, cut: Cut, sampling: Sampling, step: int,
             group: Communicator) -> tuple[np.ndarray, np.ndarray]:
    """Every rank's best candidates on every rank: (B, p·k) scores and ids. A rank with a small shard pads with -inf."""
    own, keep = cut.of(group.rank), sampling.candidates(cut)
    packed = np.full((len(scores), keep, 2), -np.inf)
    packed[..., 1] = cut.size                                             # no token's id: loses every tie
    for b, row in enumerate(scores):
        ranked = row
        if not sampling.greedy and not sampling.top_k:                    # the arg-max is taken after the noise
            ranked = _with_noise(row, noise(sampling.seed, b, step, cut.size)[own.start:own.stop], sampling)
        best = np.lexsort((np.arange(len(row)), -ranked))[:keep]
        packed[b, :len(best), 0], packed[b, :len(best), 1] = row[best], best + own.start
    every = group.all_gather(packed, axis=1, cut=Cut(keep * group.size, group.size), site="sample", plane="sample",
                             reason=f"each rank's best {keep}, as (logit, id)")
    return every[..., 0], every[..., 1].astype(np.int64)
