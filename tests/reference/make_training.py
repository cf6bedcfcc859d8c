"""Writes training.npz: losses, gradients and a few AdamW steps of small models, from JAX's autograd and optax, float64.

    python tests/reference/make_training.py

The models are written here from the papers, whole matrices and no ranks, with nothing of minitp's. Per model, under
"<model>/":

config               JSON: sizes and switches
weights/<parameter>  float32 numbers, to be used as float64; names are those of minitp's table, matrices (out, in)
ids, targets         (B, T); a target of -100 does not count
loss, loss_smoothed  sum over the targets that count, without and with label smoothing of 0.1
gradient/<parameter> d(loss_smoothed / targets that count) / d parameter; a tied table's is the sum of both uses
steps/…              ids, targets (steps, B, T), rates (steps,), max_norm; losses (mean over the targets that count,
                     smoothed) and norms, the gradient's before clipping, of each step
trained/<parameter>  the weights after the last step
"""
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

OUT = Path(__file__).parent / "training.npz"
IGNORED, SMOOTHING = -100, 0.1
BETAS, EPS, DECAY = (0.9, 0.95), 1e-8, 0.1
MAX_NORM = {"llama": 2.2, "llama-tied": 3.7, "gpt2": 3.0}               # between the norms of the steps
RATES = (0.004, 0.01, 0.02, 0.012, 0.005)

MODELS = {
    "llama": {"hidden": 10, "layers": 2, "heads": 9, "kv_heads": 3, "head_size": 2, "ffn": 11, "vocab": 23,
              "positions": 24, "tied": False},
    "llama-tied": {"hidden": 10, "layers": 1, "heads": 9, "kv_heads": 3, "head_size": 4, "ffn": 7, "vocab": 29,
                   "positions": 24, "tied": True},
    "gpt2": {"hidden": 10, "layers": 2, "heads": 5, "kv_heads": 5, "head_size": 2, "ffn": 40, "vocab": 19,
             "positions": 24, "tied": True, "norm": "layer", "activation": "gelu_tanh", "gated": False, "rotary": None,
             "qkv_bias": True, "attention_bias": True, "mlp_bias": True},
}


# --- the models -------------------------------------------------------------------------------------------------------

def shapes(c: dict) -> dict[str, tuple[int, ...]]:
    d, e, f = c["hidden"], c["head_size"], c["ffn"]
    gpt2 = c.get("norm") == "layer"
    out = {"embedding.weight": (c["vocab"], d)}
    if gpt2:
        out["positions.weight"] = (c["positions"], d)
    for layer in range(c["layers"]):
        at = f"layers.{layer}"
        matrices = {"attention.q": (c["heads"] * e, d), "attention.k": (c["kv_heads"] * e, d),
                    "attention.v": (c["kv_heads"] * e, d), "attention.o": (d, c["heads"] * e),
                    "mlp.up": (f, d), "mlp.down": (d, f)} | ({} if gpt2 else {"mlp.gate": (f, d)})
        for name, shape in matrices.items():
            out[f"{at}.{name}.weight"] = shape
            if gpt2:
                out[f"{at}.{name}.bias"] = shape[:1]
        for norm in ("attention_norm", "mlp_norm"):
            out |= norm_shapes(f"{at}.{norm}", d, gpt2)
    out |= norm_shapes("norm", d, gpt2)
    return out if c["tied"] else out | {"head.weight": (c["vocab"], d)}


def norm_shapes(name: str, d: int, bias: bool) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (d,)} | ({f"{name}.bias": (d,)} if bias else {})


def norm(w: dict, name: str, x: jax.Array) -> jax.Array:
    """Zhang & Sennrich 2019, equation 4; Ba et al. 2016, equation 4 where there is a bias."""
    if name + ".bias" not in w:
        return x / jnp.sqrt(jnp.mean(x ** 2, -1, keepdims=True) + 1e-5) * w[name + ".weight"]
    deviation = jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5)
    return (x - jnp.mean(x, -1, keepdims=True)) / deviation * w[name + ".weight"] + w[name + ".bias"]


def linear(w: dict, name: str, x: jax.Array) -> jax.Array:
    return jnp.einsum("...i,oi->...o", x, w[name + ".weight"]) + w.get(name + ".bias", 0.0)


