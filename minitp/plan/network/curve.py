"""Latency against bytes: what a collective takes at every size, by every algorithm, and where a model's syncs lie.

Below n½ = α/β, of a whole algorithm its latency by its seconds per byte, a collective is bound by latency: half the
bytes would take nearly as long. Above it is bound by bandwidth.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import LIBRARY, Sharing, price
from minitp.plan.network.prices import MODELED, Price
from minitp.plan.speed.syncs import on_stage, syncs

SIZES = tuple(1 << power for power in range(2, 35))
"""From one float32 to 16 GiB, by doubling."""
MOST_BYTES = 1 << 50
_GROUP = Layout(tp=2)
"""Any tp group: count and payload of its syncs are the same."""


@dataclass(frozen=True)
class Line:
    """One algorithm over all sizes. `half`: the payload at which latency and bandwidth take as long; None where one of
    them is always more. A line exists where the algorithm is among the offers at a size; elsewhere None."""
    algorithm: str
    seconds: tuple[float | None, ...]
    half: float | None


@dataclass(frozen=True)
class Mark:
    """A payload on the curve, such as a model's sync point."""
    name: str
    payload: float
    seconds: float
    algorithm: str
    latency_share: float

    @property
    def bound(self) -> Literal["latency", "bandwidth"]:
        return "latency" if self.latency_share >= 0.5 else "bandwidth"


@dataclass(frozen=True)
class Switch:
    """Where the chosen algorithm changes."""
    payload: float
    before: str
    after: str


@dataclass(frozen=True)
class Curve:
    """All that the chart shows. `chosen` and `seconds` are of the algorithm that the policy takes at each size."""
    op: str
    machine: str
    members: int
    meeting: tuple[int, ...]
    sizes: tuple[int, ...]
    chosen: tuple[str, ...]
    seconds: tuple[float, ...]
    lines: tuple[Line, ...]
    half: float | None
    switches: tuple[Switch, ...]
    marks: tuple[Mark, ...]
    measured: tuple[tuple[int, float], ...]
    note: str = MODELED

    def to_plain(self) -> list[dict[str, Any]]:
        """A row for each size, for tables and JSON."""
        return [{"bytes": size, "chosen": name, "seconds": seconds,
                 **{line.algorithm: line.seconds[at] for line in self.lines}}
                for at, (size, name, seconds) in enumerate(zip(self.sizes, self.chosen, self.seconds, strict=True))]


def curve(machine: Machine, op: str, members: int, *, stride: int = 1, sizes: Iterable[int] = SIZES,
          marks: Iterable[tuple[str, float]] = (), policy: str = LIBRARY, sharing: Sharing = "all",
          gamma: float = 0.0, devices: int | None = None) -> Curve:
    """What `op` over `members` ranks, `stride` apart, takes at each size; `marks` are payloads to show, by name.

    `devices`: how many are at it, as Machine.meeting takes it. ConfigError as `price` has it. Costs a few hundred
    prices.
    """
    meeting, sizes = machine.meeting(members, stride, devices), tuple(sizes)

    def at(size: float) -> Price:
        return price(op, size, meeting, machine, policy=policy, sharing=sharing, gamma=gamma,
                     keep=False)

    prices = [at(size) for size in sizes]
    names = tuple(dict.fromkeys(offer.algorithm for one in prices for offer in one.alternatives))
    lines = tuple(_line(name, at, prices) for name in names)
    shown = tuple(_mark(name, payload, at(payload)) for name, payload in marks)
    tables = [table for level in machine.levels for (of, ranks), table in level.tables.items()
              if of == op and ranks == members]
    return Curve(op, machine.name, members, meeting, sizes, tuple(one.algorithm for one in prices),
                 tuple(one.seconds for one in prices), lines, _half(at), _switches(at, sizes, prices), shown,
                 tables[0] if tables else ())


def sync_point(model: PlannedModel, tokens: int = 1, bytes_each: float = 2) -> tuple[str, float]:
    """(what it is, payload) of a sync inside a layer while `tokens` tokens go through together."""
    inside = next(sync for sync in syncs(model, _GROUP, 1, tokens) if sync.part == "layer")
    what = "1 token" if tokens == 1 else f"{tokens:,} tokens"
    return f"{model.name}, {what}", inside.elements * bytes_each


def sync_points(model: PlannedModel, batch: int = 1, tokens: int = 1) -> int:
    """Sync points of one pass over `batch` sequences of `tokens` tokens each, as the closed form counts them: 2L + 2,
    whatever it carries; L + 2 where attention and MLP are side by side."""
    return sum(sync.times * on_stage(_GROUP, 0, sync.part, model.config.layers)
               for sync in syncs(model, _GROUP, batch, tokens))


def _offer(one: Price, algorithm: str) -> Price | None:
    return next((offer for offer in one.alternatives if offer.algorithm == algorithm), None)


def _line(algorithm: str, at: Callable[[float], Price], prices: list[Price]) -> Line:
    offers = [_offer(one, algorithm) for one in prices]
    return Line(algorithm, tuple(None if offer is None else offer.seconds for offer in offers),
                _half(lambda size: _offer(at(size), algorithm)))


def _mark(name: str, payload: float, one: Price) -> Mark:
    return Mark(name, payload, one.seconds, one.algorithm, one.latency_s / one.seconds if one.stages else 1.0)


def _half(at: Callable[[float], Price | None]) -> float | None:
    """The payload from which on bandwidth takes more than latency, found by bisection; None where there is none."""
    def bandwidth_bound(size: float) -> bool:
        offer = at(size)
        return offer is not None and offer.bandwidth_s + offer.reduction_s >= offer.latency_s

    if bandwidth_bound(1) or not bandwidth_bound(MOST_BYTES):
        return None
    return _between(1, MOST_BYTES, bandwidth_bound)


def _switches(at: Callable[[float], Price], sizes: tuple[int, ...], prices: list[Price]) -> tuple[Switch, ...]:
    found = []
    for n in range(1, len(sizes)):
        before, after = prices[n - 1].algorithm, prices[n].algorithm
        if before != after:
            payload = _left(at, before, sizes[n - 1], sizes[n])
            found.append(Switch(payload, before, at(payload).algorithm))
    return tuple(found)


def _left(at: Callable[[float], Price], algorithm: str, low: float, high: float) -> float:
    """Where the chosen one is no longer `algorithm`."""
    return _between(low, high, lambda size: at(size).algorithm != algorithm)


def _between(low: float, high: float, reached: Callable[[float], bool]) -> float:
    """The least payload within a thousandth at which `reached` holds; it holds at `high` and not at `low`."""
    while high > low * 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
