"""Which algorithm a library takes for a collective, by payload and number of ranks.

What MPI or NCCL really chose in a run is not known: these are documented rules, and the choice they lead to is a model.
"""
from collections.abc import Callable

from minitp.errors import ConfigError
from minitp.plan.links import Link
from minitp.plan.machine import Machine
from minitp.plan.network.collectives import ALGORITHMS, COSTS_AS, best

MPICH = "chosen by the switch points of MPICH 3.x (MPIR_CVAR_*_MSG_SIZE, set after Thakur, Rabenseifner & Gropp 2005)"
SHORT_ALL_REDUCE, SHORT_REDUCE = 2048, 2048
SHORT_BROADCAST, LONG_BROADCAST, FEW_RANKS = 12_288, 524_288, 8
SHORT_ALL_GATHER, LONG_ALL_GATHER = 81_920, 524_288
LONG_REDUCE_SCATTER = 524_288
SHORT_ALL_TO_ALL = 256
"""The switch points: bytes of the payload, of an all-to-all of one message, and for FEW_RANKS a number of ranks."""


def mpich(op: str, ranks: int, payload: float) -> str:
    """The algorithm by MPICH's switch points.

    Pairwise reduce-scatter costs what the ring does; a long broadcast there is a scatter and a ring all-gather, for
    which the pipelined chain stands here: the same bytes, at most p − 1 − ⌈lg p⌉ messages more.
    """
    return _MPICH[COSTS_AS.get(op, op)](ranks, payload)


def _power_of_two(ranks: int) -> bool:
    return ranks & (ranks - 1) == 0


def _all_gather(ranks: int, payload: float) -> str:
    short = LONG_ALL_GATHER if _power_of_two(ranks) else SHORT_ALL_GATHER
    return "doubling" if payload < short else "ring"


def _broadcast(ranks: int, payload: float) -> str:
    if payload < SHORT_BROADCAST or ranks < FEW_RANKS:
        return "tree"
    return "doubling" if payload < LONG_BROADCAST and _power_of_two(ranks) else "ring"


def _all_to_all(ranks: int, payload: float) -> str:
    return "doubling" if payload <= SHORT_ALL_TO_ALL * ranks**2 and ranks >= FEW_RANKS else "pairwise"


_MPICH: dict[str, Callable[[int, float], str]] = {
    "all_reduce": lambda ranks, payload: "doubling" if payload <= SHORT_ALL_REDUCE else "halving",
    "reduce": lambda ranks, payload: "tree" if payload <= SHORT_REDUCE else "doubling",
    "reduce_scatter": lambda ranks, payload: "doubling" if payload < LONG_REDUCE_SCATTER else "ring",
    "all_gather": _all_gather, "broadcast": _broadcast, "all_to_all": _all_to_all,
    "scatter": lambda ranks, payload: "tree", "gather": lambda ranks, payload: "tree",
}

MPICH_LED = ("all_reduce", "reduce", "broadcast")
"""What MPICH does node by node, with a leader in each; everything else is flat."""

WAYS = ("shards", "in turn", "leaders")
LIBRARY, TABLES, HALVES = "library", "tables", "reduce-scatter, all-gather"
NAMES = (LIBRARY, TABLES, "best", "mpich", "nccl", "hierarchical", "flat", *WAYS, HALVES,
         *dict.fromkeys(name for names in ALGORITHMS.values() for name in names))
"""What can be asked for: a rule, a way over several levels, or an algorithm."""


def library(machine: Machine) -> str:
    """How the library that a machine would use is priced: the one rule for everything that plans on it.

    A machine that was calibrated by what it measured, all ops in one go. GPUs by NCCL's model. Others by α and β, the
    cheapest, as MPI aims at: CPUs, and TPUs, whose torus needs fewer steps than NCCL's rings. Device.launch_s comes on
    top everywhere. Tables of a benchmark don't: they are of one op in one setting, and beside a model of another they'd
    decide by the setting.
    """
    return TABLES if machine.measured else modeled(machine)


def modeled(machine: Machine) -> str:
    """The same without tables."""
    return "nccl" if machine.device.kind == "gpu" else "best"


def check(policy: str) -> None:
    """ConfigError for a name that isn't one."""
    if policy not in NAMES:
        raise ConfigError(f"there is no policy {policy!r}; there are {', '.join(NAMES)}")


def choose(policy: str, op: str, ranks: int, payload: float, link: Link, gamma: float) -> str:
    """The algorithm within one level: by MPICH's rule, or the cheapest."""
    return mpich(op, ranks, payload) if policy == "mpich" else best(op, ranks, payload, link, gamma)[0]
