"""distributed-llama: CPUs over Ethernet, a star through the root node (b4rtaz/distributed-llama, READMEs).

v0.1 (commit 5afa3db) cuts every matrix by its outputs: the root sends inputs out and gathers each output. v0.7 (commit
2339746) cuts as minitp does and sums through the root. Bytes are exact; the times are a fit to the READMEs' tables.
"""
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.data_file import named, read, share, texts
from minitp.plan.job import bytes_of
from minitp.plan.units import parse_rate

FILE = Path(__file__).parent / "dllama.toml"
BUFFERS = "q80"
"""Number type of what is sent in all of the READMEs' tables of times."""


@dataclass(frozen=True)
class Layers:
    """What the byte counts need of a model."""
    layers: int
    hidden: int
    ffn: int
    kv_dim: int


def sent(model: Layers, nodes: int, width: float) -> float:
    """v0.1, bytes that the root sends for a token: L(n − 1)(3h + F(n − 1)/n)·w."""
    inputs = 3 * model.hidden + model.ffn * (nodes - 1) / nodes
    return model.layers * (nodes - 1) * inputs * width


def received(model: Layers, nodes: int, width: float) -> float:
    """v0.1, bytes that the root receives: L(3h + 2·kv + F)(n − 1)/n·w. Each output, but for the root's own share."""
    outputs = 3 * model.hidden + 2 * model.kv_dim + model.ffn
    return model.layers * outputs * (nodes - 1) / nodes * width


def summed(model: Layers, nodes: int, width: float) -> float:
    """v0.7, bytes over all links: two all-reduces a layer, each as 2(n − 1) messages of h numbers."""
    return 2 * model.layers * 2 * (nodes - 1) * model.hidden * width


@dataclass(frozen=True)
class Node:
    """A kind of computer, fitted to the README's table (see the data file).

    weight_rate    bytes of weights that one node gets through in a second
    layer_seconds  what a layer takes beyond its weights as soon as there are two nodes: threads that wait
    root_rate      bytes/s that pass the root's link, latencies and all
    error          the largest, relative, over all tokens published of this kind; 0 where there is nothing to hold it to
    version        of the program that was measured
    """
    name: str
    weight_rate: float
    layer_seconds: float
    root_rate: float
    version: str
    source: str
    error: float = 0.0


@cache
def nodes_known() -> dict[str, Node]:
    """By name and alias, in lower case."""
    found = {}
    for name, row in named(read(FILE, "node", "measured")["node"]):
        made = Node(name, row.take("weight_rate", parse_rate), row.take("layer_seconds", float),
                    row.take("root_rate", parse_rate), row.text("version"), row.source(), row.take("error", share))
        found.update({called.lower(): made for called in (name, *row.take("aliases", texts, ()))})
        row.done()
    return found


def node(name: str, net: str = "") -> Node:
    """The longest known name that `name` begins with. Of another device of the catalogue a bound: its memory's
    bandwidth, and a network at its full rate ("5GbE"). ConfigError where there is neither."""
    known = nodes_known()
    fitting = [key for key in known if name.lower().startswith(key)]
    if fitting:
        return known[max(fitting, key=len)]
    rate = re.search(r"([0-9]+(?:\.[0-9]+)?) ?G(?:bE|b/s)", net)
    try:
        device = catalogue.device("-".join(name.split()))
    except ConfigError:
        device = None
    if device is None or rate is None:
        raise ConfigError(f"no times are known of distributed-llama on {name!r}; of "
                          f"{', '.join(sorted({one.name for one in known.values()}))} there are, and a device of the "
                          "catalogue will do with net=5GbE")
    return Node(device.name, device.bandwidth, 0.0, 1e9 / 8 * float(rate[1]), "0.7",
                f"a bound: {device.bandwidth / 1e9:g} GB/s of memory, and {rate[0]} at its full rate")


class Measured(NamedTuple):
    """A row of a README's table, in seconds: a token, and of it inference on the root and transfer."""
    token: float
    inference: float
    transfer: float
    source: str


@cache
def measured(kind: str, model: str) -> dict[int, Measured]:
    """What was measured on a kind of node, by how many there were; empty where nothing was published."""
    found: dict[int, Measured] = {}
    for row in read(FILE, "node", "measured")["measured"]:
        if (row.text("node"), row.text("model")) == (kind, model):
            times = zip(*(row.take(key, list) for key in ("nodes", "token", "inference", "transfer")), strict=True)
            found |= {nodes: Measured(token / 1000, inference / 1000, transfer / 1000, row.source())
                      for nodes, token, inference, transfer in times}
    return found


def transferred(version: str, model: Layers, nodes: int, width: float) -> float:
    """Bytes through the root's link for a token, both ways."""
    if version.startswith("0.1"):
        return sent(model, nodes, width) + received(model, nodes, width)
    return summed(model, nodes, width)


def token_seconds(kind: Node, model: Layers, read: float, nodes: int, weights: str, buffer: str,
                  version: str = "") -> float:
    """Seconds of a decode step: each node's share of `read` parameters, and the root's traffic. A fit, whose largest
    error on its own table is `kind.error`."""
    inference = read * bytes_of(weights) / nodes / kind.weight_rate
    if nodes == 1:
        return inference
    moved = transferred(version or kind.version, model, nodes, bytes_of(buffer))
    return inference + model.layers * kind.layer_seconds + moved / kind.root_rate
