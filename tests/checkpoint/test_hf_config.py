"""config.json: each family as its library writes it; whatever changes the mathematics is refused by name."""
import json
from dataclasses import replace

import pytest
from checkpoint_files import GPT2, LLAMA, QWEN2, hf_values

from minitp.checkpoint.hf_config import REFUSED, config_from_hf, config_to_hf
from minitp.config import TINY, ModelConfig, RotaryConfig
from minitp.errors import ConfigError

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
    "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None,
    "rope_theta": 100000, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
    "vocab_size": 49152}
OPENAI_GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257}
LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
          "rope_type": "llama3"}


def test_published_configs():
    assert config_from_hf(SMOLLM2, "smol") == ModelConfig(
        hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, ffn=1536, vocab=49152, positions=8192, norm_eps=1e-5,
        rotary=RotaryConfig(1e5), tied=True, bos=1, end_tokens=(2,), name="smol")
    assert config_from_hf(OPENAI_GPT2) == ModelConfig(
        hidden=768, layers=12, heads=12, kv_heads=12, head_size=64, ffn=3072, vocab=50257, positions=1024, norm="layer",
        norm_eps=1e-5, activation="gelu_tanh", gated=False, rotary=None, tied=True, qkv_bias=True, attention_bias=True,
        mlp_bias=True, bos=50256, end_tokens=(50256,))


@pytest.mark.parametrize("config", [LLAMA, QWEN2, GPT2, replace(LLAMA, heads=6, hidden=28)])
def test_the_families_as_the_library_spells_them(config):
    assert config_from_hf(hf_values(config)) == config


@pytest.mark.parametrize("config", [
    LLAMA, QWEN2, GPT2, TINY, replace(LLAMA, rotary=RotaryConfig(1e4, "linear", 2.0), end_tokens=(1, 2, 3)),
    replace(LLAMA, rotary=RotaryConfig(5e5, "llama3", 8.0, 1.0, 4.0, 4096), bos=None, end_tokens=()),
    replace(LLAMA, qkv_bias=True, attention_bias=True, mlp_bias=True), replace(LLAMA, activation="gelu"),
    replace(GPT2, activation="gelu", tied=False), replace(LLAMA, mlp_bias=True)])
def test_there_and_back(config):
    values = json.loads(json.dumps(config_to_hf(config)))
    assert config_from_hf(values, config.name) == config


@pytest.mark.parametrize("config", [
    replace(LLAMA, norm="layer"), replace(LLAMA, gated=False), replace(LLAMA, parallel_block=True),
    replace(LLAMA, attention_bias=True), replace(LLAMA, qkv_bias=True, mlp_bias=True), replace(GPT2, kv_heads=2),
    replace(GPT2, mlp_bias=False), replace(GPT2, norm="rms"), replace(GPT2, head_size=4)])
def test_what_no_family_computes_is_not_written(config):
    with pytest.raises(ConfigError, match=r"config\.json"):
        config_to_hf(config)


# --- rotary positions -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("changes", "rotary"), [
    ({"rope_theta": None}, RotaryConfig(10_000.0)),
    ({"rope_scaling": LLAMA3}, RotaryConfig(5e4, "llama3", 32.0, 1.0, 4.0, 8192)),
    ({"rope_scaling": {"type": "linear", "factor": 2}}, RotaryConfig(5e4, "linear", 2.0)),
    ({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2}}, RotaryConfig(5e4, "linear", 2.0)),
    ({"rope_theta": None, "rope_parameters": {"rope_theta": 7e5, "rope_type": "default"}}, RotaryConfig(7e5)),
    ({"rope_theta": None, "rope_parameters": {"rope_theta": 7e5, **LLAMA3}},
     RotaryConfig(7e5, "llama3", 32.0, 1.0, 4.0, 8192)),
    ({"rope_parameters": {"rope_theta": 5e4, "rope_type": "default", "partial_rotary_factor": 1.0}}, RotaryConfig(5e4)),
])
def test_all_spellings_of_rotary_positions(changes, rotary):
    assert config_from_hf(hf_values(LLAMA) | changes).rotary == rotary


