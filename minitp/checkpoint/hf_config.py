"""config.json <-> ModelConfig, for the families of Hugging Face's library whose mathematics minitp has.

The rule: what changes the mathematics and isn't in `ModelConfig` is refused by name when it is switched on (`REFUSED`);
what is known, or harmless, or unheard of, passes. A field that is missing has the value that the reference library
(huggingface.co/docs/transformers) gives it, listed in `FAMILIES`; sizes have no default.
"""
from typing import Any, get_args

from minitp.config import Activation, ModelConfig, RotaryConfig
from minitp.errors import ConfigError

ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh"}

ROTARY_DEFAULTS = {"rms_norm_eps": 1e-6, "hidden_act": "silu", "head_dim": None, "tie_word_embeddings": False,
                   "attention_bias": False, "mlp_bias": False, "rope_theta": None}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**ROTARY_DEFAULTS, "num_key_value_heads": None},
    "mistral": {**ROTARY_DEFAULTS, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {**ROTARY_DEFAULTS, "num_key_value_heads": 32},
    "gpt2": {"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "n_inner": None,
             "tie_word_embeddings": True},
}

OFF = (None, False, 0)
REFUSED: dict[str, tuple[Any, ...]] = {
    # field: the values that leave the mathematics as minitp has it
    "partial_rotary_factor": (None, 1), "rotary_pct": (None, 1), "rope_interleave": OFF, "rope_interleaved": OFF,
    "no_rope_layers": (*OFF, []), "no_rope_layer_interval": OFF,
    "attention_chunk_size": OFF, "dual_chunk_attention_config": OFF,
    "num_local_experts": OFF, "num_experts": OFF, "n_routed_experts": OFF, "num_experts_per_tok": OFF,
    "kv_lora_rank": OFF, "q_lora_rank": OFF,
    "qk_layernorm": OFF, "use_qk_norm": OFF, "qk_norm": OFF,
    "attn_logit_softcapping": OFF, "final_logit_softcapping": OFF,
    "attention_multiplier": (None,), "query_pre_attn_scalar": (None,), "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1), "logits_scaling": (None, 1), "logit_scale": (None, 1), "scale_embedding": OFF,
    "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": OFF, "clip_qkv": OFF, "alibi": OFF,
    "use_parallel_residual": OFF, "parallel_attn": OFF, "add_cross_attention": OFF, "is_encoder_decoder": OFF,
    "quantization_config": OFF, "compression_config": OFF,
}


def config_from_hf(values: dict[str, Any], name: str = "") -> ModelConfig:
    """ModelConfig for a config.json. ConfigError names the field that is missing, wrong or not supported."""
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ConfigError(f"unsupported architecture: model_type is {family!r}; minitp has {', '.join(FAMILIES)}")
    values = FAMILIES[family] | values
    _refuse_other_mathematics(values, family)
    return (_gpt2 if family == "gpt2" else _llama)(values, name)


def _llama(values: dict[str, Any], name: str) -> ModelConfig:
    hidden, heads = _size(values, "hidden_size"), _size(values, "num_attention_heads")
    qwen2, mistral = values["model_type"] == "qwen2", values["model_type"] == "mistral"
    bias = not mistral and not qwen2 and _flag(values, "attention_bias")
    return ModelConfig(
        hidden=hidden, layers=_size(values, "num_hidden_layers"), heads=heads,
        kv_heads=heads if values["num_key_value_heads"] is None else _size(values, "num_key_value_heads"),
        head_size=_head_size(values, "hidden_size", "num_attention_heads"),
        ffn=_size(values, "intermediate_size"), vocab=_size(values, "vocab_size"),
        positions=_size(values, "max_position_embeddings"), norm_eps=_number(values, "rms_norm_eps"),
        activation=_activation(values, "hidden_act"), rotary=_rotary(values), tied=_flag(values, "tie_word_embeddings"),
        qkv_bias=bias or qwen2, attention_bias=bias,
        mlp_bias=not mistral and not qwen2 and _flag(values, "mlp_bias"), name=name, **_tokens(values))


