"""What is to be run: a generation or a training, its sizes, and the bytes of every kind of number in it."""
from dataclasses import dataclass, field
from typing import Literal

from minitp.errors import ConfigError

Recompute = Literal["none", "selective", "full"]
LARGEST = 10**15
"""No size of a job or a model is larger: sequences, tokens of one, layers, widths."""
STEP = 1024
"""Sequences of a training step, unless told otherwise."""
PREFILL_TOKENS = 8192
"""Tokens of prompts that a replica takes at once, unless told otherwise: enough to keep a large GPU computing."""

BYTES: dict[str, float] = {
    "float64": 8, "float32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5,
    "q8_0": 34 / 32, "q4_0": 18 / 32, "q80": 34 / 32, "q40": 18 / 32,
}
"""Bytes per number. Q8_0 and Q4_0 keep 32 numbers and a 2-byte scale in a block; q80, q40: other names of them."""

FLOAT32_BYTES = int(BYTES["float32"])
TOKEN_BYTES = 4                    # of a chosen token's number, on its way back to the first stage


def bytes_of(dtype: str) -> float:
    """Bytes per number; ConfigError for a type that isn't known."""
    if dtype not in BYTES:
        raise ConfigError(f"the number type {dtype!r} is not known; known are {', '.join(BYTES)}")
    return BYTES[dtype]


@dataclass(frozen=True)
class Precision:
    """Bytes per parameter while training, by what is kept (Rajbhandari et al. 2020, section 3.1; 2 + 2 + 12 = 16).

    `master` is the copy that the optimizer updates; 0 where the working weights are that copy. `activations` and
    `logits` are bytes per number.
    """
    weights: float = 2
    gradients: float = 2
    master: float = 4
    moments: float = 8
    activations: float = 2
    logits: float = 4

    def __post_init__(self):
        for name in ("weights", "gradients", "master", "moments", "activations", "logits"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"bytes of {name} must be 0 or more, got {getattr(self, name)!r}")

    @property
    def optimizer(self) -> float:
        return self.master + self.moments

    @property
    def states(self) -> float:
        """Bytes per parameter of weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer


MIXED = Precision()
MIXED_FP32_GRADIENTS = Precision(gradients=4)
FLOAT32 = Precision(4, 4, 0, 8, 4, 4)
PURE_BF16 = Precision(2, 2, 0, 4)
PRECISIONS = {"mixed": MIXED, "mixed-fp32-gradients": MIXED_FP32_GRADIENTS, "float32": FLOAT32, "pure-bf16": PURE_BF16}
"""By name: 16, 18, 16 and 8 bytes per parameter."""


@dataclass(frozen=True)
class Inference:
    """Generating text. `batch` sequences at once over the whole machine, a prompt of `prompt` tokens each and `new`
    more; the cache holds `prompt + new`. `weights`, `cache`: number types; `activations` that of what is computed.
    `every_row`: logits of all the prompt's tokens (in float32), not of each sequence's last one. `prefill_tokens`: of a
    replica's prompts together as many go through in one pass; longer ones go in pieces, as servers send them (Agrawal
    et al. 2023, SARATHI)."""
    batch: int = 1
    prompt: int = 512
    new: int = 512
    weights: str = "bf16"
    cache: str = "bf16"
    activations: str = "bf16"
    every_row: bool = False
    prefill_tokens: int = PREFILL_TOKENS

    def __post_init__(self):
        _whole_numbers(self, "batch", "prompt", "prefill_tokens")
        whole_number("new tokens", self.new, 0)
        for dtype in (self.weights, self.cache, self.activations):
            bytes_of(dtype)

    @property
    def context(self) -> int:
        """Tokens of each sequence in the cache at the end."""
        return self.prompt + self.new


@dataclass(frozen=True)
class Training:
    """Training. `batch` sequences of `seq` tokens a step over all replicas, `micro_batch` of them at once on one.

    tokens   of the whole training; 0 where only a step is asked for
    stored   whether attention's scores are stored for the backward pass (False: a fused kernel computes them again)
    dropout  whether there are dropout masks to keep, 1 byte an element
    """
    batch: int = 1
    seq: int = 2048
    micro_batch: int = 1
    recompute: Recompute = "none"
    precision: Precision = field(default_factory=Precision)
    stored: bool = False
    dropout: bool = False
    tokens: float = 0

    def __post_init__(self):
        _whole_numbers(self, "batch", "seq", "micro_batch")
        if self.recompute not in ("none", "selective", "full"):
            raise ConfigError(f"recomputation is none, selective or full, not {self.recompute!r}")
        if not self.tokens >= 0:
            raise ConfigError(f"the number of tokens must be 0 or more, got {self.tokens!r}")

    def micro_batches(self, dp: int) -> int:
        """How many micro-batches each of `dp` replicas works through in a step; ConfigError where they don't divide."""
        if self.batch % (dp * self.micro_batch):
            raise ConfigError(f"a batch of {self.batch:,} sequences can't be dealt to {dp:,} replicas in micro-batches "
                              f"of {self.micro_batch:,}: dp · micro-batch must divide it")
        return self.batch // (dp * self.micro_batch)


Job = Inference | Training


def _whole_numbers(job: Job, *names: str) -> None:
    for name in names:
        whole_number(name.replace("_", "-"), getattr(job, name))


def whole_number(what: str, value: object, least: int = 1) -> int:
    """A size, if it is one that plans are made for; ConfigError else."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
        raise ConfigError(f"{what} must be a whole number of at least {least} and at most {LARGEST:,}, got "
                          f"{value!r:.40}")
    return value
