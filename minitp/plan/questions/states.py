"""What training holds: 10 to 20 times the parameters, number types, what grows with what, ZeRO's stages."""
from dataclasses import replace
from math import frexp, ldexp

from minitp.errors import ConfigError
from minitp.plan import catalogue, memory, search, units
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, PRECISIONS, Precision, Recompute, Training
from minitp.plan.layout import Layout
from minitp.plan.memory import growth
from minitp.plan.model import PlannedModel
from minitp.plan.published import deepspeed
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    UNCOUNTED,
    cards,
    floats,
    gb,
    several,
    some,
    sources,
    training_tokens,
    weights_of,
)
from minitp.plan.rows import by_kind
from minitp.plan.speed import flops, step, traffic

MACHINE, GPT3, SMALL = "8xa100-80", "gpt-3-175b", "llama-2-7b"
SCHEMES = (("to run it, bf16", Precision(2, 0, 0, 0)), ("pure bf16, no master copy", PRECISIONS["pure-bf16"]),
           ("float32", PRECISIONS["float32"]), ("mixed: 2 + 2 + 12", MIXED),
           ("mixed, gradients in float32", MIXED_FP32_GRADIENTS))
DEVICES, BF16_BITS = 1000, 8
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


def ten_to_twenty(what: WhatIf) -> Answer:
    """C10."""
    model, device = what.the_model(GPT3), what.the_machine(MACHINE).device
    p, job = model.parameters, Training(what.batch or 1, what.seq or 2048, what.batch or 1)
    schemes = [(name, precision.states) for name, precision in SCHEMES]
    stage2 = deepspeed.zero2_gpu(deepspeed.Setup(p, optimizer=False, weights=False))[0] / p
    schemes.append(("DeepSpeed's estimate of ZeRO-2 on one card", stage2))
    held = {name: _activations(model, replace(job, recompute=again, stored=stored)) for name, again, stored in
            (("none, scores stored", "none", True), *((again, again, False) for again in RECOMPUTE))}
    numbers = {"states": MIXED.states, "states fp32 gradients": MIXED_FP32_GRADIENTS.states, "states zero-2": stage2,
               "with activations": MIXED.states + held["none"] / p, "with full": MIXED.states + held["full"] / p}
    numbers |= {f"activations {name}": size for name, size in held.items()}
    return Answer(
        f"Right, in bytes a parameter: {MIXED.states:g}, {MIXED_FP32_GRADIENTS.states:g} or {stage2:g} by scheme "
        f"before activations, against {SCHEMES[0][1].states:g} to run it; activations of "
        f"{some(job.micro_batch, 'sequence')} add {held['full'] / p:.2g} to {held['none'] / p:.2g}, by what is "
        "computed again.",
        (f"Adam keeps two moments, and mixed precision a float32 copy of the weights beside the working ones: "
         f"{MIXED.weights:g} + {MIXED.gradients:g} + {MIXED.optimizer:g} bytes. For {model.name} that is "
         f"{units.both(p * MIXED.states)}, {MIXED.states / SCHEMES[0][1].states:g} times its file in bf16. None of "
         "this depends on the batch.",
         f"Activations do: {some(job.micro_batch, 'sequence')} of {job.seq:,} tokens keeps "
         f"{units.both(held['none'])} if nothing is computed again, {held['none'] / p:.2g} bytes a parameter, and "
         f"{units.both(held['full'])} if each layer is. With attention's scores stored, as before fused kernels, it "
         f"was {units.both(held['none, scores stored'])}. They grow with the sequences worked on at once."),
        (Table("States", ("scheme", "bytes a parameter", "GB (GiB)", "cards by bytes, nominal / real"),
               tuple((name, f"{each:g}", gb(each * p), "{0.nominal} / {0.real}".format(cards(each * p, device)))
                     for name, each in schemes), (1, 2, 3)),
         Table(f"Activations of {some(job.micro_batch, 'sequence')} of {job.seq:,} tokens, all layers", (
             "computed again", "GB (GiB)", "bytes a parameter", "together with states"),
             tuple((name, gb(size), f"{size / p:.3g}", f"{MIXED.states + size / p:.3g}")
                   for name, size in held.items()), (1, 2, 3))),
        ("States: Rajbhandari et al. 2020, section 3.1; float32 gradients: Megatron-LM, BLOOM; DeepSpeed: 4P + 16P/N "
         "with N = 1. Activations: the arrays that minitp's layers save (Korthikanti et al. 2022, table 2).",
         UNCOUNTED), sources(model, device), floats(numbers))


