"""The verb `minitp plan simulate`."""
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import FAULT, RECORD, Embedding, opt
from minitp.cli_plan.options import (
    JOB,
    LAYOUT,
    MACHINE,
    OF_INFERENCE,
    OF_TRAINING,
    BetweenOption,
    CacheOption,
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

OF_A_MODEL = ("task", "batch", *OF_INFERENCE, *OF_TRAINING, "tp", "pp", "dp", "embedding", "show")


class Schedule(StrEnum):
    one_f_one_b = "1f1b"
    interleaved = "interleaved"
    gpipe = "gpipe"


class Show(StrEnum):
    classes = "classes"
    pipeline = "pipeline"
    tp = "tp"
    all = "all"


def simulate(
        source: Annotated[str, typer.Argument(metavar="MODEL|TRACE", help="A model as for `minitp plan`; or the trace "
                                              "of a run (its file), to be replayed on the machine.")],
        machine: MachineOption = "8xa100-80", gpus: DevicesOption = None, link: LinkOption = None,
        between: BetweenOption = None,
        queue: Annotated[bool, opt("Transfers that leave a box at the same time wait for its ports in turn.", "--queue",
                                   panel=MACHINE)] = False,
        speed: Annotated[float, opt("Of a replay: how many times as fast as measured the ranks compute.", panel=MACHINE)
                         ] = 1.0,
        task: TaskOption = Task.train,
        batch: Annotated[int | None, opt("Sequences of a step (train), at once (infer).", min=1, panel=JOB,
                                         show_default="dp · micro-batch · pp; dp")] = None,
        seq: SeqOption = None, prompt: PromptOption = Inference.prompt, new: NewOption = 4,
        weights: WeightsOption = Inference.weights, cache: CacheOption = Inference.cache,
        activations: Annotated[str, opt("Number type of products (infer).", panel=JOB, metavar="TYPE")] = "bf16",
        precision: PrecisionOption = TrainingPrecision.mixed, micro_batch: MicroOption = None,
        recompute: RecomputeOption = Recompute.none,
        tp: Degree("Tensor", "1") = 1, pp: Degree("Pipeline", "1") = 1,              # type: ignore[valid-type]
        dp: Degree("Data", "devices / (tp · pp)") = None,                              # type: ignore[valid-type]
        zero: Annotated[int, opt("ZeRO stage (train).", min=0, max=3, panel=LAYOUT)] = 0,
        sequence: Annotated[bool, opt("Sequence parallelism too.", "--sequence-parallel", panel=LAYOUT)] = False,
        schedule: Annotated[Schedule, opt("Of the pipeline.", panel=LAYOUT)] = Schedule.one_f_one_b,
        chunks: Annotated[int, opt("Model chunks a stage, where it is interleaved.", min=1, panel=LAYOUT)] = 1,
        embedding: Annotated[Embedding, opt("Cut the table along the vocabulary or along hidden.", panel=LAYOUT)
                             ] = Embedding.vocab,
        straggler: Annotated[list[str] | None, opt("A device that computes longer, and how many times as long: 5:1.5. "
                                                   "May be given again.", panel=FAULT, metavar="DEVICE:FACTOR")] = None,
        jitter: Annotated[float, opt("Every span of computing times a random factor: lognormal, of mean 1 and this σ.",
                                     panel=FAULT, min=0, max=2)] = 0.0,
        seed: Annotated[int, opt("Of the jitter.", panel=FAULT, min=0)] = 0,
        output: Annotated[Path | None, opt("Write the trace: `minitp trace show`, `minitp watch` and the app open it.",
                                           "--output", "-o", panel=RECORD, metavar="FILE.json.gz")] = None,
        show: Annotated[Show, opt("Which ranks are in it: one of each class, the stages of one pipeline, one tp group, "
                                  "or all.", panel=RECORD)] = Show.classes,
        json: Annotated[bool, opt("Print one JSON object instead of a table.", "--json", panel=RECORD)] = False
        ) -> None:
    """Play a training step, a generation, or a recorded run event by event on a machine you don't have."""
    from dataclasses import replace
    from typing import Literal, cast

    from minitp.commands.plan import simulate as command
    from minitp.plan import catalogue
    from minitp.plan.layout import Layout
    how = command.How(tuple(straggler or ()), jitter, seed, queue, output, json)
    command.check_target(output)
    if command.is_trace(source):
        refuse(OF_A_MODEL, "the simulation of a model: a trace is replayed as it was run")
        command.replay_trace(Path(source), speed, how,
                             lambda ranks: the_machine(machine, gpus or ranks, None, link, between))
        return
    refuse(["speed"], "a replay: a model's own work is counted, not measured")
    planned = catalogue.model(source)
    replicas = command.replicas(gpus, tp * pp, dp, the_machine(machine, None, None, link, between).devices)
    layout = Layout(tp=tp, pp=pp, dp=replicas, sequence=sequence, zero=cast(Literal[0, 1, 2, 3], zero),
                    schedule=schedule.value, chunks=chunks, embedding=embedding.value)
    usual = replicas if task is Task.infer else replicas * (micro_batch or 1) * pp
    job = the_job(task, positions=planned.config.positions, batch=batch or usual, seq=seq, prompt=prompt,
                  new=new, weights=weights, cache=cache, precision=precision, tokens=None, micro_batch=micro_batch,
                  recompute=recompute)
    if isinstance(job, Inference):
        job = replace(job, activations=activations)
    command.simulate_model(planned, layout, job, the_machine(machine, layout.devices, None, link, between), show.value,
                           how)
