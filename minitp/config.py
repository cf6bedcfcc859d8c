"""What a model is: its sizes and switches, checked, and nothing about ranks or files.

D hidden  L layers  H query heads  K kv heads  E head size  F ffn  V vocabulary
"""
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from minitp.errors import ConfigError

Activation = Literal["silu", "gelu", "gelu_tanh"]


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions (Su et al. 2021) and how their frequencies are stretched beyond the trained context.

    `default`: theta^(-2i/E).  `linear`: all of them divided by `factor` (Chen et al. 2023).  `llama3`: long wavelengths
    divided by `factor`, short ones kept, a ramp between (Llama 3.1).
    """
    theta: float = 10_000.0
    scaling: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def __post_init__(self):
        if self.scaling not in ("default", "linear", "llama3"):
            raise ConfigError(f"rotary scaling {self.scaling!r} is not known; minitp has default, linear and llama3")
        if not self.theta > 0 or not self.factor > 0:
            raise ConfigError(f"rotary theta {self.theta} and factor {self.factor} must be positive")
        if self.scaling == "llama3" and not self.high_freq_factor > self.low_freq_factor:
            raise ConfigError("rotary scaling llama3 needs high_freq_factor > low_freq_factor, "
                              f"got {self.high_freq_factor} and {self.low_freq_factor}")


@dataclass(frozen=True)
class ModelConfig:
    """One decoder-only transformer of the Llama or the GPT-2 family.

    `rotary` is None where positions are a learned table (GPT-2). `gated` is SwiGLU's gate × up; without it the MLP is
    up, activation, down. `parallel_block` puts attention and MLP side by side behind one norm (GPT-J, PaLM).
    """
    hidden: int                             # D
    layers: int                             # L
    heads: int                              # H
    kv_heads: int                           # K
    head_size: int                          # E
    ffn: int                                # F
    vocab: int                              # V
    positions: int                          # longest sequence
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-5
    activation: Activation = "silu"
    gated: bool = True
    rotary: RotaryConfig | None = field(default_factory=RotaryConfig)
    tied: bool = False                      # the head is the embedding table
    qkv_bias: bool = False
    attention_bias: bool = False            # of the output projection
    mlp_bias: bool = False
    parallel_block: bool = False
    bos: int | None = None
    end_tokens: tuple[int, ...] = ()
    name: str = ""

    def __post_init__(self):
        for size in ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab", "positions"):
            value = getattr(self, size)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{size} must be a whole number of at least 1, got {value!r}")
        if self.heads % self.kv_heads:
            raise ConfigError(f"{self.heads} query heads can't share {self.kv_heads} kv heads evenly: "
                              f"heads must be a multiple of kv heads")
        if self.rotary and self.head_size % 2:
            raise ConfigError("rotary positions turn pairs of numbers, so the head size must be even, "
                              f"got {self.head_size}")
        if self.activation not in ("silu", "gelu", "gelu_tanh"):
            raise ConfigError(f"activation {self.activation!r} is not known; minitp has silu, gelu and gelu_tanh")
        if self.norm not in ("rms", "layer"):
            raise ConfigError(f"norm {self.norm!r} is not known; minitp has rms and layer")
        if not 0 < self.norm_eps < 1:
            raise ConfigError(f"norm_eps must lie between 0 and 1, got {self.norm_eps!r}")
        for token in (*self.end_tokens, *([] if self.bos is None else [self.bos])):
            if not 0 <= token < self.vocab:
                raise ConfigError(f"special token {token} lies outside the vocabulary of {self.vocab}")

    @property
    def heads_per_kv(self) -> int:
        """How many query heads share one kv head (1 is multi-head, H is multi-query attention)."""
        return self.heads // self.kv_heads

    @property
    def learned_positions(self) -> bool:
        return self.rotary is None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for a trace's header or a JSON file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelConfig":
        """The inverse of `to_dict`; a field that isn't known is refused by name."""
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown field(s) in a model config: {', '.join(unknown)}")
        values = dict(values)
        if isinstance(values.get("rotary"), dict):
            values["rotary"] = RotaryConfig(**values["rotary"])
        if "end_tokens" in values:
            values["end_tokens"] = tuple(values["end_tokens"])
        return cls(**values)


TINY = ModelConfig(name="tiny", hidden=32, layers=2, heads=8, kv_heads=4, head_size=4, ffn=64, vocab=256, positions=256,
                   tied=False)
"""Small enough that every shard can be drawn; a byte is a token."""
