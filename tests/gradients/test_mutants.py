"""That the differences find what they are there for: known mistakes of other systems, put in on purpose, one at a time.

What each does to the number of ranks is part of it: a mistake that shows on several ranks only must not show on one.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from minitp.comm import Partial
from minitp.gradients import Gradients
from minitp.layers import RMSNorm, RowParallelLinear, TensorBoundary, VocabParallelCrossEntropy, VocabParallelHead
from minitp.layers import attention as attention_module
from minitp.layers import mlp as mlp_module
from minitp.layers.block import Block
from minitp.layers.linear import times
from minitp.placement import Placement
from tests.families import FAMILIES
from tests.gradients import finite
from tests.gradients.finite import differences, wrong
from tests.mpi_world import run_threads


@dataclass(frozen=True)
class Mutant:
    """`name` of `owner` becomes `made(the right one)`; seen in `program` on 2 ranks, and on one rank or not."""
    owner: Any
    name: str
    made: Callable
    program: str
    alone: bool = False


def block_without_residual(right):
    def run_backward(self, dy, weights, ctx):
        dx, pending = right(self, dy, weights, ctx)
        return dx - dy, pending
    return run_backward


def bias_on_every_rank(right):
    def product(self, x, weights, ctx):
        term = times(x, weights[self.site + ".weight"])
        ctx.save(self.site, x=x)
        return Partial(term + weights[self.site + ".bias"] if self.group.rank else term, self.group)
    return product


def without_mean_term(right):
    def backward_input(self, dy, weights, ctx):
        _, pending = right(self, dy, weights, ctx)
        return ctx.kept[self.site]["inverse"] * dy * weights[self.site + ".weight"], pending
    return backward_input


def rows_counted_once(_):
    def add_rows(self, name, rows, values):
        self._sums[name][rows] += values
    return add_rows


def counting_what_is_ignored(right):
    def backward_input(self, scale, ctx):
        kept = ctx.kept[self.site]
        kept["targets"] = np.maximum(kept["targets"], 0)
        return right(self, scale, ctx)
    return backward_input


MUTANTS = {
    "f missing": Mutant(TensorBoundary, "enter_backward", lambda _: lambda self, partial, site, reason:
                        partial.consume(self.group)[0], "mlp"),
    "f averages": Mutant(TensorBoundary, "enter_backward", lambda right: lambda self, *call:
                         right(self, *call) / self.group.size, "attention"),
    "g sums again": Mutant(TensorBoundary, "leave_backward", lambda _: lambda self, dy:
                           self.group.all_reduce(Partial(dy.copy(), self.group), site="g", reason="r"), "block"),
    "residual dropped": Mutant(Block, "run_backward", block_without_residual, "block", alone=True),
    "bias added p times": Mutant(RowParallelLinear, "product", bias_on_every_rank, "row"),
    "copies not summed": Mutant(finite, "sum_copies", lambda _: lambda *_: None, "column"),
    "the head's f missing": Mutant(VocabParallelHead, "backward_input", lambda _: lambda self, dlogits, weights, ctx: (
        times(dlogits, weights[self.weight].T), (dlogits, ctx.kept[self.site]["x"])), "head"),
    "mean term dropped": Mutant(RMSNorm, "backward_input", without_mean_term, "norm", alone=True),
    "turned forward": Mutant(attention_module, "rotate", lambda right: lambda x, ctx, back=False: right(x, ctx),
                             "attention", alone=True),
    "slope of another activation": Mutant(mlp_module, "slope", lambda right: lambda x, kind, xp:
                                          right(x, "gelu_tanh", xp), "mlp", alone=True),
    "a repeated token counted once": Mutant(Gradients, "add_rows", rows_counted_once, "embedding", alone=True),
    "ignored targets count": Mutant(VocabParallelCrossEntropy, "backward_input", counting_what_is_ignored, "loss",
                                    alone=True),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_differences_find(mutant, monkeypatch):
    config = FAMILIES["llama-tied"]
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.made(getattr(mutant.owner, mutant.name)))
    for n in (1, 2):
        ranks = run_threads(differences, n, config=config.to_dict(), names=[mutant.program])
        try:
            complaints = wrong(ranks, Placement(config, n))
        except AssertionError as parted:                       # replicas that are not the same bits
            complaints = [str(parted)]
        assert bool(complaints) is (n > 1 or mutant.alone), complaints
