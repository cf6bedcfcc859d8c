"""Trainings: of 70–175B on one machine, of GPT-3, of the biggest; planned beside what was published."""
from dataclasses import replace
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue, search, units
from minitp.plan.job import MIXED, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.questions import runs
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    UNCOUNTED,
    box,
    cards,
    floats,
    gb,
    published_tokens,
    some,
    sources,
)
from minitp.plan.speed import flops, step

MACHINE, GPT3, SMALLER = "8xa100-80", "gpt-3-175b", "llama-65b"
HOFFMANN = 20.0
"""Tokens a parameter, about, that train a model of given compute best (Hoffmann et al. 2022, Chinchilla)."""


def on_one_machine(what: WhatIf) -> Answer:
    """C11."""
    machine = what.the_machine(MACHINE)
    models = [what.the_model(GPT3)] if what.model else [catalogue.model(SMALLER), catalogue.model(GPT3)]
    rows, told, said, numbers = [], [], [], dict[str, float]()
    total = machine.devices * machine.device.memory_real
    rate = machine.device.peak("bf16") * machine.device.flops_reached
    for model in models:
        tokens, source = (what.tokens, "as asked") if what.tokens else _tokens_of(model)
        states, work = model.parameters * MIXED.states, flops.training_flops(model.active_parameters, tokens)
        days = flops.training_days(work, machine.devices, rate)
        needed = cards(states, machine.device)
        rows.append((model.name, gb(states), f"{states / total:.2f}", f"{needed.nominal} / {needed.real}",
                     units.count(tokens), f"{work:.3g}", units.duration(days * flops.DAY)))
        numbers |= {f"{model.name} {name}": float(value) for name, value in (
            ("bytes", states), ("days", days), ("flops", work), ("cards", needed.nominal))}
        told.append(f"{model.name}: 6 · {model.active_parameters / 1e9:.1f}e9 · {tokens:.3g} = {work:.3g} FLOP, / "
                    f"({machine.devices} · {rate / 1e12:.0f} TFLOP/s) = {days:,.0f} days. Tokens: {source}")
        said.append((states > total, days))
    small, large = models[0], models[-1]
    bytes_right = all(one[0] for one in said)
    return Answer(
        f"{'Right on both counts' if bytes_right else 'Its bytes would fit'}: {large.name} needs "
        f"{numbers[f'{large.name} bytes'] / total:.1f} times the machine's memory before activations, and "
        f"{units.duration(numbers[f'{large.name} days'] * flops.DAY)} of computing.",
        (f"{box(machine)} hold {units.both(total)} as they report. {small.name} needs "
         f"{units.both(numbers[f'{small.name} bytes'])} of weights, gradients and optimizer state"
         + (f", {large.name} {units.both(numbers[f'{large.name} bytes'])}" if large is not small else "")
         + ". Activations come on top: what they take depends on batch and recomputation.",
         f"Time is the harder limit. Were the memory there, the machine would compute for "
         f"{' and '.join(units.duration(days * flops.DAY) for _, days in said)}"
         + ": one can move states to the host's memory or to disks (offloading, not planned here), but nothing makes "
         f"{some(machine.devices, 'card')} compute more."),
        (Table(f"Training on {box(machine)} (times are a model)",
               ("model", "states, GB (GiB)", "× its memory", "cards by bytes, nominal / real", "tokens",
                "FLOP, 6PT", "computing"), tuple(rows), (1, 2, 3, 4, 5, 6)),),
        (*told, f"States: {MIXED.states:g} bytes a parameter = 2 + 2 + 12 (Rajbhandari et al. 2020, section 3.1). "
         f"Rate: {units.percent(machine.device.flops_reached)} of the peak of "
         f"{units.flops(machine.device.peak('bf16'))}.",
         "Communication, bubbles and what recomputation adds aren't in these days: they are a bound from below."),
        sources(models, machine), floats(numbers))


def _tokens_of(model: PlannedModel) -> tuple[float, str]:
    """As published, or by a rule; and who says so."""
    tokens, source = published_tokens(model)
    return (tokens, source) if tokens else (HOFFMANN * model.active_parameters,
                                            f"{HOFFMANN:g} a parameter (Hoffmann et al. 2022)")


# --- GPT-3 ----------------------------------------------------------------------------------------------------------

FOUR_HUNDRED = 400
A_MACHINE, MACHINES = 8, 100
RATES = (("gpt-3-175b-sc21", "A100"), ("gpt-3-175b", "V100"))


