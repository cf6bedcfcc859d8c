"""Training the biggest LLaMA: how many cards, and how long, by layouts that fit and by the published one."""
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue, search, units
from minitp.plan.job import MIXED, Recompute, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import (
    MODELED,
    UNCOUNTED,
    Cards,
    cards,
    floats,
    gb,
    some,
    sources,
    training_tokens,
)
from minitp.plan.questions.runs import plain
from minitp.plan.speed import step
from minitp.plan.speed.flops import DAY

BIGGEST, H100, SIZES = "llama-3.1-405b", "meta-24k-h100", (1024, 2048, 4096, 8192, 16384)


def train_biggest(what: WhatIf) -> Answer:
    """C07, for a training: the same batch on more and more cards."""
    model = what.the_model(BIGGEST)
    run = next((run for run in catalogue.runs().values() if run.model == model and run.training.tokens),
               catalogue.run("llama-3.1-405b"))
    tokens = training_tokens(model, what.tokens).number
    job = replace(run.training, batch=what.batch or run.training.batch, seq=what.seq or run.training.seq, tokens=tokens)
    machine, known = what.the_machine(H100), run.layout if run.model == model else None
    found = [(n, _best(model, job, what.the_machine(H100, n), known))
             for n in ((what.devices,) if what.devices else SIZES)]
    fit = [(n, best) for n, best in found if best is not None]
    told = "; ".join(f"{some(n, 'card')} {units.duration(best.days * DAY)}"
                     for n, best in ([fit[0], *fit[1:][-1:]] if fit else []))
    states = _states(model, job, machine)
    numbers: dict[str, float] = {"states": states.own, "floor": states.cards.nominal, "floor real": states.cards.real}
    for n, best in fit:
        numbers |= {f"{n} days": best.days, f"{n} mfu": best.time.mfu, f"{n} held": best.held}
    return Answer(
        f"{states.told}; by time: {told or 'none of these numbers carries it'}.",
        (f"{model.name}: {model.parameters:,} parameters, {job.precision.states:g} bytes each with gradients in "
         f"{job.precision.gradients:g} bytes, {units.both(states.own)}. Planned is a batch of "
         f"{some(job.batch, 'sequence')} of {some(job.seq, 'token')}, {units.count(tokens)} tokens in all. It is the "
         "same batch on every number of cards, so with more of them each replica has fewer micro-batches, and a "
         "pipeline idles longer; on the other hand more cards leave more room, and less must be computed again."
         f"{_gain(fit)}",
         *_as_published(model), *_into_the_reserve(model, job, machine, found), *_interleaving(model, job, fit)),
        (Table(f"On machines of {machine.per_machine} × {machine.device.name}, planned (a model)", (
            "cards", "best layout that fits", "computed again", "fullest card, GB (GiB)", "step", "MFU", "in all"),
            tuple(_size_row(n, best) for n, best in found), (0, 3, 4, 5, 6)),),
        (f"States: {model.parameters / 1e9:.1f}e9 · {job.precision.states:g} B = {states.own / 1e12:.2f} TB, / "
         f"{machine.device.memory / 1e9:g} GB = {states.own / machine.device.memory:.1f} cards. Tried: tensor "
         "parallelism over a machine, every pipeline and data parallel degree, ZeRO-1, all recomputations, micro-batch "
         "1, 1F1B plain and interleaved; and the published layout with as many replicas as there are cards for (*). "
         "MFU: the share of the peak that a step without recomputation's operations makes up.",
         UNCOUNTED, MODELED), sources(model, machine, run), floats(numbers))


class States(NamedTuple):
    """Bytes of a training's states by its own scheme, its cards by them, and both counts in words."""
    own: float
    cards: Cards
    told: str


def _states(model: PlannedModel, job: Training, machine: Machine) -> States:
    own = model.parameters * job.precision.states
    needed, half = cards(own, machine.device), cards(model.parameters * MIXED.states, machine.device)
    kind = " with gradients in float32" if job.precision.gradients == 4 else ""
    told = f"{some(needed.nominal, 'card')} by the bytes of its states, {job.precision.states:g} a parameter{kind}"
    return States(own, needed, told if own == model.parameters * MIXED.states else
                  f"{told} ({half.nominal} at {MIXED.states:g})")


