"""Of running a model: sync points, what moves, which axis is cut."""
from minitp.plan import catalogue, memory, units
from minitp.plan.job import Inference, Training, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import curve
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, cached, floats, gb, several, some, sources, weights_of
from minitp.plan.rows import by_kind
from minitp.plan.speed import decode, traffic
from minitp.plan.speed.syncs import syncs

MACHINE, MIDDLE, SMALLEST, PARALLEL, LONG = ("8xa100-80", "llama-2-70b", "smollm2-135m", "gpt-neox-20b",
                                             "llama-3.1-70b")


def sync_points(what: WhatIf) -> Answer:
    """C02."""
    names = (SMALLEST, MIDDLE, PARALLEL)
    models = [what.the_model(MIDDLE)] if what.model else [catalogue.model(name) for name in names]
    main = models[0] if what.model else catalogue.model(MIDDLE)
    machine, prompt, batch = what.the_machine(MACHINE), what.seq or 100, what.batch or 8
    layout = Layout(tp=min(machine.devices, main.config.heads))
    passes = ((1, 1, "1 new token"), (1, prompt, f"a prompt of {some(prompt, 'token')}"),
              (batch, 1, f"{some(batch, 'sequence')}, a token each"))
    one, many = (decode.token(main, layout, Inference(batch=n), machine) for n in (1, batch))
    numbers: dict[str, float] = {f"{model.name} {times}": curve.sync_points(model, n, t) for model in models
               for n, t, times in ((1, 1, "token"), (1, prompt, "prompt"), (batch, 1, "batch"))}
    numbers |= {"token s": one.seconds, "network s": one.network_s, "batch s": many.seconds}
    count = curve.sync_points(main)
    return Answer(
        f"Nearly: {_a_layer(main)}, and two at the ends: {'L' if main.config.parallel_block else '2L'} + 2 of a "
        f"forward pass, whatever it carries{' (one card waits for none of them)' * (layout.tp == 1)}. "
        f"{main.name} with {main.config.layers} layers has {count}.",
        ("A layer sums twice, after attention and after the MLP, as what follows is a norm, and a norm of a sum is not "
         f"the sum of norms. Only where both read the same input are they summed together, once a layer: {PARALLEL} "
         f"with {catalogue.model(PARALLEL).config.layers} layers has {curve.sync_points(catalogue.model(PARALLEL))}.",
         f"They are counted by pass, not by token: a prompt of {some(prompt, 'token')} has as many as one token, and "
         f"{some(batch, 'sequence')} share theirs: {count / batch:.1f} a token. Speculation shares them in the "
         "same way.",
         f"What they cost: of a token of {main.name} on {some(layout.tp, 'card')} of {machine.name}, "
         f"{units.duration(one.seconds)}, {units.duration(one.network_s)} is waiting for them "
         f"({units.percent(one.network_s / one.seconds)}). With {some(batch, 'sequence')} a pass takes "
         f"{units.duration(many.seconds)} and gives {some(batch, 'token')}."),
        (Table("Sync points of one pass", ("model", "layers", *(name for _, _, name in passes), "a token of the batch"),
               tuple((model.name, f"{model.config.layers}",
                      *(f"{curve.sync_points(model, n, t)}" for n, t, _ in passes),
                      f"{curve.sync_points(model, batch) / batch:.1f}") for model in models), (1, 2, 3, 4, 5)),
         Table(f"One token of {main.name} on {some(layout.tp, 'card')} (a model)", ("term", "numbers", "time"),
               tuple((row.term, row.numbers, units.duration(row.seconds)) for row in one.rows), (2,))),
        (f"2L + 2 = 2 · {main.config.layers} + 2 = {2 * main.config.layers + 2}: the embedding, two a layer, and the "
         "logits when they are gathered. The count is the closed form that every trace of minitp is checked against."
         if not main.config.parallel_block else
         f"L + 2 = {main.config.layers} + 2: attention and MLP side by side.", MODELED),
        sources(models, machine), floats(numbers))


def _a_layer(model: PlannedModel) -> str:
    return ("one a layer, as attention and MLP read the same input" if model.config.parallel_block else
            "two a layer, not one")


# --- what moves -----------------------------------------------------------------------------------------------------


