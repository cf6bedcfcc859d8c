"""Of running a model: sync points, what moves, which axis is cut, the longest context, experts, one small card."""
from dataclasses import replace

from minitp.plan import catalogue, memory, search, units
from minitp.plan.job import BYTES, Inference, Training, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import LIMIT, Capacity, longest_context, most, most_sequences, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.network import curve
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, UNCOUNTED, box, floats, gb, several, some, sources, weights_of
from minitp.plan.rows import by_kind
from minitp.plan.speed import decode, flops, traffic
from minitp.plan.speed.syncs import syncs

MACHINE, MIDDLE, SMALLEST, PARALLEL, LONG, EXPERTS = ("8xa100-80", "llama-2-70b", "smollm2-135m", "gpt-neox-20b",
                                                      "llama-3.1-70b", "mixtral-8x7b")


def sync_points(what: WhatIf) -> Answer:
    """C02."""
    names = (SMALLEST, MIDDLE, PARALLEL)
    models = [what.the_model(MIDDLE)] if what.model else [catalogue.model(name) for name in names]
    main = models[0] if what.model else catalogue.model(MIDDLE)
    machine, prompt, batch = what.the_machine(MACHINE), what.seq or 100, what.batch or 8
    layout = Layout(tp=min(machine.devices, main.config.heads))
    passes = ((1, 1, "1 new token"), (1, prompt, f"a prompt of {some(prompt, 'token')}"),
              (batch, 1, f"{batch} sequences, a token each"))
    one, many = (decode.token(main, layout, Inference(batch=n), machine) for n in (1, batch))
    numbers: dict[str, float] = {f"{model.name} {times}": curve.sync_points(model, n, t) for model in models
               for n, t, times in ((1, 1, "token"), (1, prompt, "prompt"), (batch, 1, "batch"))}
    numbers |= {"token s": one.seconds, "network s": one.network_s, "batch s": many.seconds}
    count = curve.sync_points(main)
    return Answer(
        f"Nearly: two a layer, not one, and two at the ends: 2L + 2 of a forward pass, whatever it carries. "
        f"{main.name} with {main.config.layers} layers has {count}.",
        ("A layer sums twice, after attention and after the MLP, as what follows is a norm, and a norm of a sum is not "
         f"the sum of norms. Only where both read the same input are they summed together, once a layer: {PARALLEL} "
         f"with {catalogue.model(PARALLEL).config.layers} layers has {curve.sync_points(catalogue.model(PARALLEL))}.",
         f"They are counted by pass, not by token: a prompt of {some(prompt, 'token')} has as many as one token, and "
         f"{batch} sequences share theirs: {count / batch:.1f} a token. Speculation shares them in the same way.",
         f"What they cost: of a token of {main.name} on {some(layout.tp, 'card')} of {machine.name}, "
         f"{units.duration(one.seconds)}, {units.duration(one.network_s)} is waiting for them "
         f"({units.percent(one.network_s / one.seconds)}). With {batch} sequences a pass takes "
         f"{units.duration(many.seconds)} and gives {batch} tokens."),
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


# --- what moves -----------------------------------------------------------------------------------------------------


def what_moves(what: WhatIf) -> Answer:
    """C05."""
    model, machine = what.the_model(MIDDLE), what.the_machine(MACHINE)
    n, batch, seq = several(machine.devices), what.batch or 1, what.seq or 2048
    job = Training(batch * n, seq, batch, recompute="full")
    layouts = (("tensor parallel", Layout(tp=n)), ("with sequence parallelism", Layout(tp=n, sequence=True)),
               ("ZeRO-3", Layout(dp=n, zero=3)))
    rows, numbers = [], dict[str, float]()
    for name, layout in layouts:
        moved = traffic.step(model, layout, job, machine)
        sent = sum(row.sent for row in moved)
        activations = sum(row.sent for row in moved if row.axis != "dp")
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
         f"don't. With {some(batch, 'sequence')} of {seq:,} tokens a card and step, tensor parallelism sends {less} "
         f"than ZeRO-3 here. Forward passes over fewer than about {even:,.0f} tokens move less as activations."),
        (Table(f"A training step of {job.batch} sequences of {seq:,} tokens: what a card sends", (
            "how", "GB (GiB)", "mostly", "collectives", "held by the fullest card"), tuple(rows), (1, 3, 4)),),
        (f"Token: Σ of its sync points · 2(t − 1)/t = {token / 1e6:.3g} MB · {share:g}. Parameters: 2P·(d − 1)/d = "
         f"{weights / 1e9:,.1f} GB. Training: 3·m·P·(d − 1)/d numbers for ZeRO-3 (Rajbhandari et al. 2020, section 7), "
         "sync points as minitp's traces count them for tensor parallelism.",),
        sources(model, machine), floats(numbers))


