"""What one machine of eight cards carries, and whether two of them train 175B."""
from dataclasses import replace
from typing import NamedTuple

from minitp.plan import catalogue, search, units
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, most_sequences
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    RULE,
    UNCOUNTED,
    Cards,
    Tokens,
    box,
    boxes,
    cards,
    floats,
    gb,
    some,
    sources,
    training_tokens,
    weights_of,
)
from minitp.plan.speed import flops

MACHINE, NEWEST, GPT3 = "8xa100-80", "llama-3.1-405b", "gpt-3-175b"
FITTED = ("llama-2-7b", "llama-2-13b", "gpt-neox-20b", "llama-33b", "mixtral-8x7b", "llama-65b", "llama-2-70b",
          "gpt-3-175b", "bloom-176b", "llama-3.1-405b", "mt-nlg-530b")
SEQ = 2048
TRAINED = search.Limits(zero=3, recompute="full", micro_batch=1, chunks=1)


class Carried(NamedTuple):
    """A model on one machine: the best layouts to run and to train it, tokens of its training and their days."""
    model: PlannedModel
    ran: search.Found
    tuned: search.Found
    tokens: Tokens
    days: float

    def run_row(self, dtype: str) -> tuple[str, ...]:
        first = (self.model.name, units.count(self.model.parameters), gb(weights_of(self.model, dtype)))
        if not self.ran.best:
            return (*first, "–", _lacks(self.ran))
        return (*first, units.duration(self.ran.best[0].seconds), f"{self.ran.best[0].layout}")

    def train_row(self) -> tuple[str, ...]:
        fits = self.tuned.best[0] if self.tuned.best else None
        return (self.model.name, gb(fits.held) if fits else "–", f"{fits.layout}" if fits else _lacks(self.tuned),
                f"{units.count(self.tokens.number)}{' *' * self.tokens.by_rule}",
                units.duration(self.days * flops.DAY))


def _carried(model: PlannedModel, machine: Machine, dtype: str, what: WhatIf) -> Carried:
    tokens = training_tokens(model, what.tokens)
    return Carried(
        model, search.search(model, machine, Inference(prompt=_length(model) // 2, new=_length(model) // 2,
                                                       weights=dtype)),
        search.search(model, machine, _training(model, machine, what), replace(TRAINED, pp=1)),
        tokens, flops.training_days(flops.training_flops(model.active_parameters, tokens.number), machine.devices,
                                    machine.device.peak("bf16") * machine.device.flops_reached))


def one_machine(what: WhatIf) -> Answer:
    """C08."""
    machine, dtype = what.the_machine(MACHINE), what.weights or "bf16"
    models = [what.the_model(NEWEST)] if what.model else [catalogue.model(name) for name in FITTED]
    carried = [_carried(model, machine, dtype, what) for model in models]
    total, real = machine.devices * machine.device.memory, machine.devices * machine.device.memory_real
    numbers = {f"{one.model.name} {name}": float(value) for one in carried for name, value in (
        ("runs", bool(one.ran.best)), ("trains", bool(one.tuned.best)), ("days", one.days),
        ("token s", one.ran.best[0].seconds if one.ran.best else 0))}
    trained = _largest([one for one in carried if one.tuned.best])
    return Answer(
        f"To run in {dtype}: {_named(_largest([one for one in carried if one.ran.best]), carried)}. To train or "
        f"fine-tune every weight: {_named(trained, carried)}{_how_long(trained)}.",
        (f"The machine has {box(machine)}: {units.both(total)} by name, {units.both(real)} as the cards report. "
         f"Running needs the weights and a cache. Full fine-tuning needs the same {MIXED.states:g} bytes a parameter "
         "as training does, and differs in its number of tokens only: what fits for the one fits for the other, and "
         "time tells them apart. Adapters (LoRA) that leave the weights frozen need little more than running does; "
         "they aren't planned here.",
         "Days are those of the whole training on this one machine, whether or not it fits: operations by the share of "
         "the peak that such cards reach. Where the bytes fit, the days decide."),
        _tables(carried, machine, dtype),
        (f"Fits: fullest card ≤ {units.percent(1 - Capacity.of(machine.device).reserve)} of "
         f"{units.both(machine.device.memory_real)}. Running: a sequence of {_length(models[-1]):,} tokens. Training: "
         f"{some(machine.devices, 'sequence')} of {what.seq or _length(models[-1]):,} tokens, micro-batch 1, "
         "everything computed again, ZeRO-3, the best of all tensor and data parallel degrees.",
         "Days: 6·P·T / (cards · peak · share reached), T the tokens of the table, P the parameters that a token "
         f"meets.{_rule(carried)}", UNCOUNTED, MODELED),
        sources(machine, [one.model for one in carried if what.model or not one.tokens.by_rule]),
        floats(numbers | {"bytes": total, "bytes real": real}))