def what_moves(what: WhatIf) -> Answer:
    """C05."""
    model, machine = what.the_model(MIDDLE), what.the_machine(MACHINE)
    n, batch, seq = several(machine.devices), what.batch or 1, what.seq or 2048
    job = Training(batch * n, seq, batch)
    layouts = (("tensor parallel", Layout(tp=n)), ("with sequence parallelism", Layout(tp=n, sequence=True)),
               ("ZeRO-3", Layout(dp=n, zero=3)))
    rows, numbers = [], dict[str, float]()
    for name, layout in layouts:
        moved = traffic.step(model, layout, job, machine)
        sent = sum(row.sent for row in moved)
        activations = sum(row.sent for row in moved if row.axis != "dp")
        if layout.tp > 1:
            numbers[f"{name} collectives a layer"] = sum(row.count for row in moved) / (
                model.config.layers * job.micro_batches(layout.dp))
        rows.append((name, gb(sent), "activations" if activations > sent / 2 else "parameters",
                     f"{len(moved)} kinds, {sum(row.count for row in moved):,}",
                     f"{units.both(memory.most_bytes(model, layout, job))}"))
        numbers[f"{name} sent"] = sent
    token = sum(sync.elements * sync.times * (model.config.layers if sync.part == "layer" else 1)
                for sync in syncs(model, Layout(tp=n), 1, 1)) * bytes_of("bf16")
    share = 2 * (n - 1) / n
    weights = weights_of(model, "bf16") * (n - 1) / n
    even = weights / max(token * share, 1)
    numbers |= {"token payload": token, "token sent": token * share, "weights moved": weights, "even tokens": even}
    less = "less" if numbers["tensor parallel sent"] < numbers["ZeRO-3 sent"] else "more"
    return Answer(
        f"True of tensor and pipeline parallelism: parameters stay, activations move. ZeRO-3 is the other way round. "
        f"For a token that is {units.both(token * share)} a card against {units.both(weights)}.",
        (f"To make one token of {model.name} on {some(n, 'card')}, each card sends {units.both(token * share)} of "
         f"activations in all its sync points. Were the parameters gathered instead, each would receive "
         f"{units.both(weights)} for every pass. That is why nobody generates so.",
         f"In training a pass carries many tokens, and the balance shifts: activations grow with tokens, parameters "
         f"don't. With {some(job.batch, 'sequence')} of {seq:,} tokens a step, {batch} for each card, and nothing "
         f"computed again, tensor parallelism sends {less} than ZeRO-3 here. Forward passes over fewer than about "
         f"{even:,.0f} tokens move less as activations."),
        (Table(f"A training step of {some(job.batch, 'sequence')} of {seq:,} tokens, nothing computed "
               "again: what a card sends", (
            "how", "GB (GiB)", "mostly", "collectives", "held by the fullest card"), tuple(rows), (1, 3, 4)),),
        (f"Token: Σ of its sync points · 2(t − 1)/t = {token / 1e6:.3g} MB · {share:g}. Parameters: 2P·(d − 1)/d = "
         f"{weights / 1e9:,.1f} GB. Training: 3·m·P·(d − 1)/d numbers for ZeRO-3 (Rajbhandari et al. 2020, section 7), "
         f"{numbers['tensor parallel collectives a layer']:.3g} sync points a layer and micro-batch, as minitp's "
         f"traces count them, for tensor parallelism, {job.micro_batches(1):,} times a step; computing every layer "
         "again in the backward pass would add half as many.",),
        sources(model, machine), floats(numbers))


# --- which axis -----------------------------------------------------------------------------------------------------


