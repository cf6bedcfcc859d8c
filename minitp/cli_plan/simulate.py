"""The verb `minitp plan simulate`."""
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import CUT, FAULT, RECORD, Embedding, opt

WHAT, WHERE = "What is run", "On what"


class Task(StrEnum):
    train = "train"
    infer = "infer"


class Recompute(StrEnum):
    none = "none"
    selective = "selective"
    full = "full"


class Schedule(StrEnum):
    one_f_one_b = "1f1b"
    interleaved = "interleaved"
    gpipe = "gpipe"


class Show(StrEnum):
    classes = "classes"
    pipeline = "pipeline"
    tp = "tp"
    all = "all"


class TrainingTypes(StrEnum):
    mixed = "mixed"
    fp32_gradients = "mixed-fp32-gradients"
    float32 = "float32"
    bf16 = "pure-bf16"


def simulate(
        source: Annotated[str, typer.Argument(metavar="MODEL|TRACE", help="A model of the catalogue or a config.json; "
                                              "or the trace of a run, to be replayed.")],
        machine: Annotated[str, opt("A machine of the catalogue, N devices (4xh100), boxes (2x8xh100), a file.toml, or "
                                    "this.", "--machine", "-m", panel=WHERE)],
        gpus: Annotated[int | None, opt("Devices in all.", "--gpus", min=1, panel=WHERE,
                                        show_default="tp · pp · dp")] = None,
        link: Annotated[str | None, opt("Another link inside a box: a name or α,rate.", panel=WHERE)] = None,
        between: Annotated[str | None, opt("Another link between boxes.", panel=WHERE)] = None,
        task: Annotated[Task, opt("train: one training step; infer: a generation.", panel=WHAT)] = Task.train,
        batch: Annotated[int | None, opt("Sequences of a step, or of a generation, on all replicas together.",
                                         panel=WHAT, min=1, show_default="train: dp · micro-batch · pp; infer: dp")
                         ] = None,
        seq: Annotated[int | None, opt("Tokens of a sequence; of a generation's prompt.", panel=WHAT, min=1,
                                       show_default="2048, or what the model can")] = None,
        micro_batch: Annotated[int, opt("Sequences of a micro-batch.", panel=WHAT, min=1)] = 1,
        recompute: Annotated[Recompute, opt("What the backward pass computes again.", panel=WHAT)] = Recompute.none,
        new: Annotated[int, opt("New tokens of a generation: each is a pass in the trace.", panel=WHAT, min=1)] = 4,
        types: Annotated[TrainingTypes, opt("Number types of a training.", "--precision", panel=WHAT)
                         ] = TrainingTypes.mixed,
        dtype: Annotated[str, opt("Number type of a generation's weights, cache and activations.", panel=WHAT)
                         ] = "bf16",
        tp: Annotated[int, opt("Tensor parallel degree.", panel=CUT, min=1)] = 1,
        pp: Annotated[int, opt("Pipeline stages.", panel=CUT, min=1)] = 1,
        dp: Annotated[int | None, opt("Replicas.", panel=CUT, min=1, show_default="gpus / (tp · pp)")] = None,
        zero: Annotated[int, opt("ZeRO stage.", panel=CUT, min=0, max=3)] = 0,
        sequence: Annotated[bool, opt("Sequence parallelism too.", "--sequence-parallel", panel=CUT)] = False,
        schedule: Annotated[Schedule, opt("Of the pipeline.", panel=CUT)] = Schedule.one_f_one_b,
        chunks: Annotated[int, opt("Model chunks on each stage, interleaved.", panel=CUT, min=1)] = 1,
        embedding: Annotated[Embedding, opt("Cut the table along the vocabulary or along hidden.", panel=CUT)
                             ] = Embedding.vocab,
        straggler: Annotated[list[str] | None, opt("A device that computes longer, and how many times: 5:1.5. May be "
                                                   "given again.", panel=FAULT, metavar="DEVICE:FACTOR")] = None,
        jitter: Annotated[float, opt("σ of a lognormal factor on every span of computing.", panel=FAULT, min=0, max=2)
                          ] = 0.0,
        seed: Annotated[int, opt("Of the jitter.", panel=FAULT, min=0)] = 0,
        speed: Annotated[float, opt("In a replay: how many times as fast as measured the ranks compute.", panel=WHERE)
                         ] = 1.0,
        output: Annotated[Path | None, opt("Write the trace: `minitp trace show`, `minitp watch` and the app open it.",
                                           "--output", "-o", panel=RECORD, metavar="FILE.json.gz")] = None,
        show: Annotated[Show, opt("Which ranks are in it: one of each class, the stages of one pipeline, one tp group, "
                                  "or all.", panel=RECORD)] = Show.classes,
        json: Annotated[bool, opt("Print the numbers as JSON.", "--json", panel=RECORD)] = False) -> None:
    """Play a training step, a generation, or a recorded run event by event on a machine you don't have."""
    from minitp.commands.plan.simulate import Asked, simulate
    simulate(Asked(source, machine, gpus, link, between, task.value, batch, seq, micro_batch, recompute.value, new,
                   types.value, dtype, tp, pp, dp, zero, sequence, schedule.value, chunks, embedding.value,
                   tuple(straggler or ()), jitter, seed, speed, output, show.value, json))