def _tables(carried: list[Carried], machine: Machine, dtype: str) -> tuple[Table, Table]:
    return (Table(f"To run on {box(machine)}", (
                "model", "parameters", f"{dtype}, GB (GiB)", "a token (a model)", "layout, or what a card lacks"),
                  tuple(one.run_row(dtype) for one in carried), (1, 2, 3)),
            Table(f"To train every weight on {box(machine)}", (
                "model", "fullest card, GB (GiB)", "layout, or what a card lacks", "tokens", "in all (a model)"),
                  tuple(one.train_row() for one in carried), (1, 3, 4)))


def _rule(carried: list[Carried]) -> str:
    """Which tokens are nobody's."""
    return f" * {RULE}." if any(one.tokens.by_rule for one in carried) else ""


def _largest(carried: list[Carried]) -> Carried | None:
    return max(carried, key=lambda one: one.model.parameters, default=None)


def _named(largest: Carried | None, carried: list[Carried]) -> str:
    """Of those that fit."""
    if len(carried) == 1:
        return f"{carried[0].model.name} {'fits' if largest else 'does not fit'}"
    if largest is None:
        return "none of these models"
    return f"up to {largest.model.name} ({units.count(largest.model.parameters)})"


def _how_long(largest: Carried | None) -> str:
    """Of the training of the largest."""
    if largest is None:
        return ""
    tokens = f"{units.count(largest.tokens.number)} tokens{' by a rule of thumb' * largest.tokens.by_rule}"
    return f"; training it from the start, {tokens}, takes {units.duration(largest.days * flops.DAY)}"


def _lacks(found: search.Found) -> str:
    """What the nearest miss lacks."""
    miss = found.failed[0]
    return f"no: {units.both(miss.missing)}" if miss.why == "memory" else f"no: {miss.text}"


# --- two machines ---------------------------------------------------------------------------------------------------


def two_machines(what: WhatIf) -> Answer:
    """C15."""
    machine, model = what.the_machine(MACHINE), what.the_model(GPT3)
    box_bytes = machine.device.memory * machine.per_machine
    said = model.parameters * (MIXED.weights + MIXED.gradients)
    needed = _schemes(model, machine)
    states = needed[1][1]
    two = _train_on(model, machine.with_devices(2 * machine.per_machine), what)
    enough = _enough(model, machine, what)
    room = _run_on_one(model, machine)
    told = "no number that was tried does"
    if enough:
        n, best = enough
        told = (f"{some(n, 'machine')} of {machine.per_machine} {'does' if n == 1 else 'do'} ({best.layout}, "
                f"{units.both(best.held)} on the fullest card)")
    first = f"{two.text}. By bytes, " if two is not None and two.why != "memory" else ""
    return Answer(
        f"{first}{'' if what.model is None else f'{model.name}: '}{units.both(said)} is right"
        f"{' and not enough' if two else ' for weights and gradients'}: with the optimizer it is "
        f"{units.both(states)}. Two machines {'do not' if two else 'do'}; {told}. To run it, {room[0]}.",
        (f"{model.name} has {model.parameters:,} parameters. Two bytes of weight and two of gradient are "
         f"{units.both(said)}, {said / box_bytes:.2g} times the {units.both(box_bytes)} of one machine. But Adam "
         f"keeps a float32 copy and two moments, {MIXED.optimizer:g} bytes more of each parameter, and they are "
         "three quarters of it all; then come activations.",
         f"Two machines: {f'{two.text} (the nearest miss, {two.layout})' if two else 'a layout fits'}. The smallest "
         f"that carries it by the planner: {told}."),
        (Table("Weights, gradients, optimizer", ("scheme", "bytes a parameter", "GB (GiB)", "cards, nominal / real",
                                                 "machines"),
               tuple((name, f"{size / model.parameters:g}", gb(size), f"{n.nominal} / {n.real}",
                      f"{boxes(n.nominal, machine)}") for name, size, n in needed), (1, 2, 3, 4)),),
        (f"{model.parameters / 1e9:.1f}e9 · (2 + 2) B = {said / 1e9:.1f} GB; · (2 + 2 + 12) = "
         f"{states / 1e9:,.0f} GB, / {machine.device.memory / 1e9:g} GB = "
         f"{states / machine.device.memory:.1f} cards (Rajbhandari et al. 2020, section 3.1).",
         f"Judged with {some(what.seq or _length(model), 'token')} a sequence, micro-batch 1, everything computed "
         "again, best of all meshes with ZeRO-3.", UNCOUNTED), sources(model, machine),
        floats(_of_two(needed, box_bytes, room[1]) | {"machines that do": enough[0] if enough else 0,
                                                      "two do": two is None}))


