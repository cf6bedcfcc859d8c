"""NCCL's own model of its collectives, from which it chooses algorithm and protocol: latency and bandwidth, added.

  ring   (steps − crossings) · inside + crossings · between; of an all-reduce 2(N − 1) steps, 2(k − 1) of them crossings
  tree   2((g − 1) · inside + lg k · between), for all-reduce only
  NVLS   the NVSwitch adds up: one latency of 25 µs inside one machine

for N ranks on k machines of g. A protocol is a trade: LL sends 4 bytes of flag with 4 of data and has the shortest
hops, LL128 8 with 120, Simple whole chunks. The time is latency + n / (bus bandwidth of the protocol · N/steps), as in
ncclTopoGetAlgoTime. Left out: limits per channel, the plateau of long rings, CollNet, PAT.

Source of every constant: NVIDIA/nccl, src/graph/tuning.cc of 2.18 to 2.23; of a hop over xGMI ROCm/rccl, the same
file, its model of the MI300X. It is NCCL's estimate inside its kernel: a benchmark that launches it reads about 40 µs
where the model says 15. Its hops are those of NVLink, PCIe and RDMA as they usually are. What a link's α has more or
less than is usual for its kind, each hop has, too; on any other link a hop takes α (`Hop`): minitp's rules, not NCCL's.
"""
from dataclasses import dataclass

from minitp.errors import ConfigError
from minitp.plan.links import Kind

SOURCE = "NCCL's model, src/graph/tuning.cc (2.18 to 2.23)"
PROTOCOLS = ("LL", "LL128", "Simple")
BASE_US: dict[str, tuple[float, float, float]] = {"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)}
"""baseLat, by protocol."""
HOP_US: dict[str, dict[str, tuple[float, float, float]]] = {
    "nvlink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    "pcie": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    "xgmi": {"tree": (0.9, 0.9, 2.3), "ring": (0.8, 0.8, 2.1)},
    "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
}
"""hwLat, by kind of link (outside a machine: network), algorithm and protocol."""
USUAL_US: dict[Kind, float] = {"nvlink": 1.5, "pcie": 2.5, "xgmi": 3.0, "rdma": 5.0}
"""α of the catalogue's links of a kind, at which a hop takes NCCL's constant."""
BOXED: tuple[Kind, ...] = ("nvlink", "pcie", "xgmi")
"""Links within one machine. Cards that share none are to NCCL as cards in machines of their own."""
NVLS_US = 25.0
NVLS_RATE = 5 / 6
NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}
POST_US = (1.0, 1.0, 3.0)
"""getNetOverhead: what each step of a ring that leaves the machine takes at least (x86 of Intel; twice that of AMD)."""
RING_RATE = (0.5, 0.92, 1.0)
TREE_RATE = 0.92
TREE_PROTOCOL_RATE = {"one": (1 / 3.8, 7 / 9, 1.0), "several": (1 / 3.8, 120 / 128, 1.0)}
LL_MOST = {"volta": 39.0e9, "ampere": 87.7e9, "hopper": 141.0e9, "blackwell": 282.0e9}
LL_MOST_BETWEEN = (22.5e9, 19.0e9)
"""llMaxBws: bus bandwidth of LL at most, in bytes/s, on one machine by GPU; on two and on more, with CPUs of AMD."""
TREE_SHARE = (
    (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9))
"""treeCorrectionFactor: what a tree reaches of its bandwidth, by protocol and by power of two from 64 B."""
GENERATIONS = {"v100": "volta", "a100": "ampere", "a10": "ampere", "h100": "hopper", "h200": "hopper",
               "b200": "blackwell", "gb200": "blackwell"}
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


@dataclass(frozen=True)
class Hop:
    """One step from rank to rank over a link of this kind with that latency in seconds."""
    kind: Kind = "nvlink"
    alpha_s: float = 1.5e-6

    @property
    def more_us(self) -> float:
        """µs that a message takes more than is usual for its kind."""
        return self.alpha_s * 1e6 - USUAL_US[self.kind]

    def us(self, protocol: int, algorithm: str, outside: bool, least: float = 0.0) -> float:
        """µs: NCCL's constant, or `least`, and what α is above the usual; below it so much less. On links that it has
        none for, α and what a protocol adds to the quickest. It rises with α everywhere."""
        if self.kind not in USUAL_US or outside == (self.kind in BOXED):
            words = HOP_US["network"][algorithm]
            return max(self.alpha_s * 1e6 + words[protocol] - words[0], least)
        constant = max(HOP_US["network" if self.kind == "rdma" else self.kind][algorithm][protocol], least)
        return constant + self.more_us if self.more_us > 0 else constant * self.alpha_s * 1e6 / USUAL_US[self.kind]


@dataclass(frozen=True)
class Group:
    """N = machines · each ranks, and the bus bandwidth in bytes/s that a ring through all of them has."""
    machines: int
    each: int
    bus: float
    generation: str = ""
    inside: Hop = Hop()
    between: Hop = Hop("rdma", 5e-6)

    @property
    def ranks(self) -> int:
        return self.machines * self.each


