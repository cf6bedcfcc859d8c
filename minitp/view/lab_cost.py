"""The lab's cost: what a collective takes on a link by each of its algorithms. Models, never measured."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minitp.plan.links import LINKS, Link
from minitp.plan.network.collectives import ALGORITHMS, MODELS, best, cost, seconds
from minitp.trace.wording import duration

PAYLOADS = tuple(2**k for k in range(3, 31))                       # bytes: one number to 1 GiB

WHY = {
    "star": "The root does all the work: one message after the other over its own link, while the others wait.",
    "ring": "Everybody sends small chunks at the same time, so no link carries more than it must; but there are many "
            "hops, and each pays the latency.",
    "tree": "Whoever has it helps to pass it on, so ⌈lg p⌉ rounds are enough; but a message carries a lot.",
    "doubling": "Partners at distances 1, 2, 4, …: about lg p hops, the fewest there can be.",
    "halving": "Half of what is left in each round, then the same way back: where p is a power of two as few bytes as "
               "the ring, in 2 lg p hops.",
    "pairwise": "Each part goes straight to its rank: the fewest bytes, p − 1 messages.",
}
"""In a sentence, why an algorithm costs what it costs."""


@dataclass(frozen=True)
class Reign:
    """Payloads from `first` to `last` bytes, of those tried, at which `algorithm` is the cheapest."""
    algorithm: str
    first: int
    last: int


def reigns(op: str, ranks: int, link: Link) -> list[Reign]:
    """Who wins, from the smallest payload to the largest."""
    made: list[Reign] = []
    for payload in PAYLOADS:
        winner = best(op, ranks, payload, link)[0]
        if made and made[-1].algorithm == winner:
            made[-1] = Reign(winner, made[-1].first, payload)
        else:
            made.append(Reign(winner, payload, payload))
    return made


def verdict(op: str, ranks: int, link: Link) -> str:
    """Who wins at what payload, in a sentence."""
    won = reigns(op, ranks, link)
    if ranks == 1:
        return "On one rank nothing moves and nothing costs."
    if len(won) == 1:
        return f"On {link.name} with {ranks} ranks the model has {won[0].algorithm} cheapest at every payload."
    said = [f"{reign.algorithm} up to {binary(reign.last)}" for reign in won[:-1]]
    return f"On {link.name} with {ranks} ranks the model has {', then '.join(said)}, then {won[-1].algorithm} cheapest."


def cost_rows(op: str, ranks: int, payload: float) -> list[dict[str, Any]]:
    """A row for each link: its name, the time by each algorithm, who wins."""
    return [{"link": link.name} | {f"{name} (model)": duration(1e9 * seconds(op, name, ranks, payload, link))
                                   for name in ALGORITHMS[op]}
            | {"cheapest": best(op, ranks, payload, link)[0]} for link in LINKS]


def formula_rows(op: str, ranks: int) -> list[dict[str, Any]]:
    """A row for each algorithm: its formula, what it is at this number of ranks, where it is from."""
    paths = {name: cost(op, name, ranks) for name in ALGORITHMS[op]}
    return [{"algorithm": name, "time (model)": MODELS[op][name].formula, "hops": path.hops,
             "bytes on the longest path": f"{float(path.volume):.4g} n", "source": MODELS[op][name].source}
            for name, path in paths.items()]


def curves(op: str, ranks: int, link: Link) -> dict[str, Sequence[float]]:
    """algorithm → seconds at each of PAYLOADS."""
    return {name: [seconds(op, name, ranks, payload, link) for payload in PAYLOADS] for name in ALGORITHMS[op]}


def curve_rows(op: str, ranks: int, link: Link) -> list[dict[str, Any]]:
    """The curves as a table, at every fourth payload."""
    lines = curves(op, ranks, link)
    return [{"payload": binary(payload)}
            | {f"{name} (model)": duration(1e9 * times[i]) for name, times in lines.items()}
            for i, payload in enumerate(PAYLOADS) if i % 4 == 1]


def binary(size: int) -> str:
    """A power of two of bytes: 8 B, 64 KiB, 1 GiB."""
    power = (size.bit_length() - 1) // 10
    return f"{size >> 10 * power} {('B', 'KiB', 'MiB', 'GiB')[power]}"
