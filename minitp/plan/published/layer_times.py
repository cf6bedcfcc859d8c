"""Times of one transformer layer as measured by Korthikanti et al. 2022, table 4, and what follows for other layers.

The table's own layer is looked up. Another one takes as much longer as it has more operations per device: the same
share of the peak, so the farther from the table's layer, the rougher.
"""
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.data_file import flag, read, whole
from minitp.plan.speed.flops import gpt_model
from minitp.plan.units import parse_seconds

FILE = Path(__file__).parent / "layer_times.toml"


@dataclass(frozen=True)
class Layer:
    """What is asked: b sequences of s tokens, hidden size, tp, and the device's peak FLOP/s."""
    micro_batch: int
    seq: int
    hidden: int
    tp: int
    peak: float

    @property
    def work(self) -> float:
        """Seconds of its operations on a device at its peak."""
        return gpt_model(self.micro_batch, self.seq, 1, self.hidden, 0) / self.tp / self.peak


class LayerTime(NamedTuple):
    """Seconds of forward and backward pass, with what is computed again in the backward one."""
    forward: float
    backward: float
    source: str

    @property
    def both(self) -> float:
        return self.forward + self.backward


@cache
def table() -> tuple[Layer, dict[tuple[str, bool], LayerTime]]:
    """The measured layer, and (recomputation, sequence parallelism) → its times."""
    rows = read(FILE, "layer", "time")
    (row,) = rows["layer"]
    measured = Layer(row.take("micro_batch", whole()), row.take("seq", whole()), row.take("hidden", whole()),
                     row.take("tp", whole()), row.take("device", catalogue.device).peak("bf16"))
    times = {}
    for time in rows["time"]:
        times[time.text("recompute"), time.take("sequence", flag)] = LayerTime(
            time.take("forward", parse_seconds), time.take("backward", parse_seconds), time.source())
        time.done()
    return measured, times


def seconds(recompute: str, sequence: bool, layer: Layer) -> tuple[float, str, bool]:
    """Forward and backward together, how that is known, and whether it is the table's own. ConfigError for a scheme
    that the table hasn't."""
    measured, times = table()
    time = times.get((recompute, sequence))
    if time is None:
        raise ConfigError(f"table 4 has no row with recomputation {recompute} and sequence parallelism {sequence}")
    if layer == measured:
        return time.both, f"{1e3 * time.forward:.1f} + {1e3 * time.backward:.1f} ms ({time.source})", True
    factor = layer.work / measured.work
    return time.both * factor, (f"{1e3 * time.both:.1f} ms · {factor:.3f}, the ratio of operations per peak "
                                f"({time.source})"), False
