"""The learning rate of a step: a line up, then half a cosine down (Loshchilov & Hutter 2017, eq. 5, no restart)."""
from dataclasses import dataclass
from math import cos, isfinite, pi

from minitp.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    """`rate(step)` for steps 0 … `steps` − 1: a pure function of the step, so that a resumed run needs no state of it.

    The rate reaches `peak` in the last of the `warmup` steps and `floor` in the last of all; later it stays there.
    """
    peak: float
    steps: int
    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self):
        if not (isfinite(self.peak) and 0 <= self.floor <= self.peak):
            raise ConfigError(f"the learning rate rises to a peak and falls to a floor from 0 to that peak, not "
                              f"{self.peak} and {self.floor}")
        if self.steps < 1 or not 0 <= self.warmup <= self.steps:
            raise ConfigError(f"{self.warmup} steps of warm-up don't fit into a run of {self.steps}: 0 … steps would")

    def rate(self, step: int) -> float:
        done = step + 1
        if done <= self.warmup:
            return self.peak * (done / self.warmup)
        if done >= self.steps:
            return self.floor
        part = (done - self.warmup) / (self.steps - self.warmup)
        return self.floor + (self.peak - self.floor) * (1 + cos(pi * part)) / 2