# --- which axis -----------------------------------------------------------------------------------------------------


def embedding_or_time(what: WhatIf) -> Answer:
    """C06."""
    model, machine = what.the_model(LONG), what.the_machine(MACHINE)
    n, context = machine.devices, what.seq or model.config.positions
    job = Inference(what.batch or 1, max(1, context - 1), 1)
    rows, numbers = [], dict[str, float]()
    for cp in [k for k in (1, 2, 4, 8) if n % k == 0]:
        layout = Layout(tp=n // cp, cp=cp)
        held = by_kind(memory.worst(model, layout, job)[1])
        time = decode.token(model, layout, job, machine)
        rows.append((f"{n // cp} × {cp}", gb(held.get("weights", 0)), gb(held.get("kv cache", 0)),
                     units.duration(time.memory_s), units.duration(time.network_s), units.duration(time.seconds)))
        numbers |= {f"cp {cp} cache": held.get("kv cache", 0), f"cp {cp} weights": held.get("weights", 0),
                    f"cp {cp} s": time.seconds}
    c, longer = model.config, Training(n, context, 1, recompute="full")
    ring = _training_axes(model, machine, longer)
    numbers |= {f"training {axis}": size for axis, size in ring.items()}
    copies = c.kv_heads < n
    return Answer(
        "Right for what is computed and half right for what is kept: a new token has no time axis to cut, but the "
        "cache behind it has.",
        ("A decode step computes one new position. Along time there is nothing to divide: each rank would need all "
         "weights for the same one row. Along the embedding axis, heads and feed-forward rows, every rank reads its "
         "share of the weights, and that reading is the time.",
         f"The KV cache has {context:,} entries a sequence and can be cut along time: each rank attends to its "
         "piece, and maximum, sum and output of each head are merged. "
         + (f"{c.kv_heads} kv heads divide over {c.kv_heads} ranks at most, beyond which ranks hold copies; cut "
            "along time there are none." if copies else
            f"Cut by its {c.kv_heads} kv heads it divides over {n} ranks without copies just as well.")
         + " The price is seen in the table: where ranks go to time they don't divide the weights.",
         "Prefill and training have all positions at once and can be cut along time too: sequence parallelism cuts "
         "norms and residual stream, at the same bytes as before; context parallelism passes keys and values round "
         f"a ring, {units.both(ring['cp'])} a card and step here and {units.both(ring['gradients'])} of gradients, "
         f"where tensor parallelism sends {units.both(ring['tensor'])} for the same sequences. But each card then "
         "holds all weights."),
        (Table(f"One new token of {model.name}, {some(job.batch, 'sequence')} of {context:,} tokens cached, {n} "
               "cards (a model)", ("ranks over heads × over time", "weights a card, GB (GiB)", "KV cache", "reading",
                                   "network", "a token"), tuple(rows), (0, 1, 2, 3, 4, 5)),),
        (f"Cache: 2 · L · kv · e · 2 B = 2 · {c.layers} · {c.kv_heads} · {c.head_size} · 2 = "
         f"{2 * c.layers * c.kv_heads * c.head_size * 2:,} B a token of context, / ranks. Merging: Milakov & "
         "Gimelshein 2018; ring: Liu et al. 2023; sequence parallelism: Korthikanti et al. 2022.", MODELED),
        sources(model, machine), floats(numbers))


def _training_axes(model: PlannedModel, machine: Machine, job: Training) -> dict[str, float]:
    """Bytes a card sends in a step: all devices over time, and all over the embedding axis."""
    n = machine.devices
    over_time = traffic.by_axis(traffic.step(model, Layout(cp=n), job, machine))
    over_heads = traffic.step(model, Layout(tp=n, sequence=True), job, machine)
    return {"cp": over_time.get("cp", 0.0), "gradients": over_time.get("dp", 0.0),
            "tensor": sum(row.sent for row in over_heads)}


# --- contexts -------------------------------------------------------------------------------------------------------


def longest(what: WhatIf) -> Answer:
    """What fits beside the weights."""
    model, machine = what.the_model(MIDDLE), what.the_machine(MACHINE)
    layout = Layout(tp=min(machine.devices, model.config.heads))
    dtype, batch, seq = what.weights or "bf16", what.batch or 1, what.seq or 4096
    capacity, job, c = Capacity.of(machine.device), Inference(batch, 1, max(0, seq - 1), weights=dtype), model.config
    each = 2 * c.layers * c.kv_heads * c.head_size * bytes_of(job.cache)
    at_once = _at_once(model, layout, job, capacity)
    tokens, sequences = _longest(model, layout, job, capacity), most_sequences(model, layout, job, capacity)
    rows = [(name, f"{_at_once(model, layout, kind, capacity):,}",
             f"{_longest(model, layout, kind, capacity):,}", f"{most_sequences(model, layout, kind, capacity):,}")
            for name, kind in _kinds(job)]
    without = each * c.heads / c.kv_heads
    numbers = {"bytes a token": each, "longest": tokens, "longest at once": at_once, "sequences": sequences,
               "without groups": without}
    trained = f" (its own positions end at {c.positions:,})" if tokens > c.positions else ""
    return Answer(
        f"{tokens:,} tokens of {some(batch, 'sequence')}{trained}, or {some(sequences, 'sequence')} of {seq:,} "
        f"tokens, on {some(layout.tp, 'card')} of {machine.name}." if tokens else
        f"None: {model.name} in {dtype} doesn't fit {some(layout.tp, 'card')} of {machine.name} at all.",
        (f"Each token of context keeps a key and a value in every layer: {units.both(each)} for {model.name}, all "
         f"cards together. Its weights in {dtype} are {units.both(weights_of(model, dtype))}; what is left beside "
         f"them and the reserve is for caches. With a key and value for each of {c.heads} query heads it would be "
         f"{units.both(without)} a token; {c.kv_heads} kv heads share.",
         "That is with prompts taken piece by piece. All of a prompt in one pass keeps the arrays of that pass as "
         f"well, and {at_once:,} tokens fit. By bytes alone: what length a model was trained for is another matter, "
         "and the time of a token grows with its cache."),
        (Table(f"{model.name} on {box(machine)}", (
            "weights, cache", f"longest of {some(batch, 'sequence')}, prompt in one pass", "piece by piece",
            f"most sequences of {seq:,} tokens"), tuple(rows), (1, 2, 3)),),
        (f"2 · L · kv · e · bytes = 2 · {c.layers} · {c.kv_heads} · {c.head_size} · {bytes_of(job.cache):g} = "
         f"{each:,.0f} B a token.", UNCOUNTED), sources(model, machine), floats(numbers))


def _at_once(model: PlannedModel, layout: Layout, job: Inference, capacity: Capacity) -> int:
    """The longest prompts that fit where they go through whole."""
    return longest_context(model, layout, replace(job, new=0, prefill_tokens=LIMIT), capacity)


def _longest(model: PlannedModel, layout: Layout, job: Inference, capacity: Capacity) -> int:
    """The longest cache whose tokens come a few at a time."""
    return most(lambda n: verdict(model, layout, replace(job, prompt=1, new=n - 1), capacity).fits)


def _kinds(job: Inference) -> list[tuple[str, Inference]]:
    """Number types of weights and cache to compare."""
    pairs = dict.fromkeys(((job.weights, "bf16"), (job.weights, "fp8"), ("fp8", "fp8"), ("int4", "fp8")))
    return [(f"{weights}, {cache}", replace(job, weights=weights, cache=cache)) for weights, cache in pairs]


# --- experts --------------------------------------------------------------------------------------------------------


def experts(what: WhatIf) -> Answer:
    """Memory of all of them, time of those that are visited."""
    model, machine = what.the_model(EXPERTS), what.the_machine(MACHINE)
    layout, dtype = Layout(tp=min(machine.devices, model.config.heads)), what.weights or "bf16"
    batches = (1, 4, 16, 64, 256) if what.batch is None else (1, what.batch)
    times = {n: decode.token(model, layout, Inference(n, weights=dtype), machine) for n in dict.fromkeys(batches)}
    rows = tuple((f"{n}", f"{flops.touched(model.experts, model.active, n):.2f}", gb(time.bytes_read),
                  units.duration(time.seconds), f"{time.tokens_per_s:,.0f}") for n, time in times.items())
    all_of_it, active = model.parameters, model.active_parameters
    numbers = {"parameters": all_of_it, "active": active, "share": active / all_of_it, "one s": times[1].seconds}
    numbers |= {f"read {n}": time.bytes_read for n, time in times.items()}
    dense = model.experts == 1
    return Answer(
        f"{model.name} is dense: a token visits all of it." if dense else
        f"{model.name} needs the memory of {units.count(all_of_it)} parameters and computes like "
        f"{units.count(active)}: a token visits {model.active} of {model.experts} experts.",
        (f"All experts must be there, {units.both(weights_of(model, dtype))} in {dtype}, as nobody knows which the "
         f"next token visits. One token reads {units.percent(active / all_of_it)} of the parameters. But a batch "
         "reads the experts that any of its tokens visits: with many sequences it is all of them, and the time of a "
         "step grows until it is that of a dense model of the whole size. Then each expert's reading is shared by "
         "many tokens.",),
        (Table(f"A step on {some(layout.tp, 'card')} of {machine.name} (a model)", (
            "sequences", f"of {model.experts} experts visited", "read by a card, GB (GiB)", "a step", "tokens/s"),
            rows, (0, 1, 2, 3, 4)),),
        (f"Experts visited by b tokens: E·(1 − (1 − k/E)ᵇ) with E = {model.experts}, k = {model.active}, chosen at "
         "random; real routers are less even.", MODELED), sources(model, machine), floats(numbers))


# --- one card -------------------------------------------------------------------------------------------------------

CARD, AT_HOME = "1xrtx-4090", ("smollm2-135m", "smollm2-1.7b", "llama-3.1-8b", "llama-2-13b", "gpt-neox-20b",
                               "llama-33b", "mixtral-8x7b", "llama-3.1-70b")
AT_HOME_TYPES = ("bf16", "int8", "q4_0")


def one_card(what: WhatIf) -> Answer:
    """Which model runs at home."""
    machine = what.the_machine(CARD)
    models = [what.the_model(MIDDLE)] if what.model else [catalogue.model(name) for name in AT_HOME]
    types = (what.weights,) if what.weights else AT_HOME_TYPES
    seq = what.seq or 2048
    rows, numbers, fitting = [], dict[str, float](), []
    for model in models:
        cells = []
        for dtype in types:
            found = search.search(model, machine, Inference(prompt=max(1, seq - 1), new=1, weights=dtype))
            cells.append(_tokens_per_s(1 / found.best[0].seconds) if found.best else "no")
            numbers[f"{model.name} {dtype}"] = 1 / found.best[0].seconds if found.best else 0.0
            fitting += [(model.parameters, f"{model.name} in {dtype}")] if found.best else []
        rows.append((model.name, units.count(model.parameters), *cells))
    best = max(fitting)[1] if fitting else "none of these"
    device = machine.device
    return Answer(
        f"The largest of these that {some(machine.devices, 'device')} of {device.name} runs: {best}.",
        (f"{device.name} has {units.both(device.memory_real)} of {device.memory_kind}, read at "
         f"{units.rate(device.bandwidth)}. A model fits if its weights and the cache of {seq:,} tokens do, beside the "
         "reserve. Its speed is bytes over bandwidth: half the bytes, twice the tokens. Formats with 4 bits a number "
         f"keep a scale in every block: {BYTES['q4_0'] * 8:g} bits in all.",),
        (Table(f"Tokens a second, one sequence of {seq:,} tokens (a model)", ("model", "parameters", *types),
               tuple(rows), tuple(range(1, len(types) + 2))),),
        (f"Seconds a token ≥ bytes / ({device.bandwidth / 1e9:,.1f} GB/s · {device.bandwidth_reached:g}). On a "
         "computer of your own `minitp plan calibrate` measures that rate, and --machine this takes it.",
         UNCOUNTED, MODELED),
        sources(machine), floats(numbers))


def _tokens_per_s(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


QUESTIONS = (
    Question("sync-points", "Is the price of the split about as many sync points per token as there are layers?",
             sync_points, ("C02",), ("model", "machine", "devices", "link", "seq", "batch")),
    Question("what-moves", "Are the parameters spread among machines without moving at each iteration?", what_moves,
             ("C05",), ("model", "machine", "devices", "seq", "batch")),
    Question("embedding-or-time", "Is that why it is cut along the embedding axis and not along time?",
             embedding_or_time, ("C06",), ("model", "machine", "devices", "link", "seq", "batch")),
    Question("longest-context", "Which context, and how many sequences, fit beside the weights?", longest, (),
             ("model", "machine", "memory", "devices", "weights", "seq", "batch")),
    Question("experts", "What does a mixture of experts need, in memory and in time?", experts, (),
             ("model", "machine", "devices", "link", "weights", "batch")),
    Question("one-card", "Which model runs on one card of 24 GB, or on a laptop?", one_card, (),
             ("model", "machine", "memory", "devices", "weights", "seq")),
)
