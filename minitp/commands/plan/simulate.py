"""`minitp plan simulate`: a schedule or a recorded run on a machine that we don't have."""
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from minitp.commands.plan.tables import table
from minitp.errors import ConfigError
from minitp.plan.job import Job
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate import Progress, replay, simulated
from minitp.plan.simulate.asked import warnings_of
from minitp.plan.simulate.classes import Show, Straggler
from minitp.plan.simulate.result import Share, Simulation
from minitp.plan.simulate.write import STEP
from minitp.plan.speed.against import published
from minitp.progress import steps_bar
from minitp.runs import header_of
from minitp.trace.file import Trace
from minitp.trace.simulated import simulated_line, warnings_in
from minitp.trace.wording import count, duration, plain, share

_AXES = {"tp": "tensor parallelism", "pp": "pipeline", "dp": "data parallelism", "ends": "the table at both ends"}


@dataclass(frozen=True)
class How:
    """Options that a replay and a predicted run share, as they were given."""
    stragglers: tuple[str, ...] = ()
    jitter: float = 0.0
    seed: int = 0
    queue: bool = False
    output: Path | None = None
    json: bool = False


def is_trace(source: str) -> bool:
    """Whether a trace is meant, not a model. ConfigError where its file isn't there."""
    path = Path(source)
    if source.endswith(".json.gz") and not path.is_file():
        raise ConfigError(f"there is no trace {plain(source)}")
    return path.is_file() and (source.endswith(".json.gz") or bool(header_of(path)))


def check_target(output: Path | None) -> None:
    """Refuse what can't be written before anything is computed."""
    if output is None:
        return
    if not output.name.endswith((".json", ".json.gz")):
        raise ConfigError(f"a trace is a file NAME.json or NAME.json.gz, not {output.name}")
    if not output.resolve().parent.is_dir():
        raise ConfigError(f"--output {output}: there is no folder {output.resolve().parent}")


def replay_trace(path: Path, speed: float, how: How, machine: Callable[[int], Machine]) -> None:
    """Replay a recorded run; `machine`: the one for so many ranks."""
    trace = Trace.read(path)
    where = machine(trace.run["ranks"])
    _tell(how, lambda progress: replay(trace, where, speed=speed, stragglers=_stragglers(how), jitter=how.jitter,
                                       seed=how.seed, queue=how.queue, progress=progress))


def simulate_model(model: PlannedModel, layout: Layout, job: Job, machine: Machine, show: Show, how: How,
                   chosen: str = "") -> None:
    """Simulate a predicted run. ConfigError where the model can't be laid out so; where it is only too large for the
    devices, that is said and it is simulated. `chosen`: what to say of a layout that nobody asked for."""
    told = warnings_of(model, layout, job, machine)
    _tell(how, lambda progress: simulated(model, layout, job, machine, stragglers=_stragglers(how), jitter=how.jitter,
                                          seed=how.seed, show=show, queue=how.queue, warnings=told,
                                          to_write=how.output is not None, progress=progress), chosen)


def _tell(how: How, make: Callable[[Progress], Simulation], chosen: str = "") -> None:
    """Simulate, write the trace where one is wanted, print where the time went."""
    with steps_bar(Console(stderr=True), "simulating", 1) as bar:
        made = make(lambda done, total: bar(0, f"{done:,} of {count(total, 'event')}"))
        if how.output is not None:
            bar(0, f"writing {how.output.name}")
            made.trace.write(how.output)
    if how.json:
        print(json.dumps(made.to_plain()))
        return
    _print(made, Console(highlight=False), chosen)
    if how.output is not None:
        print(f"{how.output}: {count(made.trace.run['ranks'], 'rank')}, {count(len(made.trace), 'event')}")


def _stragglers(how: How) -> tuple[Straggler, ...]:
    return tuple(map(_straggler, how.stragglers))


def _straggler(text: str) -> Straggler:
    device, _, factor = text.partition(":")
    try:
        return Straggler(int(device), float(factor))
    except ValueError as error:
        raise ConfigError(f"a straggler is written DEVICE:FACTOR, as 5:1.5, not {plain(text, 40)!r}") from error


def _print(made: Simulation, console: Console, chosen: str) -> None:
    """The sentence that it is a model, what it warns of, the time, and a table of where it went."""
    console.print(Text(f" {simulated_line(made.run, warnings=False)} ", "bold black on cyan"))
    console.print(*(Text(f"Warning: {one}", "yellow") for one in warnings_in(made.run)), sep="\n",
                  end="\n" * bool(warnings_in(made.run)))
    told = made.run["simulated"]
    layout = f" · {told['layout']}" if "layout" in told else ""
    console.print(Text.assemble((duration(made.seconds * 1e9), "bold"), f" for {made.what} on "
                                f"{count(made.devices, 'device')}{layout}"))
    if chosen:
        console.print(Text(chosen, "dim"))
    if made.planned is not None:
        console.print(Text(made.planned.text, "dim"))
        if made.what == STEP:
            console.print(Text(f"Simulated it takes {made.seconds / made.planned.seconds:.3g} times that. "
                               + published().about("the step of `minitp plan`, not the simulated one,"), "dim"))
    where = table("where a device's time goes (mean)", "model", "", right=(1, 2))
    for one, seconds in made.shares.items():
        where.add_row(_words(one), duration(seconds * 1e9), share(seconds, made.seconds))
    console.print(where)
    console.print(Text(f"Simulated one by one: {count(made.simulated, 'rank')} for {count(made.devices, 'device')}, "
                       f"{count(made.events, 'event')}.", "dim"))


def _words(one: Share) -> str:
    if one.what == "computing":
        return "computing"
    if not one.axis:
        return "waiting for the others' end"
    waits = {"pp": "waiting for another stage (bubble)", "dp": "waiting for another replica"}
    return (waits.get(one.axis, f"waiting, {_AXES.get(one.axis, plain(one.axis, 20))}") if one.what == "waiting" else
            f"moving, {_AXES.get(one.axis, plain(one.axis, 20))}")


