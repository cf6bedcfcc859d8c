"""The verb `minitp plan simulate`."""
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minitp.cli_options import FAULT, RECORD, Embedding, opt
from minitp.cli_plan.group import GIVEN
from minitp.cli_plan.options import (
    JOB,
    LAYOUT,
    MACHINE,
    OF_INFERENCE,
    OF_TRAINING,
    BetweenOption,
    CacheOption,
    ChunkLayersOption,
    Degree,
    DevicesOption,
    LinkOption,
    MachineOption,
    MicroOption,
    NewOption,
    PrecisionOption,
    PromptOption,
    Recompute,
    RecomputeOption,
    SeqOption,
    Task,
    TaskOption,
    TrainingPrecision,
    WeightsOption,
    refuse,
    the_job,
    the_machine,
)
from minitp.plan.job import Inference

if TYPE_CHECKING:
    from minitp.plan.job import Job
    from minitp.plan.layout import Layout
    from minitp.plan.machine import Machine
    from minitp.plan.model import PlannedModel

OF_A_MODEL = ("task", "batch", *OF_INFERENCE, *OF_TRAINING, "tp", "pp", "dp", "embedding",
              "stage_layers", "show")

OF_LAYOUT = ("tp", "pp", "dp", "zero", "sequence", "schedule", "chunks", "stage_layers")
FASTEST = "Nobody asked for a layout: this is the fastest that fits, as `minitp plan` finds it,"
NONE_FITS = "Nobody asked for a layout, and none of these devices carries this: the plainest is played."


class Schedule(StrEnum):
    one_f_one_b = "1f1b"
    interleaved = "interleaved"
    gpipe = "gpipe"


class Show(StrEnum):
    classes = "classes"
    pipeline = "pipeline"
    tp = "tp"
    all = "all"


QueueOption = Annotated[bool, opt("Transfers that leave a box at the same time wait for its ports in turn.", "--queue",
                                  panel=MACHINE)]
SpeedOption = Annotated[float, opt("Of a replay: how many times as fast as measured the ranks compute.",
                                   panel=MACHINE)]
SequencesOption = Annotated[int | None, opt("Sequences of a step (train), at once (infer).", min=1, panel=JOB,
                                            show_default="as for `minitp plan`; with degrees dp · micro-batch · pp, "
                                                         "dp")]
ActivationsOption = Annotated[str, opt("Number type of products (infer).", panel=JOB, metavar="TYPE")]
ZeroOption = Annotated[int, opt("ZeRO stage (train).", min=0, max=3, panel=LAYOUT)]
SequenceOption = Annotated[bool, opt("Sequence parallelism too.", "--sequence-parallel", panel=LAYOUT)]
ScheduleOption = Annotated[Schedule, opt("Of the pipeline.", panel=LAYOUT)]
ChunksOption = Annotated[int, opt("Model chunks a stage, where it is interleaved.", min=1, panel=LAYOUT)]
EmbeddingOption = Annotated[Embedding, opt("Cut the table along the vocabulary or along hidden.", panel=LAYOUT)]
StragglerOption = Annotated[list[str] | None, opt("A device that computes longer, and how many times as long: 5:1.5. "
                                                  "May be given again.", panel=FAULT, metavar="DEVICE:FACTOR")]
JitterOption = Annotated[float, opt("Every span of computing times a random factor: lognormal, of mean 1 and this σ.",
                                    panel=FAULT, min=0, max=2)]
SeedOption = Annotated[int, opt("Of the jitter.", panel=FAULT, min=0)]
OutputOption = Annotated[Path | None, opt("Write the trace: `minitp trace show`, `minitp watch` and the app open it.",
                                          "--output", "-o", panel=RECORD, metavar="FILE.json.gz")]
ShowOption = Annotated[Show, opt("Which ranks are in it: one of each class, the stages of one pipeline, one tp group, "
                                 "or all.", panel=RECORD)]
JsonOption = Annotated[bool, opt("Print one JSON object instead of a table.", "--json", panel=RECORD)]


