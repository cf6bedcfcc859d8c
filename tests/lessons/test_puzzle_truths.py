"""What the puzzles take for the truth is what minitp's own layers compute, or mathematics says by another way."""
from dataclasses import replace

import numpy as np
import pytest

from minitp.config import TINY
from minitp.context import Context
from minitp.cut import Cut
from minitp.layers import Logits, RMSNorm, VocabParallelCrossEntropy
from minitp.lesson.puzzles import puzzle_named
from tests.families import plain_attention
from tests.mpi_world import run_threads

SEEDS = pytest.mark.parametrize("seed", range(3))


def side_by_side(world, name, axis):
    return np.concatenate([given[name] for given in world.inputs], axis)


@SEEDS
def test_the_winner_is_numpys(seed):
    world = puzzle_named("arg-max").drawn(seed)
    logits = side_by_side(world, "logits", -1)
    best = np.sort(logits, -1)
    assert (best[:, -1] == best[:, -2]).any()                             # some rows have two of the largest
    assert all(np.array_equal(ids, np.argmax(logits, -1)) for ids in world.truth)


@SEEDS
def test_the_loss_is_the_layers(seed):
    world = puzzle_named("sharded-loss").drawn(seed)
    vocab = Cut(sum(given["logits"].shape[1] for given in world.inputs), world.ranks)

    def on_rank(tp):
        given = world.inputs[tp.rank]
        loss = VocabParallelCrossEntropy(tp, vocab)
        return loss.forward(Logits(given["logits"][None], vocab), given["targets"][None], Context())

    for loss, truth in zip(run_threads(on_rank, world.ranks), world.truth, strict=True):
        assert loss.total == pytest.approx(truth.sum(), rel=1e-12) and loss.tokens == len(truth)


@SEEDS
def test_the_tables_gradient_is_that_of_finite_differences(seed):
    world = puzzle_named("tied-table").drawn(seed)
    E, dlogits = side_by_side(world, "E_p", 0), side_by_side(world, "dlogits", 1)
    ids, gradient = world.inputs[0]["ids"], np.concatenate(world.truth)
    assert len(set(ids)) < len(ids)

    def loss(table):
        return (dlogits * (table[ids] @ table.T)).sum()

    rng = np.random.default_rng(seed)
    for direction in rng.normal(size=(5, *E.shape)):                      # of a polynomial of degree 2: exact
        step = (loss(E + direction) - loss(E - direction)) / 2
        assert step == pytest.approx((gradient * direction).sum(), rel=1e-9)


@SEEDS
def test_a_kv_heads_gradient_is_the_sum_of_its_holders(seed):
    world = puzzle_named("kv-copies").drawn(seed)
    held = world.inputs[0]["held"]
    copies = [sum(k in own for own in held) for k in range(max(own.stop for own in held))]
    assert min(copies) == 1 and max(copies) > 1
    for own, truth in zip(held, world.truth, strict=True):
        for k, found in zip(own, truth, strict=True):
            terms = [given["dk"][k - of.start] for given, of in zip(world.inputs, held, strict=True) if k in of]
            np.testing.assert_allclose(found, np.sum(terms, axis=0), rtol=0, atol=1e-12)


@SEEDS
def test_the_norm_between_is_the_layers(seed):
    world = puzzle_named("norm-between").drawn(seed)
    given, total = world.inputs[0], np.sum([one["y_p"] for one in world.inputs], axis=0)
    x_new = side_by_side(world, "x_rows", 0) + total
    h = RMSNorm("norm", given["eps"]).forward(x_new[None], {"norm.weight": given["weight"]}, Context())[0]
    np.testing.assert_allclose(np.concatenate([rows for rows, _ in world.truth]), x_new, rtol=0, atol=1e-12)
    assert all(np.allclose(whole, h, rtol=0, atol=1e-12) for _, whole in world.truth)


@SEEDS
def test_the_norm_of_all_gradients_counts_each_array_once(seed):
    world = puzzle_named("global-norm").drawn(seed)
    arrays = {(name, *given["holders"][name]): array for given in world.inputs for name, array in
              given["gradients"].items()}
    norm = np.linalg.norm(np.concatenate([array.ravel() for array in arrays.values()]))
    assert world.truth == pytest.approx([norm] * world.ranks, rel=1e-12)


@SEEDS
def test_few_heads_are_plain_attention(seed):
    world = puzzle_named("few-heads").drawn(seed)
    given, at = world.inputs[0], "layers.0.attention"
    weights = {f"{at}.q.weight": side_by_side(world, "Wq", 0), f"{at}.k.weight": given["Wk"],
               f"{at}.v.weight": given["Wv"], f"{at}.o.weight": side_by_side(world, "Wo", 1)}
    heads = len(weights[f"{at}.q.weight"]) // given["head_size"]
    assert 0 < heads < world.ranks and not len(world.inputs[-1]["Wq"])
    config = replace(TINY, hidden=given["x"].shape[1], heads=heads, kv_heads=1, head_size=given["head_size"],
                     rotary=None)
    plain = plain_attention(config, weights, at, given["x"])
    assert all(np.allclose(y, plain, rtol=0, atol=1e-12) for y in world.truth)
