"""GGUF metadata -> ModelConfig, for the architectures whose mathematics minitp has.

What is refused when it is switched on stands in `REFUSED`; an architecture outside `NAME_MAPS` is refused by its name,
before anything in the file can be taken for damage. Biases and a tied head are read off the tensors that are there.
"""
from typing import Any

import numpy as np

from minitp.checkpoint.gguf import Manifest
from minitp.checkpoint.names import GGUF_GPT2, GGUF_LLAMA, GGUF_QWEN2
from minitp.config import ModelConfig, RotaryConfig
from minitp.context import frequencies
from minitp.errors import ConfigError

NAME_MAPS = {"llama": GGUF_LLAMA, "qwen2": GGUF_QWEN2, "gpt2": GGUF_GPT2}

OFF = (None, False, 0)
REFUSED: dict[str, tuple[Any, ...]] = {
    # field, after "llama." and so on: the values that leave the mathematics as minitp has it
    "expert_count": OFF, "attention.kv_lora_rank": OFF, "attention.q_lora_rank": OFF,
    "attention.scale": OFF, "embedding_scale": (*OFF, 1), "residual_scale": (*OFF, 1), "logit_scale": (*OFF, 1),
    "attn_logit_softcapping": OFF, "final_logit_softcapping": OFF,
    "attention.max_alibi_bias": OFF, "attention.clamp_kqv": OFF, "attention.causal": (None, True),
    "use_parallel_residual": OFF, "rope.scaling.attn_factor": (*OFF, 1),
}


def config_from_gguf(manifest: Manifest) -> ModelConfig:
    """ModelConfig for a GGUF file. ConfigError names the key that is missing, wrong or not supported."""
    metadata, tensors = manifest.metadata, manifest.tensors
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in NAME_MAPS:
        raise ConfigError(f"unsupported architecture: general.architecture is {architecture!r:.80}; minitp has "
                          f"{', '.join(NAME_MAPS)}")
    keys = _Keys(metadata, architecture)
    for key, harmless in REFUSED.items():
        if keys.get(key) not in harmless:
            raise ConfigError(f"{architecture}.{key} = {keys.get(key)!r:.80} is not supported: "
                              "it changes the mathematics")
    hidden, heads, positions = map(keys.size, ("embedding_length", "attention.head_count", "context_length"))
    window = keys.size("attention.sliding_window", 0)
    if 0 < window < positions:
        raise ConfigError(f"{architecture}.attention.sliding_window = {window} is not supported: minitp attends to the "
                          f"whole sequence of up to {positions}")
    gpt2 = architecture == "gpt2"
    head_size = _head_size(keys, hidden, heads)
    tokens, embedding = metadata.get("tokenizer.ggml.tokens"), tensors.get("token_embd.weight")
    vocab = len(tokens) if isinstance(tokens, list) else embedding.shape[0] if embedding else 0
    eps = keys.number("attention.layer_norm_epsilon" if gpt2 else "attention.layer_norm_rms_epsilon")
    return ModelConfig(
        hidden=hidden, layers=keys.size("block_count"), heads=heads,
        kv_heads=keys.size("attention.head_count_kv", heads), head_size=head_size,
        ffn=keys.size("feed_forward_length"), vocab=keys.size("vocab_size", vocab), positions=positions,
        norm="layer" if gpt2 else "rms", norm_eps=eps, activation="gelu_tanh" if gpt2 else "silu", gated=not gpt2,
        rotary=None if gpt2 else _rotary(manifest, keys, head_size), tied="output.weight" not in tensors,
        qkv_bias=gpt2 or "blk.0.attn_q.bias" in tensors, attention_bias=gpt2 or "blk.0.attn_output.bias" in tensors,
        mlp_bias=gpt2 or "blk.0.ffn_up.bias" in tensors, name=str(metadata.get("general.name", manifest.path.stem)),
        **_tokens(metadata))


class _Keys:
    """The metadata of one architecture: sizes and numbers, checked."""

    def __init__(self, metadata: dict[str, Any], architecture: str):
        self.metadata, self.architecture = metadata, architecture

    def get(self, key: str) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, (list, np.ndarray)):
            raise ConfigError(f"{self.architecture}.{key} differs from layer to layer, which is not supported")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if type(value) is not int or value < 0:
            state = "is missing" if value is None else f"must be a whole number, not {value!r:.40}"
            raise ConfigError(f"{self.architecture}.{key} {state}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A float32 of the file as the shortest decimal that is this float32: 1e-05, not 9.999999747378752e-06."""
        value = self.get(key)
        value = default if value is None else value
        if type(value) not in (int, float):
            state = "is missing" if value is None else f"must be a number, not {value!r:.40}"
            raise ConfigError(f"{self.architecture}.{key} {state}")
        return float(str(np.float32(value)))


def _head_size(keys: _Keys, hidden: int, heads: int) -> int:
    if keys.get("attention.key_length") is None and (not heads or hidden % heads):
        raise ConfigError(f"{keys.architecture}.embedding_length = {hidden} is no multiple of attention.head_count = "
                          f"{heads}; such a file must give attention.key_length")
    head_size = keys.size("attention.key_length", hidden // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.size(key, head_size) != head_size:
            raise ConfigError(f"{keys.architecture}.{key} = {keys.get(key)} is not supported: it must equal the head "
                              f"size, {head_size}")
    return head_size


def _rotary(manifest: Manifest, keys: _Keys, head_size: int) -> RotaryConfig:
    """Linear scaling stands in the metadata; llama3's is baked into a tensor of divisors, one per frequency."""
    theta = keys.number("rope.freq_base", 10_000.0)
    longrope = any(name.startswith(("rope_factors_long", "rope_factors_short")) for name in manifest.tensors)
    kind = "longrope" if longrope else keys.get("rope.scaling.type") or "linear"
    if kind not in ("none", "linear"):
        raise ConfigError(f"the rope scaling {kind!r:.40} is not supported; minitp has linear and llama3")
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    linear = RotaryConfig(theta, "linear", factor) if kind == "linear" and factor != 1 else RotaryConfig(theta)
    if "rope_freqs.weight" not in manifest.tensors:
        return linear
    divisors = np.empty(head_size // 2)
    shape = manifest.tensors["rope_freqs.weight"].shape
    if shape != divisors.shape:
        raise ConfigError(f"rope_freqs.weight has shape {shape}; a head of {head_size} has {head_size // 2} of them")
    manifest.read_into("rope_freqs.weight", (slice(0, head_size // 2),), divisors)
    if np.allclose(divisors, 1):
        return linear
    llama3 = RotaryConfig(theta, "llama3", float(str(np.float32(divisors.max()))))
    expected = frequencies(RotaryConfig(theta), head_size) / frequencies(llama3, head_size)
    if linear.scaling != "default" or not np.allclose(divisors, expected, rtol=1e-5):
        raise ConfigError("rope_freqs.weight scales the rotary frequencies in a way that is not supported; minitp has "
                          "llama3's (low and high frequency factors 1 and 4, 8192 original positions)")
    return llama3


def _tokens(metadata: dict[str, Any]) -> dict[str, Any]:
    """bos, and every token that ends a text or a turn."""
    ids = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("bos", "eos", "eot", "eom")]
    if any(token is not None and type(token) is not int for token in ids):
        raise ConfigError(f"tokenizer.ggml.*_token_id must be whole numbers, not {ids!r:.80}")
    bos, *end = ids
    return {"bos": bos, "end_tokens": tuple(dict.fromkeys(token for token in end if token is not None))}
