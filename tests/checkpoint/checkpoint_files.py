"""Model files of every format, written the long way round: by the reference libraries, under names spelled out here.

The tests compare what minitp reads with the arrays that went in. Nothing of minitp.checkpoint is used.
"""
import json
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy

from minitp.config import ModelConfig, RotaryConfig
from minitp.placement import Placement

LLAMA = ModelConfig(hidden=32, layers=2, heads=8, kv_heads=2, head_size=8, ffn=48, vocab=64, positions=128,
                    norm_eps=1e-6, rotary=RotaryConfig(theta=50_000.0), bos=1, end_tokens=(2,))
GPT2 = ModelConfig(hidden=32, layers=2, heads=4, kv_heads=4, head_size=8, ffn=96, vocab=61, positions=16, norm="layer",
                   activation="gelu_tanh", gated=False, rotary=None, tied=True, qkv_bias=True, attention_bias=True,
                   mlp_bias=True)
QWEN2 = replace(LLAMA, qkv_bias=True, tied=True)
MHA = replace(LLAMA, kv_heads=8)


def parameters(config):
    return Placement(config, ranks=1).parameters


def weights_of(config, seed=0):
    """Random logical parameters, multiples of 1/64 below 2, so that float16 and bfloat16 hold them exactly."""
    rng = np.random.default_rng(seed)
    return {p.name: rng.integers(-127, 128, p.shape).astype(np.float32) / 64 for p in parameters(config)}


HF_LLAMA = {"embedding": "model.embed_tokens", "attention_norm": "input_layernorm", "attention.q": "self_attn.q_proj",
            "attention.k": "self_attn.k_proj", "attention.v": "self_attn.v_proj", "attention.o": "self_attn.o_proj",
            "mlp_norm": "post_attention_layernorm", "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj",
            "mlp.down": "mlp.down_proj", "norm": "model.norm", "head": "lm_head"}
GGUF_NAMES = {"embedding": "token_embd", "positions": "position_embd", "attention_norm": "attn_norm",
              "attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.o": "attn_output",
              "mlp_norm": "ffn_norm", "mlp.gate": "ffn_gate", "mlp.up": "ffn_up", "mlp.down": "ffn_down",
              "norm": "output_norm", "head": "output"}


def renamed(weights, names, layer_stem):
    """Logical names -> a format's names, nothing else changed."""
    found = {}
    for name, value in weights.items():
        kind, end = name.rsplit(".", 1)
        if kind.startswith("layers."):
            _, layer, kind = kind.split(".", 2)
            found[f"{layer_stem}.{layer}.{names[kind]}.{end}"] = value
        else:
            found[f"{names[kind]}.{end}"] = value
    return found


def hf_llama_tensors(weights):
    return renamed(weights, HF_LLAMA, "model.layers")


def hf_gpt2_tensors(config, weights, prefix="transformer."):
    """GPT-2's Conv1D weights are (in, out), with q, k, v side by side."""
    found = {"wte.weight": weights["embedding.weight"], "wpe.weight": weights["positions.weight"],
             "ln_f.weight": weights["norm.weight"], "ln_f.bias": weights["norm.bias"]}
    for i in range(config.layers):
        mine = {name.removeprefix(f"layers.{i}."): w for name, w in weights.items() if name.startswith(f"layers.{i}.")}
        for end in ("weight", "bias"):
            qkv = np.concatenate([mine[f"attention.{part}.{end}"] for part in "qkv"])
            found |= {f"h.{i}.ln_1.{end}": mine[f"attention_norm.{end}"], f"h.{i}.ln_2.{end}": mine[f"mlp_norm.{end}"],
                      f"h.{i}.attn.c_attn.{end}": qkv.T, f"h.{i}.attn.c_proj.{end}": mine[f"attention.o.{end}"].T,
                      f"h.{i}.mlp.c_fc.{end}": mine[f"mlp.up.{end}"].T,
                      f"h.{i}.mlp.c_proj.{end}": mine[f"mlp.down.{end}"].T}
    return {prefix + name: np.ascontiguousarray(value) for name, value in found.items()}


