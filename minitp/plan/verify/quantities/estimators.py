"""What other tools estimate: DeepSpeed's memory of model states, accelerate's training total."""
import re

from minitp.plan.job import bytes_of
from minitp.plan.published import deepspeed, sizes
from minitp.plan.published.calculators import accelerate_adam
from minitp.plan.verify.case import Case, CaseError, ambiguous
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

OFFLOADS = {"all": (True, True), "opt": (True, False), "optimizer": (True, False), "none": (False, False)}
"""A word of the inputs → what is kept in the host's memory: (optimizer, weights)."""
NAMES = {"none": ("none", "nooff", "case1"), "all": ("all", "case2", "largest"), "opt": ("opt", "case3")}
"""The same → what rows are called in the documentation: case 1 there is no offloading, case 2 of all, case 3 of the
optimizer alone."""
WHOLE_FIRST = ("params*4*1.5", "params*max(")
"""How notes of rows write the host's bytes where each process builds the whole model first."""


@quantity("bytes", "mem", "gpu_mem", "cpu_mem", "gpu_mem_measured_after_initialize")
def mem(case: Case) -> Planned:
    """Bytes on a GPU or in a host's memory, by DeepSpeed's estimators of stages 2 and 3 (memory.rst).

    What the row leaves open is tried both ways: CaseError where that makes a difference.
    """
    stage = case.inputs.whole("zero_stage")
    if stage not in (2, 3):
        raise CaseError(f"DeepSpeed has estimators of ZeRO's stages 2 and 3, none of {stage}")
    side = host(case)
    estimate = {(2, False): deepspeed.zero2_gpu, (2, True): deepspeed.zero2_cpu,
                (3, False): deepspeed.zero3_gpu, (3, True): deepspeed.zero3_cpu}[stage, side]
    nodes = case.inputs.whole("nodes", default=1)
    largest = largest_layer(case) if stage == 3 else 0.0
    buffers = case.inputs.positive("buffer_factor", default=deepspeed.BUFFERS)
    found = dict(estimate(deepspeed.Setup(Shape(case).parameters, per_node(case, nodes), nodes, largest, optimizer,
                                          weights, pieces, buffers))
                 for optimizer, weights in offload(case, stage)
                 for pieces in (built_in_pieces(case) if side and stage == 3 else (True,)))
    if len(found) > 1:
        raise ambiguous("what is kept in the host's memory, and was the model built in pieces",
                        f"offload is all, opt or none, and zero_init 0 or 1; {len(found)} values fit")
    ((value, formula),) = found.items()
    return Planned(value, f"{formula} ({deepspeed.SOURCE})", 0.05)


def per_node(case: Case, nodes: int) -> int:
    """GPUs of one node; `gpus` counts all of them."""
    if "gpus_per_node" in case.inputs:
        return case.inputs.whole("gpus_per_node")
    gpus = case.inputs.whole("gpus", default=nodes)
    if gpus % nodes:
        raise CaseError(f"{gpus} GPUs can't be spread evenly over {nodes} nodes")
    return gpus // nodes


def largest_layer(case: Case) -> float:
    """Parameters: given, or as the estimator printed them of this model, or the largest matrix of a known shape."""
    if "largest_layer" in case.inputs:
        return case.inputs.positive("largest_layer")
    shape = Shape(case)
    if printed := sizes.largest_layer(shape.parameters):
        case.assume(f"largest_layer={printed.value:g} ({printed.source})")
        return printed.value
    if shape.named is None:
        raise CaseError("the input largest_layer is missing, and the model's shape isn't known")
    config = shape.named.config
    largest = config.hidden * max(config.vocab, config.ffn, config.heads * config.head_size)
    case.assume(f"largest_layer={largest:,} (the largest matrix of {shape.named.name})")
    return largest


def host(case: Case) -> bool:
    """Whether the host's memory is asked for. `mem` leaves it to the row's id, or to what bears on it alone."""
    if case.quantity != "mem":
        return case.quantity.startswith("cpu")
    named = [side for side in ("gpu", "cpu") if case.says(side)]
    if len(named) == 1:
        return named == ["cpu"]
    if "zero_init" not in case.inputs:
        raise ambiguous("a GPU's memory or the host's", "the quantity gpu_mem or cpu_mem does")
    return True


def offload(case: Case, stage: int) -> list[tuple[bool, bool]]:
    """(optimizer, weights) in the host's memory, by the inputs or by what the row is called: all that may be meant."""
    inputs = case.inputs
    may = [OFFLOADS[word] for word in NAMES if word != "all" or stage == 3]
    if "offload" in inputs:
        word = inputs.text("offload").lower()
        if word not in OFFLOADS:
            raise CaseError(f"offload is one of {', '.join(OFFLOADS)}, not {word!r}")
        return [OFFLOADS[word] if stage == 3 else (OFFLOADS[word][0], False)]
    if "cpu_offload" in inputs:
        may = [one for one in may if one[0] == inputs.flag("cpu_offload")]
    if "cpu_offload_params" in inputs and stage == 3:
        may = [one for one in may if one[1] == (one[0] and inputs.flag("cpu_offload_params"))]
    if len(may) > 1 and (word := next((word for word, names in NAMES.items() if case.says(*names)), "")):
        optimizer, weights = OFFLOADS[word]
        return [(optimizer, weights and stage == 3)]
    return may


def built_in_pieces(case: Case) -> tuple[bool, ...]:
    """Whether zero.Init builds the model in pieces: as given, as the row's id or note says; else both may be meant."""
    if "zero_init" in case.inputs:
        return (case.inputs.flag("zero_init"),)
    if case.says("noinit", "no_init"):
        return (False,)
    if case.says("init"):
        return (True,)
    if any(words in re.sub(r"\s", "", case.note) for words in WHOLE_FIRST):
        case.assume("zero_init=0 (from the row's note)")
        return (False,)
    return (True, False)


@quantity("bytes", "training_adam_total", gb=2.0**30)
def training_adam_total(case: Case) -> Planned:
    """Bytes of accelerate's "training with Adam": 4 times the size at loading. It prints powers of 1024 as GB."""
    told = case.inputs.text("weight_dtype").lower() or next(
        (name for name in ("fp16", "bf16", "fp32", "float32", "int8", "int4") if case.says(name)), "")
    if not told and "bytes" not in case.inputs:
        case.assume("loaded as fp16 (what the tool's totals for training start from)")
    each = case.inputs.positive("bytes", default=bytes_of({"fp32": "float32", "": "fp16"}.get(told, told)))
    parameters = Shape(case).parameters
    if size := sizes.loaded(case.model, parameters, each):
        return Planned(accelerate_adam(size.value), f"4 · {size.value / 2**30:.2f} GiB ({size.source})", 0.02, True)
    return Planned(accelerate_adam(parameters * each), f"4 · P · {each:g} B", 0.02)
