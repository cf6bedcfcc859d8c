"""AdamW against the paper's lines in plain Python floats; bf16 against ml_dtypes; shards against the whole."""
from math import cos, pi, sqrt

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError, StateError
from minitp.placement import Placement
from minitp.train import optimizer as optimizer_module
from minitp.train.optimizer import AdamW, blocks, to_bf16
from minitp.train.schedule import Schedule
from tests.fake_device import FakeArrays
from tests.families import FAMILIES
from tests.train.ranks import gradients_of, slices_of, weights_of

RATES = (0.1, 0.03, 0.2)


def plain_adamw(w, gradients, rates, betas, eps, decay):
    """One number, step by step, as the paper's algorithm 2 writes it (its schedule multiplier is in the rate)."""
    m = v = 0.0
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        w = w - rate * decay * w - rate * (m / (1 - betas[0] ** t)) / (sqrt(v / (1 - betas[1] ** t)) + eps)
    return w, m, v


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 1e-5)])
def test_every_number_takes_the_papers_steps(dtype, tolerance):
    rng = np.random.default_rng(0)
    weights = {"a.weight": rng.standard_normal((3, 5)).astype(dtype), "a.bias": rng.standard_normal(5).astype(dtype)}
    start = {name: w.astype(float) for name, w in weights.items()}
    gradients = [{name: rng.standard_normal(w.shape).astype(dtype) for name, w in weights.items()} for _ in RATES]
    optimizer = AdamW(weights, betas=(0.8, 0.99), eps=1e-6, decay=0.3)
    for gradient, rate in zip(gradients, RATES, strict=True):
        optimizer.step(gradient, rate)
    assert optimizer.steps == 3
    for name, w in weights.items():
        assert w.dtype == optimizer.m[name].dtype == dtype
        for at in np.ndindex(w.shape):
            true = plain_adamw(start[name][at], [float(g[name][at]) for g in gradients], RATES, (0.8, 0.99), 1e-6,
                               0.3 if w.ndim == 2 else 0.0)
            np.testing.assert_allclose([w[at], optimizer.m[name][at], optimizer.v[name][at]], true, rtol=tolerance)


def test_the_decay_does_not_pass_through_the_moments():
    """Without a gradient a matrix shrinks by rate · decay and nothing else changes; norms and biases stay."""
    weights = {"w": np.full((2, 2), 4.0), "b": np.full(2, 4.0)}
    optimizer = AdamW(weights, decay=0.5)
    optimizer.step({"w": np.zeros((2, 2)), "b": np.zeros(2)}, 0.1)
    assert weights["w"].tolist() == [[3.8, 3.8]] * 2
    assert weights["b"].tolist() == [4.0, 4.0]
    assert not optimizer.m["w"].any()
    assert not optimizer.v["w"].any()


@pytest.mark.parametrize(("family", "embedding"), [("llama-tied", "vocab"), ("mqa", "hidden"), ("gpt2", "hidden")])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_shards_step_as_the_whole(family, embedding, ranks):
    """Bit for bit, copies and whole biases too (A13); a tied table has one array and one state (A52)."""
    def stepped(placement, rank):
        weights = weights_of(placement, rank)
        optimizer = AdamW(weights)
        assert set(optimizer.m) == set(weights) == {a.name for a in placement.physical}
        for seed in (1, 2):
            optimizer.step(weights_of(placement, rank, seed), 0.1)               # slices of one whole gradient
        return slices_of(weights, placement, rank)

    one, cut = Placement(FAMILIES[family], 1), Placement(FAMILIES[family], ranks, embedding)
    whole = stepped(one, 0)
    for rank in range(ranks):
        for name, piece in stepped(cut, rank).items():
            assert np.array_equal(piece, whole[name][cut.slices(cut.parameter(name), rank)]), (rank, name)


@pytest.mark.parametrize("bf16", [False, True])
def test_the_same_on_a_device(bf16, monkeypatch):
    """And in several blocks of rows: the bits don't depend on how many are worked on at a time."""
    placement, arrays = Placement(FAMILIES["gpt2"], 3), FakeArrays()
    host = weights_of(placement, 2, dtype=np.float32)
    device = {name: arrays.from_host(w) for name, w in host.items()}
    optimizers = AdamW(host, bf16=bf16), AdamW(device, arrays=arrays, bf16=bf16)
    for seed in (1, 2, 3):
        gradient = gradients_of(placement, 2, seed, np.float32)
        optimizers[0].step(gradient, 0.1)
        monkeypatch.setattr(optimizer_module, "BLOCK", 7)
        optimizers[1].step({name: arrays.from_host(g) for name, g in gradient.items()}, 0.1)
        monkeypatch.undo()
    for name, w in host.items():
        assert np.array_equal(arrays.to_host(device[name]), w), name
    assert optimizers[0].nbytes == optimizers[1].nbytes == (3 if bf16 else 2) * sum(w.nbytes for w in host.values())