def _activations(model: PlannedModel, job: Training) -> float:
    """Bytes kept for the backward pass, were the model on one device; logits are told apart."""
    _, rows = memory.worst(model, Layout(), job)
    return float(by_kind(rows).get("activations", 0))


# --- number types ---------------------------------------------------------------------------------------------------


def precision(what: WhatIf) -> Answer:
    """C09 and C16."""
    model, device = what.the_model(GPT3), what.the_machine(MACHINE).device
    tokens = training_tokens(model, what.tokens).number
    work = flops.training_flops(model.active_parameters, tokens)
    peaks = {dtype: peak for dtype, peak in device.flops.items() if dtype in ("float32", "tf32", "bf16", "fp16", "fp8")}
    days = {dtype: flops.training_days(work, DEVICES, peak * device.flops_reached) for dtype, peak in peaks.items()}
    half = next((dtype for dtype in ("bf16", "fp16") if dtype in peaks), "")
    if not half or "float32" not in peaks:
        raise ConfigError(f"{device.name} has no units for half precision; ask about a machine whose devices do")
    stalls, bloom = _stalls(BF16_BITS), catalogue.run("bloom-176b")
    kept = [run.name for run in catalogue.runs().values() if run.training.precision.gradients == 4]
    m = bloom.training.micro_batches(bloom.layout.dp) if bloom.layout else 0
    more = model.parameters * (MIXED_FP32_GRADIENTS.states - MIXED.states)
    numbers = {"speedup": peaks[half] / peaks["float32"], "stalls at": stalls, "more bytes": more,
               "fp32 gradients": MIXED_FP32_GRADIENTS.states, "micro-batches": m}
    numbers |= {f"days {dtype}": value for dtype, value in days.items()}
    return Answer(
        f"Mostly half: {half} for products and what is sent, float32 for the copy that is updated. Gradients summed in "
        f"float32 are sensible: they cost {MIXED_FP32_GRADIENTS.states - MIXED.states:g} bytes a parameter.",
        (f"Products in {half} are {numbers['speedup']:.3g} times as fast as in float32 by the data sheet of "
         f"{device.name}{_tensor_units(peaks, half)}, activations and what is sent are half the bytes. The states "
         f"are no smaller: {MIXED.states:g} bytes a parameter either way, as float32 "
         f"({PRECISIONS['float32'].states:g}) needs no second copy.",
         f"Why sums stay in float32: bf16 has {BF16_BITS} significant bits. Ones added up in it stop at {stalls:g}, as "
         f"{stalls:g} + 1 rounds to {stalls:g}. A step of BLOOM adds up the gradients of {m} micro-batches and of its "
         "replicas, and each would lose digits as the sum grows; an update is often less than such a share of its "
         "weight and would be lost whole, hence the float32 copy. Norms, softmax and the loss are computed in "
         "float32 for the same reason.",
         f"Of the catalogue's runs {', '.join(kept)} keep gradients in float32. For {model.name} that is "
         f"{units.both(more)} more over all cards, and twice the bytes when they are summed."),
        (Table(f"{model.name}: what is kept", ("scheme", "weights", "gradients", "master", "moments", "bytes together",
                                              "GB (GiB)"), tuple(_scheme(model, name, one) for name, one in
                                                                 PRECISIONS.items()), (1, 2, 3, 4, 5, 6)),
         Table(f"The same training on {DEVICES:,} {device.name}, {units.count(tokens)} tokens (a model)", (
             "products in", "peak, data sheet", "days"),
             tuple((dtype, units.flops(peaks[dtype]), f"{value:,.1f}") for dtype, value in days.items()), (1, 2))),
        (f"Days = 6PT / ({DEVICES:,} · peak · {device.flops_reached:g}), the same share of each peak assumed.",
         MODELED),
        sources(model, device, bloom), floats(numbers))


def _tensor_units(peaks: dict[str, float], half: str) -> str:
    """Against float32 rounded for tensor units."""
    return f" ({peaks[half] / peaks['tf32']:.3g} times as fast as in tf32)" if "tf32" in peaks else ""


