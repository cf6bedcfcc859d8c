"""Activations against reference values, and the MLP's one sync point."""
from math import erf, exp, pi, sqrt, tanh

import numpy as np
import pytest

from minitp.comm import Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.layers import MLP, ColumnParallelLinear, RowParallelLinear
from minitp.layers.mlp import activate, error_function
from tests.layers import RANKS, Kept, drawn, syncs
from tests.mpi_world import run_threads

POINTS = np.concatenate([np.linspace(-9, 9, 2001), [-40.0, 1e-9, 5e-324, 40.0], np.nextafter(1.75, [0, 3])])
REFERENCE = {
    "silu": lambda u: u / (1 + exp(-u)),
    "gelu": lambda u: 0.5 * u * (1 + erf(u / sqrt(2))),
    "gelu_tanh": lambda u: 0.5 * u * (1 + tanh(sqrt(2 / pi) * (u + 0.044715 * u ** 3))),
}


def test_the_error_function_is_erf():
    error = np.abs(error_function(POINTS, np) - [erf(x) for x in POINTS])
    assert error.max() <= 5e-16                                      # two units in the last place of 1
    small = POINTS[np.abs(POINTS) < 0.1]
    truth = [erf(x) for x in small]
    np.testing.assert_allclose(error_function(small, np), truth, rtol=1e-15)     # and relative, where it is small
    assert error_function(np.array([0.0, -0.0]), np).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", list(REFERENCE))
def test_activations_are_the_published_ones(kind):
    """To a few units in the last place of x: the sigmoid by tanh gives the tail's last digits for no overflow."""
    truth = np.array([REFERENCE[kind](float(u)) for u in POINTS])
    error = np.abs(activate(POINTS, kind, np) - truth)
    assert (error <= 1e-15 * np.maximum(np.abs(POINTS), 1)).all()
    single = activate(POINTS.astype(np.float32), kind, np)
    assert single.dtype == np.float32 and (np.abs(single - truth) <= 4e-7 * np.maximum(np.abs(POINTS), 1)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", list(REFERENCE))
def test_huge_inputs_stay_finite(kind, dtype):
    """Silu and the true gelu without even a warning; the cube in gelu's tanh form may reach infinity on its way."""
    x = np.array([1e4, 1e9, 1e15, 1e30, 1e38], dtype)
    with np.errstate(all="raise", under="ignore", over="ignore" if kind != "silu" else "raise"):
        assert activate(x, kind, np).tolist() == x.tolist()
        assert activate(-x, kind, np).tolist() == [0.0] * len(x)


def mlp(comm, ffn, gated, activation):
    """The MLP's shards as the placement cuts them: gate above up, by the same rows."""
    x, gate, up, down = drawn(5, (2, 3, 4), (ffn, 4), (ffn, 4), (4, ffn))
    gate_bias, up_bias = drawn(6, (ffn,), (ffn,))
    mine = slice(Cut(ffn, comm.size).of(comm.rank).start, Cut(ffn, comm.size).of(comm.rank).stop)
    f = mine.stop - mine.start
    if gated:
        first = ColumnParallelLinear("m.gate_up", comm, 2 * f, bias=True)
        weights = {"m.gate_up.weight": np.concatenate([gate[mine], up[mine]]),
                   "m.gate_up.bias": np.concatenate([gate_bias[mine], up_bias[mine]])}
    else:
        first = ColumnParallelLinear("m.up", comm, f, bias=True)
        weights = {"m.up.weight": up[mine], "m.up.bias": up_bias[mine]}
    layer = MLP("m", first, RowParallelLinear("m.down", comm, f, "add up"), activation, gated)
    kept = Kept()
    term = layer.product(x, weights | {"m.down.weight": down[:, mine]}, Context(np.zeros((2, 3), int), 3, np.float64,
                                                                                 observer=kept))
    assert isinstance(term, Partial) and syncs(comm) == []
    return comm.all_reduce(term, site="m.down", reason="add up"), kept.arrays["m", "h"], syncs(comm)


@pytest.mark.parametrize(("gated", "activation"), [(True, "silu"), (False, "gelu"), (False, "gelu_tanh")])
@pytest.mark.parametrize("ffn", [3, 8])
@pytest.mark.parametrize("n", RANKS)
def test_the_mlp_is_the_plain_one_with_one_sync(n, ffn, gated, activation):
    x, gate, up, down = drawn(5, (2, 3, 4), (ffn, 4), (ffn, 4), (4, ffn))
    gate_bias, up_bias = drawn(6, (ffn,), (ffn,))
    act = np.vectorize(REFERENCE[activation])
    u = x @ up.T + up_bias
    h = act(x @ gate.T + gate_bias) * u if gated else act(u)
    ranks = run_threads(mlp, n, ffn=ffn, gated=gated, activation=activation)
    np.testing.assert_allclose(np.concatenate([rank[1] for rank in ranks], axis=-1), h, rtol=0, atol=1e-13)
    for y, _, events in ranks:
        np.testing.assert_allclose(y, h @ down.T, rtol=0, atol=1e-13)
        assert events == ["all_reduce m.down: partial → whole"]


def test_gate_and_up_meet_row_by_row():
    """A26: gate all ones and up its row's number: h[i] is silu(1) · i, on whichever rank row i lies."""
    def numbered(comm):
        mine = Cut(8, comm.size).of(comm.rank)
        f = len(mine)
        down = RowParallelLinear("m.down", comm, f, "add up")
        layer = MLP("m", ColumnParallelLinear("m.gate_up", comm, 2 * f), down, "silu", True)
        up = np.array(mine, float)[:, None]
        kept = Kept()
        layer.product(np.ones((1, 1, 1)), {"m.gate_up.weight": np.concatenate([np.ones((f, 1)), up]),
                                           "m.down.weight": np.ones((1, f))},
                      Context(np.zeros((1, 1), int), 1, np.float64, observer=kept))
        return kept.arrays["m", "h"][0, 0]

    for n in (1, 2, 3):
        h = np.concatenate(run_threads(numbered, n))
        np.testing.assert_allclose(h, REFERENCE["silu"](1.0) * np.arange(8), atol=1e-15)