def _gpt2(values: dict[str, Any], name: str) -> ModelConfig:
    hidden, heads = _size(values, "n_embd"), _size(values, "n_head")
    return ModelConfig(
        hidden=hidden, layers=_size(values, "n_layer"), heads=heads, kv_heads=heads,
        head_size=_head_size(values, "n_embd", "n_head"),
        ffn=4 * hidden if values["n_inner"] is None else _size(values, "n_inner"), vocab=_size(values, "vocab_size"),
        positions=_size(values, "n_positions"), norm="layer", norm_eps=_number(values, "layer_norm_epsilon"),
        activation=_activation(values, "activation_function"), gated=False, rotary=None,
        tied=_flag(values, "tie_word_embeddings"), qkv_bias=True, attention_bias=True, mlp_bias=True, name=name,
        **_tokens(values))


# --- what is refused --------------------------------------------------------------------------------------------------

def _refuse_other_mathematics(values: dict[str, Any], family: str) -> None:
    for key, harmless in REFUSED.items():
        if key in values and values[key] not in harmless:
            raise ConfigError(f"{key} = {values[key]!r:.80} is not supported: it changes the mathematics; minitp reads "
                              f"{family} models with {' or '.join(repr(v) for v in harmless)} there")
    if "AutoModel" in str(values.get("auto_map")):
        raise ConfigError("auto_map: this model brings code of its own, which minitp doesn't run")
    kinds = values.get("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds)):
        raise ConfigError(f"layer_types = {values['layer_types']!r:.80}: minitp has full_attention only")
    window, positions = values.get("sliding_window"), _size(values, "n_positions" if family == "gpt2" else
                                                            "max_position_embeddings")
    in_use = values.get("use_sliding_window", False) if family == "qwen2" else window is not None
    if in_use and window is not None and not (type(window) is int and window >= positions):
        raise ConfigError(f"sliding_window = {window!r:.80} is not supported: minitp attends to the whole sequence "
                          f"(null, or at least the {positions} positions of the model, would work)")


def _rotary(values: dict[str, Any]) -> RotaryConfig:
    """rope_theta and rope_scaling (with "type" or "rope_type"), or rope_parameters, which holds all of them."""
    given: dict[str, Any] = {} if values["rope_theta"] is None else {"rope_theta": values["rope_theta"]}
    for field in ("rope_scaling", "rope_parameters"):
        part = values.get(field) or {}
        if not isinstance(part, dict):
            raise ConfigError(f"{field} must be an object, not {part!r:.80}")
        clash = [key for key in part if key in given and given[key] != part[key]]
        if clash:
            raise ConfigError(f"rope_theta, rope_scaling and rope_parameters disagree about {', '.join(clash)}")
        given |= part
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "linear", "llama3") or given.get("type", kind) != kind:
        raise ConfigError(f"the rope type {given.get('type', kind)!r:.40} is not supported; "
                          "minitp has default, linear and llama3")
    names = {"rope_theta": "theta", "factor": "factor", "low_freq_factor": "low_freq_factor",
             "high_freq_factor": "high_freq_factor", "original_max_position_embeddings": "original_positions"}
    unknown = sorted(set(given) - set(names) - {"type", "rope_type", "partial_rotary_factor"})
    if unknown or given.get("partial_rotary_factor", 1) != 1:
        raise ConfigError(f"rope parameter(s) not supported: {', '.join(unknown) or 'partial_rotary_factor'}")
    theta = _number({"rope_theta": 10_000.0, **given}, "rope_theta")
    needed = {"default": [], "linear": ["factor"], "llama3": list(names)[1:]}[kind]
    scaling: dict[str, Any] = {names[key]: (_size if key.startswith("original") else _number)(given, key)
                               for key in needed}
    return RotaryConfig(theta=theta, scaling=kind, **scaling)


# --- fields, checked --------------------------------------------------------------------------------------------------

def _size(values: dict[str, Any], key: str) -> int:
    if key not in values:
        raise ConfigError(f"{key} is missing, and has no default")
    if type(values[key]) is not int or values[key] < 1:
        raise ConfigError(f"{key} must be a whole number of at least 1, not {values[key]!r:.40}")
    return values[key]


def _number(values: dict[str, Any], key: str) -> float:
    if type(values.get(key)) not in (int, float):
        raise ConfigError(f"{key} must be a number, not {values.get(key)!r:.40}")
    return float(values[key])


def _flag(values: dict[str, Any], key: str) -> bool:
    if type(values[key]) is not bool:
        raise ConfigError(f"{key} must be true or false, not {values[key]!r:.40}")
    return values[key]


