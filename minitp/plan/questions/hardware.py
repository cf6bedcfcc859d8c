"""Of devices: a GPU with a terabyte, kinds of memory, wafers of SRAM. Capacity and bandwidth are two numbers."""
from dataclasses import replace

from minitp.plan import catalogue, search, units
from minitp.plan.job import Inference
from minitp.plan.layout import Layout
from minitp.plan.machine import Device, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import GENERAL, MODELED, cards, floats, gb, some, sources, weights_of
from minitp.plan.speed import decode, what_if
from minitp.plan.speed.what_if import OnDevice

TERABYTE = 10**12
MACHINE, BIG, MIDDLE, EXPERTS = "8xa100-80", "llama-3.1-405b", "llama-2-70b", "mixtral-8x7b"
HBM = ("v100-32", "a100-40", "a100-80", "h100-80", "h200", "b200", "mi300x")
WAFERS = ("wse-2", "wse-3")


def terabyte_gpu(what: WhatIf) -> Answer:
    """C19."""
    usual, model = replace(what, memory=None).the_machine(MACHINE, 1).device, what.the_model(BIG)
    big = usual.with_memory(TERABYTE if what.memory is None else what.memory)
    dtype, batch = what.weights or "bf16", what.batch or 1
    job = Inference(batch=batch, weights=dtype)
    alone = what_if.on_each(model, job, (big,))[0]
    many = _as_many(model, job, what)
    experts = catalogue.model(EXPERTS)
    seldom = what_if.on_each(experts, replace(job, batch=1), (big,))[0]
    enough = what_if.computing_batch(big, dtype)
    wanted = big.bandwidth * what_if.reading_all(big) / what_if.reading_all(usual)
    numbers = {"reading all s": what_if.reading_all(big), "usual reading all s": what_if.reading_all(usual),
               "model s": alone.seconds, "many s": many[1], "many": float(many[0]), "computing batch": enough,
               "experts s": seldom.seconds, "devices": float(alone.needed), "bandwidth wanted": wanted}
    return Answer(
        f"{_how_large(big, usual)}: {units.both(big.memory)} at the bandwidth of {usual.name} takes "
        f"{units.duration(what_if.reading_all(big))} to read once, and that is a token of a dense model that fills it: "
        f"{1 / what_if.reading_all(big):.2g} tokens/s.",
        (f"Each token reads every weight once. Memory can be added, but the rate at which it is read doesn't grow with "
         f"it: {units.rate(usual.bandwidth)} on the data sheet, {units.percent(usual.bandwidth_reached)} of it "
         f"reached. {usual.name} reads its own {units.both(usual.memory)} in "
         f"{units.duration(what_if.reading_all(usual))}. To be as quick with {units.both(big.memory)} it would need "
         f"{units.rate(wanted)}. Many cards bring their bandwidth along with their bytes; that is what they are for.",
         _one_against_many(model, job, alone, many),
         "When more memory helps all the same: with many sequences at once, which share the reading (it computes as "
         f"long as it reads at {enough:,.0f} of them, so up to there more of them cost next to nothing); with "
         f"experts of which a token visits few ({experts.name} holds {units.both(weights_of(experts, dtype))} and "
         f"takes {units.duration(seldom.seconds)} a token); for long contexts, as room for their cache; and as a "
         f"place for what is seldom read.{' It also spares all sync points.' if alone.needed == 1 else ''}",),
        (Table(f"Capacity without bandwidth: one token, {some(batch, 'sequence')} at once (a model)",
               ("device", "GB (GiB)", "bandwidth", "reads all of it in",
                "such devices for the model, by bytes, no reserve", "reading", "computing"),
               tuple(_row(one) for one in _beside(model, job, usual, big)), (1, 2, 3, 4, 5, 6)),),
        (f"Time ≥ bytes / (bandwidth · share reached) = {big.memory / 1e9:,.0f} GB / ({big.bandwidth / 1e9:,.0f} "
         f"GB/s · {big.bandwidth_reached:g}) = {units.duration(what_if.reading_all(big))}.",
         f"Batch at which computing takes as long: peak·share / (bandwidth·share) · bytes/2 = {enough:,.0f} (Pope et "
         "al. 2023, section 3).",
         "In the table no sync points are counted, however many devices there are. " + MODELED),
        sources(model, usual, experts), floats(numbers))


def _as_many(model: PlannedModel, job: Inference, what: WhatIf) -> tuple[int, float, str]:
    """The same token on whole machines of the usual device, sync points and all: devices, seconds, layout."""
    machine = catalogue.machine(what.machine or MACHINE)
    found = search.fewest(model, machine, job, least=cards(weights_of(model, job.weights), machine.device).real)
    if found is None:
        return 0, float("inf"), ""
    best = found[1].best[0]
    return found[0].devices, best.seconds, str(best.layout)


