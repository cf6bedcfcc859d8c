"""Whole trainings: operations, days, device hours, batches and how many devices."""
from math import ceil

from minitp.plan.job import Recompute, Training
from minitp.plan.published.runs import family, reached, segments
from minitp.plan.speed import flops
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.hardware import memory, peak
from minitp.plan.verify.known import known_run, sequences, tokens_of_sequence
from minitp.plan.verify.quantities.activations import recomputation
from minitp.plan.verify.quantities.parameters import width
from minitp.plan.verify.quantities.states import ranks_per_replica, replicas
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape
from minitp.trace.wording import plain


def recompute(case: Case) -> Recompute:
    """As given; else as is known of the source and model."""
    if "recompute" in case.inputs:
        return recomputation(case, "none")
    made_by = family(case.model, case.source)
    if made_by and made_by.recomputed:
        case.assume(f"layers are computed again ({made_by.source})")
        return "full"
    return "none"


def step_flops(case: Case, scheme: Recompute) -> float:
    """Operations of `batch` sequences: the papers' closed forms for a GPT, counted from the matrices for others."""
    return batch_flops(case, scheme, sequences(case, replicas(case)))


def batch_flops(case: Case, scheme: Recompute, batch: int) -> float:
    """The same, of so many sequences."""
    shape, seq = Shape(case), tokens_of_sequence(case)
    config = shape.planned.config
    if config.gated or config.kv_heads != config.heads or config.ffn != 4 * config.hidden:
        return flops.step(shape.planned, Training(batch=batch, seq=seq, recompute=scheme)).hardware
    closed = {"none": flops.gpt_model, "selective": flops.gpt_selective, "full": flops.gpt_full}[scheme]
    return closed(batch, seq, config.layers, config.hidden, config.vocab)


def total_flops(case: Case) -> tuple[float, str]:
    """Of the whole training: as given, by 6PT or 8PT where parameters are given, else by the model's shape."""
    inputs = case.inputs
    if "flops" in inputs:
        return inputs.positive("flops"), "F"
    tokens, scheme = trained_on(case), recompute(case)
    if "params" in inputs or Shape(case).named is None:
        return (flops.training_flops(Shape(case).parameters, tokens, "full" if scheme == "full" else "none"),
                "8PT" if scheme == "full" else "6PT")
    return batch_flops(case, scheme, 1) / tokens_of_sequence(case) * tokens, (
        f"F with {scheme} recomputation (Narayanan et al. 2021, equation 3)")


def trained_on(case: Case) -> float:
    """Tokens of the training: as given, else what is known of the model's."""
    inputs = case.inputs
    if "tokens" in inputs:
        return inputs.positive("tokens")
    known = getattr(Shape(case).named, "trained_on", 0) or getattr(known_run(case), "training", Training()).tokens
    if not known:
        raise CaseError(f"the input tokens is missing, and how many {plain(case.model, 40)!r} saw isn't known")
    return known


@quantity("flop", "training_flops")
def training_flops(case: Case) -> Planned:
    """FLOP: 6PT, or 8PT where layers are computed again, the short forms (Narayanan et al. 2021, section 5.1)."""
    scheme: Recompute = "full" if recompute(case) == "full" else "none"
    value = flops.training_flops(Shape(case).parameters, trained_on(case), scheme)
    return Planned(value, "8PT" if scheme == "full" else "6PT", 0.03)


@quantity("seconds", "training_days")
def training_seconds(case: Case) -> Planned:
    """Seconds (Narayanan et al. 2021, equation 4): by tokens a second and GPU, or by operations and what a GPU reaches
    of them."""
    inputs = case.inputs
    gpus = inputs.whole("gpus")
    if "tok_s_gpu" in inputs:
        return Planned(trained_on(case) / inputs.positive("tok_s_gpu") / gpus, "T/(rate·n)", 0.02)
    operations, formula = total_flops(case)
    if "tflops_gpu" in inputs:
        return Planned(86400 * flops.training_days(operations, gpus, 1e12 * inputs.positive("tflops_gpu")),
                       f"{formula}/(nX)", 0.02)
    share, why = utilization_of_run(case)
    return Planned(86400 * flops.training_days(operations, gpus, share * peak(case)), f"{formula}/(n·peak·{why})", 0.15)


