"""FLOP/s reached, and as shares of the peak: MFU, HFU, scaling efficiency, gains."""
from minitp.plan.job import Recompute
from minitp.plan.speed import flops
from minitp.plan.verify.case import Case, CaseError, number
from minitp.plan.verify.hardware import peak
from minitp.plan.verify.known import AXES, known_run, seconds_named_tp
from minitp.plan.verify.quantities.activations import recomputation
from minitp.plan.verify.quantities.states import ranks_per_replica
from minitp.plan.verify.quantities.training import recompute, step_flops
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

TIMES = ("iter_s", "iter_ms", "t_new", "t_full", "latency_s", "tokens_s", "tokens_per_second")
"""Inputs that say how fast a step was."""


def step_seconds(case: Case, scheme: Recompute = "selective") -> float:
    """Seconds of a step as measured: iter_s, iter_ms, or the one of two schemes that the row compares (t_full, t_new).
    """
    inputs = case.inputs
    for key, unit in (("iter_s", 1.0), ("iter_ms", 1e-3), ("t_full" if scheme == "full" else "t_new", 1.0),
                      ("latency_s", 1.0)):
        if key in inputs:
            return inputs.positive(key) * unit
    if seconds := seconds_named_tp(inputs):
        return seconds
    raise CaseError("the time of a step is missing: iter_s, iter_ms, t_new or t_full")


def devices(case: Case) -> int:
    """GPUs: as given, else the product of the layout's degrees."""
    inputs = case.inputs
    if "gpus" in inputs or "ranks" in inputs:
        return inputs.whole("gpus", "ranks")
    if any(axis in inputs for axis in AXES):
        return ranks_per_replica(case) * inputs.whole("dp", default=1)
    if (run := known_run(case)) and run.layout:
        return run.layout.devices
    raise CaseError("how many GPUs? gpus is missing, and so are the degrees of a layout")


def reached(case: Case) -> float | None:
    """FLOP/s of a GPU: as given, or as published of the known run where the row has no time either."""
    inputs = case.inputs
    if "tflops_gpu" in inputs:
        return 1e12 * inputs.positive("tflops_gpu")
    timed = any(key in inputs for key in TIMES) or seconds_named_tp(inputs)
    run = None if timed else known_run(case)
    return 1e12 * run.published["tflops"] if run and "tflops" in run.published else None


@quantity("flop/s", "tflops_per_gpu")
def tflops_per_gpu(case: Case) -> Planned:
    """FLOP/s with what is computed again (Narayanan et al. 2021, equation 3)."""
    scheme = recompute(case)
    value = step_flops(case, scheme) / step_seconds(case, scheme) / devices(case)
    return Planned(value, f"F/(n·t), {scheme} recomputation (Narayanan et al. 2021, equation 3)", 0.01)


@quantity("flop/s", "aggregate_pflops")
def aggregate_flops(case: Case) -> Planned:
    """FLOP/s of all GPUs together (Narayanan et al. 2021, table 1)."""
    if rate := reached(case):
        return Planned(devices(case) * rate, "n·X", 0.006)
    scheme = recompute(case)
    return Planned(step_flops(case, scheme) / step_seconds(case, scheme), "F/t", 0.01)


@quantity("share", "mfu", "mfu_without_attention", "hw_utilisation", "hw_utilization", "hfu")
def utilization(case: Case) -> Planned:
    """Share of 1 of the peak (Korthikanti et al. 2022, section 6.3): by FLOP/s reached, by a pass of an inference, by
    tokens a second, or by the time of a step."""
    inputs = case.inputs
    if rate := reached(case):
        return Planned(rate / peak(case), "X/peak", 0.015)
    if "phase" in inputs or "latency_s" in inputs:
        return _of_inference(case)
    if "tokens_s" in inputs or "tokens_per_second" in inputs:
        rate = inputs.positive("tokens_s", "tokens_per_second")
        share = flops.utilization(flops.training_flops(Shape(case).parameters, rate), 1.0, devices(case), peak(case))
        return Planned(share, "6P · tokens/s /(n·peak)", 0.01)
    scheme: Recompute = "none" if case.quantity.startswith("mfu") else recomputation(case, "selective")
    whole = inputs.text("recompute") == "full" or case.says("full", "fullrec", "full_recompute")
    if whole or ("t_new" not in inputs and "t_full" in inputs):
        seconds, scheme = step_seconds(case, "full"), "none" if scheme == "none" else "full"
    else:
        seconds = step_seconds(case)
    share = flops.utilization(step_flops(case, scheme), seconds, devices(case), peak(case))
    return Planned(share, f"F/(t·n·peak), F with {scheme} recomputation (Korthikanti et al. 2022, equations 7 and 8)",
                   0.01)


def _of_inference(case: Case) -> Planned:
    """2P operations a token, of a prompt or of so many decode steps."""
    inputs = case.inputs
    words = inputs.text("phase", "decode 1 tok").split()
    tokens = next((number(word, "phase") for word in words if word[0].isdigit()), 1.0)
    tokens = inputs.positive("tokens", "seq", default=tokens) * inputs.whole("batch", default=1)
    share = flops.utilization(2 * Shape(case).parameters * tokens, inputs.positive("latency_s"), devices(case),
                              peak(case))
    return Planned(share, "2P · tokens/(t·n·peak)", 0.07)


@quantity("share", "throughput_gain_vs_full_recompute")
def throughput_gain(case: Case) -> Planned:
    """Share of 1 by which a step is faster than with full recomputation (Korthikanti et al. 2022, table 5)."""
    gain = case.inputs.positive("t_full") / case.inputs.positive("t_new") - 1
    return Planned(gain, "t_full/t_new − 1", 0.02)


@quantity("share", "scaling_efficiency")
def scaling_efficiency(case: Case) -> Planned:
    """Share of 1: FLOP/s of a GPU among many over those of one alone (Shoeybi et al. 2019, section 5)."""
    inputs = case.inputs
    alone = 1e12 * inputs.positive("single_gpu_tflops")
    if "pflops" in inputs:
        return Planned(1e15 * inputs.positive("pflops") / (devices(case) * alone), "X_all/(n·X_1)", 0.01)
    return Planned(1e12 * inputs.positive("tflops_gpu") / alone, "X/X_1", 0.01)
