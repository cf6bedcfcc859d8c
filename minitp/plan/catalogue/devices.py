"""devices.toml: what one GPU, CPU, TPU or wafer has."""
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from minitp.errors import ConfigError
from minitp.plan.data_file import Entry, named, read, share, texts, unknown, whole
from minitp.plan.job import BYTES
from minitp.plan.machine import Device
from minitp.plan.units import parse_bytes, parse_flops, parse_rate, parse_seconds

FILE = Path(__file__).parent / "devices.toml"
Kind = Literal["gpu", "cpu", "tpu", "wafer"]


@dataclass(frozen=True)
class Housing:
    """How a kind of device is usually put together: `box` of them (0: any number) joined by the link `inside`, and
    boxes by `between`; `ports` of those links a box (0: one for each device)."""
    box: int
    inside: str
    between: str
    ports: int


def device_of(name: str, entry: Entry) -> Device:
    """A row of a data file as a device. ConfigError for a row that breaks a rule."""
    memory = entry.take("memory", _memory)
    return Device(
        name=name, kind=entry.take("kind", _kind), memory=memory,
        memory_real=entry.take("memory_real", _memory, memory), memory_kind=entry.text("memory_kind"),
        bandwidth=entry.take("bandwidth", parse_rate), flops=entry.take("flops", _flops), source=entry.source(),
        bandwidth_reached=entry.take("bandwidth_reached", share, 0.7),
        flops_reached=entry.take("flops_reached", share, 0.5), launch_s=entry.take("launch", parse_seconds, 0.0))


def devices_in(entries: list[Entry]) -> tuple[dict[str, Device], dict[str, Housing]]:
    """The devices of a data file by their names and aliases, and how each is housed by its name."""
    found, housed = {}, {}
    for name, entry in named(entries):
        device = device_of(name, entry)
        for called in (name, *entry.take("aliases", texts, ())):
            found[called] = device
        housed[name] = Housing(entry.take("box", whole(0), 1), entry.text("inside", "shared-memory"),
                               entry.text("between", "ethernet-10g"), entry.take("ports", whole(0), 1))
        entry.done()
    return found, housed


@cache
def shipped() -> tuple[dict[str, Device], dict[str, Housing]]:
    return devices_in(read(FILE, "device")["device"])


def devices() -> dict[str, Device]:
    """The catalogue's devices by their names (without aliases)."""
    return {device.name: device for device in shipped()[0].values()}


def device(name: str) -> Device:
    """A device of the catalogue by name, in capitals or not; ConfigError with near names where there is none."""
    found = shipped()[0].get(name.strip().lower())
    if found is None:
        raise unknown("device", name, list(devices()))
    return found


def _memory(value: Any) -> int:
    if not (size := parse_bytes(value)):
        raise ConfigError("a device needs memory: write its size, as 80GB")
    return size


def _kind(value: Any) -> Kind:
    if value not in get_args(Kind):
        raise ConfigError(f"a device is one of {', '.join(get_args(Kind))}, not {value!r:.40}")
    return cast(Kind, value)


def _flops(value: Any) -> Mapping[str, float]:
    if not isinstance(value, dict) or not value:
        raise ConfigError('must be a table of number types and rates, such as {bf16 = "312 TFLOP/s"}')
    other = [dtype for dtype in value if dtype not in BYTES]
    if other:
        raise ConfigError(f"the number type {other[0]!r:.40} is not known; known are {', '.join(BYTES)}")
    return {dtype: parse_flops(rate) for dtype, rate in value.items()}
