"""This machine as the planner sees it: α, β of the MPI at hand, what its collectives, memory and products take.

Every rank of a job measures; rank 0 makes the description, which has the form of the catalogue's machines. Each
collective on p ranks gets a table at powers of 2, and more of them where its neighbors foretell one badly: there MPI
changes its protocol. In the same rounds sizes are measured that are in no table: how far the table is from those is
its stated error. What counts is the lower quartile of each: other work on the machine only adds to a time, and the
median of a busy machine says how busy it was.
"""
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any

from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.plan.calibrate.error import Error
from minitp.plan.calibrate.machine_rates import memory_bytes, rates
from minitp.plan.calibrate.messages import (
    BETWEEN,
    OPS,
    SIZES,
    TESTS,
    Measured,
    SmallerGroups,
    Spread,
    collectives,
    meet_asleep,
    ping_pong,
)
from minitp.plan.calibrate.whole_passes import overhead, tokens, told
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine, Table
from minitp.plan.modeled import TOKEN, error_key
from minitp.plan.network.fit import Fit, fit
from minitp.plan.network.tables import interpolate
from minitp.trace.file import Trace
from minitp.trace.wording import plain

BUSY = 0.75                            # interquartile spread over lower quartile: a quiet machine has about 0.4
LOADED = 0.6                           # others' share of the cores before the measuring began (load of a minute)
MISSED = 0.15                          # a size that its neighbors foretell worse than this gets more sizes beside it,
LONGER = 1.5                           # no protocol makes a smaller payload so much slower than a larger one
WORST = 5                              # if it is one of the worst of its op


