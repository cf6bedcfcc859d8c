"""What the syncs of one token take on different links, and what a switch between the machines adds to that.

A token of a model with L layers waits for 2L + 2 syncs one after the other, each of as many messages as its algorithm
has hops on the longest path. A switch adds its delay to each message, a software stack as TCP adds its own. All of it
is of a bare link: what a library takes to start is in plan.network's prices, not here.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace

from minitp.plan.links import LINKS, Link, switches
from minitp.plan.network.collectives import best, cost, seconds

BARE = "a bare link, no library's start-up"
"""What these times are, for a title."""


@dataclass(frozen=True)
class SyncRow:
    """Syncs of one token on one link. `messages` follow one another in each sync. A model."""
    link: str
    ranks: int
    algorithm: str
    messages: int
    once_s: float
    token_s: float


def on_links(payload: float, syncs: int, ranks: Iterable[int], links: Iterable[Link] = LINKS,
             algorithms: Iterable[str] = ("ring", "doubling")) -> list[SyncRow]:
    """An all-reduce of `payload` bytes, `syncs` times a token, by every algorithm on every link."""
    return [_row(payload, syncs, of, link, algorithm) for link in links for of in ranks for algorithm in algorithms]


def switch_hop(payload: float, syncs: int, ranks: int, link: Link, stack: Link,
               delays: Iterable[float] | None = None) -> list[SyncRow]:
    """The same token on `link` as it is, with a switch of each delay in between (None: those of the catalogue), and on
    `stack`, a link whose software is slow; each by its best algorithm."""
    if delays is None:
        delays = [switch.latency_s for switch in switches().values()]
    links = [link, *(replace(link, name=f"{link.name} + a switch of {delay * 1e6:g} µs",
                             latency_s=link.latency_s + delay) for delay in delays), stack]
    return [_row(payload, syncs, ranks, one, best("all_reduce", ranks, payload, one)[0]) for one in links]


def _row(payload: float, syncs: int, ranks: int, link: Link, algorithm: str) -> SyncRow:
    once = seconds("all_reduce", algorithm, ranks, payload, link)
    return SyncRow(link.name, ranks, algorithm, cost("all_reduce", algorithm, ranks).hops, once, syncs * once)