Scheme = tuple[str, float, Cards]


def _schemes(model: PlannedModel, machine: Machine) -> list[Scheme]:
    """As it was said, with the optimizer, and with gradients in float32: name, bytes, cards."""
    kinds = (("2 weights + 2 gradients", MIXED.weights + MIXED.gradients),
             (f"+ {MIXED.optimizer:g} master copy and moments", MIXED.states),
             ("with gradients in float32", MIXED_FP32_GRADIENTS.states))
    return [(name, model.parameters * each, cards(model.parameters * each, machine.device)) for name, each in kinds]


def _of_two(needed: list[Scheme], box_bytes: int, beside: float) -> dict[str, float]:
    (_, said, _), (_, mixed, of_mixed), (_, single, of_single) = needed
    return {"bytes said": said, "bytes 16": mixed, "bytes 18": single, "machines said": said / box_bytes,
            "cards 16": of_mixed.nominal, "cards 18": of_single.nominal, "cards 16 real": of_mixed.real,
            "cards 18 real": of_single.real, "sequences beside": beside}


def _length(model: PlannedModel) -> int:
    """Tokens of a sequence, where none are asked for: no more than the model has positions."""
    return min(SEQ, model.config.positions)


def _training(model: PlannedModel, machine: Machine, what: WhatIf) -> Training:
    """A sequence for each device."""
    return Training(batch=machine.devices, seq=what.seq or _length(model))


def _train_on(model: PlannedModel, machine: Machine, what: WhatIf) -> search.Failure | None:
    """The nearest miss of the layouts of these machines; None where one trains it."""
    found = search.search(model, machine, _training(model, machine, what), TRAINED)
    return None if found.best else found.failed[0]


def _enough(model: PlannedModel, machine: Machine, what: WhatIf) -> tuple[int, search.Candidate] | None:
    """The smallest number of machines that was tried, and its best layout."""
    found = search.fewest(model, machine, lambda larger: _training(model, larger, what), TRAINED,
                          least=cards(model.parameters * MIXED.states, machine.device).real)
    return None if found is None else (found[0].devices // machine.per_machine, found[1].best[0])


def _run_on_one(model: PlannedModel, machine: Machine) -> tuple[str, float]:
    """How many sequences run on one machine beside the weights, their prompts taken piece by piece."""
    length = _length(model)
    layout, job = Layout(tp=machine.per_machine), Inference(prompt=1, new=length - 1)
    found = search.judge(model, layout, job, machine)
    if isinstance(found, search.Failure):
        return f"one machine is too little: {found.text}", 0.0
    beside = most_sequences(model, layout, replace(job, batch=1), Capacity.of(machine.device))
    return (f"one machine does: {units.both(found.held)} a card, and {some(beside, 'sequence')} of {length:,} tokens "
            "fit at once"), float(beside)


QUESTIONS = (
    Question("one-machine", "The usual machine is 8 × 80 GB: what fits it to run, to fine-tune, to train?", one_machine,
             ("C08",), ("model", "machine", "memory", "devices", "link", "weights", "seq", "tokens"),
             "What fits one machine to run, to fine-tune, to train?"),
    Question("two-machines", "175B × (2 weights + 2 gradients) = 700 GB: do two machines of 640 GB do?", two_machines,
             ("C15",), ("model", "machine", "memory", "seq"),
             "2 bytes of weight and 2 of gradient a parameter: do two machines do to train it?"),
)
