"""Activations: Korthikanti et al.'s schemes from minitp's inventory of saved arrays, and two older rules."""
from dataclasses import replace

from minitp.plan import memory
from minitp.plan.job import MIXED_FP32_GRADIENTS, PRECISIONS, Recompute, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.memory import activations
from minitp.plan.memory.rank_share import share
from minitp.plan.memory.terms import total
from minitp.plan.published.calculators import ZERO_ELEMENTS, zero_activations
from minitp.plan.speed.flops import gpt_model, gpt_selective
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.quantities.states import replicas, stage
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

CONTEXT = 1.5e9
"""Bytes that a device's driver and libraries take, beside what is planned (BLOOM's memory trials)."""


def recomputation(case: Case, default: Recompute) -> Recompute:
    """`recompute`, or what the row is called."""
    text = case.inputs.text("recompute").lower()
    if text in ("none", "selective", "full"):
        return text                                                                    # type: ignore[return-value]
    if text:
        raise CaseError(f"recompute is none, selective or full, not {text!r}")
    return default


def layer_bytes(case: Case, tp: int, recompute: Recompute, sequence: bool = False) -> float:
    """What the first rank keeps of one layer for one micro-batch, with stored scores and dropout, in fp16.

    The papers' layer: GELU, F = 4h, every head with its own k and v, unless the row says otherwise.
    """
    shape, inputs = Shape(case), case.inputs
    model = shape.planned if "ffn" in inputs or "kv_heads" in inputs else shape.gpt_layer(
        shape.heads if recompute == "none" else tp)                         # scores: CaseError where heads are unknown
    job = Training(batch=1, seq=shape.seq, micro_batch=1, recompute=recompute, stored=True, dropout=True)
    mine = share(model, Layout(tp=tp, sequence=sequence), Place(0, 0, 0, 0))
    return total(activations.layer(mine, job)) * inputs.whole("micro_batch", default=1)


@quantity("bytes", "activation_bytes", "activation_bytes_per_gpu")
def activation_bytes(case: Case) -> Planned:
    """Bytes of all layers, of one micro-batch (Korthikanti et al. 2022, table 2). Attention's scores aren't kept
    (a fused kernel), unless `recompute` is none."""
    inputs = case.inputs
    recompute = recomputation(case, "selective")
    tp, sequence = inputs.degree("tp"), inputs.flag("sp")
    value = layer_bytes(case, tp, recompute, sequence) * Shape(case).layers
    formula = {"none": "sbhL(10 + 24/t + 5as/ht)", "selective": "sbhL(10 + 24/t)", "full": "2sbhL"}[recompute]
    return Planned(value, formula if not sequence else f"{formula}, cut over t", 0.02)


@quantity("bytes", "activation_bytes_per_layer")
def activation_bytes_per_layer(case: Case) -> Planned:
    """Bytes of one layer, of one micro-batch (Korthikanti et al. 2022, table 2); by default nothing is computed
    again."""
    recompute = recomputation(case, "none")
    tp, sequence = case.inputs.degree("tp"), case.inputs.flag("sp")
    return Planned(layer_bytes(case, tp, recompute, sequence), "Korthikanti et al. 2022, table 2", 0.02)


@quantity("bytes", "activation_bytes_total")
def activation_bytes_total(case: Case) -> Planned:
    """Bytes by ZeRO's rough rule of 12 elements (Rajbhandari et al. 2020, section 3.2)."""
    inputs, shape = case.inputs, Shape(case)
    elements = inputs.positive("elems_per_token_layer", default=ZERO_ELEMENTS)
    value = zero_activations(shape.hidden, inputs.whole("micro_batch", "batch", default=1), shape.seq, shape.layers,
                             elements, inputs.positive("bytes", default=2))
    return Planned(value, f"{elements:g}·h·b·s·L elements", 0.1)