def _scheme(model: PlannedModel, name: str, one: Precision) -> tuple[str, ...]:
    return (name, *(f"{value:g}" for value in (one.weights, one.gradients, one.master, one.moments, one.states)),
            gb(model.parameters * one.states))


def _stalls(bits: int) -> float:
    """Where a sum of ones stops in a type of so many significant bits, half rounded to even: added up, not looked
    up."""
    total = 0.0
    while (more := _rounded(total + 1, bits)) != total:
        total = more
    return total


def _rounded(value: float, bits: int) -> float:
    fraction, exponent = frexp(value)
    return ldexp(round(ldexp(fraction, bits)), exponent - bits)


# --- what grows with what -------------------------------------------------------------------------------------------


def parameters_times_batch(what: WhatIf) -> Answer:
    """C13."""
    model, job = what.the_model(SMALL), Training(what.batch or 1, what.seq or 2048, what.batch or 1)
    grown = growth.growth(model, Layout(), job)
    held, all_of_it = growth.by_growth(grown), sum(one.row.bytes for one in grown)
    wider, more = growth.wider(model), growth.more_sequences(job)
    totals = {name: memory.most_bytes(of, Layout(), of_job) for name, of, of_job in (
        ("as asked", model, job), ("twice as wide", wider, job), ("twice the sequences", model, more),
        ("both", wider, more))}
    base = totals["as asked"]
    product = base * wider.parameters / model.parameters * 2
    numbers = dict(held.items()) | {f"total {name}": size for name, size in totals.items()}
    shown = sorted(grown, key=lambda one: -one.row.bytes)[:12]
    return Answer(
        f"Right: memory is a sum. Of {units.both(all_of_it)} {units.percent(held['with parameters'] / all_of_it)} "
        f"grows with the parameters alone, {units.percent(held['with both'] / all_of_it)} with parameters and batch, "
        f"{units.percent(held['with batch'] / all_of_it)} with the batch alone.",
        (f"Taken apart for {model.name}, {some(job.micro_batch, 'sequence')} of {job.seq:,} tokens, were it on one "
         "device: weights, gradients and optimizer state don't know the batch; activations are width × tokens; logits "
         "are vocabulary × tokens and don't know the width. Nothing is looked up here: each term is computed again for "
         "a model twice as wide, and for twice the sequences.",
         f"Twice as wide is {wider.parameters / model.parameters:.2f} times the parameters and "
         f"{totals['twice as wide'] / base:.2f} times the memory; twice the sequences "
         f"{totals['twice the sequences'] / base:.2f} times; both {totals['both'] / base:.2f} times, where "
         f"parameters × batch would be {product / base:.2f}."),
        (Table("The largest terms", ("term", "GB (GiB)", "× if twice as wide", "× for twice the sequences",
                                     "× for twice the tokens", "grows"),
               tuple((f"{one.row.kind}: {one.row.term}", gb(one.row.bytes), f"{one.width:.2g}", f"{one.batch:.2g}",
                      f"{one.tokens:.2g}", one.grows) for one in shown), (1, 2, 3, 4)),
         Table("In all", ("what", "GB (GiB)", "×"), tuple((name, gb(size), f"{size / base:.3g}")
                                                         for name, size in totals.items()), (1, 2))),
        ("M = states·P + (bytes a token and layer)·b·s·L·h-like widths + 4·b·s·V. The app's page Memory and machines "
         "has this as two sliders.", UNCOUNTED), sources(model), floats(numbers))


# --- ZeRO -----------------------------------------------------------------------------------------------------------


