"""Odd small models and layouts that Hypothesis draws, as sizes: made into models and layouts by the tests."""
from typing import Any

from hypothesis import strategies as st

from minitp.config import ModelConfig
from minitp.plan.model import PlannedModel


@st.composite
def model_sizes(draw) -> dict[str, Any]:
    """Heads that don't divide, few kv heads, gated or not, tied or not, experts."""
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    experts = draw(st.sampled_from([1, 1, 3, 4]))
    return {"hidden": draw(st.integers(3, 24)), "layers": draw(st.integers(1, 6)), "heads": kv_heads * group,
            "kv_heads": kv_heads, "head_size": 2 * draw(st.integers(1, 4)), "ffn": draw(st.integers(3, 40)),
            "vocab": draw(st.integers(5, 60)), "gated": draw(st.booleans()), "tied": draw(st.booleans()),
            "norm": draw(st.sampled_from(["rms", "layer"])), "qkv_bias": draw(st.booleans()),
            "mlp_bias": draw(st.booleans()), "attention_bias": draw(st.booleans()),
            "parallel_block": draw(st.booleans()), "experts": experts, "active": draw(st.integers(1, experts)),
            "embedding_norm": draw(st.booleans())}


def planned(sizes: dict[str, Any]) -> PlannedModel:
    """The model of these sizes."""
    own = {name: sizes[name] for name in ("experts", "active", "embedding_norm")}
    return PlannedModel(ModelConfig(positions=64, **{n: v for n, v in sizes.items() if n not in own}), **own)


@st.composite
def degrees(draw) -> dict[str, Any]:
    """What a small Layout takes, any kind of parallelism beside any other."""
    dp, cp = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    schedule = draw(st.sampled_from(["1f1b", "gpipe", "interleaved"]))
    return {"tp": draw(st.integers(1, 5)), "pp": draw(st.integers(1, 4)), "dp": dp, "cp": cp,
            "ep": draw(st.sampled_from([n for n in range(1, dp * cp + 1) if dp * cp % n == 0])),
            "sequence": draw(st.booleans()), "zero": draw(st.sampled_from([0, 1, 2, 3])), "schedule": schedule,
            "chunks": draw(st.integers(1, 3)) if schedule == "interleaved" else 1,
            "embedding": draw(st.sampled_from(["vocab", "hidden"])), "cut": draw(st.sampled_from(["even", "balanced"]))}