@quantity("bytes", "activation_checkpoint_bytes_per_gpu")
def activation_checkpoint_bytes_per_gpu(case: Case) -> Planned:
    """Bytes of the inputs of all layers, whole on each tp rank (Korthikanti et al. 2022, section 5)."""
    inputs, shape = case.inputs, Shape(case)
    value = (layer_bytes(case, inputs.degree("tp"), "full") * inputs.positive("bytes", default=2) / 2
             * shape.layers / inputs.degree("pp"))
    return Planned(value, "2sbhL", 0.05)


@quantity("share", "activation_saving_selective")
def activation_saving_selective(case: Case) -> Planned:
    """Share of 1 that selective recomputation saves of a layer's bytes (Korthikanti et al. 2022, section 5)."""
    tp = case.inputs.degree("tp")
    saved = 1 - layer_bytes(case, tp, "selective") / layer_bytes(case, tp, "none")
    return Planned(saved, "(5as/h)/(34 + 5as/h)", 0.02)


@quantity("share", "activation_pct_of_tp_baseline_sp_plus_selective", "activation_pct_of_tp_baseline_full_recompute",
          "activation_pct_of_tp_baseline_sp", "activation_pct_of_tp_baseline_selective")
def activation_pct_of_tp_baseline(case: Case) -> Planned:
    """Share of 1: a scheme's bytes over those of tensor parallelism alone (Korthikanti et al. 2022, figure 7)."""
    scheme = case.quantity.removeprefix("activation_pct_of_tp_baseline_")
    recompute: Recompute = "full" if "full" in scheme else "selective" if "selective" in scheme else "none"
    tp = case.inputs.degree("tp", 8)
    part = layer_bytes(case, tp, recompute, sequence=scheme.startswith("sp"))
    formula = {"sp_plus_selective": "(34/t)", "full_recompute": "2"}.get(scheme, scheme)
    return Planned(part / layer_bytes(case, tp, "none"), f"{formula}/(10 + 24/t + 5as/ht)", 0.25)


@quantity("share", "flops_overhead_selective")
def flops_overhead_selective(case: Case) -> Planned:
    """Share of 1 of the layers' operations; the printed form takes attention's part twice whole (Korthikanti et al.
    2022, appendix A)."""
    shape = Shape(case)
    more = gpt_selective(1, shape.seq, 1, shape.hidden, 0) / gpt_model(1, shape.seq, 1, shape.hidden, 0) - 1
    return Planned(more, "(1 + s/3h)/(1 + s/6h) − 1", 0.04)


@quantity("bytes", "output_tensor_dealloc_saving")
def output_tensor_dealloc_saving(case: Case) -> Planned:
    """Bytes of a stage's outputs, given free once they are sent (Korthikanti et al. 2022, appendix B): one for each
    micro-batch in flight on the first stage."""
    inputs, shape = case.inputs, Shape(case)
    value = (inputs.positive("bytes", default=2) * shape.seq * inputs.whole("micro_batch", default=1) * shape.hidden
             * inputs.degree("pp"))
    return Planned(value, "2sbhp (Korthikanti et al. 2022, appendix B)", 0.01)


@quantity("bytes", "gpu_mem_measured")
def gpu_mem_measured(case: Case) -> Planned:
    """Bytes of the fullest rank as minitp plans it, and a driver's context: a little under what the card shows."""
    inputs, shape = case.inputs, Shape(case)
    layout = Layout(tp=inputs.degree("tp"), pp=inputs.degree("pp"), dp=replicas(case),
                    zero=stage(case))                                                  # type: ignore[arg-type]
    micro_batch = inputs.whole("micro_batch", default=1)
    job = Training(batch=inputs.whole("batch", default=micro_batch * layout.dp * layout.pp), seq=shape.seq,
                   micro_batch=micro_batch, recompute=recomputation(case, "none"), stored=True, dropout=False,
                   precision=PRECISIONS.get(inputs.text("precision"), MIXED_FP32_GRADIENTS))
    job = replace(job, batch=max(job.batch, micro_batch * layout.dp * layout.pp))
    return Planned(memory.most_bytes(shape.planned, layout, job) + CONTEXT,
                   f"{layout}, {job.recompute} recomputation: the fullest rank, and 1.5 GB of context", 0.2)