def zero(what: WhatIf) -> Answer:
    """What each stage holds and moves."""
    model, machine = what.the_model(SMALL), what.the_machine(MACHINE, 64)
    d = several(machine.devices)
    job = Training((what.batch or 1) * d, what.seq or 2048, what.batch or 1, recompute="full")
    rows, numbers = [], dict[str, float]()
    for stage in (0, 1, 2, 3):
        layout = Layout(dp=d, zero=stage)                                                # type: ignore[arg-type]
        held = by_kind(memory.worst(model, layout, job)[1])
        states = sum(held.get(kind, 0) for kind in ("weights", "gradients", "optimizer"))
        sent = traffic.by_axis(traffic.step(model, layout, job, machine)).get("dp", 0.0)
        time = step.training_step(model, layout, job, machine)
        fits = isinstance(search.judge(model, layout, job, machine), search.Candidate)
        hidden = time.hidden.get("dp", 0.0)
        bare = sum(row.seconds for row in time.rows if row.term == step.NAMES["dp"])
        rows.append((f"{stage}", *(gb(held.get(kind, 0)) for kind in ("weights", "gradients", "optimizer")), gb(states),
                     "yes" if fits else "no", gb(sent), units.duration(hidden), units.duration(bare),
                     units.duration(time.seconds)))
        numbers |= {f"stage {stage} states": states, f"stage {stage} sent": sent, f"stage {stage} step s": time.seconds,
                    f"stage {stage} fits": fits, f"stage {stage} hidden s": hidden, f"stage {stage} bare s": bare}
    p, width = model.parameters, weights_of(model, "bf16")
    return Answer(
        f"The same numbers, each kept once instead of {d} times: from {units.both(numbers['stage 0 states'])} a card "
        f"to {units.both(numbers['stage 3 states'])}; stage 3 sends "
        f"{numbers['stage 3 sent'] / numbers['stage 1 sent']:.2g} times what stage 1 does.",
        (f"{model.name} on {some(d, 'replica')} of one card each. Stage 1 cuts the optimizer state over the replicas, "
         "stage 2 the gradients too, stage 3 the weights: then each layer's weights are gathered before they are used, "
         "forward and backward, and dropped again. Parameters move there, where tensor parallelism would move "
         "activations.",
         "Up to stage 2 an all-reduce of the gradients becomes a reduce-scatter and an all-gather of the weights: the "
         "same bytes. Stage 3 gathers twice. With m micro-batches a step it gathers for each of them.",
         _beside_the_passes(numbers)),
        (Table(f"A card's share, and what it sends in a step of {some(what.batch or 1, 'sequence')} a card (a model)", (
            "stage", "weights, GB (GiB)", "gradients, GB (GiB)", "optimizer, GB (GiB)", "together, GB (GiB)", "fits",
            "sent, GB (GiB)", "sending beside the passes", "sending that takes time of its own", "step"), tuple(rows),
            (0, 1, 2, 3, 4, 6, 7, 8, 9)),),
        (f"States: 16P, 4P + 12P/d, 2P + 14P/d, 16P/d with P = {p / 1e9:.2f}e9, d = {d} (Rajbhandari et al. 2020, "
         f"table 1). Sent: 2P, 2P, 2P, 3P numbers · (d − 1)/d, of {width / p:g} bytes (section 7).",
         UNCOUNTED, MODELED),
        sources(model, machine), floats(numbers))


def _beside_the_passes(numbers: dict[str, float]) -> str:
    """What more sending does to the step."""
    less, more = (numbers[f"stage {stage} step s"] for stage in (1, 3))
    hidden, bare = numbers["stage 3 hidden s"], numbers["stage 3 bare s"]
    sending = (f"Of stage 3's sending {units.duration(hidden)} runs beside the passes and takes no time of its own, "
               f"{units.duration(bare)} does.")
    if abs(more / less - 1) < CLOSE:
        return f"{sending} So its step takes as long as stage 1's, {units.duration(more)}, for all that it sends more."
    return (f"{sending} Its step takes {units.duration(more)}, stage 1's {units.duration(less)}: "
            f"{more / less:.3g} times as long.")


CLOSE = 0.01                                # times that differ by less are told as alike

QUESTIONS = (
    Question("ten-to-twenty", "Does training take 10 to 20 times the parameter count?", ten_to_twenty, ("C10",),
             ("model", "machine", "memory", "seq", "batch")),
    Question("precision", "Do they train in single precision, and are single-precision gradients sensible?", precision,
             ("C09", "C16"), ("model", "machine", "tokens")),
    Question("parameters-times-batch", "Is memory proportional to parameters × batch?", parameters_times_batch,
             ("C13",), ("model", "seq", "batch")),
    Question("zero", "What do ZeRO's stages hold, and what do they move?", zero, ("C05", "C14"),
             ("model", "machine", "memory", "devices", "link", "between", "seq", "batch")),
)