def simulate(
        source: Annotated[str, typer.Argument(metavar="MODEL|TRACE", help="A model as for `minitp plan`; or the trace "
                                              "of a run (its file), to be replayed on the machine.")],
        machine: MachineOption = "8xa100-80", gpus: DevicesOption = None, link: LinkOption = None,
        between: BetweenOption = None, queue: QueueOption = False, speed: SpeedOption = 1.0,
        task: TaskOption = Task.train, batch: SequencesOption = None, seq: SeqOption = None,
        prompt: PromptOption = Inference.prompt, new: NewOption = 4, weights: WeightsOption = Inference.weights,
        cache: CacheOption = Inference.cache, activations: ActivationsOption = Inference.activations,
        precision: PrecisionOption = TrainingPrecision.mixed, micro_batch: MicroOption = None,
        recompute: RecomputeOption = Recompute.none,
        tp: Degree("Tensor", "all: the fastest that fits; some: 1") = 1, pp: Degree("Pipeline", "likewise") = 1,              # type: ignore[valid-type]
        dp: Degree("Data", "devices / (tp · pp)") = None,                              # type: ignore[valid-type]
        zero: ZeroOption = 0, sequence: SequenceOption = False, schedule: ScheduleOption = Schedule.one_f_one_b,
        chunks: ChunksOption = 1, stage_layers: ChunkLayersOption = None, embedding: EmbeddingOption = Embedding.vocab,
        straggler: StragglerOption = None, jitter: JitterOption = 0.0, seed: SeedOption = 0,
        output: OutputOption = None, show: ShowOption = Show.classes, json: JsonOption = False) -> None:
    """Play a training step, a generation, or a recorded run event by event on a machine you don't have."""
    from minitp.commands.plan import simulate as command
    how = command.How(tuple(straggler or ()), jitter, seed, queue, output, json)
    command.check_target(output)
    if command.is_trace(source):
        refuse(OF_A_MODEL, "the simulation of a model: a trace is replayed as it was run")
        command.replay_trace(Path(source), speed, how,
                             lambda ranks: the_machine(machine, gpus or ranks, None, link, between))
        return
    from minitp.commands.plan.layouts import job_in_words
    from minitp.plan import catalogue
    from minitp.plan.simulate.asked import replicas, usual_batch
    refuse(["speed"], "a replay: a model's own work is counted, not measured")
    planned, there = catalogue.model(source), the_machine(machine, gpus, None, link, between)

    def job(batch: int | None) -> "Job":
        return _computed_in(the_job(
            task, positions=planned.config.positions, seq=seq, prompt=prompt, new=new, weights=weights, batch=batch,
            cache=cache, precision=precision, tokens=None, micro_batch=micro_batch, recompute=recompute), activations)

    free = not any(name in GIVEN.get() for name in OF_LAYOUT)
    chosen = _fastest(planned, there, job(batch), micro_batch, recompute, embedding) if free else None
    if chosen:
        command.simulate_model(planned, *chosen, there, show.value, how, f"{FASTEST} {job_in_words(chosen[1])}.")
        return
    dp = replicas(gpus, tp * pp, dp, there.devices)
    layout = _layout(tp, pp, dp, sequence, zero, schedule, chunks, embedding, stage_layers)
    command.simulate_model(planned, layout, job(batch or usual_batch(task is Task.train, dp, pp, micro_batch)),
                           the_machine(machine, layout.devices, None, link, between), show.value, how,
                           NONE_FITS if free else "")


def _fastest(model: "PlannedModel", machine: "Machine", job: "Job", micro_batch: int | None,
             recompute: Recompute | None, embedding: Embedding) -> "tuple[Layout, Job] | None":
    """The search's first layout of the whole machine and the job with what it chose; None where none fits."""
    from dataclasses import replace
    from typing import Literal, cast

    from minitp.plan.limits import Limits
    from minitp.plan.simulate.asked import fastest_that_fits
    again = None if recompute is None else cast(Literal["none", "selective", "full"], recompute.value)
    found = fastest_that_fits(model, machine, job, Limits(micro_batch=micro_batch, recompute=again))
    return None if found is None else (replace(found[0], embedding=embedding.value), found[1])


def _layout(tp: int, pp: int, dp: int, sequence: bool, zero: int, schedule: Schedule, chunks: int,
            embedding: Embedding, stage_layers: str | None) -> "Layout":
    from typing import Literal, cast

    from minitp.plan.layout import Layout, parse_stage_layers
    return Layout(tp=tp, pp=pp, dp=dp, sequence=sequence, zero=cast(Literal[0, 1, 2, 3], zero),
                  schedule=schedule.value, chunks=chunks, embedding=embedding.value,
                  stage_layers=None if stage_layers is None else parse_stage_layers(stage_layers))


def _computed_in(job: "Job", activations: str) -> "Job":
    """A generation with products of this number type; a training has its precision."""
    from dataclasses import replace

    from minitp.plan.job import Inference
    return replace(job, activations=activations) if isinstance(job, Inference) else job