def gpt3(what: WhatIf) -> Answer:
    """C18."""
    model, devices = what.the_model(GPT3), what.devices or FOUR_HUNDRED
    tokens = what.tokens or published_tokens(model)[0] or published_tokens(catalogue.model(GPT3))[0]
    work = flops.training_flops(model.active_parameters, tokens)
    states = model.parameters * MIXED.states
    rows, numbers = [], {"flops": work, "states": states, "machines of 8": -(-devices // A_MACHINE)}
    for name, kind in RATES:
        run = catalogue.run(name)
        rate, card = run.published["tflops"] * 1e12, run.machine.device
        days, floor = flops.training_days(work, devices, rate), cards(states, card)
        rows.append((f"{devices} {card.name}", f"{rate / 1e12:g}", f"{days:,.0f}",
                     f"{devices * card.memory / 1e12:,.1f}", f"{floor.nominal} / {floor.real}",
                     f"{run.published['days']:g} on {run.machine.devices:,}"))
        numbers |= {f"{kind} days": days, f"{kind} floor": floor.nominal, f"{kind} floor real": floor.real}
    planned, old = runs.judged(catalogue.run("gpt-3-175b-sc21-384"), WhatIf()), catalogue.run(RATES[-1][0])
    numbers |= {"planned days on 384": planned.time.days or 0, "fits on 384": float(planned.verdict.fits)}
    return Answer(
        f"It could have been: {devices:,} A100 need {units.duration(numbers['A100 days'] * flops.DAY)} at the rate "
        f"that was published for them, {devices:,} V100 {units.duration(numbers['V100 days'] * flops.DAY)} at "
        "theirs. The paper says V100, and no number.",
        (f"{model.name} ({model.config.layers} layers, {units.count(model.parameters)} parameters) on "
         f"{units.count(tokens)} tokens is 6PT = {work:.3g} FLOP. {devices} cards are {-(-devices // A_MACHINE)} "
         f"machines of {A_MACHINE}, whatever memory they have; {MACHINES} machines with {devices} cards would have "
         f"{devices / MACHINES:g} in each. Both ways of saying it may be right, and neither is published.",
         f"Memory sets the floor, and it is far below {devices}: {units.both(states)} of states are "
         f"{numbers['A100 floor']:.0f} A100 or {numbers['V100 floor']:.0f} V100 before activations. Time sets the "
         f"number of cards: at {old.published['tflops']:g} TFLOP/s, which one estimate assumes for the V100, "
         f"{numbers['V100 days']:,.0f} days on {devices}; that estimate itself is of {old.machine.devices:,} cards and "
         f"{old.published['days']:g} days.",
         f"A layout that somebody ran near that size: {planned.layout} on {planned.layout.devices} A100. Planned: "
         f"{units.both(planned.verdict.needed)} on the fullest card and {planned.time.days:,.0f} days; published: "
         f"{planned.run.published['days']:g} days."),
        (Table("6PT at published rates", ("cards", "TFLOP/s a card, published", "days", "memory, TB",
                                          "floor by states, cards nominal / real", "published for another number, "
                                          "days"),
               tuple(rows), (1, 2, 3, 4)),),
        (f"Days = 6PT / (cards · rate · 86,400 s): {work:.3g} / ({devices} · "
         f"{catalogue.run(RATES[0][0]).published['tflops']:g}e12 · 86,400) = {numbers['A100 days']:.1f}. Narayanan et "
         "al. 2021 count 8PT for full recomputation, which is a third more; their rate counts those operations too.",
         MODELED), sources(model, [catalogue.run(name) for name, _ in RATES], planned.run), floats(numbers))


# --- the biggest ----------------------------------------------------------------------------------------------------

BIGGEST, H100, SIZES = "llama-3.1-405b", "meta-24k-h100", (1024, 2048, 4096, 8192, 16384)


def train_biggest(what: WhatIf) -> Answer:
    """C07, for a training: the same batch on more and more cards."""
    model = what.the_model(BIGGEST)
    run = next((run for run in catalogue.runs().values() if run.model == model and run.training.tokens),
               catalogue.run("llama-3.1-405b"))
    tokens = what.tokens or published_tokens(model)[0] or HOFFMANN * model.active_parameters
    job = replace(run.training, batch=what.batch or run.training.batch, seq=what.seq or run.training.seq, tokens=tokens)
    machine, states = what.the_machine(H100), model.parameters * job.precision.states
    sizes = (what.devices,) if what.devices else SIZES
    found = [(n, _best(model, job, what.the_machine(H100, n))) for n in sizes]
    fit = [(n, best) for n, best in found if best is not None]
    floor = cards(states, machine.device)
    numbers: dict[str, float] = {"states": states, "floor": floor.nominal, "floor real": floor.real}
    for n, best in fit:
        numbers |= {f"{n} days": best.days, f"{n} mfu": best.time.mfu, f"{n} held": best.held}
    ends = [fit[0], *fit[1:][-1:]] if fit else []
    told = "; ".join(f"{n:,} cards {best.days:,.0f} days" for n, best in ends) or "none of these numbers carries it"
    return Answer(
        f"{floor.nominal} cards by the bytes of its states; the time asks for more: {told}.",
        (f"{model.name}: {model.parameters:,} parameters, {job.precision.states:g} bytes each with gradients in "
         f"{job.precision.gradients:g} bytes, {units.both(states)}. Planned is a batch of {job.batch:,} sequences of "
         f"{job.seq:,} tokens, {units.count(tokens)} tokens in all. It is the same batch on every number of cards, so "
         "with more of them each replica has fewer micro-batches, its pipeline idles longer, and twice the cards "
         "give less than half the days.", *_as_published(model)),
        (Table(f"On {box(machine)} machines, planned (a model)", (
            "cards", "best layout that fits", "fullest card, GB (GiB)", "step", "MFU", "days"),
            tuple(_size_row(n, best) for n, best in found), (0, 2, 3, 4, 5)),),
        (f"States: {model.parameters / 1e9:.1f}e9 · {job.precision.states:g} B = {states / 1e12:.2f} TB, / "
         f"{machine.device.memory / 1e9:g} GB = {states / machine.device.memory:.1f} cards. Tried: tensor parallelism "
         f"over a machine, every pipeline and data parallel degree, ZeRO-1, all recomputations, micro-batch 1, plain "
         "1F1B.", UNCOUNTED, MODELED), sources(model, machine, run), floats(numbers))


class Best(NamedTuple):
    """The fastest layout that fits."""
    layout: Layout
    recompute: str
    held: int
    time: step.StepTime

    @property
    def days(self) -> float:
        return self.time.days or 0.0


def _best(model: PlannedModel, job: Training, machine: Machine) -> Best | None:
    """The fastest layout that fits; None where none does, or the batch can't be dealt."""
    try:
        found = search.search(model, machine, job, search.Limits(tp=min(machine.per_machine, machine.devices), zero=1,
                                                                 micro_batch=1))
    except ConfigError:
        return None
    for one in found.best[:1]:
        if isinstance(one.job, Training) and isinstance(one.time, step.StepTime):
            return Best(one.layout, one.job.recompute, one.held, one.time)
    return None


def _size_row(n: int, best: Best | None) -> tuple[str, ...]:
    if best is None:
        return (f"{n:,}", "none", "–", "–", "–", "–")
    return (f"{n:,}", f"{best.layout}, recompute {best.recompute}", gb(best.held), units.duration(best.time.seconds),
            units.percent(best.time.mfu), f"{best.days:,.0f}")


def _as_published(model: PlannedModel) -> list[str]:
    """What its authors printed."""
    told = [f"{run.machine.devices:,} cards as {run.layout}, MFU {units.percent(run.published['mfu'])}"
            for run in catalogue.runs().values() if run.model == model and run.layout and "mfu" in run.published]
    if not told:
        return []
    return ["Published: " + "; ".join(told) + ". They interleave stages, which plain 1F1B here doesn't."]


QUESTIONS = (
    Question("train-on-one-machine", "Can 70–175B be trained on one machine of 8 × 80 GB, if slowly?", on_one_machine,
             ("C11",), ("model", "machine", "memory", "devices", "tokens")),
    Question("gpt-3", "Was GPT-3 (96 layers, 175B) trained on about 400 GPUs, 100 machines of the day?", gpt3,
             ("C18",), ("model", "devices", "tokens")),
    Question("train-biggest", "How many GPUs does it take to train the biggest LLaMA, and how long?", train_biggest,
             ("C07",), ("model", "machine", "memory", "devices", "between", "tokens", "batch", "seq")),
)
