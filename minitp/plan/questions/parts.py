"""What several questions say in the same way: cards by bytes, tokens, sources, a run of the catalogue under other
conditions."""
from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue, memory, units
from minitp.plan.catalogue import PublishedRun
from minitp.plan.job import Inference, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.machine import Device, Machine
from minitp.plan.memory import RESERVE, UNMODELED
from minitp.plan.memory.capacity import Capacity
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import WhatIf
from minitp.plan.rows import Row
from minitp.trace.wording import count, plain

TOKENS_A_PARAMETER = 20
"""About as many train a model of given compute best (Hoffmann et al. 2022, Chinchilla): for models of which nobody
published how many they saw."""
RULE = f"not published: {TOKENS_A_PARAMETER} a parameter (Hoffmann et al. 2022)"
GENERAL = "(general knowledge, not computed)"
LONGEST = 300                               # characters of a source that are shown
MODELED = ("All times are a model of the machine; none was measured. Queues, stragglers, input, checkpoints and "
           "restarts aren't in it.")
UNCOUNTED = (f"A reserve of {units.percent(RESERVE)} stands for what no term counts: {UNMODELED[0].what}, "
             f"{UNMODELED[1].what}, libraries' buffers and so on; `minitp plan MODEL` lists it all.")


class Cards(NamedTuple):
    """How many devices hold some bytes, as if any cut were even: by the size in their name, by the size that they
    report, and by what of that is left beside the reserve."""
    nominal: int
    real: int
    reserved: int


def cards(size: float, device: Device) -> Cards:
    """Of one kind of device."""
    kinds = (Capacity.of(device, 0, nominal=True), Capacity.of(device, 0), Capacity.of(device))
    if any(kind.usable < 1 for kind in kinds):
        raise ConfigError(f"a device of {units.both(device.memory)} has nothing left beside the reserve")
    return Cards(*(ceil(size / kind.usable) for kind in kinds))


def weights_of(model: PlannedModel, dtype: str) -> float:
    """Bytes of all its weights."""
    return model.parameters * bytes_of(dtype)


def boxes(devices: int, machine: Machine) -> int:
    """Machines that so many devices fill."""
    return ceil(devices / machine.per_machine)


def each(device: Device) -> str:
    """A device's two sizes."""
    return f"{units.both(device.memory)} by its name, {units.both(device.memory_real)} as it reports"


def box(machine: Machine) -> str:
    """8 × a100-80: all of them."""
    return f"{machine.devices:,} × {plain(machine.device.name, 40)}"


def under(run: PublishedRun, what: WhatIf) -> Machine:
    """The machine of a published run, changed as asked."""
    if not (what.memory or what.link or what.between):
        return run.machine
    return catalogue.machine(run.machine.name, memory=what.memory, link=what.link, between=what.between)


class Tokens(NamedTuple):
    """Of a training. `source`: who says so; `by_rule`: nobody does, they are a rule of thumb."""
    number: float
    source: str
    by_rule: bool = False


def training_tokens(model: PlannedModel, asked: float | None = None) -> Tokens:
    """As asked; else as published, with the model or with a run of it; else by the rule of thumb."""
    if asked:
        return Tokens(asked, "as asked")
    if model.trained_on:
        return Tokens(float(model.trained_on), f"{model.name}: {model.source}")
    for run in catalogue.runs().values():
        if run.model == model and run.training.tokens:
            return Tokens(run.training.tokens, f"{run.name}: {run.source}")
    return Tokens(TOKENS_A_PARAMETER * model.active_parameters, RULE, True)


def cached(model: PlannedModel, cache: str = "bf16") -> Row:
    """The keys and values of one token of context, all ranks together: a row of the planner's memory."""
    _, rows = memory.worst(model, Layout(), Inference(1, 1, 0, cache=cache))
    return next(row for row in rows if row.kind == "kv cache")


def sources(*things: object) -> tuple[str, ...]:
    """Where the numbers of models, machines, devices, links and runs come from, each once."""
    lines: list[str] = []
    for thing in things:
        for one in thing if isinstance(thing, Iterable) and not isinstance(thing, str) else (thing,):
            lines += _lines(one)
    return tuple(dict.fromkeys(lines))


def _lines(thing: object) -> list[str]:
    if isinstance(thing, str):
        return [thing]
    if isinstance(thing, Machine):
        return [*_lines(thing.device), *(line for level in thing.levels if level.size > 1 or level is thing.levels[0]
                                         for line in _lines(level.link))]
    name, source = getattr(thing, "name", ""), getattr(thing, "source", "")
    return [plain(f"{name}: {source}", LONGEST)] if source else []


def gb(size: float) -> str:
    """The cell of a column whose head says "GB (GiB)"."""
    return f"{size / 1e9:,.1f} ({size / 2**30:,.1f})"


def tb(size: float) -> str:
    """The cell of a column whose head says "TB (TiB)"."""
    return f"{size / 1e12:,.1f} ({size / 2**40:,.1f})"


def floats(values: Mapping[str, float]) -> dict[str, float]:
    """An answer's numbers; counts and verdicts are numbers too."""
    return {name: float(value) for name, value in values.items()}


def several(devices: int) -> int:
    """The number of devices, where a question is about what passes between them: ConfigError for one."""
    if devices < 2:
        raise ConfigError("with one device nothing is sent: this asks about 2 or more (--gpus, --machine)")
    return devices


def some(number: int, one: str) -> str:
    """1 machine, 2 machines, 16,384 devices."""
    return count(number, one)
