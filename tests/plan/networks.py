"""Machines for the tests of the network: made up, so that no row of the catalogue moves their numbers."""
from dataclasses import replace

from minitp.plan.catalogue import machine as in_catalogue
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine, Table

GB = 10**9


def device(name: str = "B200", kind: str = "gpu") -> Device:
    return Device(name, kind, 180 * GB, 180 * GB, "HBM", 8e12, {"bf16": 1e15}, "made up")


def link(alpha: float, rate: float, name: str = "NVLink") -> Link:
    """NVLink and PCIe by their names, all else a network by RDMA."""
    kind = "nvlink" if name.startswith("NVLink") else "pcie" if name.startswith("PCIe") else "rdma"
    return Link(name, alpha, rate, "made up", kind=kind)


def machine(*levels: tuple[int, Link] | tuple[int, Link, int], name: str = "A100") -> Machine:
    """Each level: units that meet, link, and ports where they are shared."""
    return Machine("made up", device(name), tuple(Level(f"level {n}", *level) for n, level in enumerate(levels)))


def published(name: str, ranks: int) -> Table:
    """The all-reduce table that a machine of the catalogue carries."""
    return next(level.tables["all_reduce", ranks] for level in in_catalogue(name).levels
                if ("all_reduce", ranks) in level.tables)


def carrying(machine: Machine, level: int, op: str, ranks: int, table: Table) -> Machine:
    """The machine with a table on one of its levels."""
    levels = list(machine.levels)
    levels[level] = replace(levels[level], tables={**levels[level].tables, (op, ranks): table},
                            sources={(op, ranks): "a made up paper"})
    return replace(machine, levels=tuple(levels))


def boxes(alpha: float = 0.0, ports: int = 0) -> Machine:
    """The published worked case: 4 machines of 8 B200, 740.64 GB/s inside, 50 GB/s for each GPU between."""
    return machine((8, link(alpha, 740.64e9)), (4, link(10 * alpha, 50e9, "EFA"), ports), name="B200")
