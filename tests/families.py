"""Small models of every family, weights in which each number matters, and a forward pass that knows nothing of ranks.

`plain_forward` is written from the papers, one head and one sequence at a time, with none of minitp's layers, so that
a mistake there and here would have to be made twice.
"""
from dataclasses import replace
from functools import cache
from math import erf, pi, sqrt
from zlib import crc32

import numpy as np

from minitp.config import ModelConfig, RotaryConfig
from minitp.cut import Slices
from minitp.placement import Parameter

LLAMA = ModelConfig(name="llama", hidden=10, layers=2, heads=9, kv_heads=3, head_size=2, ffn=11, vocab=23, positions=24)
BIASED = {"qkv_bias": True, "attention_bias": True, "mlp_bias": True}

FAMILIES: dict[str, ModelConfig] = {
    "llama": LLAMA,                                                   # odd sizes, H·E ≠ D, untied
    "llama-tied": replace(LLAMA, layers=1, tied=True, **BIASED,
                          rotary=RotaryConfig(theta=500.0, scaling="linear", factor=3.0)),
    "mqa": ModelConfig(hidden=6, layers=1, heads=4, kv_heads=1, head_size=4, ffn=3, vocab=5, positions=24, tied=True,
                       rotary=RotaryConfig(scaling="llama3", factor=8.0, original_positions=16)),   # ranks own nothing
    "gpt2": ModelConfig(hidden=10, layers=2, heads=5, kv_heads=5, head_size=2, ffn=40, vocab=19, positions=24,
                        tied=True, norm="layer", activation="gelu_tanh", gated=False, rotary=None, **BIASED),
    "gpt2-gelu": ModelConfig(hidden=8, layers=1, heads=2, kv_heads=2, head_size=3, ffn=7, vocab=13, positions=24,
                             norm="layer", activation="gelu", gated=False, rotary=None, **BIASED),
    "parallel": ModelConfig(hidden=8, layers=2, heads=4, kv_heads=2, head_size=4, ffn=9, vocab=17, positions=24,
                            norm="layer", activation="gelu_tanh", gated=False, parallel_block=True, **BIASED),
}


class FullSource:
    """Every number drawn, biases and norms too: a bias of zeros added p times would go unseen."""

    def __init__(self, config: ModelConfig, seed: int = 0, scale: float = 1.3):
        self.config, self.seed, self.scale = config, seed, scale
        self._whole: dict[str, np.ndarray] = {}

    def read(self, parameter: Parameter, slices: Slices, dtype=np.float64) -> np.ndarray:
        return np.array(self.whole(parameter)[slices], dtype)

    def whole(self, parameter: Parameter) -> np.ndarray:
        name, shape = parameter.name, parameter.shape
        if name not in self._whole:
            rng = np.random.default_rng([self.seed, crc32(name.encode())])
            if name.endswith("norm.weight"):
                self._whole[name] = rng.uniform(0.5, 1.5, shape)
            elif len(shape) == 1:
                self._whole[name] = 0.3 * rng.standard_normal(shape)
            else:
                inputs = 1 if name.startswith(("embedding", "positions")) else shape[1]
                self._whole[name] = self.scale * rng.standard_normal(shape) / sqrt(inputs)
        return self._whole[name]


@cache
def source_of(family: str) -> FullSource:
    """The weights of a family, drawn once for all ranks that are threads."""
    return FullSource(FAMILIES[family])


def plain_weights(source: FullSource) -> dict[str, np.ndarray]:
    """Every logical parameter, whole."""
    from minitp.placement import Placement
    return {p.name: source.whole(p) for p in Placement(source.config, 1).parameters}


def plain_forward(c: ModelConfig, w: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """float64 logits (T, V) of one sequence of T tokens."""
    x = w["embedding.weight"][ids]
    if c.rotary is None:
        x = x + w["positions.weight"][:len(ids)]
    for layer in range(c.layers):
        at = f"layers.{layer}"
        n = plain_norm(c, w, f"{at}.attention_norm", x)
        attended = plain_attention(c, w, f"{at}.attention", n)
        if c.parallel_block:
            x = x + attended + plain_mlp(c, w, f"{at}.mlp", n)
        else:
            x = x + attended
            x = x + plain_mlp(c, w, f"{at}.mlp", plain_norm(c, w, f"{at}.mlp_norm", x))
    return plain_norm(c, w, "norm", x) @ w["embedding.weight" if c.tied else "head.weight"].T


def plain_linear(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)


def plain_norm(c: ModelConfig, w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for t, row in enumerate(x):
        if c.norm == "rms":
            out[t] = row / sqrt(np.dot(row, row) / len(row) + c.norm_eps) * w[name + ".weight"]
        else:
            out[t] = (row - np.mean(row)) / sqrt(np.var(row) + c.norm_eps) * w[name + ".weight"] + w[name + ".bias"]
    return out


def plain_attention(c: ModelConfig, w: dict[str, np.ndarray], at: str, x: np.ndarray) -> np.ndarray:
    e, length, heads = c.head_size, len(x), []
    q, k, v = (plain_linear(w, f"{at}.{part}", x) for part in "qkv")
    for head in range(c.heads):
        shared = head * c.kv_heads // c.heads
        q_h, k_h = (plain_rotary(c, y[:, i * e:(i + 1) * e]) for y, i in ((q, head), (k, shared)))
        out = np.zeros((length, e))
        for t in range(length):
            weights = np.array([np.exp(np.dot(q_h[t], k_h[s]) / sqrt(e)) for s in range(t + 1)])
            out[t] = (weights / weights.sum()) @ v[:t + 1, shared * e:(shared + 1) * e]
        heads.append(out)
    return plain_linear(w, f"{at}.o", np.concatenate(heads, axis=1))


def plain_rotary(c: ModelConfig, x: np.ndarray) -> np.ndarray:
    """Pairs (x_i, x_{i+E/2}) as complex numbers, turned by e^{i t f}."""
    if c.rotary is None:
        return x
    half = c.head_size // 2
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(np.arange(len(x)), plain_frequencies(c)))
    return np.concatenate([turned.real, turned.imag], axis=1)


def plain_frequencies(c: ModelConfig) -> np.ndarray:
    """One at a time, as Llama 3.1's published code does."""
    r, out = c.rotary, []
    for i in range(c.head_size // 2):
        f = 1.0 / r.theta ** (2 * i / c.head_size)
        if r.scaling == "linear":
            f /= r.factor
        elif r.scaling == "llama3":
            wave = 2 * pi / f
            if wave > r.original_positions / r.low_freq_factor:
                f /= r.factor
            elif wave >= r.original_positions / r.high_freq_factor:
                smooth = (r.original_positions / wave - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor)
                f = (1 - smooth) * f / r.factor + smooth * f
        out.append(f)
    return np.array(out)


def plain_mlp(c: ModelConfig, w: dict[str, np.ndarray], at: str, x: np.ndarray) -> np.ndarray:
    act = np.vectorize({
        "silu": lambda u: u / (1 + np.exp(-u)),
        "gelu": lambda u: 0.5 * u * (1 + erf(u / sqrt(2))),
        "gelu_tanh": lambda u: 0.5 * u * (1 + np.tanh(sqrt(2 / pi) * (u + 0.044715 * u ** 3))),
    }[c.activation])
    h = act(plain_linear(w, f"{at}.gate", x)) * plain_linear(w, f"{at}.up", x) if c.gated else act(
        plain_linear(w, f"{at}.up", x))
    return plain_linear(w, f"{at}.down", h)