def test_bf16_weights_are_rounded_and_their_master_is_not():
    """Steps of a thousandth of a weight, below bfloat16's spacing of 1/128, add up in the master copy."""
    weights = {"w": np.full((4, 4), 1.0, np.float32)}
    optimizer = AdamW(weights, decay=0.0, bf16=True)
    seen = []
    for _ in range(8):
        optimizer.step({"w": np.ones((4, 4), np.float32)}, 1e-3)
        assert np.array_equal(weights["w"], weights["w"].astype(ml_dtypes.bfloat16).astype(np.float32))
        seen.append(float(weights["w"][0, 0]))
    assert optimizer.master["w"][0, 0] == pytest.approx(0.992, abs=1e-5)
    assert seen[0] == 1.0
    assert seen[-1] == 0.9921875
    assert set(optimizer.state()) == {"m", "v", "master"}


def test_bf16_begins_with_rounded_weights():
    weights = {"w": np.array([[1.0, 1.001, 3.14159]], np.float32)}
    optimizer = AdamW(weights, bf16=True)
    assert weights["w"].tolist() == [[1.0, 1.0, 3.140625]]
    assert optimizer.master["w"].tolist() == np.array([[1.0, 1.001, 3.14159]], np.float32).tolist()


def test_rounding_to_bf16_is_to_nearest_and_ties_go_to_even():
    up, even = np.float32(1 + 3 / 256), np.float32(1 + 1 / 256)                # halfway between two bfloat16 numbers
    assert to_bf16(np.array([up, even, -up, 0.0], np.float32)).tolist() == [1 + 4 / 256, 1.0, -1 - 4 / 256, 0.0]


@given(st.integers(0, 40), st.integers(0, 9), st.integers(1, 50))
def test_blocks_cover_the_rows_once(rows, columns, block):
    before, optimizer_module.BLOCK = optimizer_module.BLOCK, block
    try:
        runs = list(blocks(np.empty((rows, columns))))
    finally:
        optimizer_module.BLOCK = before
    covered = [row for run in runs for row in range(run.start, run.stop)]
    assert covered == (list(range(rows)) if columns else [])
    assert all((run.stop - run.start) * columns <= max(block, columns) for run in runs)


@pytest.mark.parametrize("wrong", [{"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"eps": 0.0}, {"decay": -1.0},
                                   {"decay": float("nan")}])
def test_what_can_not_be_is_refused(wrong):
    with pytest.raises(ConfigError):
        AdamW({}, **wrong)


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(StateError, match="own shard"):
        AdamW({"w": np.zeros((2, 2))}).step({"w": np.zeros((4, 2))}, 0.1)


@pytest.mark.parametrize(("dtype", "bf16"), [("float16", False), ("float64", True)])
def test_moments_are_kept_in_float32_or_float64(dtype, bf16):
    with pytest.raises(ConfigError, match=dtype):
        AdamW({"w": np.zeros((2, 2), dtype)}, bf16=bf16)


# --- the schedule -----------------------------------------------------------------------------------------------------

def test_the_rate_rises_to_its_peak_and_falls_to_its_floor():
    schedule = Schedule(peak=2.0, steps=14, warmup=4, floor=0.5)
    rates = [schedule.rate(step) for step in range(16)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[8] == pytest.approx(0.5 + 1.5 * (1 + cos(pi * 0.5)) / 2)
    assert rates[13:] == [0.5] * 3
    assert rates[3:14] == sorted(rates[3:14], reverse=True)


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0, 1), st.floats(0, 1))
def test_the_rate_never_leaves_its_bounds(steps, warmup, peak, part):
    warmup = min(warmup, steps)
    schedule = Schedule(peak, steps, warmup, floor=peak * part)
    rates = [schedule.rate(step) for step in range(steps + 3)]
    assert all(0 <= rate <= peak * (1 + 1e-12) for rate in rates)
    assert all(rate >= peak * part * (1 - 1e-12) for rate in rates[warmup:])
    if warmup:
        assert rates[warmup - 1] == peak


@pytest.mark.parametrize("wrong", [{"peak": -1.0}, {"peak": float("nan")}, {"floor": 2.0}, {"steps": 0},
                                   {"warmup": 11}, {"warmup": -1}])
def test_a_schedule_that_can_not_be_is_refused(wrong):
    with pytest.raises(ConfigError):
        Schedule(**{"peak": 1.0, "steps": 10} | wrong)
