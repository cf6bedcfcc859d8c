"""Parameters counted, and the bytes of weights and checkpoints."""
from minitp.plan.job import bytes_of
from minitp.plan.published.calculators import CHECKPOINT_BYTES, FINE_TUNING_BYTES
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

COUNTED = "every parameter of the placement, once"


@quantity("count", "params", "params_exact", "parameters")
def parameters(case: Case) -> Planned:
    """Parameters, counted from the shape, never from the name."""
    return Planned(Shape(case).planned.parameters, COUNTED, 0.01)


def width(case: Case, default: str = "bf16") -> float:
    """Bytes per number of the weights: `bytes`, or those of `weight_dtype`."""
    inputs = case.inputs
    if "bytes" in inputs:
        return inputs.positive("bytes")
    return bytes_of(inputs.text("weight_dtype", default).lower())


@quantity("bytes", "weights_bytes", "weight_bytes")
def weights_bytes(case: Case) -> Planned:
    """Bytes of all weights, on however many devices."""
    each = case.inputs.positive("bytes_w") if "bytes_w" in case.inputs else width(case)
    return Planned(Shape(case).parameters * each, f"P · {each:g} B", 0.03)


@quantity("bytes", "gradients_bytes", "gradient_bytes", "optimizer_bytes", "optimizer_states_bytes")
def other_states(case: Case) -> Planned:
    """Bytes of all gradients (2 bytes each unless told), or all optimizer state (12 bytes)."""
    mine, usual = ("bytes_g", 2) if case.quantity.startswith("gradient") else ("bytes_opt", 12)
    each = case.inputs.positive(mine, "bytes", default=usual)
    return Planned(Shape(case).parameters * each, f"P · {each:g} B", 0.03)


@quantity("bytes", "checkpoint_bytes")
def checkpoint_bytes(case: Case) -> Planned:
    """Bytes with optimizer state (Narayanan et al. 2021, section 5.10), unless `bytes_per_param` says otherwise."""
    each = case.inputs.positive("bytes_per_param", default=CHECKPOINT_BYTES)
    return Planned(Shape(case).parameters * each, f"P · {each:g} B: 2 of weights, 12 of optimizer state", 0.03)


@quantity("bytes", "full_finetune_bytes")
def full_finetune_bytes(case: Case) -> Planned:
    """Bytes of the states of Adam in mixed precision, where a table doesn't say what it counts."""
    for key in ("precision", "optimizer"):
        if (text := case.inputs.text(key, "unspecified")).lower() not in ("unspecified", "mixed", "adam", "adamw"):
            raise CaseError(f"full fine-tuning is planned with Adam in mixed precision, not with {key} {text!r}")
    return Planned(FINE_TUNING_BYTES * Shape(case).parameters, f"{FINE_TUNING_BYTES} P")
