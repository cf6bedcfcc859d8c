"""What fits where: the biggest LLaMA, one machine of eight cards, two of them."""
from dataclasses import replace
from typing import NamedTuple

from minitp.plan import catalogue, search, units
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, fewest_devices, most_sequences, tensor_and_pipeline
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    UNCOUNTED,
    Cards,
    box,
    boxes,
    cards,
    each,
    floats,
    gb,
    published_tokens,
    some,
    sources,
    weights_of,
)
from minitp.plan.speed import flops

MACHINE, NEWEST, FIRST, GPT3 = "8xa100-80", "llama-3.1-405b", "llama-65b", "gpt-3-175b"
TYPES = ("bf16", "fp8", "int4")


class Runs(NamedTuple):
    """A model in one number type on a kind of machine. `fewest`: devices and layout that fit; `whole`: of whole
    machines."""
    dtype: str
    size: float
    cards: Cards
    fewest: tuple[int, Layout] | None
    whole: tuple[Machine, search.Found] | None


def to_run(model: PlannedModel, dtype: str, machine: Machine) -> Runs:
    """By bytes, by a layout with its cache and reserve, and as whole machines."""
    size, job = weights_of(model, dtype), Inference(weights=dtype)
    needed = cards(size, machine.device)
    layouts = tensor_and_pipeline(machine.per_machine, model.config.layers)
    fewest = fewest_devices(model, job, Capacity.of(machine.device),
                            lambda n: layouts(n) if n >= needed.real else (),
                            min(4 * needed.reserved + 8, machine.per_machine * model.config.layers))
    return Runs(dtype, size, needed, fewest, search.fewest(model, machine, job))


def run_row(model: PlannedModel, runs: Runs) -> tuple[str, ...]:
    """Of the table of number types."""
    least = "none" if runs.fewest is None else f"{runs.fewest[0]} ({runs.fewest[1]})"
    first = (model.name, runs.dtype, gb(runs.size), f"{runs.cards.nominal} / {runs.cards.real}", least)
    if runs.whole is None:
        return (*first, "none", "–")
    best = runs.whole[1].best[0]
    return (*first, f"{runs.whole[0].devices} ({best.layout})", units.duration(best.seconds))


def biggest_llama(what: WhatIf) -> Answer:
    """C07."""
    machine = what.the_machine(MACHINE)
    models = [what.the_model(NEWEST)] if what.model else [catalogue.model(FIRST), catalogue.model(NEWEST)]
    types = (what.weights,) if what.weights else TYPES
    big = models[-1]
    found = [(model, to_run(model, dtype, machine)) for model in models for dtype in types]
    first = next(runs for model, runs in found if model is big)
    states = big.parameters * MIXED.states
    training = cards(states, machine.device)
    numbers = {f"{model.name} {runs.dtype} {name}": float(value) for model, runs in found for name, value in (
        ("bytes", runs.size), ("cards by bytes", runs.cards.nominal), ("cards by real bytes", runs.cards.real),
        ("cards with a layout", runs.fewest[0] if runs.fewest else 0),
        ("cards as machines", runs.whole[0].devices if runs.whole else 0))}
    numbers |= {"training bytes": states, "training cards": training.nominal, "training cards real": training.real}
    whole = (f"as whole machines of {machine.per_machine} it is {some(first.whole[0].devices, 'card')}" if first.whole
             else "and no number of such machines that was tried carries it")
    return Answer(
        f"{big.name} in {first.dtype} takes {some(first.cards.nominal, 'card')} of "
        f"{machine.device.memory / 1e9:g} GB by its bytes alone; {whole}. To train it, {training.nominal} before any "
        "activation.",
        (f"Yes, the model is partitioned: no card holds it. {big.name} has {big.parameters:,} parameters; at "
         f"{first.size / big.parameters:g} bytes each that is {units.both(first.size)} against a card of "
         f"{each(machine.device)}. Both sizes are used in the field, so two counts are right: {first.cards.nominal} "
         f"and {first.cards.real}. A fitting layout needs more: its cuts are not even (stages have whole layers, "
         "embedding and head stand at the ends), the KV cache is beside the weights, and a reserve stays free.",
         *_files(models), *_published(big, machine, states, training)),
        (Table("To generate text: one sequence of 1,024 tokens",
               ("model", "type", "weights, GB (GiB)", "cards by bytes, nominal / real", "fewest that a layout fits",
                "whole machines", "a token (model)"),
               tuple(run_row(model, runs) for model, runs in found), (2, 3, 6)),),
        (f"By bytes: {big.parameters / 1e9:.3f}e9 · {first.size / big.parameters:g} B / "
         f"{machine.device.memory / 1e9:g}e9 B = {first.size / machine.device.memory:.2f}, so {first.cards.nominal} "
         f"cards; by the {machine.device.memory_real / 1e9:.1f}e9 B that a card reports "
         f"{first.size / machine.device.memory_real:.2f}, so {first.cards.real}. To train: {MIXED.states:g} B · "
         f"{big.parameters / 1e9:.3f}e9 = {units.both(states)}.",
         UNCOUNTED, MODELED),
        sources(models, machine), floats(numbers))


