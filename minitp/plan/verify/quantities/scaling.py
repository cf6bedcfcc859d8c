"""Weak and strong scaling in Megatron-LM's tables: the planner's step on their machines, beside one GPU's step."""
from minitp.plan.catalogue import machine as catalogue_machine
from minitp.plan.catalogue import model as catalogue_model
from minitp.plan.job import Recompute, Training
from minitp.plan.layout import Layout
from minitp.plan.model import PlannedModel
from minitp.plan.speed.step import StepTime, training_step
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.hardware import device
from minitp.plan.verify.quantities.states import replicas
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

GROWN = {"megatron-2020": {1: "megatron-2020-1b", 2: "megatron-2020-2b", 4: "megatron-2020-4b", 8: "megatron-2020-8b"},
         "megatron": {1: "megatron-1.2b", 2: "megatron-2.5b", 4: "megatron-4.2b", 8: "megatron-8.3b"}}
"""The models that grew with tp: as many parameters to a GPU, about."""
ALONE, TOGETHER = 8, 512
"""Sequences of a step: of one model parallel group, and with data parallelism (Shoeybi et al. 2019, section 5.1)."""
MOST = 64
MACHINES = {"v100-32": "dgx-2h", "a100-80": "8xa100-80"}


def family(case: Case) -> dict[int, str]:
    """The row's table: that of 2020, or that of the paper."""
    name = "megatron-2020" if "tables.tex" in case.source else "megatron"
    case.assume(f"the models of {name} that grew with tp (from the row's source)")
    return GROWN[name]


def step(case: Case, model: PlannedModel, layout: Layout, batch: int) -> StepTime:
    """Layers are computed again, as in those tables, unless the row says otherwise."""
    schemes: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full", "": "full"}
    text = case.inputs.text("recompute")
    if text not in schemes:
        raise CaseError(f"recompute is none, selective or full, not {text!r}")
    job = Training(batch=batch, seq=case.inputs.whole("seq", default=1024), micro_batch=batch // layout.dp,
                   recompute=schemes[text], stored=True, dropout=True)
    kind = device(case) if case.inputs.text("gpu") else catalogue_machine("dgx-2h").device
    machine = catalogue_machine(MACHINES.get(kind.name, f"1x{kind.name}"), devices=layout.devices)
    return training_step(model, layout, job, machine)


def degrees(case: Case) -> Layout:
    """tp as given, else the GPUs that aren't replicas."""
    inputs = case.inputs
    dp = replicas(case) if "dp" in inputs else 1
    tp = inputs.whole("tp", default=max(inputs.whole("gpus", default=1) // dp, 1))
    if tp > MOST:
        raise CaseError(f"tp is {tp:,}; scaling is planned up to {MOST}, inside a few machines")
    return Layout(tp=tp, dp=dp)


@quantity("share", "weak_scaling_efficiency")
def weak_scaling_efficiency(case: Case) -> Planned:
    """FLOP/s a GPU, as a share of what the smallest model reaches on one."""
    layout, models = degrees(case), family(case)
    named = Shape(case).named
    if named is None and layout.tp not in models:
        raise CaseError(f"that table has no model for tp = {layout.tp}; it has one for {', '.join(map(str, models))}")
    model = named or catalogue_model(models[layout.tp])
    batch = case.inputs.whole("batch", default=ALONE if layout.dp == 1 else TOGETHER)
    if batch % layout.dp:
        raise CaseError(f"a batch of {batch} can't be dealt to {layout.dp} replicas")
    reached = step(case, model, layout, batch).flops_per_device
    alone = step(case, catalogue_model(models[1]), Layout(), ALONE).flops_per_device
    return Planned(reached / alone, f"X of {model.name} on {layout}, over X of {models[1]} on one GPU", 0.1)


@quantity("share", "speedup")
def speedup(case: Case) -> Planned:
    """The same model and batch, on more GPUs."""
    layout, model = degrees(case), Shape(case).planned
    batch = case.inputs.whole("batch", default=ALONE)
    alone, split = (step(case, model, one, batch).seconds for one in (Layout(), layout))
    return Planned(alone / split, f"t on one GPU, over t on {layout}", 0.15)