def _head_size(values: dict[str, Any], hidden_key: str, heads_key: str) -> int:
    if values.get("head_dim") is not None:
        return _size(values, "head_dim")
    hidden, heads = values[hidden_key], values[heads_key]
    if hidden % heads:
        raise ConfigError(f"{hidden_key} = {hidden} is no multiple of {heads_key} = {heads}; "
                          "such a model must give head_dim")
    return hidden // heads


def _activation(values: dict[str, Any], key: str) -> Activation:
    if not isinstance(values[key], str) or values[key] not in ACTIVATIONS:
        raise ConfigError(f"{key} = {values[key]!r:.40} is not supported; minitp has {', '.join(get_args(Activation))}")
    return ACTIVATIONS[values[key]]


def _tokens(values: dict[str, Any]) -> dict[str, Any]:
    """bos and the end tokens. One outside the vocabulary (the family's default, in a small model) is left out: it can't
    be drawn."""
    def inside(token: Any) -> bool:
        if token is not None and type(token) is not int:
            raise ConfigError(f"a special token's id must be a whole number, not {token!r:.40}")
        return token is not None and 0 <= token < _size(values, "vocab_size")

    end = values.get("eos_token_id")
    bos = values.get("bos_token_id")
    return {"bos": bos if inside(bos) else None,
            "end_tokens": tuple(t for t in (end if isinstance(end, list) else [end]) if inside(t))}


# --- and back ---------------------------------------------------------------------------------------------------------

def config_to_hf(config: ModelConfig) -> dict[str, Any]:
    """config.json for `config`. ConfigError where no family of the reference library computes the same."""
    c = config
    activation = {"silu": "silu", "gelu": "gelu", "gelu_tanh": "gelu_new"}[c.activation]
    shared = {"vocab_size": c.vocab, "tie_word_embeddings": c.tied, "bos_token_id": c.bos,
              "eos_token_id": list(c.end_tokens) if len(c.end_tokens) > 1 else next(iter(c.end_tokens), None)}
    if c.rotary is None:
        return shared | _to_gpt2(c, activation)
    biases = (c.qkv_bias, c.attention_bias, c.mlp_bias)
    family = "qwen2" if biases == (True, False, False) else "llama"
    no_such_bias = family == "llama" and c.qkv_bias != c.attention_bias
    if no_such_bias or c.norm != "rms" or not c.gated or c.parallel_block:
        raise ConfigError(f"no family of config.json has rotary positions with norm={c.norm}, gated={c.gated}, "
                          f"parallel_block={c.parallel_block} and biases (q k v, output, mlp) {biases}")
    return shared | _to_rope(c.rotary) | {
        "model_type": family, "architectures": ["Qwen2ForCausalLM" if family == "qwen2" else "LlamaForCausalLM"],
        "hidden_size": c.hidden, "num_hidden_layers": c.layers, "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads, "head_dim": c.head_size, "intermediate_size": c.ffn,
        "max_position_embeddings": c.positions, "rms_norm_eps": c.norm_eps, "hidden_act": activation,
        **({} if family == "qwen2" else {"attention_bias": c.attention_bias, "mlp_bias": c.mlp_bias})}


def _to_gpt2(c: ModelConfig, activation: str) -> dict[str, Any]:
    if (c.norm != "layer" or c.gated or c.parallel_block or c.heads != c.kv_heads or c.heads * c.head_size != c.hidden
            or not (c.qkv_bias and c.attention_bias and c.mlp_bias)):
        raise ConfigError("of the families of config.json GPT-2 has learned positions: with layer norm, biases "
                          "everywhere, no gate, a kv head per head, heads · head size = hidden; this model differs")
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": c.hidden, "n_layer": c.layers,
            "n_head": c.heads, "n_inner": c.ffn, "n_positions": c.positions, "layer_norm_epsilon": c.norm_eps,
            "activation_function": activation}


def _to_rope(rotary: RotaryConfig) -> dict[str, Any]:
    """Both spellings, so that old and new versions of the reference library read it."""
    scaling: dict[str, Any] = {"rope_type": rotary.scaling}
    if rotary.scaling != "default":
        scaling["factor"] = rotary.factor
    if rotary.scaling == "llama3":
        scaling |= {"low_freq_factor": rotary.low_freq_factor, "high_freq_factor": rotary.high_freq_factor,
                    "original_max_position_embeddings": rotary.original_positions}
    return {"rope_theta": rotary.theta, "rope_scaling": scaling if rotary.scaling != "default" else None,
            "rope_parameters": {"rope_theta": rotary.theta, **scaling}}