@quantity("device hours", "gpu_hours", "gpu_hours_estimated")
def gpu_hours(case: Case) -> Planned:
    """Hours times devices: by tokens a second, by FLOP/s reached, or by 6PT at a share of the peak."""
    inputs = case.inputs
    if "tok_s_gpu" in inputs:
        return Planned(trained_on(case) / inputs.positive("tok_s_gpu") / 3600, "T/rate", 0.02)
    if "tflops_gpu" in inputs:
        operations, formula = total_flops(case)
        return Planned(flops.device_hours(operations, 1e12 * inputs.positive("tflops_gpu")), f"{formula}/X", 0.02)
    share, why = utilization_of_run(case)
    shape = Shape(case)
    operations = flops.training_flops(shape.parameters, trained_on(case))
    return Planned(flops.device_hours(operations, share * peak(case)), f"6PT/(peak·{why})", 0.15)


def utilization_of_run(case: Case) -> tuple[float, str]:
    """Share of the peak by 6PT: given, or what the model's family is known to have reached, or 40 %."""
    inputs = case.inputs
    if inputs.has("mfu") or inputs.has("flops_eff"):
        share = inputs.share("mfu", "flops_eff")
        share = share / 100 if share > 1 else share
        return share, f"{100 * share:g} %"
    known = reached(case.model)
    return known.share, f"{100 * known.share:.1f} % ({known.why})"


@quantity("device hours", "chip_hours")
def chip_hours(case: Case) -> Planned:
    """Hours times chips of the stretches of a published run, looked up (published/runs.toml)."""
    if case.inputs.has("gpus", "tokens"):
        return gpu_hours(case)
    parts = segments(case.model)
    terms = " + ".join(f"{chips:,} · {hours:,} h" for chips, hours, _ in parts)
    return Planned(sum(chips * hours for chips, hours, _ in parts), f"{terms} ({parts[0][2]})", 1e-3, True)


@quantity("count", "tokens_per_batch")
def tokens_per_batch(case: Case) -> Planned:
    """Tokens of a step over all replicas."""
    return Planned(sequences(case, replicas(case)) * tokens_of_sequence(case), "dp · sequences of a replica · s", 0.001)


@quantity("count", "gpus")
def gpus(case: Case) -> Planned:
    """Of a layout: the product of its degrees, never the number that the row states."""
    if not any(axis in case.inputs for axis in ("tp", "pp", "dp", "cp")):
        raise CaseError("a layout's degrees are needed: tp, pp, dp, cp")
    return Planned(ranks_per_replica(case) * case.inputs.whole("dp", default=1), "tp · cp · pp · dp", 1e-6)


@quantity("count", "gpus_per_replica")
def gpus_per_replica(case: Case) -> Planned:
    """Of one copy of the model: the product of its degrees."""
    return Planned(ranks_per_replica(case), "tp · cp · pp", 1e-6)


@quantity("count", "gpus_for_inference")
def gpus_for_inference(case: Case) -> Planned:
    """Cards whose memory holds the weights: 1, 2, 4, … of one machine (heads must divide), or whole machines."""
    inputs = case.inputs
    box = inputs.whole("gpus_per_machine", default=8)
    weights = Shape(case).parameters * width(case)
    cards = ceil(weights / memory(case))
    count = min(1 << (cards - 1).bit_length(), box) if cards <= box else ceil(cards / box) * box
    return Planned(count, f"{cards} by bytes; powers of two in a machine of {box}, then whole machines", 1e-6)
