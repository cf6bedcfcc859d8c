"""Rotary angles against exact ones, far along the axis; frequencies against the published formulas."""
from decimal import Decimal, getcontext
from functools import cache

import numpy as np
import pytest

from minitp.config import ModelConfig, RotaryConfig
from minitp.context import frequencies, plan_pass
from minitp.layers.attention import rotate
from tests.families import plain_frequencies

getcontext().prec = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def exact(theta: float, head_size: int, i: int, position: int) -> tuple[float, float]:
    """cos and sin of position · theta^(-2i/E), with 60 digits: reduced to one turn, then their series."""
    angle = position * (Decimal(theta).ln() * Decimal(-2 * i) / Decimal(head_size)).exp() % (2 * PI)
    cos, sin, term = Decimal(0), Decimal(0), Decimal(1)
    for n in range(80):
        if n % 2:
            sin += term * (-1) ** (n // 2)
        else:
            cos += term * (-1) ** (n // 2)
        term *= angle / (n + 1)
    return float(cos), float(sin)


@cache
def tables(position: int, dtype: type, theta: float = 500_000.0):
    config = ModelConfig(hidden=8, layers=1, heads=1, kv_heads=1, head_size=64, ffn=1, vocab=1, positions=131_072,
                         rotary=RotaryConfig(theta=theta))
    cos, sin = plan_pass(config, np.array([[position]]), dtype=dtype).rotary
    assert cos.dtype == sin.dtype == dtype and cos.shape == (1, 1, 1, 32)
    return cos[0, 0, 0], sin[0, 0, 0]


@pytest.mark.parametrize("position", [0, 1, 40, 257, 2000, 8192, 15962, 16000, 131071])
def test_angles_are_exact_at_every_position(position):
    """D08, D09. A float64 angle is off by at most 4e-16 of itself, so the table by 4e-16 · position + 3e-16: 6e-11 at
    131071. In float32 the rounding of cos and sin themselves comes on top, 6e-8, at every position alike."""
    for dtype, bound in ((np.float64, 4e-16 * position + 3e-16), (np.float32, 4e-16 * position + 6e-8)):
        cos, sin = tables(position, dtype)
        truth = np.array([exact(500_000.0, 64, i, position) for i in range(32)])
        assert np.abs(cos - truth[:, 0]).max() <= bound and np.abs(sin - truth[:, 1]).max() <= bound


def test_positions_are_never_rounded_to_16_bits():
    """In bfloat16 position 257 is 256 and 15962 is 15936, whose cosine is -0.268 instead of -0.908."""
    for position, cosine in ((257, 0.8193055291449822), (15962, -0.908015901251032)):
        assert abs(tables(position, np.float32)[0][0] - cosine) < 1e-7


@pytest.mark.parametrize("head_size", [2, 64, 128])
@pytest.mark.parametrize("rotary", [
    RotaryConfig(), RotaryConfig(theta=500_000.0), RotaryConfig(scaling="linear", factor=4.0),
    RotaryConfig(theta=500_000.0, scaling="llama3", factor=8.0),
    RotaryConfig(theta=500_000.0, scaling="llama3", factor=32.0),
    RotaryConfig(scaling="llama3", factor=8.0, original_positions=64, low_freq_factor=2.0)])
def test_frequencies_follow_the_published_formulas(rotary, head_size):
    config = ModelConfig(hidden=8, layers=1, heads=1, kv_heads=1, head_size=head_size, ffn=1, vocab=1, positions=8,
                         rotary=rotary)
    np.testing.assert_allclose(frequencies(rotary, head_size), plain_frequencies(config), rtol=4e-15)


def test_llama3_keeps_short_waves_and_stretches_long_ones():
    """Llama 3.1 8B: of its 64 waves the short ones stay, the long ones are 8 times as long, a few lie between."""
    plain = frequencies(RotaryConfig(theta=500_000.0), 128)
    ratio = plain / frequencies(RotaryConfig(theta=500_000.0, scaling="llama3", factor=8.0), 128)
    wave = 2 * np.pi / plain
    assert (ratio[wave < 8192 / 4] == 1).all() and np.allclose(ratio[wave > 8192], 8, rtol=1e-15)
    between = ratio[(wave >= 8192 / 4) & (wave <= 8192)]
    assert 0 < len(between) < 10 and ((between > 1) & (between < 8)).all() and (np.diff(ratio) >= 0).all()


def test_rotate_turns_halves_and_keeps_lengths():
    config = ModelConfig(hidden=8, layers=1, heads=1, kv_heads=1, head_size=6, ffn=1, vocab=1, positions=64,
                         rotary=RotaryConfig(theta=100.0))
    ctx = plan_pass(config, np.array([[0, 7, 50]]), dtype=np.float64)
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 6))
    y = rotate(x, ctx)
    assert np.array_equal(y[:, :, 0], x[:, :, 0])                         # position 0 turns nothing
    turned = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * np.outer([0, 7, 50], 100.0 ** (-np.arange(0, 6, 2) / 6)))
    np.testing.assert_allclose(y, np.concatenate([turned.real, turned.imag], -1), atol=1e-14)
    np.testing.assert_allclose((y * y).sum(-1), (x * x).sum(-1), rtol=1e-14)
