"""What `minitp plan --run NAME` prints: a published run planned as it was laid out, beside what was published."""
import json
from collections.abc import Mapping

from rich.console import Console, RenderableType
from rich.text import Text

from minitp.commands.plan.layouts import accuracy, header, unmodeled
from minitp.commands.plan.tables import memory_table, table, time_table
from minitp.errors import ConfigError
from minitp.plan import memory, units
from minitp.plan.catalogue import PublishedRun
from minitp.plan.catalogue.runs import PUBLISHED
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.limits import Limits
from minitp.plan.memory.capacity import Capacity, Verdict
from minitp.plan.speed.against import rates
from minitp.plan.speed.step import StepTime, training_step

_QUANTITIES = {"step_seconds": "step, ", "tflops": "computing, ", "memory_gb": "memory, "}


def show_run(run: PublishedRun, reserve: float, nominal: bool, as_json: bool) -> None:
    """Plan it whether or not it fits: it was run. ConfigError where its layout wasn't published."""
    layout = _layout(run)
    place, rows = memory.worst(run.model, layout, run.training)
    room = Verdict(sum(row.bytes for row in rows), Capacity.of(run.machine.device, reserve, nominal=nominal), place)
    time = training_step(run.model, layout, run.training, run.machine)
    planned = in_published_units(time, room.needed)
    if as_json:
        print(json.dumps({
            "run": run.name, "model": run.model.name, "machine": run.machine.to_plain(), "layout": str(layout),
            "planned": planned, "published": dict(run.published), "units": PUBLISHED, "source": run.source,
            "note": run.note, "memory": [row.to_plain() for row in rows], "capacity": room.to_plain(),
            "time": time.to_plain()}, ensure_ascii=False))
        return
    limits, console = Limits(reserve=reserve, nominal=nominal), Console()
    console.print(*header(run.model, run.machine, run.training, limits), Text.assemble(
        (run.name, "bold"), f": {layout}; {_settings(run.training)}"), "", sep="\n")
    console.print(_compared(planned, run.published), Text(f"published: {run.source}", "dim"),
                  *([Text(run.note, "dim")] if run.note else []), "", sep="\n")
    left = f"{units.both(abs(room.room))} {'left beside' if room.fits else 'more than is left by'} the reserve"
    console.print(Text(f"Memory of the fullest device (pipeline stage {place.pp}, tensor parallel rank {place.tp}): "
                       f"{units.both(room.needed)}, {left}", "bold"), memory_table(rows), "", sep="\n")
    console.print(Text("Time of a step", "bold"), time_table(time.rows), *accuracy(run.training), "",
                  *unmodeled(run.model, run.training, limits), sep="\n")


def in_published_units(time: StepTime, held: int) -> dict[str, float]:
    """The plan in the units of `PUBLISHED`."""
    planned = {**rates(time), "memory_gb": held / 1e9}
    if time.days is not None and time.device_hours is not None:
        planned |= {"days": time.days, "gpu_hours": time.device_hours}
    return planned


def _layout(run: PublishedRun) -> Layout:
    if run.layout is None:
        job = run.training
        raise ConfigError(f"the layout of {run.name} wasn't published. `minitp plan {run.model.name} --task train "
                          f"--machine {run.machine.name} --batch {job.batch} --seq {job.seq} --recompute "
                          f"{job.recompute}` looks for one")
    return run.layout


def _settings(job: Training) -> str:
    """What else its memory and time depend on."""
    kept = [f"micro-batch {job.micro_batch}", f"recompute {job.recompute}",
            "attention's scores stored" if job.stored else "attention's scores in a fused kernel",
            *(["dropout"] if job.dropout else [])]
    return ", ".join(kept)


def _compared(planned: Mapping[str, float], published: Mapping[str, float]) -> RenderableType:
    """Two columns that are never one: what a model says, and what its authors measured."""
    made = table("", "planned (a model)", "published (measured)", "ratio", right=(1, 2, 3))
    for key, unit in PUBLISHED.items():
        mine, theirs = planned.get(key), published.get(key)
        if mine is not None or theirs is not None:
            what = f"{_QUANTITIES.get(key, '')}{key.upper() if unit == 'share' else unit}"
            made.add_row(what, _number(mine), _number(theirs),
                         f"{mine / theirs:.3g}" if mine and theirs else "–")
    return made


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