def embedding_or_time(what: WhatIf) -> Answer:
    """C06."""
    model, machine = what.the_model(LONG), what.the_machine(MACHINE)
    n, context = several(machine.devices), what.seq or model.config.positions
    job = Inference(what.batch or 1, max(1, context - 1), 1)
    rows, numbers = _over_time(model, machine, job)
    ring, one = _training_axes(model, machine, Training(n, context, 1)), cached(model)
    return Answer(
        "Right for what is computed and half right for what is kept: a new token has no time axis to cut, but the "
        "cache behind it has.",
        ("A decode step computes one new position. Along time there is nothing to divide: each rank would need all "
         "weights for the same one row. Along the embedding axis, heads and feed-forward rows, every rank reads its "
         f"share of the weights, {units.percent(numbers['cp 1 reading s'] / numbers['cp 1 s'])} of the time of a token "
         "here.",
         f"The KV cache has {context:,} entries a sequence and can be cut along time: each rank attends to its "
         f"piece, and maximum, sum and output of each head are merged. {_kv_copies(model, n)} The price is seen in the "
         "table: where ranks go to time they don't divide the weights.",
         "Prefill and training have all positions at once and can be cut along time too: sequence parallelism cuts "
         "norms and residual stream, at the same bytes as before; context parallelism passes keys and values round "
         f"a ring. In a step of {n} sequences of {some(context, 'token')}, one after the other over {n} cards "
         f"and nothing computed again, that is {units.both(ring['cp'])} a card and {units.both(ring['gradients'])} of "
         f"gradients, where tensor parallelism sends {units.both(ring['tensor'])}. But each card then holds all "
         "weights."),
        (Table(f"One new token of {model.name}, {some(job.batch, 'sequence')} of {context:,} tokens cached, {n} "
               "cards (a model)", ("ranks over heads × over time", "weights a card, GB (GiB)", "KV cache, GB (GiB)",
                                   "reading", "network", "a token"), rows, (0, 1, 2, 3, 4, 5)),),
        (f"Cache of one token: {one.formula} = {one.numbers} = {one.bytes:,} B, / ranks. Merging: Milakov & "
         "Gimelshein 2018; ring: Liu et al. 2023; sequence parallelism: Korthikanti et al. 2022.", MODELED),
        sources(model, machine), floats(numbers | {f"training {axis}": size for axis, size in ring.items()}))


def _over_time(model: PlannedModel, machine: Machine,
               job: Inference) -> tuple[tuple[tuple[str, ...], ...], dict[str, float]]:
    """Ranks given to heads and to time in every ratio: a row for each, and the numbers."""
    n, rows, numbers = machine.devices, [], dict[str, float]()
    for cp in [k for k in (1, 2, 4, 8) if n % k == 0]:
        layout = Layout(tp=n // cp, cp=cp)
        held = by_kind(memory.worst(model, layout, job)[1])
        time = decode.token(model, layout, job, machine)
        rows.append((f"{n // cp} × {cp}", gb(held.get("weights", 0)), gb(held.get("kv cache", 0)),
                     units.duration(time.memory_s), units.duration(time.network_s), units.duration(time.seconds)))
        numbers |= {f"cp {cp} cache": held.get("kv cache", 0), f"cp {cp} weights": held.get("weights", 0),
                    f"cp {cp} s": time.seconds, f"cp {cp} reading s": time.memory_s}
    return tuple(rows), numbers


def _kv_copies(model: PlannedModel, ranks: int) -> str:
    kv = model.config.kv_heads
    if kv < ranks:
        return (f"{kv} kv heads divide over {kv} ranks at most, beyond which ranks hold copies; cut along time there "
                "are none.")
    return f"Cut by its {kv} kv heads it divides over {ranks} ranks without copies just as well."


def _training_axes(model: PlannedModel, machine: Machine, job: Training) -> dict[str, float]:
    """Bytes a card sends in a step: all devices over time, and all over the embedding axis."""
    n = machine.devices
    over_time = traffic.by_axis(traffic.step(model, Layout(cp=n), job, machine))
    over_heads = traffic.step(model, Layout(tp=n, sequence=True), job, machine)
    return {"cp": over_time.get("cp", 0.0), "gradients": over_time.get("dp", 0.0),
            "tensor": sum(row.sent for row in over_heads)}


QUESTIONS = (
    Question("sync-points", "Is the price of the split about as many sync points per token as there are layers?",
             sync_points, ("C02",), ("model", "machine", "devices", "link", "seq", "batch")),
    Question("what-moves", "Are the parameters spread among machines without moving at each iteration?", what_moves,
             ("C05",), ("model", "machine", "devices", "seq", "batch")),
    Question("embedding-or-time", "Is that why it is cut along the embedding axis and not along time?",
             embedding_or_time, ("C06",), ("model", "machine", "devices", "link", "seq", "batch")),
)
