"""The loss on logits that stay cut over the vocabulary: three small collectives instead of a gather of all logits.

Cross-entropy of a token with logits z and target t is log Σ exp z_j − z_t. Each rank has its own part of z, so the
largest logit (so that no exp overflows), the sum of exponentials and the target's logit are each one all-reduce of one
number a token. Shoeybi et al. 2019, section 3; the backward needs nothing more: softmax − target, on the own part.
"""
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from minitp.arrays import Array
from minitp.comm import Communicator, Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.errors import ConfigError, StateError
from minitp.layers.head import Logits

IGNORED = -100
"""A target that doesn't count: neither in the loss nor in the number of tokens."""


@dataclass(frozen=True)
class Loss:
    """Of a micro-batch, the same on every rank: the sum over the tokens that count, in nats, and how many they are."""
    total: float
    tokens: int


@dataclass(frozen=True)
class VocabParallelCrossEntropy:
    """shard(-1) logits · targets → whole loss.

    With `smoothing` ε the target is (1 − ε) on t and ε / V on every word (Szegedy et al. 2016, section 7): the loss is
    log Σ exp z_j − (1 − ε) z_t − ε mean z, and the last two terms are one sum over the ranks, like z_t alone.
    """
    group: Communicator
    vocab: Cut
    smoothing: float = 0.0
    site: str = "loss"

    def __post_init__(self):
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"label smoothing is a share of at least 0 and below 1, not {self.smoothing!r}")

    def forward(self, logits: Logits, targets: Int[np.ndarray, "B T"], ctx: Context) -> Loss:
        """`targets` are ids on the host, or IGNORED."""
        z, xp = self._own_part(logits), ctx.xp                                   # B T V_p
        counted, mine, rows = self._targets(targets)
        largest = z.max(-1) if z.shape[-1] else xp.full(z.shape[:-1], -np.inf, z.dtype)
        ctx.show(self.site, own_largest=largest)
        largest = self.group.all_reduce_max(largest, site=f"{self.site}.max",
                                            reason="the largest logit of all, so that no exponential overflows")
        exps = z - largest[..., None]
        own = exps.sum(-1) * exps.dtype.type(self.smoothing / self.vocab.size)   # this rank's terms of z_t, smoothed
        at = tuple(ctx.arrays.from_host(i) for i in mine)
        own[at] += (1 - self.smoothing) * exps[(*at, ctx.arrays.from_host(rows))]
        xp.exp(exps, out=exps)                                                   # in place: this is the largest array
        total = exps.sum(-1)
        ctx.show(self.site, own_total=total, own_target=own)
        total = self.group.all_reduce(Partial(total, self.group), site=f"{self.site}.sum",
                                      reason="add the ranks' exponentials")
        target = self.group.all_reduce(Partial(own, self.group), site=f"{self.site}.target",
                                       reason="one rank has the target's logit, the others add 0")
        ctx.save(self.site, exps=exps, total=total, targets=targets)
        losses = ctx.arrays.to_host(xp.log(total) - target)                      # B T
        ctx.show(self.site, largest=largest, target=target, losses=losses)
        return Loss(float(losses[counted].sum(dtype=np.float64)), int(counted.sum()))

    def backward_input(self, scale: float, ctx: Context) -> Float[Array, "B T V_p"]:
        """The gradient of `scale` · total at this rank's logits: softmax − (smoothed) target, 0 for ignored tokens.

        `scale` is 1 / the number of tokens that count in the whole step, so that micro-batches just add up. The saved
        exponentials become the gradient in place, so this is called once: a second call finds nothing saved.
        """
        kept = ctx.kept[self.site]
        counted, mine, rows = self._targets(kept["targets"])
        dz = kept["exps"]
        dz *= (1 / kept["total"])[..., None]
        dz -= self.smoothing / self.vocab.size
        at = tuple(ctx.arrays.from_host(i) for i in mine)
        dz[(*at, ctx.arrays.from_host(rows))] -= 1 - self.smoothing
        dz *= ctx.arrays.from_host((counted * scale).astype(dz.dtype))[..., None]
        ctx.kept.drop(self.site)
        return dz

    def _own_part(self, logits: Logits) -> Any:
        if logits.cut is None:
            raise StateError("this loss takes logits that are cut over the vocabulary, and these are whole: each rank "
                             "would add all exponentials, so the sum would hold them once per rank. Ask the model for "
                             "shards: forward(…, gathered=False)")
        if logits.cut != self.vocab:
            raise StateError("these logits are cut otherwise than this loss expects; both come from placement.vocab")
        return logits.array

    def _targets(self, targets: Int[np.ndarray, "B T"]) -> tuple[np.ndarray, tuple[np.ndarray, ...], np.ndarray]:
        """(B, T) which count; where those stand whose word is on this rank; their rows in its shard."""
        counted = targets != IGNORED
        wrong = counted & ((targets < 0) | (targets >= self.vocab.size))
        if wrong.any():
            raise ConfigError(f"target {int(targets[wrong][0])} is not in the vocabulary of {self.vocab.size}: ids run "
                              f"from 0 to {self.vocab.size - 1}, and {IGNORED} is one that doesn't count")
        held = self.vocab.of(self.group.rank)
        mine = counted & (targets >= held.start) & (targets < held.stop)
        return counted, np.nonzero(mine), targets[mine] - held.start
