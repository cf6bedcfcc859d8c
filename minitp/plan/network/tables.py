"""Measured times of collectives by payload, and what lies between and beyond the points.

Between two points the time is a straight line in logarithms of both: it bends where a library changes its protocol,
which one pair α, β can't. Below the first point and above the last it is the α + nβ of the two points at that end.
"""
from bisect import bisect_left
from math import exp, log

from minitp.errors import ConfigError
from minitp.plan.machine import Table


def check(table: Table) -> Table:
    """The table itself; ConfigError where it isn't one: rising payloads, positive times, one point at least."""
    payloads = [payload for payload, _ in table]
    if not table or payloads != sorted(set(payloads)) or payloads[0] < 0 or any(not time > 0 for _, time in table):
        raise ConfigError("a measured table is (payload in bytes, seconds) in rising order of payload, every time "
                          f"above 0; got {list(table)[:4]!r}")
    return table


def ends(table: Table) -> tuple[float, float]:
    """(α in s, β in s per byte): the latency of the first two points and the slope of the last two."""
    (first, early), (last, late) = table[0], table[-1]
    if len(table) == 1:
        return early, (late / last if last else 0.0)
    low, high = _slope(*table[:2]), _slope(*table[-2:])
    alpha = early - low * first
    return (alpha if alpha > 0 else early), (high if high > 0 else late / last)


def interpolate(table: Table, payload: float) -> float:
    """Seconds for `payload` bytes."""
    (first, early), (last, late) = check(table)[0], table[-1]
    alpha, beta = ends(table)
    if payload >= last:
        return late + (payload - last) * beta
    if payload <= first:
        return alpha + (early - alpha) * payload / first if first else early
    place = bisect_left(table, payload, key=lambda point: point[0])
    (below, quick), (above, slow) = table[place - 1], table[place]
    if below == 0:
        return quick + (slow - quick) * payload / above
    return exp(log(quick) + (log(slow) - log(quick)) * (log(payload) - log(below)) / (log(above) - log(below)))


def _slope(one: tuple[int, float], other: tuple[int, float]) -> float:
    return max(0.0, (other[1] - one[1]) / (other[0] - one[0]))
