"""Short rules of papers and calculators that leave things out, each under its author's name."""

ZERO_ELEMENTS = 12
"""Elements that ZeRO's rule keeps of a token in a layer."""


def zero_activations(hidden: float, batch: float, seq: float, layers: float, elements: float = ZERO_ELEMENTS,
                     width: float = 2) -> float:
    """Rajbhandari et al. 2020, section 3.2: 12·h·b·s·L elements. Attention's scores and most saved arrays are left out:
    for GPT-2 1.5B it is a fifth of Korthikanti et al. 2022."""
    return elements * hidden * batch * seq * layers * width


def accelerate_adam(size: float) -> float:
    """Hugging Face accelerate's "training with Adam": four times the size at loading, so at fp16 8 bytes a parameter,
    where mixed precision takes 16. It prints powers of 1024 as GB."""
    return 4 * size


def megatron_bytes(distributed: bool, dp: int = 1) -> float:
    """Bytes per parameter in Megatron-LM's theoretical_memory_usage.py: 2 + 4 + 4 + 8 = 18, gradients in float32; with
    the distributed optimizer 6 + 12/d (its issue 654)."""
    return 6 + 12 / dp if distributed else 18.0


CHECKPOINT_BYTES = 14
"""A parameter in a checkpoint with optimizer state: 2 of weights and 12 in float32; gradients aren't saved."""
FINE_TUNING_BYTES = 16
"""A parameter in full fine-tuning with Adam in mixed precision (Rajbhandari et al. 2020, section 3.1)."""


def kipply_messages(layers: float, alpha: float) -> float:
    """kipply, Transformer Inference Arithmetic: 4 messages a layer, each at its latency."""
    return 4 * layers * alpha


def kipply_bytes(batch: float, layers: float, hidden: float) -> float:
    """kipply: 8·L·h·B bytes a token: 4 messages a layer of B·h numbers in 2 bytes."""
    return 8 * batch * layers * hidden


def pope_divisor(variant: str, heads: int, chips: int) -> int:
    """Over how many of the chips Pope et al. 2022, table 1, spread the KV cache: multihead over its heads, multiquery
    not at all, or by sequences of the batch over all chips. KeyError for another layout."""
    return {"multihead": min(heads, chips), "multiquery_headshard": 1, "multiquery_batchshard": chips}[variant]
