"""Trainings: of 70–175B on one machine, and of GPT-3; planned beside what was published."""
from collections.abc import Sequence
from typing import NamedTuple

from minitp.plan import catalogue, units
from minitp.plan.catalogue import PublishedRun
from minitp.plan.job import MIXED, Recompute
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.questions import runs
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    Cards,
    Tokens,
    box,
    cards,
    floats,
    gb,
    some,
    sources,
    training_tokens,
)
from minitp.plan.speed import flops

MACHINE, GPT3, SMALLER = "8xa100-80", "gpt-3-175b", "llama-65b"


class Bound(NamedTuple):
    """A training on one machine: bytes of its states against the memory, and computing alone."""
    model: PlannedModel
    states: float
    cards: Cards
    tokens: Tokens
    work: float
    days: float


def _bound(model: PlannedModel, machine: Machine, asked: float | None) -> Bound:
    tokens, states = training_tokens(model, asked), model.parameters * MIXED.states
    work = flops.training_flops(model.active_parameters, tokens.number)
    return Bound(model, states, cards(states, machine.device), tokens, work,
                 flops.training_days(work, machine.devices, _rate(machine)))


def _rate(machine: Machine) -> float:
    """FLOP/s that a card reaches in large products."""
    return machine.device.peak("bf16") * machine.device.flops_reached


def on_one_machine(what: WhatIf) -> Answer:
    """C11."""
    machine = what.the_machine(MACHINE)
    models = [what.the_model(GPT3)] if what.model else [catalogue.model(SMALLER), catalogue.model(GPT3)]
    bounds = [_bound(model, machine, what.tokens) for model in models]
    total = machine.devices * machine.device.memory_real
    small, large = bounds[0], bounds[-1]
    mixed = len({one.states <= total for one in bounds}) > 1
    numbers = {f"{one.model.name} {name}": float(value) for one in bounds for name, value in (
        ("bytes", one.states), ("days", one.days), ("flops", one.work), ("cards", one.cards.nominal))}
    return Answer(
        f"{_whether(bounds, total)} "
        f"{'; '.join(f'{one.model.name} needs {_asked_of(one, total)}' for one in (bounds if mixed else [large]))}.",
        (f"{box(machine)} hold {units.both(total)} as they report. {small.model.name} needs "
         f"{units.both(small.states)} of weights, gradients and optimizer state"
         + (f", {large.model.name} {units.both(large.states)}" if large is not small else "")
         + ". Activations come on top: what they take depends on batch and recomputation.",
         f"Whether or not the memory is there, the machine computes for "
         f"{' and '.join(units.duration(one.days * flops.DAY) for one in bounds)}"
         + ": one can move states to the host's memory or to disks (offloading, not planned here), but nothing makes "
         f"{some(machine.devices, 'card')} compute more."),
        (Table(f"Training on {box(machine)} (times are a model)",
               ("model", "states, GB (GiB)", "× its memory", "cards by bytes, nominal / real", "tokens",
                "FLOP, 6PT", "computing"), tuple(_bound_row(one, total) for one in bounds), (1, 2, 3, 4, 5, 6)),),
        (*(_worked_out(one, machine) for one in bounds), f"States: {MIXED.states:g} bytes a parameter = 2 + 2 + 12 "
         f"(Rajbhandari et al. 2020, section 3.1). Rate: {units.percent(machine.device.flops_reached)} of the peak of "
         f"{units.flops(machine.device.peak('bf16'))}.",
         "Communication, bubbles and what recomputation adds aren't in these days: they are a bound from below."),
        sources(models, machine), floats(numbers))


YEAR = 365 * flops.DAY


def _whether(bounds: Sequence[Bound], total: float) -> str:
    """Bytes and time, of all of them."""
    fits, slow = [one.states <= total for one in bounds], [one.days * flops.DAY > YEAR for one in bounds]
    by_bytes = "Its states fit" if all(fits) else "One fits, one doesn't" if any(fits) else "No"
    if all(slow):
        return f"{by_bytes}, and slow it would be:"
    return f"{by_bytes}:" if any(slow) else f"{by_bytes}, and it would take less than a year:"


def _asked_of(one: Bound, total: float) -> str:
    """Of a machine."""
    return (f"{one.states / total:.2g} times the machine's memory before activations, and "
            f"{units.duration(one.days * flops.DAY)} of computing")


