"""`minitp plan simulate`: a schedule or a recorded run on a machine that we don't have."""
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitp.errors import ConfigError
from minitp.plan.catalogue import machine, model
from minitp.plan.job import PRECISIONS, Inference, Job, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate import replay, simulated
from minitp.plan.simulate_classes import Straggler
from minitp.plan.simulate_result import Share, Simulation
from minitp.progress import steps_bar
from minitp.runs import header_of
from minitp.trace.file import Trace
from minitp.trace.simulated import simulated_line
from minitp.trace.wording import count, duration, plain, share

SEQ = 2048
_AXES = {"tp": "tensor parallelism", "pp": "pipeline", "dp": "data parallelism", "ends": "the table at both ends"}


@dataclass(frozen=True)
class Asked:
    """The options, as they were given."""
    source: str
    machine: str
    gpus: int | None
    link: str | None
    between: str | None
    task: str
    batch: int | None
    seq: int | None
    micro_batch: int
    recompute: str
    new: int
    precision: str
    dtype: str
    tp: int
    pp: int
    dp: int | None
    zero: int
    sequence: bool
    schedule: str
    chunks: int
    embedding: str
    stragglers: tuple[str, ...]
    jitter: float
    seed: int
    speed: float
    output: Path | None
    show: str
    json: bool


def simulate(asked: Asked) -> None:
    """Simulate, write the trace where one is wanted, print where the time went."""
    if asked.output is not None:
        _check_target(asked.output)
    with steps_bar(Console(stderr=True), "simulating", 1) as tell:
        made = _simulation(asked, lambda done, _total: tell(0, f"{done:,} events"))
        if asked.output is not None:
            tell(0, f"writing {asked.output.name}")
            made.trace.write(asked.output)
    if asked.json:
        print(json.dumps(made.to_plain()))
    else:
        _print(made, Console(highlight=False))
        if asked.output is not None:
            print(f"{asked.output}: {count(made.trace.run['ranks'], 'lane')}, {count(len(made.trace), 'event')}")


def _simulation(asked: Asked, progress: Callable[[int, int], None]) -> Simulation:
    stragglers = tuple(map(_straggler, asked.stragglers))
    path = Path(asked.source)
    if path.is_file() and (path.name.endswith(".json.gz") or header_of(path)):
        trace = Trace.read(path)
        where = _machine(asked, asked.gpus or trace.run["ranks"])
        return replay(trace, where, speed=asked.speed, stragglers=stragglers, jitter=asked.jitter, seed=asked.seed,
                      progress=progress)
    if asked.source.endswith(".json.gz"):
        raise ConfigError(f"there is no trace {plain(asked.source)}")
    planned, layout = model(asked.source), _layout(asked)
    return simulated(planned, layout, _job(asked, planned, layout), _machine(asked, layout.devices),
                     stragglers=stragglers, jitter=asked.jitter, seed=asked.seed, show=asked.show,     # type: ignore[arg-type]
                     progress=progress)


def _check_target(output: Path) -> None:
    """Before anything is computed."""
    if not output.name.endswith((".json", ".json.gz")):
        raise ConfigError(f"a trace is a file NAME.json or NAME.json.gz, not {output.name}")
    if not output.resolve().parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.resolve().parent}")


def _straggler(text: str) -> Straggler:
    device, colon, factor = text.partition(":")
    try:
        return Straggler(int(device), float(factor if colon else "nan"))
    except ValueError as error:
        raise ConfigError(f"a straggler is written DEVICE:FACTOR, as 5:1.5, not {plain(text, 40)!r}") from error


def _machine(asked: Asked, devices: int) -> Machine:
    return machine(asked.machine, devices=devices, link=asked.link, between=asked.between)


def _layout(asked: Asked) -> Layout:
    """The degrees; replicas are what is left of the devices, where they aren't given."""
    replica = asked.tp * asked.pp
    dp = asked.dp
    if dp is None:
        if asked.gpus is not None and asked.gpus % replica:
            raise ConfigError(f"{asked.gpus:,} devices can't be dealt to replicas of tp · pp = {replica} each: "
                              f"{asked.gpus // replica * replica or replica:,} would work")
        dp = (asked.gpus or replica) // replica
    if asked.gpus is not None and replica * dp != asked.gpus:
        raise ConfigError(f"tp · pp · dp = {asked.tp} · {asked.pp} · {dp} are {replica * dp:,} devices, not "
                          f"{asked.gpus:,}: leave out --gpus or --dp")
    return Layout(tp=asked.tp, pp=asked.pp, dp=dp, sequence=asked.sequence, zero=asked.zero,          # type: ignore[arg-type]
                  schedule=asked.schedule, chunks=asked.chunks, embedding=asked.embedding)             # type: ignore[arg-type]


def _job(asked: Asked, planned: PlannedModel, layout: Layout) -> Job:
    longest = planned.config.positions
    if asked.task == "infer":
        prompt = asked.seq or min(SEQ, max(longest - asked.new, 1))
        return Inference(asked.batch or layout.dp, prompt, asked.new, asked.dtype, asked.dtype, asked.dtype)
    batch = asked.batch or layout.dp * asked.micro_batch * layout.pp
    return Training(batch, asked.seq or min(SEQ, longest), asked.micro_batch, asked.recompute,         # type: ignore[arg-type]
                    PRECISIONS[asked.precision])


def _print(made: Simulation, console: Console) -> None:
    """The sentence that it is a model, the time, and a table of where it went."""
    console.print(Text(f" {simulated_line(made.trace.run)} ", "bold black on cyan"))
    told = made.trace.run["simulated"]
    console.print(Text.assemble((duration(made.seconds * 1e9), "bold"), f" for {made.what} on ",
                                f"{made.devices:,} devices of {plain(told['machine'], 60)}",
                                f" · {told['layout']}" if "layout" in told else ""))
    table = Table(box=None, pad_edge=False)
    table.add_column("where a device's time goes (mean)")
    table.add_column("model", justify="right")
    table.add_column("", justify="right")
    for one, seconds in made.shares.items():
        table.add_row(_words(one), duration(seconds * 1e9), share(seconds, made.seconds))
    console.print(table)
    console.print(Text(f"Simulated one by one: {count(made.simulated, 'rank')} for {made.devices:,} devices, "
                       f"{count(made.events, 'event')}.", "dim"))


def _words(one: Share) -> str:
    if one.what == "computing":
        return "computing"
    if not one.axis:
        return "waiting for the others' end"
    waits = {"pp": "waiting for another stage (bubble)", "dp": "waiting for another replica"}
    return (waits.get(one.axis, f"waiting, {_AXES.get(one.axis, plain(one.axis, 20))}") if one.what == "waiting" else
            f"moving, {_AXES.get(one.axis, plain(one.axis, 20))}")