@dataclass(frozen=True)
class Collective:
    """One op on so many ranks: what was measured by payload, and how far the table made of it is from other sizes."""
    op: str
    ranks: int
    times: Mapping[int, Spread]
    error: Error | None

    @property
    def table(self) -> Table:
        """What each size takes undisturbed."""
        return tuple((size, spread[0]) for size, spread in sorted(self.times.items()) if spread[0] > 0)

    @property
    def fit(self) -> Fit:
        """One pair α, 1/β (bus bandwidth) for all payloads: the op in two numbers."""
        return fit(self.table, self.op, self.ranks)

    @property
    def fit_error(self) -> Error | None:
        """How far the pair is from the table that it is fitted to."""
        pair = self.fit
        return Error.of((size, pair.seconds(size), seconds) for size, seconds in self.table)

    @property
    def spread(self) -> float:
        """Interquartile spread over lower quartile, of the size in the middle: the machine's other work widens it."""
        shares = sorted((high - low) / low for low, _, high in self.times.values() if low > 0)
        return shares[len(shares) // 2] if shares else 0.0


@dataclass(frozen=True)
class Calibration:
    """Everything measured. `facts`: when, where and with what; `rates`: as `machine_rates.rates` gives them;
    `overhead` of a layer and a pass, and the traces of `tokens`: as `whole_passes` does."""
    facts: Mapping[str, Any]
    messages: Table
    collectives: tuple[Collective, ...]
    rates: Mapping[str, Mapping[str, float]]
    overhead: Mapping[str, float] = field(default_factory=dict)
    tokens: tuple[Trace, ...] = ()

    @property
    def message_fit(self) -> Fit:
        """α, β of one message, from the ping-pong."""
        return fit(self.messages)

    @property
    def message_error(self) -> Error | None:
        pair = self.message_fit
        return Error.of((size, pair.seconds(size), seconds) for size, seconds in self.messages)

    @property
    def busy(self) -> bool:
        """Whether other work widened the times: more than ranks that take turns, or share a process, do anyway."""
        if self.crowded or self.facts["world"] == "threads":
            return False
        if self.facts.get("load_before", 0.0) > LOADED * self.facts["cores"]:
            return True
        spreads = sorted(found.spread for found in self.collectives)
        return bool(spreads) and spreads[len(spreads) // 2] > BUSY

    @property
    def crowded(self) -> bool:
        """More ranks than cores."""
        return self.facts["ranks_per_core"] > 1


def calibrate(group: Communicator, groups: SmallerGroups, *, seconds: float = 25.0, quick: bool = False,
              progress: Callable[[str], None] = lambda _now: None) -> Calibration | None:
    """Measure on every rank; the calibration on rank 0, None on the others.

    groups   made before the ranks started: ranks that are threads share it
    seconds  of all measuring, shared out; slow machines take longer, for every case has its least number of rounds
    quick    few rounds, and tables of the powers of 4 alone
    """
    if group.size < 2:
        raise ConfigError("one rank has nobody to send to: calibrate with --ranks 2 or more")
    load = {"load_before": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    found_rates = rates(group, seconds=0.25 * seconds, quick=quick, progress=progress)
    progress("messages between two ranks")
    messages = ping_pong(group, seconds=0.05 * seconds)
    progress("tokens of small models")
    beside_products, decoded = overhead(group, quick), tokens(group, quick)
    numbers, found = rank_numbers(group.size), list[Collective]()
    facts: dict[str, Any] = {}
    for ranks in numbers:
        part = groups.first(group, ranks)
        if part is not None:
            of_part, facts = _on_ranks(part, 0.7 * seconds / len(numbers), quick, progress)
            found += of_part
        meet_asleep(group)                               # those that took no part slept
    if group.rank:
        return None
    return Calibration(facts | load, tuple(messages), tuple(found), found_rates, beside_products, decoded)


def rank_numbers(most: int) -> list[int]:
    """2 … 4, then powers of 2, and `most`."""
    return sorted({p for p in (2, 3, 4, *(2**k for k in range(3, 20))) if p <= most} | {most})


def _on_ranks(group: Communicator, seconds: float, quick: bool, progress: Callable[[str], None]
              ) -> tuple[list[Collective], dict[str, Any]]:
    """All ops on this group: the sizes of the tables, more of them where they are needed, and those that test them."""
    first = (*SIZES, *TESTS) if quick else (*SIZES, *BETWEEN, *TESTS)
    measured = collectives(group, dict.fromkeys(OPS, first), seconds=0.8 * seconds, least=2 if quick else 5,
                        progress=progress)
    times = _by_op(measured)
    if not quick:
        plan = {op: beside({size: spread[0] for size, spread in plausible(times[op]).items() if size not in TESTS})
                for op in OPS} if measured else None
        more = group.share(plan, site="calibrate", reason="tell every rank which sizes come next")
        beside_them = collectives(group, more, seconds=0.2 * seconds, progress=progress) if any(more.values()) else None
        for op, of_op in _by_op(beside_them).items():
            times[op] |= of_op
    if measured is None:
        return [], {}
    return [_collective(op, group.size, plausible(times[op])) for op in OPS], _facts(measured.trace.run)


def _by_op(measured: Measured | None) -> dict[str, dict[int, Spread]]:
    """op → payload → times."""
    found: dict[str, dict[int, Spread]] = {op: {} for op in OPS}
    for kind, spread in ({} if measured is None else measured.quartiles()).items():
        found[kind.op][kind.payload] = spread
    return found


def beside(times: Mapping[int, float]) -> list[int]:
    """Sizes to measure next: three on both sides of each of the WORST that the line between its neighbors foretells
    badly.

    A time of 0 is no time: where a rank holds nothing of 4 bytes a gather's root needn't wait for it.
    """
    known, missed = sorted(size for size, seconds in times.items() if seconds > 0), []
    for left, size, right in zip(known, known[1:], known[2:], strict=False):
        off = abs(interpolate(((left, times[left]), (right, times[right])), size) / times[size] - 1)
        if off > MISSED:
            missed.append((off, left, size, right))
    following: set[int] = set()
    for _, left, size, right in sorted(missed, reverse=True)[:WORST]:
        following |= {4 * round(size**(1 - part) * other**part / 4) for other in (left, right)
                      for part in (0.25, 0.5, 0.75)}
    return sorted(following - set(times))


def plausible(times: Mapping[int, Spread]) -> dict[int, Spread]:
    """Without those that took LONGER times as long as a larger payload: something else was on the machine then."""
    kept, least = dict[int, Spread](), float("inf")
    for size, spread in sorted(times.items(), reverse=True):
        if spread[0] <= LONGER * least:
            kept[size] = spread
            least = min(least, spread[0])
    return dict(sorted(kept.items()))


def _collective(op: str, ranks: int, times: dict[int, Spread]) -> Collective:
    found = Collective(op, ranks, {size: spread for size, spread in times.items() if size not in TESTS}, None)
    return replace(found, error=Error.of((size, interpolate(found.table, size), times[size][0])
                                         for size in TESTS if size in times))


def _facts(run: Mapping[str, Any]) -> dict[str, Any]:
    """What of a trace's header says where the numbers are from."""
    names = ("created", "world", "ranks", "hosts", "cores", "ranks_per_core")
    return {name: run[name] for name in names} | {
        "blas_threads": max((n for n in run["blas_threads"] if n), default=0), "versions": dict(run["versions"])}


def machine_of(calibration: Calibration, name: str = "this") -> Machine:
    """The description: one device is one rank, with its share of the computer's memory."""
    facts, ranks = calibration.facts, int(calibration.facts["ranks"])
    read, together = calibration.rates["read"], {dtype: calibration.rates[dtype]["together"]
                                                 for dtype in ("float32", "float64")}
    mpi = plain(facts["versions"].get("mpi", "ranks that are threads of one process"))
    source = f"minitp plan calibrate, {facts['created'][:10]}: {ranks} ranks on {facts['cores']} cores, {mpi}"
    memory = max(1, memory_bytes() * int(facts["hosts"]) // ranks)        # 1: it can't be told here
    device = Device(f"a rank of {name}", "cpu", memory, memory, "RAM, a rank's share", read["together"], together,
                    source, 1.0, 1.0)
    pair, error = calibration.message_fit.link, calibration.message_error
    last, took = calibration.messages[-1]
    link = Link(f"MPI of {name}", pair.latency_s, pair.bytes_per_s if isfinite(pair.bytes_per_s) else last / took,
                f"{source}: ping-pong, 4 B … 16 MiB" + (f"; {error.in_words()}" if error else ""))
    tables = {(found.op, found.ranks): found.table for found in calibration.collectives}
    level = Level(link.name, ranks, link, 0, tables, dict.fromkeys(tables, source))
    made = Machine(name, device, (level,), source, 0, caveat(calibration), noted(calibration))
    return with_tokens(made, calibration)


def with_tokens(machine: Machine, calibration: Calibration) -> Machine:
    """With the error that the model of a token has, held against the tokens of the calibration."""
    error = Error.of((weights, one.modeled_s, one.measured_s) for weights, one in told(calibration.tokens, machine)
                     if one.modeled_s is not None)
    if error is None:
        return machine
    errors = {**machine.measured["errors"], error_key(TOKEN, int(calibration.facts["ranks"])): asdict(error)}
    return replace(machine, measured={**machine.measured, "errors": errors})


def noted(calibration: Calibration) -> dict[str, Any]:
    """The plain data that go with the description."""
    errors = {error_key(found.op, found.ranks): asdict(found.error) | {"spread": found.spread}
              for found in calibration.collectives if found.error is not None}
    versions = {part: plain(version) for part, version in calibration.facts["versions"].items()}
    return {**calibration.facts, "versions": versions,
            "rates": {name: dict(both) for name, both in calibration.rates.items()},
            **({"overhead": dict(calibration.overhead)} if calibration.overhead else {}), "errors": errors}


def caveat(calibration: Calibration) -> str:
    """What whoever reads these numbers must know."""
    said = []
    if calibration.facts["world"] == "threads":
        said.append("ranks that are threads of one process: their times show how a model is split, not how fast it is")
    if calibration.crowded:
        said.append(f"{calibration.facts['ranks']} ranks took turns on {calibration.facts['cores']} cores: the "
                    "scheduler decides what a collective takes, not the network")
    if calibration.facts["hosts"] > 1:
        said.append(f"{calibration.facts['hosts']} hosts are described as one level: groups inside one host are faster")
    return "; ".join(said)