def hf_values(config):
    """config.json, spelled as the reference library spells it."""
    c = config
    shared = {"vocab_size": c.vocab, "tie_word_embeddings": c.tied, "bos_token_id": c.bos,
              "eos_token_id": list(c.end_tokens) or None}
    if c.rotary is None:
        return shared | {"model_type": "gpt2", "n_embd": c.hidden, "n_layer": c.layers, "n_head": c.heads,
                         "n_positions": c.positions, "n_inner": c.ffn, "layer_norm_epsilon": c.norm_eps,
                         "activation_function": "gelu_new"}
    biased = {} if c.qkv_bias != c.attention_bias else {"attention_bias": c.attention_bias, "mlp_bias": c.mlp_bias}
    return shared | biased | {
        "model_type": "llama" if biased else "qwen2", "hidden_size": c.hidden, "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_size,
        "intermediate_size": c.ffn, "max_position_embeddings": c.positions, "rms_norm_eps": c.norm_eps,
        "hidden_act": "silu", "rope_theta": c.rotary.theta}


def write_hf(folder: Path, config, tensors, shards=None, **changes) -> Path:
    """A Hugging Face folder. `shards` maps file names to tensor names; `changes` go into config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_values(config) | changes))
    if shards is None:
        safetensors.numpy.save_file(tensors, folder / "model.safetensors")
        return folder
    for file, names in shards.items():
        safetensors.numpy.save_file({name: tensors[name] for name in names}, folder / file)
    where = {name: file for file, names in shards.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def in_pairs(rows, heads):
    """llama.cpp's order of the rows of q and k: the two halves of each head, taken in turn."""
    half = len(rows) // heads // 2
    order = [h * 2 * half + j * half + i for h in range(heads) for i in range(half) for j in range(2)]
    return rows[order]


def gguf_tensors(config, weights, architecture="llama"):
    if architecture == "gpt2":
        plain = {name: w for name, w in weights.items() if not any(f"attention.{part}." in name for part in "qkv")}
        found = renamed(plain, GGUF_NAMES, "blk")
        for i in range(config.layers):
            for end in ("weight", "bias"):
                found[f"blk.{i}.attn_qkv.{end}"] = np.concatenate(
                    [weights[f"layers.{i}.attention.{part}.{end}"] for part in "qkv"])
        return found
    found = renamed(weights, GGUF_NAMES, "blk")
    if architecture == "llama":
        for name, value in found.items():
            if ".attn_q." in name or ".attn_k." in name:
                found[name] = in_pairs(value, config.heads if ".attn_q." in name else config.kv_heads)
    return found


def write_gguf(path: Path, config, tensors, architecture="llama", types=None, metadata=None) -> Path:
    """A GGUF file by llama.cpp's writer. `types` maps a tensor's name to its quantization (default F32)."""
    c, a = config, architecture
    writer = gguf.GGUFWriter(path, a)
    writer.add_context_length(c.positions)
    writer.add_embedding_length(c.hidden)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.ffn)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_vocab_size(c.vocab)
    if c.rotary is None:
        writer.add_layer_norm_eps(c.norm_eps)
    else:
        writer.add_layer_norm_rms_eps(c.norm_eps)
        writer.add_rope_freq_base(c.rotary.theta)
        writer.add_key_length(c.head_size)
        writer.add_value_length(c.head_size)
    if c.bos is not None:
        writer.add_bos_token_id(c.bos)
    if c.end_tokens:
        writer.add_eos_token_id(c.end_tokens[0])
    for key, value in (metadata or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
               list: writer.add_array}[type(value)]
        add(key, value)
    for name, value in tensors.items():
        kind = (types or {}).get(name, gguf.GGMLQuantizationType.F32)
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(value), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_all(checkpoint, dtype=np.float32):
    return {p.name: checkpoint.read(p, tuple(slice(0, n) for n in p.shape), dtype) for p in checkpoint.parameters}


def same(found, expected):
    assert list(found) == list(expected)
    for name in expected:
        assert found[name].flags.c_contiguous
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