def _files(models: list[PlannedModel]) -> list[str]:
    """What the published files are cut for."""
    return [f"The published files of {model.name} are cut for {some(model.model_parallel, 'rank')} (model parallel "
            f"{model.model_parallel}, {units.both(weights_of(model, 'fp16') / model.model_parallel)} each in fp16), so "
            f"that many cards run them as they are; by bytes fewer would do. To load them on another number is "
            "resharding." for model in models if model.model_parallel]


def _published(model: PlannedModel, machine: Machine, states: float, training: Cards) -> list[str]:
    """Trainings of this model that somebody did, by the catalogue."""
    runs = [run for run in catalogue.runs().values() if run.model == model and run.layout and run.training.tokens]
    told = "; ".join(f"{some(run.layout.devices, 'card')} as {run.layout}" for run in runs if run.layout)
    return [f"To train it takes {units.both(states)} of weights, gradients and optimizer state: {training.nominal} "
            f"cards ({boxes(training.nominal, machine)} machines) before activations."
            + (f" Published trainings used far more, for the time that it takes: {told}." if told else "")]


# --- one machine ----------------------------------------------------------------------------------------------------

FITTED = ("llama-2-7b", "llama-2-13b", "gpt-neox-20b", "llama-33b", "mixtral-8x7b", "llama-65b", "llama-2-70b",
          "gpt-3-175b", "bloom-176b", "llama-3.1-405b", "mt-nlg-530b")
TOKENS_A_PARAMETER = 20
"""Hoffmann et al. 2022 (Chinchilla): about as many tokens train a model of given compute best."""
SEQ, MOST = 2048, 4096


class Carried(NamedTuple):
    """A model on one machine: the best layouts to run and to train it, tokens of its training and their days."""
    model: PlannedModel
    ran: search.Found
    tuned: search.Found
    tokens: float
    days: float

    def row(self, dtype: str) -> tuple[str, ...]:
        return (self.model.name, units.count(self.model.parameters), gb(weights_of(self.model, dtype)),
                _token_cell(self.ran), _step_cell(self.tuned), units.count(self.tokens),
                units.duration(self.days * flops.DAY))