def _days(days: float, unit: str = " days") -> str:
    """Whole ones where they are many."""
    return (f"{days:,.0f}" if days >= 100 else f"{days:.3g}") + unit


def _bound_row(one: Bound, total: float) -> tuple[str, ...]:
    return (one.model.name, gb(one.states), f"{one.states / total:.2f}", f"{one.cards.nominal} / {one.cards.real}",
            units.count(one.tokens.number), f"{one.work:.3g}", units.duration(one.days * flops.DAY))


def _worked_out(one: Bound, machine: Machine) -> str:
    return (f"{one.model.name}: 6 · {one.model.active_parameters / 1e9:.1f}e9 · {one.tokens.number:.3g} = "
            f"{one.work:.3g} FLOP, / ({machine.devices} · {_rate(machine) / 1e12:.0f} TFLOP/s) = {_days(one.days)}. "
            f"Tokens: {one.tokens.source}")


# --- GPT-3 ----------------------------------------------------------------------------------------------------------

FOUR_HUNDRED = 400
A_MACHINE, MACHINES = 8, 100
NEAR = "gpt-3-175b-sc21-384"


class Rate(NamedTuple):
    """A published rate of a run of the catalogue. `counted`: the recomputation whose operations it holds."""
    run: str
    card: str
    counted: Recompute


RATES = (Rate("gpt-3-175b-sc21", "A100", "full"), Rate("gpt-3-175b", "V100", "none"))
"""Narayanan et al. 2021 (section 3.4) count the second forward pass of full recomputation, 8PT; Patterson et al. 2021
count 6PT."""
WITHOUT_AND_WITH: tuple[Recompute, ...] = ("none", "full")


class Trained(NamedTuple):
    """GPT-3's training on some cards at a published rate, in days: with what that rate counts, and by 6PT alone."""
    rate: Rate
    run: PublishedRun
    floor: Cards
    counted: float
    least: float

    @property
    def per_card(self) -> float:
        """FLOP/s, published."""
        return self.run.published["tflops"] * 1e12


def _at_rate(rate: Rate, model: PlannedModel, tokens: float, devices: int) -> Trained:
    run = catalogue.run(rate.run)
    per_card, parameters = run.published["tflops"] * 1e12, model.active_parameters
    counted, least = (flops.training_days(flops.training_flops(parameters, tokens, again), devices, per_card)
                      for again in (rate.counted, "none"))
    return Trained(rate, run, cards(model.parameters * MIXED.states, run.machine.device), counted, least)


def gpt3(what: WhatIf) -> Answer:
    """C18."""
    model, devices = what.the_model(GPT3), what.devices or FOUR_HUNDRED
    tokens = training_tokens(model, what.tokens).number
    new, old = (_at_rate(rate, model, tokens, devices) for rate in RATES)
    planned = runs.judged(catalogue.run(NEAR), WhatIf())
    published = what.tokens is None and model == planned.run.model           # else what was published is another's
    work, again = (flops.training_flops(model.active_parameters, tokens, kind) for kind in WITHOUT_AND_WITH)
    return Answer(
        f"{_could(new, old, devices)}: {devices:,} A100 at the {new.per_card / 1e12:g} TFLOP/s published for them need "
        f"{units.duration(new.counted * flops.DAY)} with full recomputation, as that rate counts it (8PT), and "
        f"{units.duration(new.least * flops.DAY)} by 6PT; {devices:,} V100 at {old.per_card / 1e12:g}, an estimate, "
        f"{units.duration(old.least * flops.DAY)} by 6PT."
        f"{' The paper says V100, and no number.' if published else ''}",
        (f"{model.name} ({model.config.layers} layers, {units.count(model.parameters)} parameters) on "
         f"{units.count(tokens)} tokens is 6PT = {work:.3g} FLOP. {some(devices, 'card')} are "
         f"{some(-(-devices // A_MACHINE), 'machine')} of {A_MACHINE}, whatever memory they have; {MACHINES} machines "
         f"with {some(devices, 'card')} would have {devices / MACHINES:g} in each."
         f"{' Both ways of saying it may be right, and neither is published.' if published else ''}",
         f"Memory sets a floor: {units.both(model.parameters * MIXED.states)} of states are {new.floor.nominal} A100 "
         f"or {old.floor.nominal} V100 before activations, of {devices:,} here. Above it time sets the number of "
         f"cards.{_estimates(new, old) if published else ''}",
         *([] if not published else [_ran_near(planned)])),
        _gpt3_tables(model, tokens, devices, (new, old), published),
        (f"Days = operations / (cards · rate · 86,400 s). P parameters, T tokens: 6PT = {work:.3g} FLOP, and with "
         f"every forward pass done twice 8PT = {again:.3g}: / ({devices} · {new.per_card / 1e12:g}e12 · 86,400) = "
         f"{_days(new.counted)}, or {_days(new.least)} by 6PT alone. The rate of Narayanan et al. 2021 counts 8PT, so "
         "the shorter time is that of a training that keeps the rate and computes nothing again.",
         MODELED), sources(model, new.run, old.run, planned.run),
        floats(_gpt3_numbers(model, devices, work, new, old) | {"planned days on 384": planned.time.days or 0,
                                                                "fits on 384": planned.verdict.fits}))


