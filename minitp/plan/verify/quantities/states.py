"""Weights, gradients and optimizer state per device, and the largest model whose states fit."""
from minitp.plan.job import Precision
from minitp.plan.memory.states import bare
from minitp.plan.published.calculators import megatron_bytes
from minitp.plan.rows import total
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.hardware import memory
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

FORMULAS = {0: "(2 + 2 + 12)P", 1: "4P + 12P/d", 2: "2P + 14P/d", 3: "16P/d"}
LARGE = 10**13
"""Parameters by which bytes per parameter are found: rounding up to whole numbers doesn't show."""


def precision(case: Case) -> Precision:
    """Bytes of weights, gradients and optimizer, 2 + 2 + 12 unless the row says otherwise."""
    inputs = case.inputs
    weights, gradients = inputs.number("bytes_w", default=2), inputs.number("bytes_g", default=2)
    optimizer = inputs.number("bytes_opt", "K", default=12)
    if any(each and not 2**-6 <= each <= 2**10 for each in (weights, gradients, optimizer)):
        raise CaseError(f"bytes per parameter are 0, or 1/64 to 1,024; got {weights:g}, {gradients:g}, {optimizer:g}")
    return Precision(weights, gradients, optimizer / 3, 2 * optimizer / 3)


def replicas(case: Case, default: int | None = None) -> int:
    """The data parallel degree: GPUs over tp · pp · cp where it isn't given, not the GPUs."""
    inputs = case.inputs
    if "dp" in inputs or "gpus" not in inputs:
        return inputs.whole("dp", default=1 if default is None else default)
    gpus, each = inputs.whole("gpus"), ranks_per_replica(case)
    if gpus % each:
        raise CaseError(f"{gpus} GPUs can't be replicas of {each}")
    return gpus // each


def ranks_per_replica(case: Case) -> int:
    """tp · pp · cp"""
    inputs = case.inputs
    return inputs.degree("tp") * inputs.degree("pp") * inputs.degree("cp")


def stage(case: Case) -> int:
    """ZeRO's stage, 0 to 3."""
    value = case.inputs.number("zero_stage", default=0)
    if value not in (0, 1, 2, 3):
        raise CaseError(f"ZeRO has the stages 0, 1, 2 and 3, not {value:g}")
    return int(value)


def bytes_a_parameter(case: Case) -> float:
    """On one of dp replicas, before tp and pp divide the parameters."""
    return total(bare(LARGE, zero=stage(case), d=replicas(case), precision=precision(case))) / LARGE  # type: ignore[arg-type]


@quantity("bytes", "model_state_bytes_per_gpu")
def model_state_bytes_per_gpu(case: Case) -> Planned:
    """Bytes of one rank (Rajbhandari et al. 2020, figure 1). tp and pp divide the parameters evenly: which model it is
    isn't asked."""
    each = Shape(case).parameters / case.inputs.degree("tp") / case.inputs.degree("pp")
    return Planned(each * bytes_a_parameter(case), FORMULAS[stage(case)], 0.03)


@quantity("bytes", "model_states")
def model_states(case: Case) -> Planned:
    """Bytes on all devices together (the same)."""
    p = precision(case)
    each = case.inputs.positive("bytes_per_param", default=p.states)
    return Planned(Shape(case).parameters * each, f"P · {each:g} B", 0.03)


@quantity("bytes/parameter", "bytes_per_param")
def bytes_per_param(case: Case) -> Planned:
    """Bytes a parameter by Megatron-LM's own count (theoretical_memory_usage.py)."""
    distributed = case.inputs.flag("use_distributed_optimizer")
    return Planned(megatron_bytes(distributed, replicas(case)), "6 + 12/d" if distributed else "2 + 4 + 4 + 8", 1e-6)


@quantity("count", "max_params_billions", "max_params_billions_measured", "max_params")
def max_params(case: Case) -> Planned:
    """Parameters (Rajbhandari et al. 2020, table 2) by states alone: a bound, which runs come within 62 to 82 % of."""
    parts = case.inputs.degree("tp") * case.inputs.degree("pp")
    return Planned(memory(case) * parts / bytes_a_parameter(case), f"M·t/({FORMULAS[stage(case)]})", 0.03)