def _carried(model: PlannedModel, machine: Machine, dtype: str, what: WhatIf) -> Carried:
    tokens = what.tokens or published_tokens(model)[0] or TOKENS_A_PARAMETER * model.active_parameters
    return Carried(
        model, search.search(model, machine, Inference(prompt=SEQ // 2, new=SEQ // 2, weights=dtype)),
        search.search(model, machine, Training(batch=machine.devices, seq=what.seq or SEQ),
                      search.Limits(pp=1, zero=3, recompute="full", micro_batch=1)), tokens,
        flops.training_days(flops.training_flops(model.active_parameters, tokens), machine.devices,
                            machine.device.peak("bf16") * machine.device.flops_reached))


def one_machine(what: WhatIf) -> Answer:
    """C08."""
    machine, dtype = what.the_machine(MACHINE), what.weights or "bf16"
    models = [what.the_model(NEWEST)] if what.model else [catalogue.model(name) for name in FITTED]
    carried = [_carried(model, machine, dtype, what) for model in models]
    numbers = {f"{one.model.name} {name}": float(value) for one in carried for name, value in (
        ("runs", bool(one.ran.best)), ("trains", bool(one.tuned.best)), ("days", one.days))}
    trained = [one.model for one in carried if one.tuned.best]
    total, real = machine.devices * machine.device.memory, machine.devices * machine.device.memory_real
    numbers |= {"bytes": float(total), "bytes real": float(real)}
    return Answer(
        f"To run in {dtype}: {_largest([one.model for one in carried if one.ran.best])}. To train or fine-tune every "
        f"weight: {_largest(trained)}{_how_long(trained, numbers)}.",
        (f"The machine has {box(machine)}: {units.both(total)} by name, {units.both(real)} as the cards report. "
         f"Running needs the weights and a cache. Full fine-tuning needs the same {MIXED.states:g} bytes a parameter "
         "as training does, and differs in its number of tokens only; that is why one machine fine-tunes what it "
         "could never train. Adapters (LoRA) that leave the weights frozen need little more than running does; they "
         "aren't planned here.",
         "Days are those of the whole training on this one machine, whether or not it fits: operations by the share of "
         "the peak that such cards reach. Where the bytes fit, it is they that rule the machine out."),
        (Table(f"What {box(machine)} carries", (
            "model", "parameters", f"{dtype}, GB (GiB)", "to run: a token (model)", "to train: fullest card, GB (GiB)",
            "tokens", "time (model)"), tuple(one.row(dtype) for one in carried), (1, 2, 5, 6)),),
        (f"Fits: fullest card ≤ {units.percent(1 - Capacity.of(machine.device).reserve)} of "
         f"{units.both(machine.device.memory_real)}. Running: a sequence of {SEQ:,} tokens. Training: "
         f"{some(machine.devices, 'sequence')} of {what.seq or SEQ:,} tokens, micro-batch 1, everything computed "
         "again, ZeRO-3, the best of all tensor and data parallel degrees.",
         f"Days: 6·P·T / (cards · peak · share reached), T the published tokens, else {TOKENS_A_PARAMETER} a parameter "
         "(Hoffmann et al. 2022); P those that a token meets.", UNCOUNTED, MODELED),
        sources(machine, models if what.model else ()), floats(numbers))


def _largest(models: list[PlannedModel]) -> str:
    """Of those that fit."""
    if not models:
        return "none of these models"
    largest = max(models, key=lambda model: model.parameters)
    return f"up to {largest.name} ({units.count(largest.parameters)})"


def _how_long(models: list[PlannedModel], numbers: dict[str, float]) -> str:
    """Of the training of the largest."""
    if not models:
        return ""
    days = numbers[f"{max(models, key=lambda model: model.parameters).name} days"]
    return f", though training it from the start takes {units.duration(days * flops.DAY)}"


def _token_cell(found: search.Found) -> str:
    if not found.best:
        return _lacks(found)
    return f"{units.duration(found.best[0].seconds)}: {found.best[0].layout}"


def _step_cell(found: search.Found) -> str:
    if not found.best:
        return _lacks(found)
    return f"{gb(found.best[0].held)}: {found.best[0].layout}"


def _lacks(found: search.Found) -> str:
    """What the nearest miss lacks."""
    miss = found.failed[0]
    return f"no, lacks {gb(miss.missing)}" if miss.why == "memory" else f"no: {miss.text}"


# --- two machines ---------------------------------------------------------------------------------------------------


def two_machines(what: WhatIf) -> Answer:
    """C15."""
    machine, model = what.the_machine(MACHINE), what.the_model(GPT3)
    box_bytes = machine.device.memory * machine.per_machine
    said = model.parameters * (MIXED.weights + MIXED.gradients)
    schemes = [("2 weights + 2 gradients", said),
               (f"+ {MIXED.optimizer:g} master copy and moments", model.parameters * MIXED.states),
               ("with gradients in float32", model.parameters * MIXED_FP32_GRADIENTS.states)]
    needed = [(name, size, cards(size, machine.device)) for name, size in schemes]
    two = _train_on(model, machine.with_devices(2 * machine.per_machine), what)
    enough = _fewest_machines(model, machine, what)
    room = _run_on_one(model, machine)
    numbers = {"bytes said": said, "bytes 16": schemes[1][1], "bytes 18": schemes[2][1],
               "machines said": said / box_bytes, "cards 16": needed[1][2].nominal, "cards 18": needed[2][2].nominal,
               "cards 16 real": needed[1][2].real, "cards 18 real": needed[2][2].real, "sequences beside": room[1],
               "machines that do": enough[0] if enough else 0, "two do": two is None}
    told = (f"{some(enough[0], 'machine')} of {machine.per_machine} {'does' if enough[0] == 1 else 'do'} "
            f"({enough[1].layout}, {units.both(enough[1].held)} on the fullest card)" if enough else "no number that "
            "was tried does")
    return Answer(
        f"{units.both(said)} is right, and {'not enough: ' if two else ''}with the optimizer it is "
        f"{units.both(schemes[1][1])}. Two machines {'do not' if two else 'do'}; {told}. To run it, {room[0]}.",
        (f"{model.name} has {model.parameters:,} parameters. Two bytes of weight and two of gradient are "
         f"{units.both(said)}, {said / box_bytes:.2g} times the {units.both(box_bytes)} of one machine. But Adam "
         f"keeps a float32 copy and two moments, {MIXED.optimizer:g} bytes more of each parameter, and they are "
         "three quarters of it all; then come activations.",
         f"Two machines: {two or 'a layout fits'}. The smallest that carries it by the planner: {told}."),
        (Table("Weights, gradients, optimizer", ("scheme", "bytes a parameter", "GB (GiB)", "cards, nominal / real",
                                                 "machines"),
               tuple((name, f"{size / model.parameters:g}", gb(size), f"{n.nominal} / {n.real}",
                      f"{boxes(n.nominal, machine)}") for name, size, n in needed), (1, 2, 3, 4)),),
        (f"{model.parameters / 1e9:.1f}e9 · (2 + 2) B = {said / 1e9:.1f} GB; · (2 + 2 + 12) = "
         f"{schemes[1][1] / 1e9:,.0f} GB, / {machine.device.memory / 1e9:g} GB = "
         f"{schemes[1][1] / machine.device.memory:.1f} cards (Rajbhandari et al. 2020, section 3.1).",
         f"Judged with {some(what.seq or SEQ, 'token')} a sequence, micro-batch 1, everything computed again, best "
         "of all meshes with ZeRO-3.", UNCOUNTED), sources(model, machine), floats(numbers))


def _train_on(model: PlannedModel, machine: Machine, what: WhatIf) -> str | None:
    """Why no layout of these machines trains it; None where one does."""
    found = search.search(model, machine, Training(batch=machine.devices, seq=what.seq or SEQ),
                          search.Limits(zero=3, recompute="full", micro_batch=1))
    if found.best:
        return None
    return f"{found.failed[0].text} (the nearest miss, {found.failed[0].layout})"


def _fewest_machines(model: PlannedModel, machine: Machine, what: WhatIf) -> tuple[int, search.Candidate] | None:
    """The smallest number of machines that was tried, from what the states need on; None up to MOST devices."""
    n = floor = boxes(cards(model.parameters * MIXED.states, machine.device).real, machine)
    while n <= 4 * floor + 2 and n * machine.per_machine <= MOST:
        larger = machine.with_devices(n * machine.per_machine)
        found = search.search(model, larger, Training(batch=larger.devices, seq=what.seq or SEQ),
                              search.Limits(zero=3, recompute="full", micro_batch=1))
        if found.best:
            return n, found.best[0]
        n += 1 + n // 8
    return None


def _run_on_one(model: PlannedModel, machine: Machine) -> tuple[str, float]:
    """How many sequences of 2,048 tokens run on one machine beside the weights, their prompts taken piece by piece."""
    layout, job = Layout(tp=machine.per_machine), Inference(prompt=1, new=SEQ - 1)
    found = search.judge(model, layout, job, machine)
    if isinstance(found, search.Failure):
        return f"one machine is too little as well: {found.text}", 0.0
    beside = most_sequences(model, layout, replace(job, batch=1), Capacity.of(machine.device))
    return (f"one machine does: {units.both(found.held)} a card, and {some(beside, 'sequence')} of {SEQ:,} tokens "
            "fit at once"), float(beside)


QUESTIONS = (
    Question("biggest-llama", "How many GPUs does the biggest LLaMA take, and is it partitioned over them?",
             biggest_llama, ("C07",), ("model", "machine", "memory", "link", "between", "weights")),
    Question("one-machine", "The usual machine is 8 × 80 GB: what fits it to run, to fine-tune, to train?", one_machine,
             ("C08",), ("model", "machine", "memory", "devices", "link", "weights", "seq", "tokens")),
    Question("two-machines", "175B × (2 weights + 2 gradients) = 700 GB: do two machines of 640 GB do?", two_machines,
             ("C15",), ("model", "machine", "memory", "seq")),
)