def turned(x: jax.Array) -> jax.Array:
    """Su et al. 2021: the pair (i, i + E/2) at position t as a complex number times e^{i t θ}; x is (B, T, N, E)."""
    t, half = x.shape[1], x.shape[-1] // 2
    angles = jnp.outer(jnp.arange(t), 10_000.0 ** (-jnp.arange(half) / half))[None, :, None]
    z = (x[..., :half] + 1j * x[..., half:]) * jnp.exp(1j * angles)
    return jnp.concatenate([z.real, z.imag], -1)


def attention(c: dict, w: dict, at: str, x: jax.Array) -> jax.Array:
    """Vaswani et al. 2017, section 3.2; each kv head serves a run of query heads (Ainslie et al. 2023)."""
    b, t, e = *x.shape[:2], c["head_size"]
    q, k, v = (linear(w, f"{at}.{part}", x).reshape(b, t, -1, e) for part in "qkv")
    if c.get("rotary", True) is not None:
        q, k = turned(q), turned(k)
    k, v = (jnp.repeat(y, c["heads"] // c["kv_heads"], axis=2) for y in (k, v))
    scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) / jnp.sqrt(e)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    y = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores, -1), v)
    return linear(w, f"{at}.o", y.reshape(b, t, -1))


def mlp(w: dict, at: str, x: jax.Array) -> jax.Array:
    """Shazeer 2020, equation 6; GPT-2's tanh form of GELU (Hendrycks & Gimpel 2016) where there is no gate."""
    up = linear(w, f"{at}.up", x)
    if f"{at}.gate.weight" in w:
        h = jax.nn.silu(linear(w, f"{at}.gate", x)) * up
    else:
        h = 0.5 * up * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (up + 0.044715 * up ** 3)))
    return linear(w, f"{at}.down", h)


def logits(c: dict, w: dict, ids: jax.Array) -> jax.Array:
    x = w["embedding.weight"][ids]
    if "positions.weight" in w:
        x = x + w["positions.weight"][:ids.shape[1]]
    for layer in range(c["layers"]):
        at = f"layers.{layer}"
        x = x + attention(c, w, f"{at}.attention", norm(w, f"{at}.attention_norm", x))
        x = x + mlp(w, f"{at}.mlp", norm(w, f"{at}.mlp_norm", x))
    return linear({"head.weight": w["embedding.weight" if c["tied"] else "head.weight"]}, "head", norm(w, "norm", x))


def total(c: dict, smoothing: float, w: dict, ids: jax.Array, targets: jax.Array) -> jax.Array:
    """Σ of -Σ_v q(v) log p(v), q = (1 - s) · one-hot + s / V (Szegedy et al. 2016, section 7), where targets count."""
    counts = targets != IGNORED
    q = optax.smooth_labels(jax.nn.one_hot(jnp.where(counts, targets, 0), c["vocab"]), smoothing)
    return jnp.sum(jnp.where(counts, optax.softmax_cross_entropy(logits(c, w, ids), q), 0.0))


def mean(c: dict, smoothing: float, w: dict, ids: jax.Array, targets: jax.Array) -> jax.Array:
    return total(c, smoothing, w, ids, targets) / jnp.sum(targets != IGNORED)


# --- what is frozen ---------------------------------------------------------------------------------------------------

