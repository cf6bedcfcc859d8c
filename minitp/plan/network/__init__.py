"""What one collective, or one message, takes on a machine: a model, or a table that was measured there.

A plan prices all of a machine's collectives by ONE rule, that of the library which it would use (policies.library).
Never are tables of a benchmark and a model compared with each other: the conditions differ.

A group meets at one level of the machine or at several (Machine.meeting). Within one level the algorithm is chosen by
size. Over several there are ways to divide the work between the levels (plan.hierarchy), and flat algorithms, which go
at the pace of the slowest link; the cheapest is taken, and all are shown.

A modeled time holds what starting the call takes (Device.launch_s), a measured one what its measurement held; neither
the wait for a late rank. What a library really chose is not known.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Literal, get_args

from minitp.errors import ConfigError
from minitp.plan.links import Link
from minitp.plan.machine import Machine
from minitp.plan.network import hierarchy, nccl, policies, tables
from minitp.plan.network.collectives import ALGORITHMS, COSTS_AS, Cost, Model, cost, has_model, model
from minitp.plan.network.hierarchy import Met, Part
from minitp.plan.network.policies import HALVES, LIBRARY, TABLES
from minitp.plan.network.prices import Price, Stage

Sharing = Literal["all", "alone"]
Offers = dict[str, tuple[Stage, ...]]
ONE_SENDER = ("star", "ring", "tree")
"""Flat algorithms in which, with neighbors numbered in a row, one member of a unit at a time talks beyond it."""
_MESSAGE, _SENT = Cost(1, Fraction(1)), Model(lambda p: Cost(1, Fraction(1)), "α + nβ", "Hockney 1994")


def price(op: str, payload: float, meeting: Iterable[int], machine: Machine, *, policy: str = LIBRARY,
          sharing: Sharing = "all", gamma: float = 0.0, keep: bool = True) -> Price:
    """The time of one `op` over a group of which meeting[i] members, or units with some, meet at level i.

    payload  bytes of the whole array, as the trace counts it: after a gather, before a scatter or a reduce
    policy   "library": as the machine's own chooses. "best" by α and β, "mpich" or "nccl" by their rules, "tables":
             measured where there is a table of the whole meeting, "hierarchical" or "flat", or an algorithm by name
    sharing  "all": every device of a machine is at it at once, in groups alike, and shares its machine's ports;
             "alone": this group only
    gamma    seconds to add up one byte
    keep     whether the answer is remembered: not by who asks for hundreds of sizes

    A `send` goes over the outermost level at which the two meet. ConfigError for an op without a model, for sizes below
    0, for more levels than the machine has, for a policy that isn't one.
    """
    ask = _kept if keep else _price
    return ask(op, float(payload), tuple(meeting), machine, policy, sharing, float(gamma))


def _price(op: str, payload: float, meeting: tuple[int, ...], machine: Machine, policy: str, sharing: Sharing,
           gamma: float) -> Price:
    met = _checked(op, payload, meeting, machine, policy, sharing, gamma)
    if not met:
        return Price(op, payload, meeting, policy, ())
    chosen = policies.library(machine) if policy == LIBRARY else policy
    desk, around = _Desk(op, machine, meeting, chosen, sharing, gamma, payload), machine.device.launch_s
    offers = {"direct": (desk.message(met[-1][0]),)} if op == "send" else desk.offers(COSTS_AS.get(op, op), met)
    found = sorted((Price(op, payload, meeting, name, stages, 0.0 if stages[0].measured else around)
                    for name, stages in offers.items()), key=lambda offer: offer.seconds)
    first = next((offer for offer in found if offer.algorithm == "measured"), found[0])
    return replace(first, alternatives=() if op == "send" else tuple(found))


def _seconds(stages: tuple[Stage, ...]) -> float:
    return sum(stage.seconds for stage in stages)


_kept = lru_cache(maxsize=1024)(_price)
"""A price is about 10 KB with what it was chosen from."""


def _checked(op: str, payload: float, meeting: tuple[int, ...], machine: Machine, policy: str, sharing: str,
             gamma: float) -> Met:
    """The levels at which more than one meet; ConfigError where the question can't be answered."""
    policies.check(policy)
    if op != "send" and not has_model(op):
        raise ConfigError(f"there is no cost model of {op!r}; there is one of {', '.join(ALGORITHMS)}, "
                          f"{', '.join(COSTS_AS)} and send")
    if not payload >= 0 or not gamma >= 0:
        raise ConfigError(f"a payload is 0 bytes or more and γ 0 s per byte or more, not {payload} and {gamma}")
    if sharing not in get_args(Sharing):
        raise ConfigError(f"ports are shared by {' or '.join(get_args(Sharing))}, not by {sharing!r}")
    if len(meeting) > len(machine.levels) or any(members < 1 for members in meeting):
        raise ConfigError(f"a group meets with 1 member or more at each of the {len(machine.levels)} levels of "
                          f"{machine.name}; {meeting} was asked for")
    if policy == "nccl" and machine.device.kind != "gpu":
        raise ConfigError(f"NCCL runs on GPUs; {machine.name} has {machine.device.name}")
    return tuple((level, members) for level, members in enumerate(meeting) if members > 1)