def _could(new: Trained, old: Trained, devices: int) -> str:
    """By the bytes of its states."""
    held = [one.floor.real <= devices for one in (new, old)]
    if all(held):
        return "By memory it could have been"
    return "Its states fit the A100 alone" if held[0] else "No, so few don't hold its states"


def _estimates(new: Trained, old: Trained) -> str:
    return (f" The estimate for the V100 itself is of {old.run.machine.devices:,} cards and "
            f"{old.run.published['days']:g} days; the one for the A100 of {new.run.machine.devices:,} and "
            f"{new.run.published['days']:g} days.")


def _ran_near(planned: runs.Judged) -> str:
    return (f"A layout that somebody ran: {planned.layout} on {planned.layout.devices} A100. Planned: "
            f"{units.both(planned.verdict.needed)} on the fullest card and {planned.time.days:,.0f} days; published: "
            f"{planned.run.published['days']:g} days.")


def _gpt3_tables(model: PlannedModel, tokens: float, devices: int, trained: Sequence[Trained],
                 published: bool) -> tuple[Table, ...]:
    """`published`: whether what was published is of the same model and tokens."""
    there = [(one, _at_rate(one.rate, model, tokens, one.run.machine.devices)) for one in trained]
    here = (Table(f"{model.name} on {devices:,} cards at published rates (days are a model)", (
                "card", "TFLOP/s a card, published", "counts", "days, as counted", "days by 6PT",
                "floor by states, cards nominal / real"),
                  tuple((one.run.machine.device.name, f"{one.per_card / 1e12:g}",
                         "8PT" if one.rate.counted == "full" else "6PT", _days(one.counted, ""), _days(one.least, ""),
                         f"{one.floor.nominal} / {one.floor.real}") for one in trained), (1, 3, 4, 5)),)
    return here if not published else (
            *here,
            Table("The same on as many cards as was published", (
                "card", "cards", "days, as counted (a model)", "days, published"),
                  tuple((one.run.machine.device.name, f"{one.run.machine.devices:,}", f"{same.counted:,.1f}",
                         f"{one.run.published['days']:g}") for one, same in there), (1, 2, 3)))


def _gpt3_numbers(model: PlannedModel, devices: int, work: float, new: Trained, old: Trained) -> dict[str, float]:
    numbers = {"flops": work, "states": model.parameters * MIXED.states, "machines of 8": -(-devices // A_MACHINE)}
    for one in (new, old):
        card = one.rate.card
        numbers |= {f"{card} days": one.counted, f"{card} days by 6PT": one.least, f"{card} floor": one.floor.nominal,
                    f"{card} floor real": one.floor.real}
    return numbers


QUESTIONS = (
    Question("train-on-one-machine", "Can 70–175B be trained on one machine of 8 × 80 GB, if slowly?", on_one_machine,
             ("C11",), ("model", "machine", "memory", "devices", "tokens"),
             "Can it be trained on one machine, if slowly?"),
    Question("gpt-3", "Was GPT-3 (96 layers, 175B) trained on about 400 GPUs, 100 machines of the day?", gpt3,
             ("C18",), ("model", "devices", "tokens"), "Could it have been trained on so many of the GPUs of the day?"),
)
