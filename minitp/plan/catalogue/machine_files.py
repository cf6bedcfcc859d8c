"""Machines as files: rows of the shipped file, a user's files, and what calibration writes. One form for all.

A file has one or more [[machine]], and beside them the [[device]] and [[link]] rows that its machines name and the
catalogue lacks.
"""
import os
from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from minitp.errors import ConfigError, SaveError
from minitp.files import replacing
from minitp.plan.catalogue.devices import device, devices_in
from minitp.plan.data_file import LONGEST, Entry, named, read, texts, whole
from minitp.plan.links import Link, link, links_in
from minitp.plan.machine import MOST_LEVELS, Device, Level, Machine, Table
from minitp.plan.units import parse_bytes, parse_seconds
from minitp.trace.wording import plain

OPS = ("all_reduce", "all_reduce_in_graph", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "scatter",
       "gather", "reduce", "send")
THIS = "this"
"""The name of the machine that calibration describes."""


def machines_folder() -> Path:
    """Where a user's machines lie: MINITP_MACHINES or the system's settings folder for minitp, and `machines` in it."""
    from platformdirs import user_config_dir
    given = os.environ.get("MINITP_MACHINES")
    return Path(given).expanduser() if given else Path(user_config_dir("minitp", appauthor=False)) / "machines"


def this_file() -> Path | None:
    """The description that `minitp plan calibrate` writes of this machine; None where there is none yet."""
    path = machines_folder() / f"{THIS}.toml"
    return path if path.is_file() else None


def read_machines(path: Path) -> tuple[dict[str, Machine], dict[str, str]]:
    """The machines of a file by name, and aliases → names. ConfigError names the file and the row that is wrong."""
    rows = read(path, "machine", "device", "link")
    own_links, (own_devices, _) = links_in(rows["link"]), devices_in(rows["device"])
    found, aliases = {}, {}
    for name, entry in named(rows["machine"]):
        for alias in entry.take("aliases", texts, ()):
            aliases[alias] = name
        levels = entry.tables("level")
        if not 1 <= len(levels) <= MOST_LEVELS:
            raise entry.error(f"it needs 1 to {MOST_LEVELS} [[machine.level]], the levels of its network, and has "
                              f"{len(levels):,}")
        try:
            found[name] = Machine(
                name, entry.take("device", lambda value: own_devices.get(value) or device(value)),
                tuple(level_of(level, own_links) for level in levels), entry.source(),
                entry.take("host_memory", parse_bytes, 0), entry.text("note", ""), entry.take("measured", _facts, {}))
        except ConfigError as error:
            raise error if entry.where in str(error) else entry.error(str(error)) from None
        entry.done()
    return found, aliases


def level_of(entry: Entry, own: Mapping[str, Link]) -> Level:
    """A [[machine.level]] row: a level of the network, its link one of the file's own or of the catalogue."""
    joined = entry.take("link", lambda value: own.get(value) or link(value))
    tables, sources = {}, {}
    for table in entry.tables("table"):
        key = table.take("op", _op), table.take("ranks", whole(2))
        if key in tables:
            raise table.error(f"a second table of {key[0]} over {key[1]} ranks")
        tables[key] = table.take("times", _times)
        sources[key] = table.source()
        table.done()
    level = Level(entry.text("name", joined.name), entry.take("size", whole()), joined,
                  entry.take("ports", whole(0), 0), tables, sources)
    entry.done()
    return level


def _op(value: Any) -> str:
    """A collective by its name, as it was called by itself or captured in a graph."""
    if value not in OPS:
        raise ConfigError(f"{plain(repr(value), 60)} is no collective; there are {', '.join(OPS)}")
    return str(value)


def _times(value: Any) -> Table:
    """[[bytes, seconds], …] in rising order of bytes."""
    if not isinstance(value, list) or not value:
        raise ConfigError('must be a list of pairs of payload and time: [["32 KiB", "43.8 us"], …]')
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ConfigError('must have two entries in each pair, payload and time: [["32 KiB", "43.8 us"], …]')
    pairs = tuple((parse_bytes(size), parse_seconds(seconds)) for size, seconds in value)
    if any(a[0] >= b[0] for a, b in pairwise(pairs)) or not all(pair[1] > 0 for pair in pairs):
        raise ConfigError("payloads must rise, and times be above 0")
    return pairs


