"""Links between ranks as two numbers each: Hockney's latency α (s per message) and bandwidth 1/β (bytes per s).

Real links need more than two numbers: protocols change with the size of a message, so between about 128 KiB and 256 MiB
such a pair is up to 60 % too fast where it was fitted to both ends. Treat what is computed from them as a model.
"""
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from minitp.errors import ConfigError
from minitp.plan.data_file import Entry, named, read, texts, unknown, whole
from minitp.plan.units import parse_rate, parse_seconds

Kind = Literal["nvlink", "pcie", "xgmi", "rdma", ""]
FILE = Path(__file__).parent / "catalogue" / "links.toml"


@dataclass(frozen=True)
class Link:
    """What one rank sees of the network: a message of n bytes takes latency_s + n / bytes_per_s, either way.

    data_sheet  bytes/s per direction as the maker says it, where `bytes_per_s` is what was reached; 0: not known
    kind        what a library's start-up times are known for: nvlink, pcie, xgmi, rdma; empty: anything else
    peers       the others that a rank has a wire of its own to, each with 1/peers of the rate; 0: a switch or a bus
    """
    name: str
    latency_s: float
    bytes_per_s: float
    source: str
    data_sheet: float = 0.0
    kind: Kind = ""
    peers: int = 0

    def among(self, members: int) -> "Link":
        """What each of so many ranks has of it: without a switch only the wires to one another."""
        wires = max(members - 1, 1)
        return replace(self, bytes_per_s=self.bytes_per_s * wires / self.peers) if wires < self.peers else self

    def seconds(self, size: float) -> float:
        """One message of `size` bytes: Hockney's α + nβ."""
        return self.latency_s + size / self.bytes_per_s


@dataclass(frozen=True)
class Switch:
    """What a switch adds to a message's latency: from port to port, without queues."""
    name: str
    latency_s: float
    source: str


def link_of(name: str, entry: Entry) -> Link:
    """A row of a data file as a link. ConfigError for a row that breaks a rule."""
    data_sheet = entry.take("data_sheet", parse_rate, 0.0)
    link = Link(name, entry.take("latency", parse_seconds), entry.take("rate", parse_rate, data_sheet), entry.source(),
                data_sheet, entry.take("kind", _kind, ""), entry.take("peers", whole(0), 0))
    if not link.bytes_per_s > 0:
        raise entry.error("rate or data_sheet must be given, above 0")
    return link


def _kind(value: Any) -> Kind:
    for kind in get_args(Kind):
        if value == kind:
            return kind
    raise ValueError(f"must be one of {', '.join(filter(None, get_args(Kind)))}, or left out")


def links_in(entries: list[Entry]) -> dict[str, Link]:
    """The links of a data file by their names and aliases."""
    links: dict[str, Link] = {}
    for name, entry in named(entries):
        link = link_of(name, entry)
        for called in (name, *entry.take("aliases", texts, ())):
            links[called] = link
        entry.text("shown_as", "")
        entry.done()
    return links


@cache
def links() -> dict[str, Link]:
    """The catalogue's links, by their names and aliases."""
    return links_in(read(FILE, "link", "switch")["link"])


@cache
def switches() -> dict[str, Switch]:
    """What one more switch on the way costs, by kind of network."""
    found = {}
    for name, entry in named(read(FILE, "link", "switch")["switch"]):
        found[name] = Switch(name, entry.take("latency", parse_seconds), entry.source())
        entry.done()
    return found


def link(name: str) -> Link:
    """A link of the catalogue by name (ib-hdr, ethernet-100g), or "α,rate" (5us,25GB/s). ConfigError with near names
    where there is none."""
    key = name.strip().lower()
    if key in links():
        return links()[key]
    latency, comma, rate = name.partition(",")
    if comma:
        return Link(name, parse_seconds(latency), _positive(rate), "given as α and 1/β")
    raise unknown("link", name, sorted(links()), "; or α and 1/β as 5us,25GB/s")


def _positive(text: str) -> float:
    rate = parse_rate(text)
    if not rate > 0:
        raise ConfigError("the rate of a link must be above 0")
    return rate


def _shown() -> tuple[Link, ...]:
    rows = [(entry.text("shown_as", ""), entry.text("name")) for entry in read(FILE, "link", "switch")["link"]]
    return tuple(replace(links()[name], name=title) for title, name in rows if title)


LINKS = _shown()
"""The few that pages compare, the fastest first, under the words that they show. Per direction and rank."""
