"""What other tools estimate: DeepSpeed's memory of model states, accelerate's training total."""
from minitp.plan.job import bytes_of
from minitp.plan.published import deepspeed
from minitp.plan.published.calculators import ACCELERATE_COUNTS, accelerate_adam
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

OFFLOADS = {"all": (True, True), "opt": (True, False), "optimizer": (True, False), "none": (False, False)}


@quantity("bytes", "mem", "gpu_mem", "cpu_mem", "gpu_mem_measured_after_initialize")
def mem(case: Case) -> Planned:
    """DeepSpeed's estimators of stages 2 and 3, of a GPU or of a host."""
    stage = case.inputs.whole("zero_stage")
    if stage not in (2, 3):
        raise CaseError(f"DeepSpeed has estimators of ZeRO's stages 2 and 3, none of {stage}")
    optimizer, weights = offload(case, stage)
    nodes = case.inputs.whole("nodes", default=1)
    measured = case.quantity.startswith("gpu_mem_measured")
    largest = 0.0 if stage == 2 else case.inputs.number("largest_layer", default=0 if measured else None)
    setup = deepspeed.Setup(
        Shape(case).parameters, per_node(case, nodes), nodes, largest, optimizer, weights, built_in_pieces(case),
        case.inputs.positive("buffer_factor", default=deepspeed.BUFFERS))
    side = host(case)
    estimate = {(2, False): deepspeed.zero2_gpu, (2, True): deepspeed.zero2_cpu,
                (3, False): deepspeed.zero3_gpu, (3, True): deepspeed.zero3_cpu}[stage, side]
    value, formula = estimate(setup)
    return Planned(value, f"{formula} ({deepspeed.SOURCE})", 0.05)


def per_node(case: Case, nodes: int) -> int:
    """GPUs of one node; `gpus` counts all of them."""
    if "gpus_per_node" in case.inputs:
        return case.inputs.whole("gpus_per_node")
    gpus = case.inputs.whole("gpus", default=nodes)
    if gpus % nodes:
        raise CaseError(f"{gpus} GPUs can't be spread evenly over {nodes} nodes")
    return gpus // nodes


def host(case: Case) -> bool:
    """Whether the host's memory is asked for. `mem` leaves it to the row's id, or to what bears on it alone."""
    if case.quantity != "mem":
        return case.quantity.startswith("cpu")
    if case.says("gpu") and not case.says("cpu"):
        return False
    return case.says("cpu") or "zero_init" in case.inputs or case.notes("*1.5")


def offload(case: Case, stage: int) -> tuple[bool, bool]:
    """(optimizer, weights) in the host's memory: by the inputs, or by what the row is called in the documentation.

    Case 1 there is no offloading, case 2 of everything, case 3 of the optimizer alone. The estimators' default is all.
    """
    inputs = case.inputs
    if "offload" in inputs:
        word = inputs.text("offload").lower()
        if word not in OFFLOADS:
            raise CaseError(f"offload is one of {', '.join(OFFLOADS)}, not {word!r}")
        return OFFLOADS[word]
    if "cpu_offload" in inputs:
        optimizer = inputs.flag("cpu_offload")
        return optimizer, optimizer and stage == 3 and inputs.flag("cpu_offload_params", True)
    return _told(case, stage)


def _told(case: Case, stage: int) -> tuple[bool, bool]:
    """By the words of the row's id, then by the formula in its note."""
    if case.says("none", "nooff", "case1"):
        return False, False
    if case.says("all", "case2", "largest"):
        return True, stage == 3
    if case.says("opt", "case3"):
        return True, False
    if case.notes("18*params/", "params/N*18", "16*params/", "largest*4"):
        return False, False
    if case.notes("2*params", "params*16", "16*gpus_factor"):
        return True, False
    return True, stage == 3


def built_in_pieces(case: Case) -> bool:
    """Whether zero.Init builds the model in pieces: as given, as the row's id says, or as the estimators' default."""
    if "zero_init" in case.inputs:
        return case.inputs.flag("zero_init")
    return not case.says("noinit", "no_init") and not case.notes("params*max(")


@quantity("bytes", "training_adam_total", gb=2.0**30)
def training_adam_total(case: Case) -> Planned:
    """accelerate's "training with Adam". It prints powers of 1024 as GB."""
    dtype = next((name for name in ("fp16", "bf16", "fp32", "float32", "int8", "int4") if case.says(name)), "fp16")
    dtype = case.inputs.text("weight_dtype", dtype).lower()
    each = case.inputs.positive("bytes", default=bytes_of({"fp32": "float32"}.get(dtype, dtype)))
    counts = ACCELERATE_COUNTS.get(case.model.strip().lower(), 1.0)
    return Planned(accelerate_adam(Shape(case).parameters * each * counts), f"4 · size, {each:g} B a parameter", 0.02)
