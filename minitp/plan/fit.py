"""Hockney's α and β fitted to measured times, and what lies between the sizes that were measured.

All errors are relative, model / measured − 1: from 4 bytes to 16 MiB a time grows a thousandfold, and in absolute terms
the largest payload would decide everything.
"""
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.machine import Table


@dataclass(frozen=True)
class Error:
    """How far a model was from what was measured: median and largest |model / measured − 1|, and where the largest."""
    median: float
    worst: float
    worst_at: int
    points: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float, float]]) -> "Error | None":
        """From (payload, model s, measured s); None where there is nothing to compare."""
        off = [(abs(model / measured - 1), payload) for payload, model, measured in pairs if measured > 0]
        if not off:
            return None
        worst, where = max(off)
        return cls(float(np.median([error for error, _ in off])), worst, where, len(off))


@dataclass(frozen=True)
class Fit:
    """α + nβ of one collective on a fixed number of ranks: seconds, and seconds per byte of payload."""
    latency_s: float
    s_per_byte: float
    error: Error

    def seconds(self, payload: float) -> float:
        """The model's time."""
        return self.latency_s + payload * self.s_per_byte

    @property
    def bytes_per_s(self) -> float:
        """1/β; infinite where time doesn't grow with the payload."""
        return 1 / self.s_per_byte if self.s_per_byte else float("inf")

    @property
    def half_size(self) -> float:
        """n½ = α/β: the payload at which half the rate is reached, where latency and bytes cost the same (Hockney)."""
        return self.latency_s / self.s_per_byte if self.s_per_byte else float("inf")


def hockney(table: Table) -> Fit:
    """The α, β ≥ 0 with the least squares of relative errors. ConfigError without a time above 0."""
    points = [(payload, seconds) for payload, seconds in table if seconds > 0]
    if not points:
        raise ConfigError("α and β can't be fitted: there is no measured time above 0")
    n, t = np.array(points, float).T
    constant, linear = 1 / t, n / t                        # want α · constant + β · linear = 1 at every point
    aa, ab, bb = constant @ constant, constant @ linear, linear @ linear
    a, b, determinant = constant.sum(), linear.sum(), aa * bb - ab * ab
    alpha = beta = 0.0
    if determinant > 1e-12 * aa * bb:
        alpha, beta = (bb * a - ab * b) / determinant, (aa * b - ab * a) / determinant
    if determinant <= 1e-12 * aa * bb or beta < 0:
        alpha, beta = a / aa, 0.0
    elif alpha < 0:
        alpha, beta = 0.0, b / bb
    error = Error.of((int(payload), alpha + beta * payload, seconds) for payload, seconds in points)
    assert error is not None
    return Fit(float(alpha), float(beta), error)


def interpolated(table: Table, payload: float) -> float:
    """The time between two measured payloads, linear in the payload as Hockney's is; beyond the last one by its slope.

    Below the first payload the first time holds: latency is all there is.
    """
    if not table:
        raise ConfigError("there is nothing to interpolate in an empty table")
    sizes = [size for size, _ in table]
    right = bisect_right(sizes, payload)
    if right == 0 or len(table) == 1:
        return table[0][1] if right == 0 else table[0][1] * max(1.0, payload / max(sizes[0], 1))
    (n0, t0), (n1, t1) = table[right - 1], table[right] if right < len(table) else table[right - 1]
    if right == len(table):
        return t0 * payload / n0 if n0 else t0             # far beyond latency a time is proportional
    return t0 + (t1 - t0) * (payload - n0) / (n1 - n0)