def drawn(c: dict, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights under which each part matters: scores spread, norms differ from 1, biases from 0."""
    w = {}
    for name, shape in shapes(c).items():
        if name.endswith("norm.weight"):
            w[name] = rng.uniform(0.5, 1.5, shape)
        elif len(shape) == 1:
            w[name] = 0.3 * rng.standard_normal(shape)
        else:
            table = name.startswith(("embedding", "positions"))
            w[name] = rng.standard_normal(shape) * (0.7 if table else 1.3 * shape[1] ** -0.5)
    return {name: value.astype(np.float32) for name, value in w.items()}


def batch(c: dict, rng: np.random.Generator, *shape: int) -> dict[str, np.ndarray]:
    """Random windows; both ends of the vocabulary are read and asked for; about one target in five doesn't count."""
    tokens = rng.integers(c["vocab"], size=(*shape[:-1], shape[-1] + 1))
    tokens[..., 0, 0], tokens[..., -1, -1] = 0, c["vocab"] - 1
    tokens[..., 0, 1], tokens[..., -1, -2] = c["vocab"] - 1, 0
    targets = np.where(rng.random(shape) < 0.2, IGNORED, tokens[..., 1:])
    targets[..., 0, 0], targets[..., -1, -1] = tokens[..., 0, 1], tokens[..., -1, -1]
    return {"ids": tokens[..., :-1], "targets": targets}


def trained(c: dict, w: dict, data: dict[str, np.ndarray], max_norm: float) -> tuple[list[float], list[float], dict]:
    """AdamW (Loshchilov & Hutter 2019), matrices decayed and vectors not, after clipping by the global norm."""
    decayed = {name: value.ndim == 2 for name, value in w.items()}
    optimizer = optax.chain(
        optax.clip_by_global_norm(max_norm),
        optax.adamw(lambda step: jnp.array(RATES)[step], *BETAS, EPS, weight_decay=DECAY, mask=decayed))
    state, losses, norms = optimizer.init(w), [], []
    for ids, targets in zip(data["ids"], data["targets"], strict=True):
        loss, gradient = jax.value_and_grad(partial(mean, c, SMOOTHING))(w, ids, targets)
        losses.append(float(loss))
        norms.append(float(optax.global_norm(gradient)))
        updates, state = optimizer.update(gradient, state, w)
        w = optax.apply_updates(w, updates)
    return losses, norms, w


def make(name: str, seed: int) -> dict[str, np.ndarray]:
    c, rng = MODELS[name], np.random.default_rng(seed)
    weights = drawn(c, rng)
    w = {key: jnp.asarray(value, jnp.float64) for key, value in weights.items()}
    data = batch(c, rng, 3, 7)
    out = {"config": np.array(json.dumps(c)), **data, "loss": total(c, 0.0, w, **data),
           "loss_smoothed": total(c, SMOOTHING, w, **data)}
    gradient = jax.grad(partial(mean, c, SMOOTHING))(w, **data)
    check(c, w, data, gradient)
    steps = batch(c, rng, len(RATES), 4, 6)
    losses, norms, after = trained(c, w, steps, MAX_NORM[name])
    assert min(norms) < MAX_NORM[name] < max(norms), f"clip some steps and not others: {norms}"
    print(name, "losses", np.round(losses, 3), "norms", np.round(norms, 3))
    out |= {f"steps/{key}": value for key, value in steps.items()}
    out |= {"steps/rates": RATES, "steps/max_norm": MAX_NORM[name], "steps/losses": losses, "steps/norms": norms}
    for kind, values in (("weights", weights), ("gradient", gradient), ("trained", after)):
        out |= {f"{kind}/{key}": value for key, value in values.items()}
    return {f"{name}/{key}": np.asarray(value) for key, value in out.items()}


def check(c: dict, w: dict, data: dict, gradient: dict) -> None:
    """Autograd against differences of fourth order along a random direction, and no parameter without effect."""
    rng, h = np.random.default_rng(0), 1e-3
    way = {name: rng.standard_normal(value.shape) for name, value in w.items()}
    length = sum(float(np.vdot(value, value)) for value in way.values()) ** 0.5

    def at(steps: int) -> float:
        moved = {name: value + steps * h / length * way[name] for name, value in w.items()}
        return float(mean(c, SMOOTHING, moved, **data))

    along = sum(float(jnp.vdot(gradient[name], way[name])) for name in w) / length
    np.testing.assert_allclose((8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h), along, rtol=1e-9)
    assert all(float(jnp.abs(g).max()) > 1e-3 for name, g in gradient.items() if not name.endswith("attention.k.bias"))


if __name__ == "__main__":
    frozen = {key: value for seed, name in enumerate(MODELS, start=1) for key, value in make(name, seed).items()}
    frozen["optimizer"] = np.array(json.dumps(
        {"betas": BETAS, "eps": EPS, "decay": DECAY, "smoothing": SMOOTHING}))
    np.savez_compressed(OUT, **frozen)
    assert OUT.stat().st_size < 300_000
    print(f"{OUT.stat().st_size} bytes")