def _facts(value: Any, deep: int = 3) -> dict[str, Any]:
    """What a calibration notes beside its numbers: texts and finite numbers by name, at most three tables deep."""
    if not isinstance(value, dict) or not deep:
        raise ConfigError("must be a table of texts and numbers, at most three deep")
    return {plain(key): _facts(inner, deep - 1) if isinstance(inner, dict) else _fact(inner)
            for key, inner in value.items()}


def _fact(value: Any) -> str | int | float:
    if not isinstance(value, (str, int, float)) or (isinstance(value, float) and not isfinite(value)):
        raise ConfigError("must have texts and finite numbers only")
    return plain(value, LONGEST) if isinstance(value, str) else value


def write_machine(machine: Machine, path: Path) -> None:
    """The machine as a file that `read_machines` reads, with its device and links in it. SaveError where it can't."""
    links = {level.link.name: level.link for level in machine.levels}
    blocks = [_device_row(machine.device), *map(_link_row, links.values()), _machine_row(machine)]
    text = "\n\n".join("\n".join(block) for block in blocks) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise SaveError(f"the machine could not be written to {path}: {error.strerror or error}") from error


def _device_row(device: Device) -> list[str]:
    flops = ", ".join(f"{dtype} = {float(rate)!r}" for dtype, rate in device.flops.items())
    return ["[[device]]", f"name = {_quoted(device.name)}", f"kind = {_quoted(device.kind)}",
            f"memory = {device.memory}", f"memory_real = {device.memory_real}",
            f"memory_kind = {_quoted(device.memory_kind)}", f"bandwidth = {float(device.bandwidth)!r}",
            f"bandwidth_reached = {float(device.bandwidth_reached)!r}", f"flops = {{{flops}}}",
            f"flops_reached = {float(device.flops_reached)!r}", f"launch = {float(device.launch_s)!r}",
            f"source = {_quoted(device.source)}"]


def _link_row(link: Link) -> list[str]:
    return ["[[link]]", f"name = {_quoted(link.name)}", f"latency = {float(link.latency_s)!r}",
            f"rate = {float(link.bytes_per_s)!r}", f"data_sheet = {float(link.data_sheet)!r}",
            *([f"kind = {_quoted(link.kind)}"] if link.kind else []), f"peers = {link.peers}",
            f"source = {_quoted(link.source)}"]


def _machine_row(machine: Machine) -> list[str]:
    lines = ["[[machine]]", f"name = {_quoted(machine.name)}", f"device = {_quoted(machine.device.name)}",
             f"host_memory = {machine.host_memory}", f"note = {_quoted(machine.note)}",
             f"source = {_quoted(machine.source)}", *_fact_rows("machine.measured", machine.measured)]
    for level in machine.levels:
        lines += ["", "[[machine.level]]", f"name = {_quoted(level.name)}", f"size = {level.size}",
                  f"link = {_quoted(level.link.name)}", f"ports = {level.ports}"]
        for (op, ranks), table in level.tables.items():
            times = ", ".join(f"[{size}, {float(seconds)!r}]" for size, seconds in table)
            lines += ["", "[[machine.level.table]]", f"op = {_quoted(op)}", f"ranks = {ranks}",
                      f"times = [{times}]", f"source = {_quoted(level.sources.get((op, ranks), machine.source))}"]
    return lines


def _fact_rows(name: str, facts: Mapping[str, Any]) -> list[str]:
    """[machine.measured] and the tables in it."""
    if not facts:
        return []
    lines = ["", f"[{name}]"]
    for key, value in facts.items():
        if not isinstance(value, Mapping):
            lines.append(f"{_quoted(key)} = {_quoted(value) if isinstance(value, str) else repr(value).lower()}")
    for key, value in facts.items():
        if isinstance(value, Mapping):
            lines += _fact_rows(f"{name}.{_quoted(key)}", value)
    return lines


def _quoted(text: str) -> str:
    """A TOML basic string; what a terminal or a parser could misread is written as an escape, and half a character as
    a question mark."""
    text = text.encode("utf-8", "replace").decode()
    escaped = "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08X}" for char in text)
    return f'"{escaped}"'
