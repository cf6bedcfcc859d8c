"""Published measurements of collectives, by name, and machines that carry them."""
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from minitp.errors import ConfigError
from minitp.plan import tables
from minitp.plan.busbw import seconds_at, share_of_payload
from minitp.plan.data_file import Entry, named, read, unknown, whole
from minitp.plan.machine import Machine, Table
from minitp.plan.units import parse_bytes, parse_rate, parse_seconds


@dataclass(frozen=True)
class Benchmark:
    """One table. `timed`: "one by one", where each time holds what the host does around a call, or "back to back"."""
    name: str
    machine: str
    timed: str
    op: str
    ranks: int
    table: Table
    source: str

    def seconds(self, payload: float) -> float:
        """In between and beyond: see plan.tables."""
        return tables.interpolate(self.table, payload)


@cache
def benchmarks() -> dict[str, Benchmark]:
    """All that are shipped."""
    rows = read(Path(str(files("minitp.plan") / "benchmarks.toml")), "table")["table"]
    return {name: _benchmark(name, entry) for name, entry in named(rows)}


def benchmark(name: str) -> Benchmark:
    """One of them; ConfigError where there is none of that name."""
    if name not in benchmarks():
        raise unknown("measured table", name, list(benchmarks()))
    return benchmarks()[name]


def carrying(machine: Machine, name: str, level: int = -1) -> Machine:
    """`machine` with a published table on a level, by default the last: its prices are then measured ones."""
    one = benchmark(name)
    levels = list(machine.levels)
    levels[level] = replace(levels[level], tables={**levels[level].tables, (one.op, one.ranks): one.table})
    return replace(machine, levels=tuple(levels))


def _benchmark(name: str, entry: Entry) -> Benchmark:
    op, ranks = entry.text("op"), entry.take("ranks", whole(2))

    def from_busbw(value: Any) -> Table:
        """Sizes there are S, in the table payloads."""
        share = share_of_payload(op, ranks)
        return tuple((int(parse_bytes(size) / share), seconds_at(op, ranks, parse_bytes(size), parse_rate(rate)))
                     for size, rate in value)

    points = entry.take("busbw", from_busbw) if "busbw" in entry else entry.take("times", _times)
    one = Benchmark(name, entry.text("machine"), entry.take("timed", _timed), op, ranks, tables.check(points),
                    entry.source())
    entry.done()
    return one


def _times(value: Any) -> Table:
    return tuple((parse_bytes(size), parse_seconds(seconds)) for size, seconds in value)


def _timed(value: Any) -> str:
    if value not in ("one by one", "back to back"):
        raise ConfigError(f'calls are timed "one by one" or "back to back", not {value!r}')
    return str(value)
