"""A machine as the planner sees it: a device many times over, and levels of network between them.

Level 0 is inside one machine; each further level joins units of the level below. Rates are per direction. What a data
sheet says and what was reached are two numbers, and stay two.
"""
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from math import ceil, lcm, prod
from operator import mul
from types import MappingProxyType
from typing import Any, Literal

from minitp.errors import ConfigError
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.units import both

MOST_DEVICES = 1 << 20
MOST_LEVELS = 8

Table = tuple[tuple[int, float], ...]
"""(payload in bytes, seconds), measured, in rising order of payload."""
LOOKED_AT = 1 << 16
"""Positions of a group's members that are compared where groups lie unevenly; further ones lie as some before."""


def _freeze(one: object, *names: str) -> None:
    """Make fields read-only views of copies: these objects are keys of caches, which a changed table would belie."""
    for name in names:
        object.__setattr__(one, name, MappingProxyType(dict(getattr(one, name))))


def check_devices(number: int) -> None:
    """ConfigError for more devices than any plan is made for."""
    if number > MOST_DEVICES:
        raise ConfigError(f"{number:,} devices are more than the {MOST_DEVICES:,} that plans are made for")


@dataclass(frozen=True)
class Device:
    """One GPU, CPU, TPU or wafer.

    memory        bytes, as the name says it ("80 GB": 80e9); `memory_real`: what the card reports, before anything runs
    bandwidth     of that memory, bytes/s on the data sheet; `bandwidth_reached`: share of it that a decode step reaches
    flops         peak FLOP/s by number type, dense; `flops_reached`: share of it that large products reach
    launch_s      seconds around a collective that no model of the network has: starting its kernel, and the next one
    """
    name: str
    kind: Literal["gpu", "cpu", "tpu", "wafer"]
    memory: int
    memory_real: int
    memory_kind: str
    bandwidth: float
    flops: Mapping[str, float] = field(hash=False)
    source: str
    bandwidth_reached: float = 0.7
    flops_reached: float = 0.5
    launch_s: float = 0.0

    def __post_init__(self):
        _freeze(self, "flops")

    def peak(self, dtype: str) -> float:
        """Peak FLOP/s for a number type; of a type it has no units for, that of the next wider one it has."""
        if dtype in self.flops:
            return self.flops[dtype]
        wider = {"int4": "int8", "q4_0": "int8", "q8_0": "int8", "q40": "int8", "q80": "int8", "int8": "fp8",
                 "fp8": "bf16", "bf16": "fp16", "fp16": "float32", "tf32": "float32"}
        if dtype in wider:
            return self.peak(wider[dtype])
        raise ConfigError(f"the peak of {self.name} for {dtype} isn't known; known are {', '.join(self.flops)}")

    def with_memory(self, memory: int) -> "Device":
        """What if it had so much of the same memory, by its name and in fact: neither bandwidth nor operations grow
        with it."""
        if memory < 1:
            raise ConfigError(f"a device's memory must be at least 1 byte, got {memory}")
        return replace(self, name=f"{self.name} with {both(memory)}", memory=memory, memory_real=memory)


@dataclass(frozen=True)
class Level:
    """One level of the network.

    size     units of the level below that meet here: devices in a machine, machines in a cluster
    link     what one device sees of it when it is alone on it
    ports    how many such links a unit of the level below has to it (8 network cards a machine); devices of a unit that
             talk at once share them. 0: one for each device
    tables   measured times where there are some: (op, ranks) → table; a pair α, β stands in elsewhere
    sources  of the tables, by the same keys
    """
    name: str
    size: int
    link: Link
    ports: int = 0
    tables: Mapping[tuple[str, int], Table] = field(default_factory=dict, hash=False)
    sources: Mapping[tuple[str, int], str] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        _freeze(self, "tables", "sources")