@dataclass(frozen=True)
class _Desk:
    """One question: what all its offers have in common."""
    op: str
    machine: Machine
    meeting: tuple[int, ...]
    policy: str
    sharing: Sharing
    gamma: float
    payload: float

    def offers(self, op: str, met: Met) -> Offers:
        """Every way that the policy leaves open, by name; ConfigError where it leaves none."""
        ranks, outer = prod(members for _, members in met), met[-1][0]
        if self.policy == "nccl":
            return self._nccl(op, met)
        whole = Part(outer, op, ranks, Fraction(1), 1)
        if self.policy == TABLES:
            return self._by_tables(whole, met)
        offers = self._alike(whole) if len(met) == 1 else self._ways(op, met) | self._flat(op, met, ranks)
        if op == "all_reduce" and self.policy in ("best", HALVES):
            offers |= self._halves(met, offers)
        if not offers:
            raise ConfigError(f"{op} over {len(met)} level{'s' * (len(met) > 1)} has no {self.policy!r}; it has "
                              f"{', '.join((*hierarchy.plans(op, met), *ALGORITHMS[op]))}")
        return offers

    def _halves(self, met: Met, others: Offers) -> Offers:
        """A reduce-scatter, then an all-gather, each by what is cheapest for it: where that beats all that do both
        alike, as it can where the ranks aren't a power of two."""
        halves = tuple(stage for half in ("reduce_scatter", "all_gather") for stage in min(
            replace(self, op=half, policy="best").offers(half, met).values(), key=_seconds))
        least = min(map(_seconds, others.values()), default=float("inf"))
        return {HALVES: halves} if _seconds(halves) < least * (1 - 1e-9) else {}

    def _by_tables(self, whole: Part, met: Met) -> Offers:
        """The table of the whole meeting, beside the model; else what the machine's library has without tables. Of
        ways over several levels those whose parts inside a box are measured are not compared with others."""
        modeled = replace(self, policy=policies.modeled(self.machine)).offers(whole.op, met)
        others = self._groups(whole.level) > 1 and self.machine.levels[whole.level].ports > 0
        table = None if others else self._measured(whole)
        if table is not None:
            return {"measured": (table,)} | modeled
        ways = self._ways(whole.op, met) if len(met) > 1 else {}
        return {name: way for name, way in ways.items() if any(stage.measured for stage in way)} or modeled

    def message(self, level: int) -> Stage:
        """One message: Hockney's α + nβ."""
        link, shared = self._link(level, 1, 2)
        part = Part(level, "send", 2, Fraction(1), 1)
        measured = self._measured(part) if self.policy == TABLES and shared == 1 else None
        return measured or self._time(part, "direct", _MESSAGE, link, shared)

    def _alike(self, part: Part) -> Offers:
        """The algorithms over one level."""
        asked = self._choice(part) if self.policy == "mpich" else self.policy
        return {name: (self._modeled(part, name),) for name in ALGORITHMS[part.op]
                if asked in ("best", "flat", "hierarchical", *policies.WAYS, name)}

    def _ways(self, op: str, met: Met) -> Offers:
        """Over several levels, one stage after the other."""
        wanted = "leaders" if self.policy == "mpich" and op in policies.MPICH_LED else self.policy
        return {name: tuple(self._stage(part) for part in plan) for name, plan in hierarchy.plans(op, met).items()
                if wanted in ("best", TABLES, "hierarchical", name)}

    def _flat(self, op: str, met: Met, ranks: int) -> Offers:
        """Algorithms that know nothing of levels: each message as slow as the slowest of its round."""
        names = tuple(name for name in ALGORITHMS[op] if self.policy in ("best", "flat", name))
        if self.policy == "mpich" and op not in policies.MPICH_LED:
            names = (policies.mpich(op, ranks, self.payload),)
        return {f"flat {name}": (self._slowest(op, met, ranks, name),) for name in names}

    def _slowest(self, op: str, met: Met, ranks: int, algorithm: str) -> Stage:
        """An algorithm at the pace of the slowest link that its messages cross."""
        links = {level: self._link(level, 1 if algorithm in ONE_SENDER else prod(self.meeting[:level]))
                 for level, _ in met}
        slowest = min(links, key=lambda level: links[level][0].bytes_per_s)
        link, shared = links[slowest]
        link = replace(link, latency_s=max(other.latency_s for other, _ in links.values()))
        return self._time(Part(slowest, op, ranks, Fraction(1), 1), algorithm, cost(op, algorithm, ranks), link, shared)

    def _nccl(self, op: str, met: Met) -> Offers:
        """NCCL's own estimates. What it does by messages, as all-to-all, it has none of: the cheapest flat one."""
        ranks, rails = prod(members for _, members in met), self.meeting[0]
        if op not in nccl.OPS:
            return replace(self, policy="flat")._flat(op, met, ranks)
        outer, links = met[-1][0], {level: self._link(level, rails if level else 1)[0] for level, _ in met}
        rates = {level: link.bytes_per_s * (rails if level else 1) for level, link in links.items()}
        slowest = links[min(rates, key=rates.__getitem__)]
        boxed = 0 in links and links[0].kind in nccl.BOXED
        each, inside = (rails, links[0]) if boxed else (1, None)
        hops = [nccl.Hop(link.kind, link.latency_s) for link in links.values() if link is not inside]
        group = nccl.Group(ranks // each, each, min(rates.values()), nccl.generation(self.machine.device.name),
                           nccl.Hop(inside.kind, inside.latency_s) if inside else nccl.Hop(),
                           max(hops, key=lambda hop: hop.alpha_s, default=nccl.Hop("rdma")))
        return {offer.name: (Stage(outer, self.machine.levels[outer].name, op, ranks, self.payload, offer.name,
                                   offer.latency_s, offer.bandwidth_s, 0.0, self._crossing(outer, rails), offer.formula,
                                   (nccl.SOURCE, f"bus bandwidth of {slowest.name}: {slowest.source}")),)
                for offer in nccl.offers(op, self.payload, group)}

    def _stage(self, part: Part) -> Stage:
        """One part of a way over several levels. A table counts all ranks below its level: none but that of the
        innermost stands for a part."""
        measured = self._measured(part) if self.policy == TABLES and part.level == 0 else None
        return measured or self._modeled(part, self._choice(part))

    def _choice(self, part: Part) -> str:
        link, _ = self._link(part.level, part.crossing)
        return policies.choose(self.policy, part.op, part.ranks, self._size(part), link, self.gamma)

    def _modeled(self, part: Part, algorithm: str) -> Stage:
        return self._time(part, algorithm, cost(part.op, algorithm, part.ranks), *self._link(part.level, part.crossing))

    def _time(self, part: Part, algorithm: str, path: Cost, link: Link, shared: float) -> Stage:
        size, chosen = self._size(part), _SENT if part.op == "send" else model(part.op, algorithm)
        rule = (policies.MPICH,) if self.policy == "mpich" and part.op != "send" else ()
        return Stage(part.level, self.machine.levels[part.level].name, part.op, part.ranks, size, algorithm,
                     path.hops * link.latency_s, float(path.volume) * size / link.bytes_per_s,
                     float(path.reduced) * size * self.gamma, shared, chosen.formula_of(part.ranks),
                     (chosen.source, *rule, f"α, β of {link.name}: {link.source}"))

    def _measured(self, part: Part) -> Stage | None:
        """The time by the level's table, where it has one."""
        level, size = self.machine.levels[part.level], self._size(part)
        names = (self.op, part.op) if COSTS_AS.get(self.op) == part.op else (part.op,)
        key = next(((name, part.ranks) for name in names if (name, part.ranks) in level.tables), None)
        if key is None:
            return None
        table = level.tables[key]
        seconds = tables.interpolate(table, size)
        latency = min(seconds, tables.ends(table)[0])
        return Stage(part.level, level.name, part.op, part.ranks, size, "measured", latency, seconds - latency,
                     0.0, 1.0, "a line in logarithms between measured points",
                     (f"measured: {key[0]} over {part.ranks} ranks of {self.machine.name}, {level.name}"
                      + (f": {level.sources[key]}" if key in level.sources else ""),), True)

    def _size(self, part: Part) -> float:
        return float(part.share) * self.payload

    def _groups(self, level: int) -> int:
        """Groups like this one in a unit of the level below that talk at once."""
        devices = prod(below.size for below in self.machine.levels[:level])
        return max(1, devices // prod(self.meeting[:level])) if self.sharing == "all" else 1

    def _crossing(self, level: int, members: int) -> float:
        """Devices for each port of such a unit, where `members` of this group talk through it at once."""
        ports = self.machine.levels[level].ports
        return max(1.0, members * self._groups(level) / ports) if ports else 1.0

    def _link(self, level: int, members: int, ends: int = 0) -> tuple[Link, float]:
        """What one of them sees of the link then, and how many share a port. `ends`: units that meet there, where it
        isn't all of the group's."""
        shared = self._crossing(level, members)
        link = self.machine.levels[level].link.among(ends or self.meeting[level])
        return (link if shared == 1 else replace(link, bytes_per_s=link.bytes_per_s / shared)), shared
