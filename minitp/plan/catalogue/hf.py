"""config.json as the planner reads it: what minitp runs, mixtures of experts besides, and nothing that it can't count.

One formula for all architectures is wrong by factors. So what changes a count of numbers, of cache entries or of
syncs and isn't modeled is refused by the name of its field.
"""
import re
from typing import Any

from minitp.checkpoint.hf_config import FAMILIES, OFF, config_from_hf
from minitp.errors import ConfigError
from minitp.plan.model import PlannedModel

NOT_MODELED = {
    r"mamba_.*|ssm_.*|state_size|conv_kernel|time_step_.*|attn_layer_(period|offset)|hybrid_.*":
        "state-space layers have other weights and no KV cache",
    r"kv_lora_rank|q_lora_rank|qk_rope_head_dim|qk_nope_head_dim|v_head_dim": "latent attention caches something else",
    r"linear_(num|key|value|conv)_.*|full_attention_interval|layers_block_type":
        "linear attention has other weights and no KV cache",
    r"n_shared_experts|shared_expert_intermediate_size|moe_intermediate_size|first_k_dense_replace|decoder_sparse_step|"
    r"n_routed_experts|num_experts|moe_layer_freq|interleave_moe_layer_step|num_nextn_predict_layers":
        "layers that aren't alike, or experts of another size",
    r"text_config|vision_config|audio_config|encoder_layers|is_encoder_decoder|num_kv_shared_layers|"
    r"cross_attention_layers": "another network beside the decoder",
}
"""Fields by pattern, and what is different where one is switched on."""


def planned_from_hf(values: Any, name: str) -> PlannedModel:
    """The model of a config.json. ConfigError names the field that is missing, wrong or not modeled."""
    if not isinstance(values, dict):
        raise ConfigError("a config.json must be an object")
    for key, value in values.items():
        for pattern, why in NOT_MODELED.items():
            if re.fullmatch(pattern, str(key)[:100]) and value not in OFF and value not in ([], {}):
                raise ConfigError(f"{key} = {str(value)[:60]} is not modeled: {why}; no plan is better "
                                  "than a wrong one")
    kind = values.get("model_type")
    if kind != "mixtral":
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise ConfigError(_unsupported(kind))
        return PlannedModel(config_from_hf(values, name))
    experts, active = _count(values, "num_local_experts", 8), _count(values, "num_experts_per_tok", 2)
    dense = {key: value for key, value in values.items()
             if key not in ("num_local_experts", "num_experts_per_tok")}
    dense.setdefault("sliding_window", None)
    return PlannedModel(config_from_hf({**dense, "model_type": "mistral"}, name), experts, active)


def _unsupported(kind: Any) -> str:
    """What is said of another family, and which of its models the catalogue has."""
    from minitp.plan.catalogue.models import models
    called = kind.replace("_", "-").lower() if isinstance(kind, str) else ""
    known = [one for one in models() if called and one.startswith(called)]
    return (f"unsupported architecture: model_type is {kind!r:.60}; config files of {', '.join(FAMILIES)} and mixtral "
            "are read" + (f"; the catalogue has {', '.join(known[:6])} by name" if known else ""))


def _count(values: dict[str, Any], key: str, default: int) -> int:
    """A number of experts; the reference library's default where it isn't given."""
    value = values.get(key, default)
    if type(value) is not int or not 1 <= value <= 65_536:
        raise ConfigError(f"{key} must be a whole number of at least 1, not {value!r:.40}")
    return value
