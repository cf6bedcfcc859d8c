"""The two cuts of a matrix, and the norm between them."""
import numpy as np
import pytest

from minitp.comm import Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.errors import StateError
from minitp.layers import ColumnParallelLinear, LayerNorm, RMSNorm, RowParallelLinear
from minitp.layers.linear import rows
from tests.layers import RANKS, drawn, syncs
from tests.mpi_world import run_threads

CTX = Context(np.zeros((2, 3), int), 3, np.float64)


def column(comm, outputs, bias):
    x, w, b = drawn(1, (2, 3, 4), (outputs, 4), (outputs,))
    mine = Cut(outputs, comm.size).of(comm.rank)
    layer = ColumnParallelLinear("up", comm, len(mine), bias)
    weights = {"up.weight": w[mine.start:mine.stop], "up.bias": b[mine.start:mine.stop]}
    return layer.forward(x, weights, CTX), syncs(comm)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("outputs", [3, 8])
@pytest.mark.parametrize("n", RANKS)
def test_a_column_cut_gives_shards_and_sends_nothing(n, outputs, bias):
    x, w, b = drawn(1, (2, 3, 4), (outputs, 4), (outputs,))
    ranks = run_threads(column, n, outputs=outputs, bias=bias)
    assert [y.shape for y, _ in ranks] == [(2, 3, size) for size in Cut(outputs, n).sizes]
    y = np.concatenate([y for y, _ in ranks], axis=-1)
    np.testing.assert_allclose(y, np.einsum("btd,fd->btf", x, w) + bias * b, rtol=0, atol=1e-14)
    assert all(events == [] for _, events in ranks)


def row(comm, inputs, bias):
    x, w, b = drawn(2, (2, 3, inputs), (5, inputs), (5,))
    mine = Cut(inputs, comm.size).of(comm.rank)
    weights = {"down.weight": w[:, mine.start:mine.stop], "down.bias": b}
    layer = RowParallelLinear("down", comm, len(mine), "add up", bias)
    term = layer.product(x[..., mine.start:mine.stop], weights, CTX)
    assert isinstance(term, Partial) and term.shape == (2, 3, 5) and syncs(comm) == []
    return layer.forward(x[..., mine.start:mine.stop], weights, CTX), syncs(comm)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs", [3, 8])
@pytest.mark.parametrize("n", RANKS)
def test_a_row_cut_gives_a_partial_sum_and_one_all_reduce(n, inputs, bias):
    x, w, b = drawn(2, (2, 3, inputs), (5, inputs), (5,))
    for y, events in run_threads(row, n, inputs=inputs, bias=bias):
        np.testing.assert_allclose(y, np.einsum("bti,oi->bto", x, w) + bias * b, rtol=0, atol=1e-14)
        assert events == ["all_reduce down: partial → whole"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_row_bias_is_added_once(n):
    """A12: with W = 0 the output is b, not p · b; A13: adding it on rank 0 before the sum is right as well."""
    b = np.array([100.0, 200.0, 300.0])

    def biased(comm):
        mine = len(Cut(6, comm.size).of(comm.rank))
        weights = {"down.weight": np.zeros((3, mine)), "down.bias": b}
        layer = RowParallelLinear("down", comm, mine, "add up", bias=True)
        once = layer.forward(np.ones((1, 1, mine)), weights, CTX)
        on_one_rank = Partial(np.zeros((1, 1, 3)) + (b if comm.rank == 0 else 0.0), comm)
        return once, comm.all_reduce(on_one_rank, site="down", reason="the bias rides on rank 0's term")

    for once, on_one_rank in run_threads(biased, n):
        assert once.tolist() == on_one_rank.tolist() == [[[100.0, 200.0, 300.0]]]


def test_rows_of_nothing():
    assert rows(np.ones((2, 3, 0))).shape == (6, 0) and rows(np.ones((2, 0, 4))).shape == (0, 4)
    assert rows(np.ones(5)).shape == (1, 5)


def test_the_activation_can_not_wait_for_the_sum():
    """act(a + b) ≠ act(a) + act(b): why a partial sum is reduced first, with numbers."""
    def both(comm):
        term = np.array([[[2.0, -3.0]]]) if comm.rank else np.array([[[-1.0, 1.0]]])
        wrong = comm.all_reduce(Partial(np.maximum(term, 0), comm), site="s", reason="r")
        right = np.maximum(comm.all_reduce(Partial(term, comm), site="s", reason="r"), 0)
        return right, wrong

    for right, wrong in run_threads(both, 2):
        assert right.tolist() == [[[1.0, 0.0]]] and wrong.tolist() == [[[2.0, 1.0]]]


# --- norms ------------------------------------------------------------------------------------------------------------

def test_norms_are_the_plain_ones():
    x, w, b = drawn(3, (2, 3, 7), (7,), (7,))
    weights = {"n.weight": w, "n.bias": b}
    rms = RMSNorm("n", 1e-5).forward(x, weights, CTX)
    layer = LayerNorm("n", 1e-3).forward(x, weights, CTX)
    for at in np.ndindex(2, 3):
        row = x[at]
        np.testing.assert_allclose(rms[at], row / (sum(v * v for v in row) / 7 + 1e-5) ** 0.5 * w, atol=1e-15)
        np.testing.assert_allclose(layer[at], (row - row.mean()) / (row.var() + 1e-3) ** 0.5 * w + b, atol=1e-14)


def test_a_norms_epsilon_is_given_not_a_default():
    """D07: a library's default eps at small variance was off by 1.7; here the layer has none."""
    with pytest.raises(TypeError, match="eps"):
        RMSNorm("n")
    x = 0.058 * drawn(4, (1, 4, 512))[0]
    exact = RMSNorm("n", 1e-5).forward(x, {"n.weight": np.ones(512)}, CTX)
    single = RMSNorm("n", 1e-5).forward(x.astype(np.float32), {"n.weight": np.ones(512, np.float32)}, CTX)
    assert single.dtype == np.float32 and np.abs(single - exact).max() < 2e-6
    assert np.abs(exact - RMSNorm("n", 0.0078).forward(x, {"n.weight": np.ones(512)}, CTX)).max() > 1


@pytest.mark.parametrize(("n", "ends"), [(1, None), (2, None), (3, None), (5, None), (2, (5, 8))])
def test_a_norm_needs_the_whole_row(n, ends):
    """A35, A36, A37: there is no rank-local norm. A shard is refused; gathered, it is right."""
    x = np.array([[[1.0, 1, 1, 1, 9, 9, 9, 9]]])

    def normed(comm):
        cut = Cut(8, comm.size, ends=ends)
        mine = x[..., cut.of(comm.rank).start:cut.of(comm.rank).stop]
        norm, weights = RMSNorm("n", 1e-12), {"n.weight": np.ones(8)}
        if comm.size > 1:
            for refused in (norm, LayerNorm("n", 1e-12)):
                with pytest.raises(StateError, match="whole rows of 8"):
                    refused.forward(mine, weights, CTX)
        return norm.forward(comm.all_gather(mine, axis=-1, cut=cut, site="s", reason="r"), weights, CTX)

    for y in run_threads(normed, n):
        np.testing.assert_allclose(y, x / 41 ** 0.5, atol=1e-12)