def _one_against_many(model: PlannedModel, job: Inference, alone: OnDevice, many: tuple[int, float, str]) -> str:
    said = (f"{model.name} in {job.weights} is {units.both(weights_of(model, job.weights))}: "
            f"{some(alone.needed, 'device')} of this kind by its bytes, no reserve kept, "
            f"{units.duration(alone.seconds)} a token{' without sync points' * (alone.needed > 1)}. ")
    if not many[0]:
        return said + "No number of whole machines of the usual card that was tried carries it."
    return said + (f"{some(many[0], 'usual card')} as {many[2]} take {units.duration(many[1])}, sync points included: "
                   f"{_against(alone.seconds / many[1])}.")


def _how_large(big: Device, usual: Device) -> str:
    """Against the usual one's memory."""
    if big.memory > usual.memory:
        return "It could be built, and would be slow"
    return f"It is {'less than' if big.memory < usual.memory else 'just what'} {usual.name} has"


def _against(ratio: float) -> str:
    """The ratio of two times, the other's over one's own."""
    return f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as long"


def _beside(model: PlannedModel, job: Inference, usual: Device, big: Device) -> list[OnDevice]:
    newer = [catalogue.device(name) for name in ("h200", "b200") if name != usual.name]
    return what_if.on_each(model, job, (usual, big, *newer))


def _row(one: OnDevice) -> tuple[str, ...]:
    device = one.device
    return (device.name, gb(device.memory), units.rate(device.bandwidth), units.duration(what_if.reading_all(device)),
            f"{one.needed}", units.duration(one.reading_s), units.duration(one.computing_s))


# --- kinds of memory ------------------------------------------------------------------------------------------------


def memory_kind(what: WhatIf) -> Answer:
    """C21."""
    model, job = what.the_model(MIDDLE), Inference(batch=what.batch or 1, weights=what.weights or "bf16")
    devices = [catalogue.device(name) for name in HBM]
    if what.machine:
        devices = list(dict.fromkeys((what.the_machine(what.machine).device, *devices)))
    found = what_if.on_each(model, job, devices)
    bound = sum(one.reading_s >= one.computing_s for one in found)
    kinds = list(dict.fromkeys(device.memory_kind for device in devices if device.memory_kind.startswith("HBM")))
    by_name = {device.name: device for device in devices}
    numbers = {f"{one.device.name} {name}": value for one in found for name, value in (
        ("memory", float(one.device.memory)), ("bandwidth", one.device.bandwidth), ("seconds", one.seconds),
        ("reading all s", what_if.reading_all(one.device)), ("devices", float(one.needed)))}
    a100, h100, h200 = (by_name[name] for name in ("a100-80", "h100-80", "h200"))
    return Answer(
        f"{a100.memory_kind} on the A100 of 80 GB, {h100.memory_kind} on the H100, {h200.memory_kind} on the H200: it "
        f"sets how much a card holds, and how fast a token comes where memory bounds it, as on {bound} of these "
        f"{len(found)} cards with {some(job.batch, 'sequence')} at once.",
        (f"HBM is stacked beside the chip and wide {GENERAL}. These cards have {', '.join(kinds)}. Each "
         f"generation brings both numbers, capacity and bandwidth, and they grow apart: from A100-80 to H100 the "
         f"capacity stays {h100.memory / 1e9:g} GB and the bandwidth grows {h100.bandwidth / a100.bandwidth:.2f} "
         f"times; from H100 to H200 {h200.memory / h100.memory:.2f} and {h200.bandwidth / h100.bandwidth:.2f} times, "
         "with the same arithmetic. With the first HBM before them HBM3e is the fifth by name, so a guess of a sixth "
         f"generation is one too many for these cards {GENERAL}.",
         f"What it sets: a card's capacity says how many cards a model takes; its bandwidth how long each token takes, "
         f"as each reads all weights. {model.name} in {job.weights} is "
         f"{units.both(weights_of(model, job.weights))}. The last columns are a token of it on as few cards as hold "
         "it by bytes, no reserve kept and no sync points counted: `minitp plan` keeps a reserve and may ask for "
         "more."),
        (Table(f"Cards: {some(job.batch, 'sequence')} at once (times are a model)",
               ("card", "memory", "GB (GiB) by name", "GB (GiB) real", "bandwidth", "reads all in",
                "cards by bytes, no reserve", "a token", "bound by"),
               tuple(_card(one) for one in found), (2, 3, 4, 5, 6, 7)),),
        (f"A token = max(bytes / (cards · bandwidth · share reached), operations / (cards · peak · share reached)); on "
         f"{a100.name}: {_formula(model, job, next(one for one in found if one.device is a100))}.", MODELED),
        sources(model, devices), floats(numbers))


def _card(one: OnDevice) -> tuple[str, ...]:
    device = one.device
    return (device.name, device.memory_kind, gb(device.memory), gb(device.memory_real),
            units.rate(device.bandwidth), units.duration(what_if.reading_all(device)), f"{one.needed}",
            units.duration(one.seconds), _bound(one))


def _bound(one: OnDevice) -> str:
    return "memory" if one.reading_s >= one.computing_s else "arithmetic"


