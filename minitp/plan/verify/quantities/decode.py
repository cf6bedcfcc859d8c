"""The time of a token: from memory's bandwidth, with what stands in its way where the row tells of it."""
from minitp.plan.published import dllama, gpt_fast
from minitp.plan.published.calculators import kipply_bytes, kipply_messages
from minitp.plan.published.layer_times import Layer, seconds
from minitp.plan.verify.case import Case, ambiguous
from minitp.plan.verify.hardware import bandwidth, device, peak
from minitp.plan.verify.known import AXES
from minitp.plan.verify.quantities.activations import recomputation
from minitp.plan.verify.quantities.parameters import width
from minitp.plan.verify.quantities.star import buffer, layers, nodes
from minitp.plan.verify.quantities.utilization import devices
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape


@quantity("seconds", "ms_per_token", "ms_per_token_measured", "decode_ms_measured")
def token_seconds(case: Case) -> Planned:
    """Seconds: weights over bandwidth, and 4 messages a layer where their latency is given (kipply, Transformer
    Inference Arithmetic): a lower bound. Of CPUs over Ethernet the fit to their own tables."""
    if "device" in case.inputs or "net" in case.inputs:
        return _of_nodes(case)
    inputs, shape = case.inputs, Shape(case)
    weights = 12 * shape.layers * shape.hidden**2 if inputs.has("layers", "hidden") else shape.parameters
    cards = devices(case) if any(key in inputs for key in (*AXES, "gpus", "ranks")) else 1
    value = weights * width(case) / (cards * bandwidth(case))
    if "alpha_us" in inputs and cards > 1:
        value += kipply_messages(shape.layers, 1e-6 * inputs.number("alpha_us"))
    return Planned(value, "P·bytes/(n·BW): a lower bound", 0.3)


def _of_nodes(case: Case) -> Planned:
    """Seconds on distributed-llama, by the version of the program that the device was measured with."""
    inputs, shape = case.inputs, Shape(case)
    kind = dllama.node(inputs.text("device") or inputs.text("nodes").lstrip("0123456789 "), inputs.text("net"))
    table = shape.planned.config.vocab * shape.planned.config.hidden
    read = shape.parameters - (0 if shape.planned.config.tied else table)
    weights = inputs.text("weight_dtype", "q40").lower()
    value = dllama.token_seconds(kind, layers(case), read, nodes(case), weights, buffer(case, dllama.BUFFERS))
    within = f", within {100 * kind.error:g} %" if kind.error else ""
    return Planned(value, f"weights/(n·rate) + layers · overhead + bytes/root's rate, {kind.source}{within}", 0.4)


@quantity("tokens/s", "tokens_per_second", "tokens_per_second_measured")
def tokens_per_second(case: Case) -> Planned:
    """Tokens/s of gpt-fast's GPUs (its README), or of distributed-llama's nodes (its READMEs)."""
    if "device" in case.inputs or "net" in case.inputs:
        slow = _of_nodes(case)
        return Planned(1 / slow.value, slow.formula, slow.accuracy)
    inputs, model = case.inputs, Shape(case).planned
    rate = bandwidth(case, gpt_fast.fit().bandwidth)
    alpha = 1e-6 * inputs.number("alpha_allreduce_us", default=1e6 * gpt_fast.fit().all_reduce)
    value = gpt_fast.token_seconds(model, case.model, inputs.degree("tp"), width(case), rate, alpha)
    return Planned(inputs.whole("batch", default=1) / value, "1/(bytes/BW + 2L·α)", 0.2)


@quantity("bytes", "bytes_read_per_gpu_per_token")
def bytes_read_per_gpu_per_token(case: Case) -> Planned:
    """Bytes by gpt-fast's count (its README)."""
    value = gpt_fast.read(Shape(case).planned, case.model, case.inputs.degree("tp"), width(case))
    return Planned(value, "(P − 2Vh)·w/tp + what every GPU reads whole", 0.003)


@quantity("seconds", "compute_ms")
def compute_seconds(case: Case) -> Planned:
    """Seconds of a decode step of a batch, bound by operations (kipply, Transformer Inference Arithmetic)."""
    value = 2 * Shape(case).parameters * case.inputs.whole("batch", default=1) / (devices(case) * peak(case))
    return Planned(value, "2PB/(n·peak)", 0.01)


@quantity("seconds", "comm_latency_us", "comm_ms_measured")
def latency_seconds(case: Case) -> Planned:
    """Seconds of 4 messages a layer (kipply, Transformer Inference Arithmetic)."""
    alpha = 1e-6 * case.inputs.number("alpha_us", default=8.0)
    return Planned(kipply_messages(Shape(case).layers, alpha), "4·L·α", 0.01)


@quantity("seconds", "comm_ms")
def link_seconds(case: Case) -> Planned:
    """Seconds of the bytes of those messages over a link (the same)."""
    inputs, shape = case.inputs, Shape(case)
    if "link" not in inputs:
        return latency_seconds(case)
    value = kipply_bytes(inputs.whole("batch", default=1), shape.layers, shape.hidden) / inputs.positive("link")
    return Planned(value, "8·L·h·B/link", 0.02)


@quantity("seconds", "fwd_plus_bwd_ms")
def layer_seconds(case: Case) -> Planned:
    """Seconds of one layer, by Korthikanti et al. 2022, table 4, and the ratio of operations to its layer."""
    inputs, shape = case.inputs, Shape(case)
    recompute, sequence = layer_scheme(case)
    layer = Layer(inputs.whole("micro_batch", default=4), shape.seq, shape.hidden, inputs.degree("tp", 8),
                  device(case).peak("bf16"))
    value, formula, looked_up = seconds(recompute, sequence, layer)
    return Planned(value, formula, 0.01, looked_up)


def layer_scheme(case: Case) -> tuple[str, bool]:
    """(recomputation, sequence parallelism): by `recompute` and `sp`, or by what the row is called."""
    inputs = case.inputs
    sequence = inputs.flag("sp", case.says("seqpar", "sel_seq", "seq", "sp", "sequence parallelism"))
    if "recompute" in inputs:
        return recomputation(case, "none"), sequence
    if case.says("fullrec", "full", "full recompute", "full recomputation"):
        return "full", sequence
    if case.says("sel", "selective", "sel_seq", "selrec"):
        return "selective", sequence
    if sequence or case.says("base", "baseline", "none", "norec"):
        return "none", sequence
    raise ambiguous("which scheme", "recompute is none, selective or full, and sp is 1 with sequence parallelism")