@dataclass(frozen=True)
class Machine:
    """Devices and the network between them. `levels[0].size` devices make one machine (a box, a node).

    measured   plain data of the calibration that this description comes from (`minitp.plan.calibrate`); else empty
    """
    name: str
    device: Device
    levels: tuple[Level, ...]
    source: str = ""
    host_memory: int = 0
    note: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        _freeze(self, "measured")
        if not self.levels:
            raise ConfigError(f"the machine {self.name} needs at least one level of network")
        if len(self.levels) > MOST_LEVELS:
            raise ConfigError(f"the machine {self.name} has {len(self.levels):,} levels of network; plans are made up "
                              f"to {MOST_LEVELS}")
        if any(level.size < 1 for level in self.levels):
            raise ConfigError(f"every level of {self.name} must join at least 1 unit")
        check_devices(self.devices)

    @property
    def devices(self) -> int:
        """How many there are in all."""
        n = 1
        for level in self.levels:
            n *= level.size
        return n

    @property
    def per_machine(self) -> int:
        """Devices in one box."""
        return self.levels[0].size

    def with_devices(self, devices: int) -> "Machine":
        """As many boxes as `devices` need. A second level must be there to join them: ConfigError without."""
        if devices <= self.per_machine:
            return replace(self, levels=(replace(self.levels[0], size=devices),
                                         *(replace(level, size=1) for level in self.levels[1:])))
        boxes = ceil(devices / self.per_machine)
        if len(self.levels) < 2:
            raise ConfigError(f"{devices} devices are {boxes} machines of {self.per_machine}, and nothing is known of "
                              f"a network between machines of {self.name}: name one with --between")
        inner, (*middle, outer) = self.levels[0], self.levels[1:]
        below = 1
        for level in middle:
            below *= level.size
        return replace(self, levels=(inner, *middle, replace(outer, size=ceil(boxes / below))))

    def spread(self, layout: Layout, axis: str, stage: int | None = None) -> tuple[int, ...]:
        """How the members of the worst group of an axis lie, of all or of one stage's: how many meet at each level.

        (8, 1): all in one box. (1, 16): 16 boxes, one member in each. Their product is the group's size, where the
        degrees fit the boxes; where they don't, it is more: the fullest box counts.
        """
        return self.spread_of(getattr(layout, axis), layout.strides[axis], layout, stage)

    def spread_of(self, members: int, stride: int, layout: Layout, stage: int | None = None) -> tuple[int, ...]:
        """The same of groups of so many ranks, `stride` apart, that fill a stage."""
        each = layout.strides["pp"]
        if stage is None:
            return self.meeting(members, stride, layout.devices)
        return self.meeting(members, stride, each, stage * each)

    def spreads(self, layout: Layout, stage: int) -> tuple[tuple[int, ...], ...]:
        """Of the groups that a stage waits for within a pass, tp, cp and ep: stages may lie differently on boxes."""
        return (self.spread(layout, "tp", stage), self.spread(layout, "cp", stage),
                self.spread_of(layout.ep, layout.tp, layout, stage))

    def meeting(self, members: int, stride: int = 1, devices: int | None = None, first: int = 0) -> tuple[int, ...]:
        """How `members` ranks, `stride` apart, meet at each level, in the worst of the groups like this one that fill
        `devices` (None: the machine) from the `first` on: some may straddle a box's wall where others don't."""
        sizes = tuple(level.size for level in self.levels)
        return _worst(sizes, members, stride, devices or self.devices, first % prod(sizes[:-1]))

    def meeting_of(self, devices: Iterable[int]) -> tuple[int, ...]:
        """How these devices, wherever they are, meet at each level: members of the fullest unit, then units, then
        units of those."""
        return _met(tuple(level.size for level in self.levels), devices)

    def to_plain(self) -> dict[str, Any]:
        """What a page or a JSON file says of it."""
        return {"name": self.name, "device": self.device.name, "devices": self.devices,
                "memory": self.device.memory, "memory real": self.device.memory_real, "note": self.note,
                "levels": [{"name": level.name, "size": level.size, "ports": level.ports, "link": level.link.name,
                            "latency s": level.link.latency_s, "bytes/s": level.link.bytes_per_s}
                           for level in self.levels]}


def _met(sizes: tuple[int, ...], devices: Iterable[int]) -> tuple[int, ...]:
    """See Machine.meeting_of. The outermost level joins everything."""
    met, units = [], Counter(devices)
    for size in sizes[:-1]:
        units = Counter(unit // size for unit in units)
        met.append(max(units.values()))
    return (*met, len(units))


@lru_cache(maxsize=4096)
def _worst(sizes: tuple[int, ...], members: int, stride: int, devices: int, start: int) -> tuple[int, ...]:
    """The meeting of the group that spreads over the most units, the outermost level first."""
    block, units = members * stride, list(accumulate(sizes[:-1], mul))
    if all(stride % unit == 0 or (unit % stride == 0 and (unit % block == 0 or block % unit == 0)) for unit in units):
        return _evenly(sizes, members, stride)
    blocks = max(1, min(devices, lcm(block, *units), LOOKED_AT) // block)       # then all lie as before
    begins = (start + block * group + first for group in range(blocks) for first in range(stride))
    return max((_met(sizes, range(begin, begin + block, stride)) for begin in begins), key=lambda met: met[::-1])


def _evenly(sizes: tuple[int, ...], members: int, stride: int) -> tuple[int, ...]:
    """Where every group lies as the first."""
    met, unit, left = [], 1, members
    for number, size in enumerate(sizes):
        unit *= size
        within = max(1, min(left, unit // stride)) if number + 1 < len(sizes) else left
        met.append(within)
        left, stride = ceil(left / within), max(stride * within, 1)
    return tuple(met)
