"""Collectives: Hockney's costs, NCCL's latency model, measured pairs, two levels."""
from dataclasses import replace

from minitp.plan.links import Link
from minitp.plan.network import busbw, collectives, nccl
from minitp.plan.published import mpich
from minitp.plan.published.nccl_fits import Fit, fit
from minitp.plan.verify.case import Case, CaseError, ambiguous
from minitp.plan.verify.known import nodes
from minitp.plan.verify.registry import Planned, quantity

OPS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
       "alltoall": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "sendrecv": "send"}
ALGORITHMS = {"doubling": ("recursive_doubling", "recdbl", "doubling", "recursive doubling"),
              "halving": ("rabenseifner", "rab", "halving", "rabens"), "ring": ("ring",), "tree": ("tree", "binomial"),
              "star": ("star", "linear"), "pairwise": ("pairwise",)}
"""minitp's name of an algorithm → words for it."""


def op(case: Case) -> str:
    """`op`, by minitp's names; an algorithm behind it (reducescatter_ring) is a remark."""
    text = case.inputs.text("op", "allreduce").lower().replace("-", "").replace("_", "")
    for word, name in sorted(OPS.items(), key=lambda pair: -len(pair[0])):
        if text.startswith(word):
            return name
    raise CaseError(f"the op {text!r} isn't known; there are {', '.join(OPS)}")


def algorithm(case: Case) -> str:
    """`algo`, or what the row's id calls it. CaseError where neither does."""
    text = case.inputs.text("algo") or case.inputs.text("algorithm")
    for name, words in ALGORITHMS.items():
        if text.lower().replace("-", "_") in words if text else case.says(*words):
            return name
    if text:
        raise CaseError(f"the algorithm {text!r} isn't known; there are {', '.join(ALGORITHMS)}")
    raise ambiguous("which algorithm", f"algo is one of {', '.join(ALGORITHMS)}")


@quantity("seconds", "allreduce_time", "collective_time")
def allreduce_time(case: Case) -> Planned:
    """Seconds by Hockney's model of one algorithm: hops · α + volume · n · β + reduced · n · γ."""
    inputs = case.inputs
    beta = inputs.positive("beta_s_per_byte") if "beta_s_per_byte" in inputs else 1e-9 / inputs.positive("beta_GBps")
    alpha = inputs.number("alpha_s") if "alpha_s" in inputs else 1e-6 * inputs.number("alpha_us")
    gamma = inputs.number("gamma_s_per_byte", default=0)
    ranks, size = inputs.whole("ranks", "gpus"), inputs.number("bytes")
    by, name = algorithm(case), op(case)
    if (name, by) == ("all_reduce", "halving") and ranks & (ranks - 1) and "mpich" in case.source.lower():
        case.assume("MPICH's printed cost (from the row's source)")
        return Planned(mpich.rabenseifner(ranks, size, alpha, beta, gamma),
                       "(2⌊lg p⌋ + 2)α + (2(p − 1)/p + 2)nβ + n(1 + (p − 1)/p)γ, as MPICH prints it", 1e-3)
    link = Link("of the row", alpha, 1 / beta, case.source)
    seconds = collectives.seconds(name, by, ranks, size, link, gamma)
    return Planned(seconds, f"{by}: {collectives.model(name, by).formula}", 1e-3)


@quantity("seconds", "allreduce_latency_us")
def nccl_latency_seconds(case: Case) -> Planned:
    """Seconds by NCCL's own model (tuning.cc) of an all-reduce of no bytes, with its constants where the row gives
    none."""
    inputs = case.inputs
    ranks, machines = inputs.whole("ranks", "gpus"), nodes(case)
    if ranks % machines:
        raise CaseError(f"{ranks} ranks can't be spread evenly over {machines} nodes")
    kind = inputs.text("algo").lower() or next((name for name in (*nccl.BASE_US, "nvls") if case.says(name)), "")
    if kind == "nvls":
        return Planned(1e-6 * inputs.positive("base", default=nccl.NVLS_US), "one latency of the switch", 1e-3)
    if not kind:
        raise ambiguous("which algorithm", "algo is ring, tree or nvls")
    if kind not in nccl.BASE_US:
        raise CaseError(f"the algorithm {kind!r} isn't known; NCCL's are ring, tree and nvls")
    told = inputs.has("base") and (inputs.has("intra") or inputs.has("hw")) and (machines == 1 or "inter" in inputs)
    at = 0 if told else nccl.PROTOCOLS.index(protocol_of(case))
    base = inputs.number("base", default=nccl.BASE_US[kind][at])
    inside = inputs.number("intra", "hw", default=nccl.HOP_US["nvlink"][kind][at])
    between = inputs.number("inter", default=nccl.HOP_US["network"][kind][at])
    if kind == "tree":
        return Planned(1e-6 * nccl.tree_latency(ranks, machines, base, inside, between),
                       "base + 2((g − 1)·intra + lg k·inter)", 1e-3)
    return Planned(1e-6 * nccl.ring_latency("all_reduce", ranks, machines, base, inside, between),
                   "base + 2(N − k)·intra + 2(k − 1)·inter", 1e-3)