@pytest.mark.parametrize(("changes", "word"), [
    *[({"rope_scaling": {"rope_type": kind, "factor": 2.0}}, f"'{kind}'") for kind in ("yarn", "dynamic", "longrope")],
    ({"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}}, "'yarn'"),
    ({"rope_scaling": {"type": "linear"}}, "factor"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
    ({"rope_scaling": {"rope_type": "default", "mrope_section": [1, 2]}}, "mrope_section"),
    ({"rope_scaling": "linear"}, "rope_scaling"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
    ({"rope_parameters": {"rope_theta": 1e4}}, "disagree about rope_theta"),
    ({"rope_parameters": {"rope_theta": 5e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
])
def test_other_rotary_positions_are_refused_by_name(changes, word):
    with pytest.raises(ConfigError, match=word):
        config_from_hf(hf_values(LLAMA) | changes)


# --- other mathematics ------------------------------------------------------------------------------------------------

ACTIVE = {"partial_rotary_factor": 0.5, "num_local_experts": 8, "quantization_config": {"quant_method": "gptq"},
          "scale_attn_weights": False, "rotary_pct": 0.25, "attention_multiplier": 0.0078125}


@pytest.mark.parametrize("key", REFUSED)
def test_each_dangerous_field_is_refused_when_it_is_on_and_passes_when_off(key):
    base = hf_values(GPT2 if key.startswith("scale_attn") else LLAMA)
    for harmless in REFUSED[key]:
        config_from_hf(base | {key: harmless})
    with pytest.raises(ConfigError, match=key):
        config_from_hf(base | {key: ACTIVE.get(key, 7)})


@pytest.mark.parametrize(("changes", "word"), [
    ({"model_type": "qwen3"}, "unsupported architecture: model_type is 'qwen3'"),
    ({"model_type": "mixtral"}, "'mixtral'"), ({"model_type": None}, "None"), ({"model_type": ["llama"]}, "llama"),
    ({"hidden_act": "relu"}, "hidden_act"), ({"hidden_act": None}, "hidden_act"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"), ({"layer_types": 3}, "layer_types"),
    ({"auto_map": {"AutoModelForCausalLM": "modeling.Other"}}, "auto_map"),
    ({"sliding_window": 64}, "sliding_window"), ({"sliding_window": "64"}, "sliding_window"),
    ({"head_dim": 0}, "head_dim"), ({"head_dim": 7}, "even"), ({"head_dim": None, "hidden_size": 33}, "head_dim"),
    ({"hidden_size": "32"}, "hidden_size"), ({"hidden_size": 32.0}, "hidden_size"),
    ({"vocab_size": True}, "vocab_size"),
    ({"num_attention_heads": 0}, "num_attention_heads"), ({"num_key_value_heads": 3}, "kv heads"),
    ({"rms_norm_eps": "1e-5"}, "rms_norm_eps"), ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
    ({"eos_token_id": "</s>"}, "special token"), ({"attention_bias": 1}, "attention_bias")])
def test_other_models_and_wrong_fields_are_refused_by_name(changes, word):
    with pytest.raises(ConfigError, match=word):
        config_from_hf(hf_values(LLAMA) | changes)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                 "vocab_size", "max_position_embeddings"])
def test_sizes_have_no_default(key):
    with pytest.raises(ConfigError, match=f"{key} is missing"):
        config_from_hf({k: v for k, v in hf_values(LLAMA).items() if k != key})


def test_what_is_missing_has_the_reference_librarys_value():
    short = {k: v for k, v in hf_values(LLAMA).items() if k not in (
        "rms_norm_eps", "tie_word_embeddings", "rope_theta", "num_key_value_heads", "head_dim", "bos_token_id")}
    found = config_from_hf(short)
    assert (found.norm_eps, found.tied, found.kv_heads, found.head_size, found.bos) == (1e-6, False, 8, 4, None)
    gpt2 = {k: v for k, v in hf_values(GPT2).items() if k != "tie_word_embeddings"}
    assert config_from_hf(gpt2 | {"n_inner": None}).ffn == 128
    assert config_from_hf(gpt2).tied


def test_sliding_windows_that_are_not_in_use_pass():
    mistral = hf_values(LLAMA) | {"model_type": "mistral"}
    assert config_from_hf(mistral | {"sliding_window": None}) == LLAMA
    assert config_from_hf(mistral | {"sliding_window": 128}) == LLAMA
    with pytest.raises(ConfigError, match="sliding_window = 4096"):          # the library's default
        config_from_hf(mistral | {"max_position_embeddings": 32768})
    qwen2 = hf_values(QWEN2) | {"sliding_window": 64, "max_window_layers": 1}
    assert config_from_hf(qwen2 | {"use_sliding_window": False}) == QWEN2
    with pytest.raises(ConfigError, match="sliding_window"):
        config_from_hf(qwen2 | {"use_sliding_window": True})


def test_special_tokens():
    base = hf_values(LLAMA)
    assert config_from_hf(base | {"eos_token_id": [5, 6]}).end_tokens == (5, 6)
    assert config_from_hf(base | {"eos_token_id": None, "bos_token_id": None}).end_tokens == ()
    assert config_from_hf(base | {"eos_token_id": [5, 50256, -1], "bos_token_id": 50256}) == replace(
        LLAMA, bos=None, end_tokens=(5,))
