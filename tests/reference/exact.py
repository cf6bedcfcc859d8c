"""Runs a `transformers` model truly in float64, and decodes greedily with it. Shared by the scripts of this folder.

`model.double()` alone is not enough: the library casts to float32 *by name* inside its norms, its softmax and its
rotary tables, so its "float64" logits would be off by about 1e-6. While a model runs here, `torch.float32` is float64.
"""
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch


@contextmanager
def float32_means_float64() -> Iterator[None]:
    """Library code that says `torch.float32` (or `torch.float`) gets float64 inside this block."""
    with patch.object(torch, "float32", torch.float64), patch.object(torch, "float", torch.float64):
        yield


def exact(model: torch.nn.Module) -> torch.nn.Module:
    """The model with float64 weights, and rotary frequencies computed afresh in float64 rather than cast up."""
    model = model.double().eval()
    rotary = getattr(model.base_model, "rotary_emb", None)               # GPT-2 has none
    if rotary is not None:
        with float32_means_float64():
            model.base_model.rotary_emb = type(rotary)(model.config)
        assert model.base_model.rotary_emb.inv_freq.dtype == torch.float64
    return model


def logits_of(model: torch.nn.Module, ids: np.ndarray) -> torch.Tensor:
    """ids (B, T) -> float64 logits (B, T, V), without a cache; keeps the graph unless under `torch.no_grad`."""
    with float32_means_float64():
        logits = model(input_ids=torch.as_tensor(ids), use_cache=False).logits
    assert logits.dtype == torch.float64
    return logits


def gap(logits: np.ndarray) -> np.ndarray:
    """How far the best logit is above the second best: what an error must stay under for greedy decoding to agree."""
    second, best = np.moveaxis(np.partition(logits, -2, axis=-1)[..., -2:], -1, 0)
    return best - second


@torch.no_grad()
def greedy(model: torch.nn.Module, prompt: Sequence[int], steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (steps) and the logits (steps, V) they were chosen from; never stops early, recomputes everything."""
    ids, chosen = list(prompt), []
    for _ in range(steps):
        chosen.append(logits_of(model, np.array([ids]))[0, -1].numpy())
        ids.append(int(chosen[-1].argmax()))
    return np.array(ids[len(prompt):]), np.array(chosen)