def protocol_of(case: Case) -> str:
    text = case.inputs.text("proto").lower() or next(
        (name for name in map(str.lower, nccl.PROTOCOLS) if case.says(name)), "")
    if not text:
        raise ambiguous("which protocol", f"proto is one of {', '.join(nccl.PROTOCOLS)}")
    found = next((name for name in nccl.PROTOCOLS if name.lower() == text), None)
    if not found:
        raise CaseError(f"the protocol {text!r} isn't known; NCCL's are {', '.join(nccl.PROTOCOLS)}")
    return found


def pair(case: Case, ranks: int) -> Fit:
    """α and bandwidth: the row's, or what is fitted to the machine's table."""
    inputs = case.inputs
    if inputs.has("beta_GBps", "alpha_us"):
        return Fit(1e-6 * inputs.number("alpha_us"), 1e9 * inputs.positive("beta_GBps"), False, case.source)
    known = fit(case.model, nodes(case), ranks)
    known = replace(known, latency_s=1e-6 * inputs.number("alpha_us", default=1e6 * known.latency_s))
    return replace(known, bytes_per_s=1e9 * inputs.positive("beta_GBps", default=1e-9 * known.bytes_per_s))


@quantity("seconds", "time_us", "collective_time_us")
def fitted_seconds(case: Case) -> Planned:
    """Seconds by two numbers for all sizes (published/nccl_fits.toml): right at both ends, up to 60 % too fast between
    128 KiB and 256 MiB."""
    inputs = case.inputs
    ranks, size = inputs.whole("ranks", "gpus"), inputs.number("bytes")
    known = pair(case, ranks)
    if known.per_card:
        machines = nodes(case)
        moved = busbw.seconds_at(op(case), machines, size / (ranks / machines), known.bytes_per_s)
        return Planned(known.latency_s + moved, "α + 2(k − 1)/k·(S/g)/B of a network card", 0.4)
    return Planned(known.latency_s + busbw.seconds_at(op(case), ranks, size, known.bytes_per_s),
                   f"α + {float(busbw.factor(op(case), ranks)):g}·S/B", 0.6)


@quantity("bytes/s", "busbw")
def bus_bandwidth(case: Case) -> Planned:
    """Bytes/s by nccl-tests' rule (PERFORMANCE.md), from a measured time; without one the link's rate, which is a
    bound."""
    inputs = case.inputs
    if "time_us" in inputs:
        return Planned(busbw.bus_bandwidth(op(case), inputs.whole("ranks", "gpus"), inputs.number("bytes"),
                                           1e-6 * inputs.positive("time_us")), "factor · S/t", 0.01)
    if "algbw" in inputs:
        rate = 1e9 * inputs.positive("algbw") * float(busbw.factor(op(case), inputs.whole("ranks", "gpus")))
        return Planned(rate, "factor · S/t", 0.01)
    return Planned(1e9 * inputs.positive("link_spec_GBps"), "the link's rate: a bound", 0.2)


@quantity("seconds", "time_ms")
def two_level_seconds(case: Case) -> Planned:
    """Seconds of an all-reduce over machines with a network card for each GPU, by bandwidth: levels in turn, or all at
    once."""
    inputs = case.inputs
    each, machines = inputs.whole("gpus_per_machine", default=8), inputs.whole("machines", default=nodes(case))
    size, card = inputs.number("bytes"), inputs.positive("nic")
    if case.says("naive"):
        return Planned(size / card, "n/B of one card", 0.01)
    least, most = busbw.two_levels(size, each, machines, inputs.positive("nvlink_busbw"), card)
    if case.says("overlap", "overlapped", "lower", "least", "max", "parallel"):
        return Planned(least, "max(2(g − 1)/g·n/B_nv, 2(k − 1)/k·(n/g)/B_nic)", 0.01)
    if not case.says("serial", "sum", "upper", "most", "sequential"):
        raise ambiguous("do the levels work in turn or at once", "scheme is serial, overlap or naive")
    return Planned(most, "2(g − 1)/g·n/B_nv + 2(k − 1)/k·(n/g)/B_nic", 0.01)
