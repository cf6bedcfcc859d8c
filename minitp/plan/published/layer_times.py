"""Times of one transformer layer as measured by Korthikanti et al. 2022, table 4, and what follows for other layers.

The table's own layer is looked up. Another one takes as much longer as it has more operations per device: the same
share of the peak, so the farther from the table's layer, the rougher.
"""
from dataclasses import dataclass

from minitp.errors import ConfigError
from minitp.plan.speed.flops import gpt_model

SOURCE = "Korthikanti et al. 2022, table 4: a layer of the 22B model on 8 A100-80, TP8, micro-batch 4"


@dataclass(frozen=True)
class LayerTime:
    """Milliseconds of forward and backward pass, with what is computed again in the backward one."""
    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


TABLE = {
    ("none", False): LayerTime(7.7, 11.9),
    ("none", True): LayerTime(7.2, 11.8),
    ("full", False): LayerTime(7.7, 19.5),
    ("selective", False): LayerTime(7.7, 13.2),
    ("selective", True): LayerTime(7.2, 13.1),
}
"""(recomputation, sequence parallelism) → times."""


@dataclass(frozen=True)
class Layer:
    """What is asked: b sequences of s tokens, hidden size, tp, and the device's peak FLOP/s."""
    micro_batch: int = 4
    seq: int = 2048
    hidden: int = 6144
    tp: int = 8
    peak: float = 312e12

    @property
    def work(self) -> float:
        """Operations per device, as a multiple of its peak's second."""
        return gpt_model(self.micro_batch, self.seq, 1, self.hidden, 0) / self.tp / self.peak


def milliseconds(recompute: str, sequence: bool, layer: Layer) -> tuple[float, str]:
    """Forward and backward together, and how that is known. ConfigError for a scheme that the table hasn't."""
    if (recompute, sequence) not in TABLE:
        raise ConfigError(f"table 4 has no row with recomputation {recompute} and sequence parallelism {sequence}")
    measured = TABLE[recompute, sequence]
    if layer == Layer():
        return measured.both, f"{measured.forward} + {measured.backward} ms ({SOURCE})"
    factor = layer.work / Layer().work
    return measured.both * factor, f"{measured.both:g} ms · {factor:.3f}, the ratio of operations per peak ({SOURCE})"
