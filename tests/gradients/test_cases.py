"""Cases that went wrong in other systems, by hand: biases behind a sum, targets at a shard's edge, large logits."""
import numpy as np
import pytest

from minitp.comm import Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.errors import ConfigError, StateError
from minitp.gradients import Gradients
from minitp.layers import IGNORED, Logits, RMSNorm, RowParallelLinear, VocabParallelCrossEntropy
from minitp.saved import Saved
from tests.gradients.finite import drawn
from tests.mpi_world import run_threads


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_a_bias_behind_a_sum(n):
    """A12, A13, A50: y = reduce(x W) + b. dx, dW and db, each on its own, are those of the uncut layer: the sum's
    backward is nothing (A49), the bias is one whole array. After a step it is the same bits on every rank."""
    x, w, b, dy = drawn(1, 2, 3, 6), drawn(2, 3, 6), np.array([100.0, 200.0, 300.0]), drawn(4, 2, 3, 3)

    def layer(comm):
        cut, ctx = Cut(6, comm.size), Context(np.zeros((2, 3), int), 3, np.float64, saved=Saved())
        own = slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
        weights = {"down.weight": w[:, own].copy(), "down.bias": b.copy()}
        row, gradients = RowParallelLinear("down", comm, cut.sizes[comm.rank], "add", bias=True), Gradients(weights)
        y = row.forward(np.ascontiguousarray(x[..., own]), weights, ctx)
        dx, pending = row.backward_input(dy, weights, ctx)
        row.backward_weight(pending, gradients)
        return y, dx, gradients["down.weight"], gradients["down.bias"], weights["down.bias"] - gradients["down.bias"]

    ys, dxs, dws, dbs, stepped = zip(*run_threads(layer, n), strict=True)
    np.testing.assert_allclose(ys[0], x @ w.T + b, rtol=1e-14)
    np.testing.assert_allclose(np.concatenate(dxs, axis=-1), dy @ w, rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.concatenate(dws, axis=-1), np.einsum("btd,bti->di", dy, x), rtol=0, atol=1e-14)
    assert all(np.array_equal(db, dy.reshape(6, 3).sum(0)) for db in dbs)
    assert all(np.array_equal(bias, stepped[0]) for bias in stepped)


def lost(comm, z, targets, dtype=np.float64, smoothing=0.0):
    """The loss of whole logits, and its gradient put together again."""
    cut, ctx = Cut(z.shape[-1], comm.size), Context(dtype=dtype, saved=Saved())
    own = slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
    loss = VocabParallelCrossEntropy(comm, cut, smoothing)
    found = loss.forward(Logits(z[..., own].astype(dtype), cut), targets, ctx)
    return found.total, found.tokens, comm.all_gather(loss.backward_input(1.0, ctx), axis=-1, cut=cut, site="dz",
                                                      reason="to compare")


@pytest.mark.parametrize(("vocab", "n"), [(10, 4), (3, 4), (7, 5)])
def test_each_target_alone(vocab, n):
    """A20: no rank takes another's target for its own, at no shard's edge; nothing is padded, so nothing else learns.
    The sum of a token's gradient over the vocabulary is 0."""
    z = drawn(3, 1, 1, vocab)
    p = np.exp(z[0, 0]) / np.exp(z[0, 0]).sum()
    for target in range(vocab):
        for total, tokens, dz in run_threads(lost, n, z=z, targets=np.array([[target]])):
            np.testing.assert_allclose(total, -np.log(p[target]), rtol=1e-14)
            np.testing.assert_allclose(dz[0, 0], p - (np.arange(vocab) == target), rtol=0, atol=1e-15)
            assert tokens == 1


def test_ignored_targets_change_nothing():
    z, targets = drawn(5, 2, 3, 9), np.array([[4, IGNORED, 8], [IGNORED, 0, IGNORED]])
    for total, tokens, dz in run_threads(lost, 3, z=z, targets=targets, smoothing=0.2):
        alone = [run_threads(lost, 1, z=z[b:b + 1, t:t + 1], targets=targets[b:b + 1, t:t + 1], smoothing=0.2)[0]
                 for b, t in ((0, 0), (0, 2), (1, 1))]
        assert tokens == 3 and not dz[targets == IGNORED].any()
        np.testing.assert_allclose(total, sum(one[0] for one in alone), rtol=1e-14)
        np.testing.assert_allclose(dz[targets != IGNORED], np.concatenate([one[2][0] for one in alone]), atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_logits_on_one_rank_only(n, dtype):
    """D03: the largest is that of all ranks, so that no exponential overflows; a rank of small ones adds 0."""
    z = np.array([[[1e4, 89, 1000, -1e4, -1e4, -1e4], [-1e4, -1e4, -1e4, -1e4, 1e4, 9999]]])
    with np.errstate(all="raise", under="ignore"):
        for total, _, dz in run_threads(lost, n, z=z, targets=np.array([[0, 5]]), dtype=dtype):
            np.testing.assert_allclose(total, np.log(1 + np.e), rtol=1e-6)
            assert dz.dtype == dtype and np.abs(dz.sum(-1)).max() < 1e-6
            np.testing.assert_allclose(dz[0, 0], 0, atol=1e-7)
            np.testing.assert_allclose(dz[0, 1, 4:], [1 / (1 + 1 / np.e), -1 / (1 + 1 / np.e)], rtol=1e-6)


def test_what_the_loss_refuses():
    """Whole logits (each rank would add all of them), another cut, a target that is no id, a second backward."""
    def refused(comm):
        cut, ctx, z = Cut(6, comm.size), Context(dtype=np.float64, saved=Saved()), drawn(1, 1, 1, 6)
        own = slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
        loss, target, shard = VocabParallelCrossEntropy(comm, cut), np.array([[2]]), Logits(z[..., own], cut)
        otherwise = Logits(z, Cut(6, 1))
        for logits, ids, error, words in (
                (Logits(z), target, StateError, "gathered=False"), (otherwise, target, StateError, "cut otherwise"),
                (shard, np.array([[6]]), ConfigError, "0 to 5"), (shard, np.array([[-1]]), ConfigError, "-100")):
            with pytest.raises(error, match=words):
                loss.forward(logits, ids, ctx)
        with pytest.raises(ConfigError, match="nothing"):
            loss.backward_input(1.0, ctx)
        loss.forward(shard, target, ctx)
        loss.backward_input(1.0, ctx)
        with pytest.raises(ConfigError, match="backward has run already"):
            loss.backward_input(1.0, ctx)
        with pytest.raises(ConfigError, match="label smoothing"):
            VocabParallelCrossEntropy(comm, cut, 1.0)

    run_threads(refused, 2)


def test_a_partial_gradient_can_not_pass_for_a_whole_one():
    """Where f was forgotten, the type says so before a number is wrong: a norm's backward refuses a partial sum."""
    def forgotten(comm):
        ctx = Context(np.zeros((1, 2), int), 2, np.float64, saved=Saved())
        norm, weights = RMSNorm("n", 1e-5), {"n.weight": np.ones(4)}
        norm.forward(drawn(1, 1, 2, 4), weights, ctx)
        with pytest.raises(Exception, match=r"Partial|partial"):
            norm.backward_input(Partial(drawn(2, 1, 2, 4), comm), weights, ctx)

    run_threads(forgotten, 2)
