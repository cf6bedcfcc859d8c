"""Of running a model beside its weights: the longest context, experts, one small card."""
from dataclasses import replace

from minitp.plan import catalogue, search, units
from minitp.plan.job import BYTES, Inference
from minitp.plan.layout import Layout
from minitp.plan.memory.capacity import LIMIT, Capacity, longest_context, most, most_sequences, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, UNCOUNTED, box, cached, floats, gb, some, sources, weights_of
from minitp.plan.speed import decode, flops

MACHINE, MIDDLE, EXPERTS = "8xa100-80", "llama-2-70b", "mixtral-8x7b"


def longest(what: WhatIf) -> Answer:
    """What fits beside the weights."""
    model, machine = what.the_model(MIDDLE), what.the_machine(MACHINE)
    layout = Layout(tp=min(machine.devices, model.config.heads))
    dtype, batch, seq = what.weights or "bf16", what.batch or 1, what.seq or 4096
    capacity, job, c = Capacity.of(machine.device), Inference(batch, 1, max(0, seq - 1), weights=dtype), model.config
    each, without = cached(model), cached(replace(model, config=replace(c, kv_heads=c.heads)))
    at_once = _at_once(model, layout, job, capacity)
    tokens, sequences = _longest(model, layout, job, capacity), most_sequences(model, layout, job, capacity)
    rows = [(name, f"{_at_once(model, layout, kind, capacity):,}",
             f"{_longest(model, layout, kind, capacity):,}", f"{most_sequences(model, layout, kind, capacity):,}")
            for name, kind in _kinds(job)]
    numbers = {"bytes a token": each.bytes, "longest": tokens, "longest at once": at_once, "sequences": sequences,
               "without groups": without.bytes}
    trained = f" (its own positions end at {c.positions:,})" if tokens > c.positions else ""
    return Answer(
        f"{tokens:,} tokens of {some(batch, 'sequence')}{trained}, or {some(sequences, 'sequence')} of {seq:,} "
        f"tokens, on {some(layout.tp, 'card')} of {machine.name}." if tokens else
        f"None: {model.name} in {dtype} doesn't fit {some(layout.tp, 'card')} of {machine.name} at all.",
        (f"Each token of context keeps a key and a value in every layer: {units.both(each.bytes)} for {model.name}, "
         f"all cards together. Its weights in {dtype} are {units.both(weights_of(model, dtype))}; what is left beside "
         f"them and the reserve is for caches. "
         + (f"With a key and value for each of {c.heads} query heads it would be {units.both(without.bytes)} a token; "
            f"{c.kv_heads} kv heads share." if c.kv_heads < c.heads else
            f"Each of {c.heads} query heads has a key and a value of its own."),
         "That is with prompts taken piece by piece. All of a prompt in one pass keeps the arrays of that pass as "
         f"well, and {at_once:,} tokens fit. By bytes alone: what length a model was trained for is another matter, "
         "and the time of a token grows with its cache."),
        (Table(f"{model.name} on {box(machine)}", (
            "weights, cache", f"longest of {some(batch, 'sequence')}, prompt in one pass", "piece by piece",
            f"most sequences of {seq:,} tokens"), tuple(rows), (1, 2, 3)),),
        (f"One token: {each.formula} = {each.numbers} = {each.bytes:,} B ({each.source}).",
         UNCOUNTED), sources(model, machine), floats(numbers))


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
    numbers |= {f"step {n} s": time.seconds for n, time in times.items()}
    dense = model.experts == 1
    return Answer(
        f"{model.name} is dense: a token visits all of it." if dense else
        f"{model.name} needs the memory of {units.count(all_of_it)} parameters and computes like "
        f"{units.count(active)}: a token visits {model.active} of {model.experts} experts.",
        (f"A token reads all {units.both(weights_of(model, dtype))} in {dtype}, and so does a batch: more sequences "
         "share the same reading." if dense else
         f"All experts must be there, {units.both(weights_of(model, dtype))} in {dtype}, as nobody knows which the "
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
    Question("longest-context", "Which context, and how many sequences, fit beside the weights?", longest, (),
             ("model", "machine", "memory", "devices", "weights", "seq", "batch")),
    Question("experts", "What does a mixture of experts need, in memory and in time?", experts, (),
             ("model", "machine", "devices", "link", "weights", "batch")),
    Question("one-card", "Which model runs on one card of 24 GB, or on a laptop?", one_card, (),
             ("model", "machine", "memory", "devices", "weights", "seq"), "Which model runs on such a machine?"),
)
