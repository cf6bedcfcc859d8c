"""The options that the verbs of `minitp plan` share: the model, the machine, the job and the layout."""
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minitp.cli_options import opt
from minitp.cli_plan.group import GIVEN
from minitp.cli_train import Recompute
from minitp.plan.job import STEP, Inference, Training

if TYPE_CHECKING:
    from minitp.plan.job import Job
    from minitp.plan.machine import Machine

MACHINE, JOB, LAYOUT = "The machine", "What is run on it", "How the model is laid out"
OF_TRAINING = ("seq", "tokens", "precision", "micro_batch", "recompute", "zero", "chunks", "schedule",
               "sequence")
OF_INFERENCE = ("prompt", "new", "prefill_tokens", "weights", "cache", "activations")


class Task(StrEnum):
    infer = "infer"
    train = "train"


class TrainingPrecision(StrEnum):
    mixed = "mixed"
    mixed_fp32_gradients = "mixed-fp32-gradients"
    float32 = "float32"
    pure_bf16 = "pure-bf16"


ModelArgument = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="A name of `minitp plan catalogue "
                                                     "models`, a config.json, or a checkpoint's folder.")]
ModelNamed = Annotated[str | None, opt("The same as an option.", "--model", "-m", metavar="NAME")]
MachineOption = Annotated[str, opt("A name of `minitp plan catalogue machines`, such as 8xa100-80 or 2x8xh100; this, "
                                   "where `minitp plan calibrate` has run; or a description in TOML.", "--machine",
                                   panel=MACHINE, metavar="NAME")]
DevicesOption = Annotated[int | None, opt("So many devices in all: as many machines as they need.", "--gpus",
                                          "--devices", min=1, panel=MACHINE)]
MemoryOption = Annotated[str | None, opt("What if a device had this memory: 1TB, 192GiB.", panel=MACHINE,
                                         metavar="SIZE")]
BandwidthOption = Annotated[str | None, opt("What if that memory were so fast: 4TB/s.", "--bandwidth", panel=MACHINE,
                                            metavar="RATE")]
LinkOption = Annotated[str | None, opt("What if this were the link inside a machine: ethernet-100g, nvlink3.",
                                       panel=MACHINE, metavar="NAME")]
BetweenOption = Annotated[str | None, opt("What if this were the link between machines.", panel=MACHINE,
                                          metavar="NAME")]
PortsOption = Annotated[int | None, opt("What if the devices of a machine shared so many of those; 0: one for each.",
                                        min=0, panel=MACHINE, show_default="as the machine has")]
ReserveOption = Annotated[float, opt("Percent of a device's memory kept free for what isn't modeled.", min=0, max=90,
                                     panel=MACHINE)]
TaskOption = Annotated[Task, opt("infer: generate text; train: take training steps.", panel=JOB)]
BatchOption = Annotated[int | None, opt("Sequences at once (infer), of a step (train).", min=1, panel=JOB,
                                        show_default=f"{Inference.batch:,}; {STEP:,}")]
SeqOption = Annotated[int | None, opt("Tokens of a sequence (train).", min=1, panel=JOB,
                                      show_default=f"{Training.seq:,}, or the model's")]
PromptOption = Annotated[int, opt("Tokens of a prompt (infer).", min=1, panel=JOB)]
NewOption = Annotated[int, opt("New tokens after it (infer).", min=0, panel=JOB)]
PrefillOption = Annotated[int, opt("Tokens of a replica's prompts that go through at once (infer): more take more "
                                   "memory.", "--prefill-tokens", min=1, panel=JOB)]
WeightsOption = Annotated[str, opt("Number type of the weights (infer): bf16, fp8, int8, int4, q4_0, float32.",
                                   panel=JOB, metavar="TYPE")]
CacheOption = Annotated[str, opt("Number type of the KV cache (infer).", panel=JOB, metavar="TYPE")]
PrecisionOption = Annotated[TrainingPrecision, opt("Bytes a parameter (train): 16, 18, 16 or 8.", panel=JOB)]
TokensOption = Annotated[str | None, opt("Of the whole training, for days and GPU hours: 300e9, 15T.", panel=JOB,
                                         metavar="COUNT")]
MicroOption = Annotated[int | None, opt("Sequences a replica works on at once (train).", "--micro-batch", min=1,
                                        panel=JOB, show_default="1, 2, 4 … are tried")]
RecomputeOption = Annotated[Recompute | None, opt("What the backward pass computes again (train).", panel=JOB,
                                                  show_default="as little as fits")]


ChunkLayersOption = Annotated[str | None, opt("Layers of each stage, or chunk, in the order of the model: 5,6x10,5 (5, "
                                              "ten times 6, 5).", "--stage-layers", panel=LAYOUT,
                                              metavar="COUNTS", show_default="as even as can be")]


def Degree(what: str, tried: str = "all are tried") -> Any:  # noqa: N802  (it makes a type)
    """An option for one degree of the mesh."""
    return Annotated[int | None, opt(f"{what} parallel degree.", min=1, panel=LAYOUT, show_default=tried)]


def refuse(names: Iterable[str], belong: str) -> None:
    """ConfigError where one of these options was given: it would be passed over in silence. `belong`: what they are
    of."""
    from minitp.errors import ConfigError
    for name in names:
        if name in GIVEN.get():
            raise ConfigError(f"{GIVEN.get()[name]} belongs to {belong}")


def the_tokens(text: str) -> int:
    """Tokens of a training, one at least."""
    from minitp.errors import ConfigError
    from minitp.plan.units import parse_count
    tokens = parse_count(text)
    if not tokens:
        raise ConfigError("--tokens 0: a training has at least one; leave it out where only a step is asked for")
    return tokens


def the_model(argument: str | None, option: str | None) -> str:
    """The model that was named, in one way or the other; ConfigError for none or two."""
    from minitp.errors import ConfigError
    named = [name for name in (argument, option) if name is not None]
    if len(named) != 1:
        raise ConfigError("name one model: `minitp plan llama-3.1-405b`, or --model path/to/config.json; "
                          "`minitp plan catalogue models` lists those that are known")
    return named[0]


def the_machine(name: str, devices: int | None, memory: str | None, link: str | None, between: str | None,
                bandwidth: str | None = None, ports: int | None = None) -> "Machine":
    """The machine with its what-ifs."""
    from minitp.plan import catalogue
    from minitp.plan.machine import check_devices
    from minitp.plan.units import parse_bytes
    check_devices(devices or 1)
    return catalogue.machine(name, devices=devices, memory=None if memory is None else parse_bytes(memory), link=link,
                             between=between, bandwidth=bandwidth, ports=ports)


def the_job(task: Task, *, positions: int, batch: int | None, seq: int | None, prompt: int, new: int, weights: str,
            cache: str, precision: TrainingPrecision, tokens: str | None, micro_batch: int | None,
            recompute: Recompute | None, prefill_tokens: int = Inference.prefill_tokens) -> "Job":
    """The job that the options describe."""
    from minitp.plan.job import PRECISIONS
    refuse(OF_TRAINING if task is Task.infer else OF_INFERENCE,
           f"--task {'train' if task is Task.infer else 'infer'}, and this is --task {task.value}")
    if task is Task.infer:
        return Inference(batch or Inference.batch, prompt, new, weights, cache, prefill_tokens=prefill_tokens)
    job = Training(batch or STEP, seq or min(Training.seq, positions), precision=PRECISIONS[precision.value],
                   tokens=0 if tokens is None else the_tokens(tokens))
    return replace(job, micro_batch=micro_batch or 1, recompute="none" if recompute is None else recompute.value)