class Best(NamedTuple):
    """The fastest layout that fits. `published`: it is one that was published, but for its replicas."""
    layout: Layout
    recompute: Recompute
    held: int
    time: step.StepTime
    machine: Machine
    published: bool

    @property
    def days(self) -> float:
        return self.time.days or 0.0


def _best(model: PlannedModel, job: Training, machine: Machine, known: Layout | None) -> Best | None:
    """The fastest layout that fits; None where none does, or the batch can't be dealt."""
    made: list[search.Candidate] = []
    with suppress(ConfigError):
        made += search.search(model, machine, job, search.Limits(tp=min(machine.per_machine, machine.devices), zero=1,
                                                                 micro_batch=1)).best[:1]
    if known is not None and machine.devices % known.replica == 0:
        judged = search.judge(model, replace(known, dp=machine.devices // known.replica), job, machine)
        made += [judged] if isinstance(judged, search.Candidate) else []
    for one in sorted(made, key=lambda one: one.seconds)[:1]:
        if isinstance(one.job, Training) and isinstance(one.time, step.StepTime):
            return Best(one.layout, one.job.recompute, one.held, one.time, machine,
                        known is not None and one.layout == replace(known, dp=one.layout.dp))
    return None


def _interleaving(model: PlannedModel, job: Training, fit: list[tuple[int, Best]]) -> list[str]:
    """What the pipeline's chunks are worth, on the most cards."""
    if not fit or fit[-1][1].layout.chunks == 1:
        return []
    n, best = fit[-1]
    time = plain(model, best.layout, replace(job, recompute=best.recompute), best.machine)
    return [f"Stages are interleaved: on {n:,} cards each has {best.layout.chunks} chunks of layers. The same layout "
            f"as plain 1F1B, one piece a stage, is planned at {units.duration((time.days or 0) * DAY)} instead of "
            f"{units.duration(best.days * DAY)}; of the ideal time stages idle {units.percent(time.bubble)} instead of "
            f"{units.percent(best.time.bubble)}."]


def _into_the_reserve(model: PlannedModel, job: Training, machine: Machine,
                      found: list[tuple[int, Best | None]]) -> list[str]:
    """Published layouts on one of these numbers of cards that a plan finds no room for, though somebody ran them."""
    told = []
    for run in catalogue.runs().values():
        if run.model != model or run.layout is None or run.machine.device != machine.device:
            continue
        for best in (best for n, best in found if n == run.layout.devices and best is not None):
            held = verdict(model, run.layout, job, Capacity.of(machine.device))
            if held.fits or run.training.seq != job.seq:
                continue
            time = step.training_step(model, run.layout, job, best.machine)
            told.append(f"The layout published for {run.layout.devices:,} cards, {run.layout}, would take "
                        f"{units.duration((time.days or 0) * DAY)}, but is {units.both(-held.room)} into the reserve, "
                        "so it isn't among the layouts that fit.")
    return told


def _size_row(n: int, best: Best | None) -> tuple[str, ...]:
    if best is None:
        return (f"{n:,}", "none", *("–" for _ in range(5)))
    return (f"{n:,}", f"{best.layout}{' *' * best.published}", best.recompute, gb(best.held),
            units.duration(best.time.seconds), units.percent(best.time.mfu),
            units.duration(best.days * DAY))


def _gain(fit: list[tuple[int, Best]]) -> str:
    """From the fewest cards to the most."""
    if len(fit) < 2:
        return ""
    (few, slow), *_, (many, fast) = fit
    return f" {many / few:g} times the cards are {slow.days / fast.days:.3g} times as fast."


def _as_published(model: PlannedModel) -> list[str]:
    """What its authors printed."""
    told = [f"{run.machine.devices:,} cards as {run.layout}, MFU {units.percent(run.published['mfu'])}"
            for run in catalogue.runs().values() if run.model == model and run.layout and "mfu" in run.published]
    if not told:
        return []
    return [f"Published: {'; '.join(told)}."]


QUESTIONS = (
    Question("train-biggest", "How many GPUs does it take to train the biggest LLaMA, and how long?", train_biggest,
             ("C07",), ("model", "machine", "memory", "devices", "between", "tokens", "batch", "seq")),
)