def _formula(model: PlannedModel, job: Inference, one: OnDevice) -> str:
    device = one.device
    rate = one.needed * device.bandwidth * device.bandwidth_reached
    return (f"{one.reading_s * rate / 1e9:,.1f} GB / ({one.needed} · {device.bandwidth / 1e9:,.0f} GB/s · "
            f"{device.bandwidth_reached:g}) = {units.duration(one.reading_s)} to read, "
            f"{units.duration(one.computing_s)} to compute")


# --- wafers ---------------------------------------------------------------------------------------------------------


def wafer(what: WhatIf) -> Answer:
    """C22."""
    model, job = what.the_model(MIDDLE), Inference(batch=what.batch or 1, weights=what.weights or "bf16")
    device = what.the_machine(MACHINE).device
    names = [name for name in ("a100-80", "h200", "b200", *WAFERS) if name != device.name]
    found = what_if.on_each(model, job, (device, *map(catalogue.device, names)))
    card, last = found[0], found[-1]
    share = last.device.bandwidth / card.device.bandwidth
    numbers = {f"{one.device.name} {name}": value for one in found for name, value in (
        ("devices", float(one.needed)), ("reading s", one.reading_s), ("computing s", one.computing_s),
        ("memory", float(one.device.memory)), ("bandwidth", one.device.bandwidth))}
    between = _between(model, job, last)
    numbers |= {"between wafers s": between.network_s if between else 0.0, "bandwidth ratio": share}
    return Answer(
        f"{_traded(last.device, card.device)}: a wafer of SRAM holds {last.device.memory / 1e9:g} GB, one "
        f"{card.device.name} {card.device.memory / 1e9:g} GB, and a wafer reads at {share:,.0f} times the rate. "
        f"A step of {some(job.batch, 'token')} is bound by {_bound(last)} there, and by "
        f"{_bound(card)} on {card.device.name}.",
        (f"SRAM lies among the arithmetic and takes far more area a bit than the DRAM of HBM {GENERAL}: a whole wafer "
         f"has {units.both(last.device.memory)} at {units.rate(last.device.bandwidth)}; {card.device.name} has "
         f"{units.both(card.device.memory)} at {units.rate(card.device.bandwidth)}. More HBM has its price too: it "
         f"stands beside the chip, whose edge has room for so many stacks only {GENERAL}.",
         f"{model.name} in {job.weights} takes {some(last.needed, 'wafer')} or {some(card.needed, 'card')} by bytes, "
         f"no reserve kept. Read alone: {units.duration(last.reading_s)} against {units.duration(card.reading_s)}. A "
         f"wafer then computes for {units.duration(last.computing_s)}; {_passed(between)}."),
        (Table(f"One decode step of {model.name}, {some(job.batch, 'sequence')} (a model, without sync points)",
               ("device", "memory", "GB (GiB)", "bandwidth",
                "devices by bytes, no reserve", "filled", "reading", "computing", "bound by"),
               tuple(_wafer_row(one) for one in found), (2, 3, 4, 5, 6, 7)),),
        (f"Reading: {_formula(model, job, card)} on {card.device.name}; {_formula(model, job, last)} on "
         f"{last.device.name}.",
         "Bandwidth of SRAM is what the maker adds up over all cores, each of which reaches its own part; what of it a "
         "real product reaches is assumed. " + MODELED), sources(model, [one.device for one in found]), floats(numbers))


def _wafer_row(one: OnDevice) -> tuple[str, ...]:
    device = one.device
    return (device.name, device.memory_kind, gb(device.memory), units.rate(device.bandwidth), f"{one.needed}",
            units.percent(one.share), units.duration(one.reading_s), units.duration(one.computing_s), _bound(one))


def _traded(wafer: Device, card: Device) -> str:
    """Capacity for bandwidth, or not."""
    if wafer.memory < card.memory and wafer.bandwidth > card.bandwidth:
        return "They trade it for speed"
    return "No trade against this device" if wafer.bandwidth <= card.bandwidth else "Here it has more of both"


def _passed(between: decode.PassTime | None) -> str:
    if between is None:
        return "as there is one wafer, nothing passes from wafer to wafer"
    return (f"and what passes from wafer to wafer takes about {units.duration(between.network_s)} a token, "
            f"{units.percent(between.latency_s / between.network_s)} of it latency")


def _between(model: PlannedModel, job: Inference, one: OnDevice) -> decode.PassTime | None:
    """A token whose messages go from wafer to wafer, each a stage of a pipeline."""
    if one.needed == 1:
        return None
    machine: Machine = catalogue.machine(f"{one.needed}x{one.device.name}")
    stages = min(one.needed, model.config.layers)
    return decode.token(model, Layout(pp=stages), job, machine)


QUESTIONS = (
    Question("terabyte-gpu", "Why does nobody build a GPU with 1 TB of memory?", terabyte_gpu, ("C19",),
             ("model", "machine", "memory", "weights", "batch")),
    Question("memory-kind", "Which memory do these cards have (a sixth generation of HBM?), and what does it set?",
             memory_kind, ("C21",), ("model", "machine", "weights", "batch")),
    Question("wafer", "Why don't Nvidia or Cerebras offer more memory per device?", wafer, ("C22",),
             ("model", "machine", "memory", "weights", "batch")),
)
