"""Published runs as the planner sees them: memory, step and days of their layouts, beside what was published."""
from dataclasses import dataclass, replace

from minitp.plan import catalogue, memory, search, units
from minitp.plan.catalogue import PublishedRun
from minitp.plan.job import MIXED, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, Verdict, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, UNCOUNTED, floats, gb, some, sources, tb, under
from minitp.plan.rows import by_kind
from minitp.plan.speed import step

MACHINE, BLOOM = "8xa100-80", "bloom-176b"
RUNS = ("bloom-176b", "llama-65b", "llama-3.1-405b-8192", "llama-3.1-405b-16384", "gpt-3-175b-sc21-384",
        "gpt-3-175b-sc21-1536", "opt-175b", "mt-nlg-530b-2240")


@dataclass(frozen=True)
class Judged:
    """A published run as the planner sees it. `chosen`: whether the layout is the planner's, as none was published."""
    run: PublishedRun
    machine: Machine
    layout: Layout
    verdict: Verdict
    time: step.StepTime
    chosen: bool

    @property
    def published_days(self) -> float | None:
        """Days, or those of its device hours."""
        known, hours = self.run.published.get("days"), self.run.published.get("gpu_hours")
        return known or (None if hours is None else hours / self.layout.devices / 24)


def judged(run: PublishedRun, what: WhatIf) -> Judged:
    """Memory and step of a run, with its layout, or with the fastest that fits of a few where none was published."""
    machine = under(run, what)
    layout, job = run.layout, run.training
    if layout is None:
        found = search.search(run.model, machine, job, search.Limits(tp=machine.per_machine, zero=1, micro_batch=1,
                                                                     recompute=job.recompute))
        layout = found.best[0].layout if found.best else Layout(tp=machine.per_machine, zero=1, sequence=True,
                                                                dp=machine.devices // machine.per_machine)
    return Judged(run, machine, layout, verdict(run.model, layout, job, Capacity.of(machine.device)),
                  step.training_step(run.model, layout, job, machine), run.layout is None)


def clusters(what: WhatIf) -> Answer:
    """C12."""
    found = [judged(catalogue.run(name), what) for name in RUNS]
    card, devices = what.the_machine(MACHINE, 1).device, what.devices or THOUSAND
    total = devices * card.memory
    bloom = found[0]
    numbers: dict[str, float] = {"bytes": float(total), "parameters by states": total / MIXED.states}
    for one in found:
        numbers |= {f"{one.run.name} {name}": float(value) for name, value in (
            ("held", one.verdict.needed), ("fits", one.verdict.fits), ("step s", one.time.seconds),
            ("days", one.time.days or 0), ("devices", one.layout.devices),
            ("TFLOP/s", one.time.flops_per_device / 1e12))}
    fit = sum(one.verdict.fits for one in found)
    return Answer(
        f"{_grown(what, devices, found)}{some(devices, 'card')} of {card.memory / 1e9:g} GB are "
        f"{units.both(total)}; published runs took {min(one.layout.devices for one in found):,} to "
        f"{max(one.layout.devices for one in found):,}. The planner finds that {fit} of {len(found)} fit as they were "
        "laid out.",
        (f"{units.both(total)} hold the states of {units.count(total / MIXED.states)} parameters at {MIXED.states:g} "
         f"bytes each; {_need(found, total)}. Beyond that cards are added for time. Batches of hundreds to thousands "
         "of sequences, millions of tokens, are what lets so many cards work at once: each replica needs micro-batches "
         "enough to keep its pipeline full.",
         f"BLOOM: {bloom.layout} on {some(bloom.layout.devices, 'card')}. One replica is "
         f"{some(bloom.layout.replica, 'card')}, {bloom.layout.dp} replicas share {bloom.run.training.batch:,} "
         f"sequences. Planned: {units.both(bloom.verdict.needed)} on the fullest card and "
         f"{bloom.time.seconds:.0f} s a step; published: {bloom.run.published['step_seconds']:g} s.",
         *([] if _changed(what) else _where_it_differs(found))),
        (Table("Memory, planned", ("run", "cards", "all their memory, TB (TiB)", "layout", "fullest card, GB (GiB)",
                                   "fits beside the reserve"), tuple(_memory_row(one) for one in found), (1, 2, 4)),
         Table(f"Time: planned (a model){_changed(what)} beside published", (
             "run", "tokens a step", "step, planned", "step, published", "TFLOP/s a card, planned",
             "TFLOP/s a card, published", "days, planned", "days, published"),
             tuple(_time_row(one) for one in found), (1, 2, 3, 4, 5, 6, 7))),
        ("Step = m · (products + sync points) of the slowest stage + bubble + sends + what data parallelism can't "
         "hide + optimizer; days = tokens / (tokens a step) · step. `minitp plan MODEL --task train` shows every term.",
         "Published days are those printed, or device hours / cards; 405B's hours are of all its phases together, "
         "BLOOM's with ramp-up and restarts. * no layout was published: the fastest that fits, tensor parallelism in a "
         "machine and ZeRO-1.", UNCOUNTED, MODELED), sources([one.run for one in found]), floats(numbers))


THOUSAND = 1000


def _grown(what: WhatIf, devices: int, found: list[Judged]) -> str:
    """Whether runs were larger than what is asked about."""
    if max(one.layout.devices for one in found) <= devices:
        return "More than these runs took: "
    return "" if what.given else "Right, and since then they have grown: "


def _need(found: list[Judged], total: float) -> str:
    """How many of the models would fill so much."""
    models = {one.run.model.name: one.run.model.parameters * MIXED.states for one in found}
    more = sum(size > total for size in models.values())
    return f"{more or 'none'} of the {len(models)} models below {'need' if more > 1 else 'needs'} more"


def _changed(what: WhatIf) -> str:
    """Where the planned machines aren't those of the published runs."""
    return " on machines changed as asked," if what.memory or what.link or what.between else ""


def _where_it_differs(found: list[Judged]) -> list[str]:
    """The run whose rate the planner misses by most, and what interleaving is worth where it was published."""
    known = [one for one in found if "tflops" in one.run.published]
    off = max(known, key=lambda one: abs(one.time.flops_per_device / 1e12 / one.run.published["tflops"] - 1))
    ratio = off.time.flops_per_device / 1e12 / off.run.published["tflops"]
    said = [f"Least alike is {off.run.name}: planned {units.percent(ratio)} of the published rate. Of its planned step "
            f"{units.percent(_bubble_share(off))} is the pipeline's bubble, with "
            f"{off.run.training.micro_batches(off.layout.dp)} micro-batches over {off.layout.pp} stages."]
    cut = [(one, plain(one.run.model, one.layout, one.run.training, one.machine)) for one in found
           if one.layout.chunks > 1 and not one.chosen]
    if cut:
        most, alone = max(cut, key=lambda pair: pair[1].seconds / pair[0].time.seconds)
        said.append(f"{most.run.name} interleaves {most.layout.chunks} chunks of layers on each stage, as published. "
                    f"As plain 1F1B, one piece a stage, its step is planned at {units.duration(alone.seconds)} instead "
                    f"of {units.duration(most.time.seconds)}: {alone.flops_per_device / 1e12:,.0f} TFLOP/s a card "
                    f"where {most.run.published['tflops']:g} were published.")
    return said


def plain(model: PlannedModel, layout: Layout, job: Training, machine: Machine) -> step.StepTime:
    """The same with its pipeline as plain 1F1B, each stage one piece of the model: cut evenly, or with fewer layers on
    the stages that have the ends as well, whichever is faster."""
    each, over = -(-model.config.layers // layout.pp), -model.config.layers % layout.pp
    ends = [each] * layout.pp
    for n in range(over):
        ends[n // 2 if n % 2 else -1 - n // 2] -= 1
    cuts = (None, tuple(ends)) if min(ends) > 0 else (None,)
    return min((step.training_step(model, replace(layout, schedule="1f1b", chunks=1, stage_layers=cut), job, machine)
                for cut in cuts), key=lambda time: time.seconds)


def _bubble_share(one: Judged) -> float:
    return sum(row.seconds for row in one.time.rows if row.term == "pipeline bubble") / one.time.seconds


def _memory_row(one: Judged) -> tuple[str, ...]:
    missing = "" if one.verdict.fits else f": {units.both(-one.verdict.room)} into it"
    verdict_text = "yes" if one.verdict.fits else f"only by {one.machine.device.name}'s reserve" if (
        one.verdict.needed <= one.machine.device.memory_real) else "no"
    return (one.run.name, f"{one.layout.devices:,}", tb(one.layout.devices * one.machine.device.memory),
            f"{one.layout}{' *' if one.chosen else ''}", gb(one.verdict.needed), verdict_text + missing)


def _time_row(one: Judged) -> tuple[str, ...]:
    published, job = one.run.published, one.run.training
    days = one.published_days
    return (one.run.name, units.count(job.batch * job.seq), units.duration(one.time.seconds),
            units.duration(published["step_seconds"]) if "step_seconds" in published else "–",
            f"{one.time.flops_per_device / 1e12:,.0f}", f"{published['tflops']:g}" if "tflops" in published else "–",
            f"{one.time.days:,.0f}" if one.time.days else "–", f"{days:,.0f}" if days else "–")


# --- BLOOM ----------------------------------------------------------------------------------------------------------


def bloom(what: WhatIf) -> Answer:
    """C20."""
    run = catalogue.run(BLOOM)
    one = judged(run, what)
    place, rows = memory.worst(run.model, one.layout, run.training)
    alone = judged(replace(run, layout=replace(one.layout, zero=0)), what)
    held = {kind: size for kind, size in by_kind(rows).items() if size}
    numbers = {"held": float(one.verdict.needed), "step s": one.time.seconds, "days": one.time.days or 0,
               "replica": float(one.layout.replica), "micro-batches": float(run.training.micro_batches(one.layout.dp)),
               "bubble": _bubble_share(one), "without ZeRO": float(alone.verdict.needed),
               "TFLOP/s": one.time.flops_per_device / 1e12}
    return Answer(
        f"{'Not hard to draw, hard to keep going' if one.verdict.fits else 'It does not fit such cards'}: "
        f"{one.layout} on {some(one.layout.devices, 'card')}; the planner finds "
        f"{units.both(one.verdict.needed)} on the fullest card and {one.time.seconds:.0f} s a step, "
        f"{run.published['step_seconds']:g} s were published.",
        (f"Three cuts at once. {one.layout.tp} cards share each matrix (tensor parallel, inside a machine), "
         f"{one.layout.pp} such groups follow one another, each with about "
         f"{run.model.config.layers / one.layout.pp:.1f} of {run.model.config.layers} layers (pipeline), and those "
         f"{one.layout.replica} cards are one replica, of which there are {one.layout.dp} (data parallel). A step "
         f"gives each replica {run.training.micro_batches(one.layout.dp)} micro-batches of "
         f"{some(run.training.micro_batch, 'sequence')}.",
         f"Optimizer state is cut over the replicas (ZeRO-1). Without that the fullest card, on stage {place.pp}, "
         f"would hold {units.both(alone.verdict.needed)}, and "
         f"{'would fit still' if alone.verdict.fits else 'would not fit'}.",
         f"Planned for {units.count(run.training.tokens)} tokens: {one.time.days:,.0f} days; published device hours "
         f"over {one.layout.devices} cards: {one.published_days:,.0f}, with ramp-up, failures and restarts, which no "
         "planner counts and which are the hard part. `minitp plan simulate` plays such a step, device by device."),
        (Table("The fullest card, planned", ("kind", "GB (GiB)"),
               tuple((kind, gb(size)) for kind, size in held.items()), (1,)),
         Table("A step, a model", ("term", "time", "share"),
               tuple((row.term, units.duration(row.seconds), units.percent(row.seconds / one.time.seconds))
                     for row in one.time.rows), (1, 2))),
        (f"Bubble: (p − 1)/m = ({one.layout.pp} − 1)/{run.training.micro_batches(one.layout.dp)} = "
         f"{one.time.bubble:.3f} of the ideal time. Rate: planned {one.time.flops_per_device / 1e12:.0f} TFLOP/s a "
         f"card, published {run.published['tflops']:g}.", UNCOUNTED, MODELED),
        sources(run, run.model, one.machine), floats(numbers))


QUESTIONS = (
    Question("thousand-gpus", "Clusters of 1,000 GPUs, 80 TB in all: do the layouts of real runs add up?", clusters,
             ("C12",), ("machine", "memory", "devices", "link", "between"),
             "Do the layouts of real runs add up on clusters of so many GPUs?"),
    Question("bloom", "How hard is what BLOOM's authors did: 176B on 384 GPUs?", bloom, ("C20",),
             ("memory", "link", "between")),
)