@dataclass(frozen=True)
class Offer:
    """One algorithm with one protocol: seconds apart from the size, and seconds by the size."""
    name: str
    latency_s: float
    bandwidth_s: float
    formula: str


def steps(op: str, ranks: int) -> int:
    """Of a ring: 2(N − 1) for an all-reduce, N − 1 where each rank gives or gets a piece, N down a chain."""
    if op not in OPS:
        raise ConfigError(f"NCCL has no model of {op!r}; it has one of {', '.join(OPS)}")
    return 2 * (ranks - 1) if op == "all_reduce" else ranks - (op in ("all_gather", "reduce_scatter"))


def ring_latency(op: str, ranks: int, machines: int, base: float, inside: float, between: float) -> float:
    """In the unit of its terms. A chain (broadcast, reduce) is as long as one hop: the next chunk follows at once."""
    if op in ("broadcast", "reduce"):
        return base + (inside if machines == 1 else between)
    crossings = 0 if machines == 1 else steps(op, machines)
    return base + (steps(op, ranks) - crossings) * inside + crossings * between


def tree_latency(ranks: int, machines: int, base: float, inside: float, between: float) -> float:
    """In the unit of its terms: down and up again, through a machine's ranks and lg k machines."""
    return base + 2 * ((ranks // machines - 1) * inside + (machines.bit_length() - 1) * between)


def latency(op: str, algorithm: str, protocol: str, group: Group) -> float:
    """Seconds. ConfigError where NCCL has no such algorithm for the op."""
    if protocol not in PROTOCOLS or algorithm not in BASE_US or (algorithm == "tree" and op != "all_reduce"):
        raise ConfigError(f"NCCL has no {op} by {algorithm} with {protocol}; algorithms are ring and, for all_reduce, "
                          f"tree, protocols {', '.join(PROTOCOLS)}")
    at = PROTOCOLS.index(protocol)
    least = POST_US[at] if algorithm == "ring" and group.machines > 1 else 0.0
    base, inside = BASE_US[algorithm][at], group.inside.us(at, algorithm, False, least)
    between = group.between.us(at, "tree" if group.each == 1 else algorithm, True)
    if algorithm == "tree":
        return tree_latency(group.ranks, group.machines, base, inside, between) * 1e-6
    return ring_latency(op, group.ranks, group.machines, base, inside, between) * 1e-6


def rate(op: str, algorithm: str, protocol: str, group: Group, payload: float) -> float:
    """Payload bytes per second: the bus bandwidth that the protocol leaves, by the algorithm's share of it."""
    at, most = PROTOCOLS.index(protocol), float("inf")
    if protocol == "LL":
        most = (LL_MOST.get(group.generation, most) if group.machines == 1
                else LL_MOST_BETWEEN[min(group.machines, 3) - 2])
    if algorithm == "ring":
        return min(group.bus * RING_RATE[at], most) * group.ranks / steps(op, group.ranks)
    shares, size = TREE_SHARE[at], max(int(payload) >> 6, 1).bit_length() - 1
    reached = shares[size] if size < len(shares) else 1.0
    by_protocol = TREE_PROTOCOL_RATE["one" if group.machines == 1 else "several"][at]
    return min(group.bus * TREE_RATE * by_protocol, most) * 0.5 * reached


def offers(op: str, payload: float, group: Group) -> list[Offer]:
    """Every algorithm and protocol that NCCL weighs, in its own estimate; it takes the quickest."""
    found = []
    for algorithm in ("ring", "tree") if op == "all_reduce" else ("ring",):
        for protocol in PROTOCOLS:
            if protocol == "LL128" and group.each > 1 and group.inside.kind != "nvlink":    # not safe, so it is off
                continue
            words = "steps · hop" if algorithm == "ring" else "2((g−1)·inside + lg k·between)"
            found.append(Offer(f"{algorithm}, {protocol}", latency(op, algorithm, protocol, group),
                               payload / rate(op, algorithm, protocol, group, payload),
                               f"base + {words} + n/(bus bandwidth · share)"))
    in_switch = op == "all_reduce" and group.machines == 1 and group.each > 2 and group.inside.kind == "nvlink"
    if in_switch and group.generation in NVLS_EFFICIENCY:
        reached = group.bus * NVLS_EFFICIENCY[group.generation] * NVLS_RATE
        found.append(Offer("NVLS", (NVLS_US + 2 * group.inside.more_us) * 1e-6, payload / reached,       # up, and down
                           "25 µs + n/(bus bandwidth · 5/6 · efficiency)"))
    return found


def generation(device: str) -> str:
    """Of a GPU by its name: what NCCL's limits go by; empty where it isn't known."""
    words = device.lower().replace("-", " ").replace("_", " ").split()
    return next((kind for name, kind in GENERATIONS.items() if any(word == name for word in words)), "")
