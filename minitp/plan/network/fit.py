"""α and β from measured times, with the error that they leave.

Least squares of the relative error, so that 10 µs and 10 s count alike. A pair can't follow a change of protocol: where
the error is large keep the table (plan.network.tables).
"""
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.links import Link
from minitp.plan.network.busbw import factor, share_of_payload
from minitp.plan.network.collectives import COSTS_AS, Cost, cost

WHOLE = "whole"
"""An operation as one: α for all of it, and the bytes that bus bandwidth counts."""


@dataclass(frozen=True)
class Fit:
    """A link, the path that it was fitted to, and how far off the points are on average, as a share of the times."""
    link: Link
    op: str
    ranks: int
    algorithm: str
    mean_error: float

    @property
    def half_size(self) -> float:
        """n½: the payload at which latency and bytes take the same, and half the rate is reached."""
        per_byte = self.seconds(1) - self.seconds(0)
        return self.seconds(0) / per_byte if per_byte > 0 else float("inf")

    def seconds(self, payload: float) -> float:
        """What the pair says."""
        path = _path(self.op, self.algorithm, self.ranks)
        return path.hops * self.link.latency_s + float(path.volume) * payload / self.link.bytes_per_s


def fit(points: Iterable[tuple[float, float]], op: str = "send", ranks: int = 2, algorithm: str = WHOLE,
        name: str = "fitted") -> Fit:
    """The pair α, β ≥ 0 that is nearest to (payload in bytes, seconds), for an op by an algorithm of plan.collectives.

    With the algorithm "whole" α is that of the operation and 1/β its bus bandwidth. ConfigError below 2 points of
    different payload, or for times that aren't above 0.
    """
    measured = sorted((float(payload), float(seconds)) for payload, seconds in points)
    if len({payload for payload, _ in measured}) < 2 or any(not seconds > 0 for _, seconds in measured):
        raise ConfigError(f"a fit of α and β needs times above 0 of 2 different payloads or more, got {measured[:4]!r}")
    path, times = _path(op, algorithm, ranks), np.array([seconds for _, seconds in measured])
    columns = np.array([(path.hops, float(path.volume) * payload) for payload, _ in measured]) / times[:, None]
    alpha, beta = _not_negative(columns)
    errors = abs(columns @ (alpha, beta) - 1)
    link = Link(name, alpha, 1 / beta if beta > 0 else float("inf"),
                f"fitted to {len(measured)} times of {op} over {ranks} ranks, as {algorithm}: {errors.mean():.1%} off "
                f"on average, {errors.max():.1%} at worst")
    return Fit(link, op, ranks, algorithm, float(errors.mean()))


def _path(op: str, algorithm: str, ranks: int) -> Cost:
    if algorithm == WHOLE:
        return Cost(1, factor(op, ranks) * share_of_payload(op, ranks))
    return cost(COSTS_AS.get(op, op), algorithm, ranks)


def _not_negative(columns: np.ndarray) -> tuple[float, float]:
    """Least squares of columns · (α, β) = 1 with neither below 0: where one would be, it is 0."""
    def alone(column: np.ndarray) -> float:
        return max(0.0, float(column.sum() / (column @ column)))

    def error(pair: tuple[float, float]) -> float:
        return float(((columns @ pair - 1) ** 2).sum())

    both = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)[0]
    if both.min() >= 0:
        return float(both[0]), float(both[1])
    return min(((alone(columns[:, 0]), 0.0), (0.0, alone(columns[:, 1]))), key=error)
