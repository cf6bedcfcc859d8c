"""How many cards the biggest LLaMA takes, to run and to train."""
from typing import NamedTuple

from minitp.plan import catalogue, search, units
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, Inference
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, fewest_devices, tensor_and_pipeline
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    UNCOUNTED,
    Cards,
    boxes,
    cards,
    each,
    floats,
    gb,
    some,
    sources,
    weights_of,
)

MACHINE, NEWEST, FIRST = "8xa100-80", "llama-3.1-405b", "llama-65b"
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
    return Runs(dtype, size, needed, fewest, search.fewest(model, machine, job, least=needed.real))


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
    train = _to_train(big, machine)
    whole = (f"as whole machines of {machine.per_machine} it is {some(first.whole[0].devices, 'card')}" if first.whole
             else "and no number of such machines that was tried carries it")
    return Answer(
        f"{big.name} in {first.dtype} takes {some(first.cards.nominal, 'card')} of "
        f"{machine.device.memory / 1e9:g} GB by its bytes alone; {whole}. To train it, before any activation: "
        f"{train[0].cards.nominal} at {train[0].each:g} bytes a parameter, {train[1].cards.nominal} at "
        f"{train[1].each:g} with gradients in float32.",
        (f"{_partitioned(first)} {big.name} has {big.parameters:,} parameters; at "
         f"{first.size / big.parameters:g} bytes each that is {units.both(first.size)} against a card of "
         f"{each(machine.device)}. {_counts(first.cards)} {_beyond_bytes(first)}",
         *_files(models, machine), _training(big, machine, train)),
        (Table(f"To generate text: one sequence of {Inference().context:,} tokens",
               ("model", "type", "weights, GB (GiB)", "cards by bytes, nominal / real", "fewest that a layout fits",
                "whole machines", "a token (a model)"),
               tuple(run_row(model, runs) for model, runs in found), (2, 3, 6)),),
        (f"By bytes: {big.parameters / 1e9:.3f}e9 · {first.size / big.parameters:g} B / "
         f"{machine.device.memory / 1e9:g}e9 B = {first.size / machine.device.memory:.2f}, so "
         f"{some(first.cards.nominal, 'card')}; by the {machine.device.memory_real / 1e9:.1f}e9 B that a card reports "
         f"{first.size / machine.device.memory_real:.2f}, so {first.cards.real}. To train: {train[0].each:g} B · "
         f"{big.parameters / 1e9:.3f}e9 = {units.both(train[0].size)}.",
         UNCOUNTED, MODELED),
        sources(models, machine), floats(_numbers(found, train)))


def _partitioned(runs: Runs) -> str:
    """Whether it must be."""
    if runs.fewest is not None and runs.fewest[0] == 1:
        return "No, it needn't be partitioned: one card holds it, with its cache and beside the reserve."
    if runs.cards.nominal == 1 or runs.cards.real == 1:
        return "Yes, though barely: its bytes alone would fit a card, with cache and reserve they don't."
    return "Yes, the model is partitioned: no card holds it."


def _counts(needed: Cards) -> str:
    """By both sizes of a card."""
    if needed.nominal == needed.real:
        return f"By either size it is {some(needed.real, 'card')}."
    return f"Both sizes are used in the field, so two counts are right: {needed.nominal} and {needed.real}."


def _beyond_bytes(runs: Runs) -> str:
    """What a layout takes more than the bytes do."""
    if runs.fewest is None:
        return "None of the layouts that were tried fits."
    n, layout = runs.fewest
    why = ("its cuts are not even (stages have whole layers, embedding and head stand at the ends), the KV cache is "
           "beside the weights, and a reserve stays free")
    if n > runs.cards.real:
        return f"A fitting layout takes {some(n, 'card')} ({layout}): {why}."
    return f"A layout fits on no more than that, {some(n, 'card')} ({layout}), though a reserve stays free."


class Trained(NamedTuple):
    """States of a training by one scheme. `each`: bytes a parameter."""
    each: float
    size: float
    cards: Cards


def _to_train(model: PlannedModel, machine: Machine) -> tuple[Trained, Trained]:
    """With gradients in half precision, and in float32."""
    half, single = (Trained(one.states, model.parameters * one.states, cards(model.parameters * one.states,
                                                                             machine.device))
                    for one in (MIXED, MIXED_FP32_GRADIENTS))
    return half, single


def _numbers(found: list[tuple[PlannedModel, Runs]], train: tuple[Trained, Trained]) -> dict[str, float]:
    numbers = {f"{model.name} {runs.dtype} {name}": float(value) for model, runs in found for name, value in (
        ("bytes", runs.size), ("cards by bytes", runs.cards.nominal), ("cards by real bytes", runs.cards.real),
        ("cards with a layout", runs.fewest[0] if runs.fewest else 0),
        ("cards as machines", runs.whole[0].devices if runs.whole else 0),
        ("token s", runs.whole[1].best[0].seconds if runs.whole else 0))}
    half, single = train
    return numbers | {"training bytes": half.size, "training cards": half.cards.nominal, "training cards real":
                      half.cards.real, "training cards fp32 gradients": single.cards.nominal}


def _files(models: list[PlannedModel], machine: Machine) -> list[str]:
    """What the published files are cut for."""
    return [f"The published files of {model.name} are cut for {some(model.model_parallel, 'rank')} (model parallel "
            f"{model.model_parallel}, {units.both(weights_of(model, 'fp16') / model.model_parallel)} each in fp16), so "
            f"that many cards run them as they are{_fewer(model, machine)}. To load them on another number is "
            "resharding."
            for model in models if model.model_parallel]


def _fewer(model: PlannedModel, machine: Machine) -> str:
    """Against what their bytes need."""
    needed, cut = cards(weights_of(model, "fp16"), machine.device).nominal, model.model_parallel
    if needed < cut:
        return "; by bytes fewer would do"
    return f", were a card large enough: by bytes it takes {needed}" if needed > cut else ""


def _training(model: PlannedModel, machine: Machine, train: tuple[Trained, Trained]) -> str:
    """Its bytes, and what somebody did, by the catalogue."""
    runs = [run for run in catalogue.runs().values() if run.model == model and run.layout and run.training.tokens]
    told = "; ".join(f"{some(run.layout.devices, 'card')} as {run.layout}, "
                     f"{run.training.precision.states:g} bytes a parameter" for run in runs if run.layout)
    half, single = train
    times = sorted({run.layout.devices / single.cards.nominal for run in runs if run.layout})
    far = " to ".join(f"{n:,.3g}" for n in dict.fromkeys((*times[:1], *times[-1:])))
    return (f"To train it takes {units.both(half.size)} of weights, gradients and optimizer state: "
            f"{some(half.cards.nominal, 'card')} ({some(boxes(half.cards.nominal, machine), 'machine')}) before "
            f"activations. With gradients in float32 it is {units.both(single.size)} and "
            f"{some(single.cards.nominal, 'card')}."
            + (f" Published trainings used {far} times as many: {told}."
               if told else ""))


QUESTIONS = (
    Question("biggest-llama", "How many GPUs does the biggest LLaMA take, and is it partitioned over them?",
             biggest_llama, ("C07",), ("model", "machine", "memory", "link", "between", "weights")),
)
