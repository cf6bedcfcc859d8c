"""What `minitp plan MODEL` prints: the best layouts, the memory and time of the first, and why the others fail."""
import json
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from minitp.commands.plan.tables import memory_table, table, time_table
from minitp.plan import memory, positions, units
from minitp.plan.job import Inference, Job, Training, bytes_of
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.search import MOST_DEVICES, Candidate, Failure, Found, Limits, fewest, search, wholly_fixed
from minitp.plan.search_words import WHY, enough, unit
from minitp.plan.speed.against import published
from minitp.plan.speed.decode import PassTime
from minitp.plan.speed.step import StepTime
from minitp.trace.wording import count

EXAMPLES = 4                       # failures that are shown for each reason


def show(model: PlannedModel, machine: Machine, job: Job, limits: Limits, top: int, as_json: bool) -> int:
    """Search, then print. The exit code: 1 where the one layout that the options leave can't be; that nothing fits of
    several is an answer, and 0."""
    console = Console()
    warning = positions.checked(model, job)
    with Status("trying layouts …", console=Console(stderr=True)):
        found = search(model, machine, job, limits)
        lacking = not found.best and "memory" in found.reasons
        larger = fewest(model, machine, job, limits) if lacking and machine.devices < MOST_DEVICES else None
    code = 1 if not found.best and wholly_fixed(limits, found) else 0
    if as_json:
        print(json.dumps({**plain(model, machine, job, found, larger, top), "warning": warning}, ensure_ascii=False))
        return code
    console.print(*header(model, machine, job, limits), *([Text(warning, "yellow")] if warning else []), sep="\n")
    console.print()
    if found.best:
        console.print(best_table(found, top), "", sep="\n")
        first = found.best[0]
        console.print(Text(f"Memory of the fullest device with {first.layout} ({where(first)})", "bold"))
        console.print(memory_table(first.rows), "", sep="\n")
        console.print(Text(f"Time of a {unit(job)} with {first.layout}", "bold"))
        console.print(time_table(first.time.rows), *accuracy(job), "", sep="\n")
    else:
        console.print(Text(f"No layout of {count(machine.devices, 'device')} carries this.", "bold red"))
        told = enough(larger, devices=machine.devices) if larger or (lacking and not code) else ""
        console.print(*([Text(told)] if told else []), "", sep="\n")
    console.print(*failures(found), "", *unmodeled(model, job, limits), sep="\n")
    return code


def header(model: PlannedModel, machine: Machine, job: Job, limits: Limits) -> list[Text]:
    """The model, the machine, the job."""
    weights = bytes_of(job.weights) if isinstance(job, Inference) else job.precision.weights
    active = "" if model.experts == 1 else f", {units.count(model.active_parameters)} visited by a token"
    device = machine.device
    return [
        Text.assemble((model.name, "bold"), f": {model.parameters:,} parameters{active}; "
                      f"{units.both(model.parameters * weights)} of weights"),
        Text.assemble((machine.name, "bold"), f": {count(machine.devices, 'device')} {device.name}, "
                      f"{units.both(device.memory if limits.nominal else device.memory_real)} each"
                      f"{' by name' if limits.nominal else ' in fact'}, {units.percent(limits.reserve)} of it kept "
                      "free"),
        *([Text(machine.note, "dim")] if machine.note else []), Text(job_in_words(job))]


def job_in_words(job: Job) -> str:
    """What is run."""
    if isinstance(job, Inference):
        return (f"to generate: {count(job.batch, 'sequence')} at once, prompts of {count(job.prompt, 'token')} and "
                f"{job.new:,} new {'one' if job.new == 1 else 'ones'}; of a replica's prompts "
                f"{count(job.prefill_tokens, 'token')} at once; weights {job.weights}, KV cache {job.cache}")
    total = f"; {units.count(job.tokens)} tokens in all" if job.tokens else ""
    return (f"to train: {count(job.batch, 'sequence')} of {count(job.seq, 'token')} a step; {job.precision.states:g} "
            f"bytes a parameter before activations{total}")


def where(candidate: Candidate) -> str:
    place = candidate.place
    return f"pipeline stage {place.pp}, tensor parallel rank {place.tp}"


def best_table(found: Found, top: int) -> Any:
    """The fastest meshes."""
    training = isinstance(found.best[0].job, Training)
    heads = ["layout", "held", "left", f"{'step' if training else 'token'} ¹",
             *(["MFU", "tokens/s", "days"] if training else ["tokens/s"])]
    made = table(*heads, right=range(1, len(heads)), whole=range(1, len(heads)), caption="GB (GiB) a device held and "
                 "left beside the reserve. ¹ All times and rates by the model"
                 + ("; b: sequences of a micro-batch; then what is computed again" if training else ""))
    for one in found.best[:top]:
        variant = f"{one.layout}"
        if isinstance(one.job, Training):
            variant += f"\nb {one.job.micro_batch}, recompute {one.job.recompute}"
        row = [variant, both_short(one.held), both_short(one.room), units.duration(one.seconds)]
        row += speed_cells(one)
        made.add_row(*row)
    if len(found.best) > top:
        made.add_row(f"… {len(found.best) - top} more fit", style="dim")
    return made


def both_short(size: int) -> str:
    """GB (GiB), without their names."""
    digits = ",.1f" if abs(size) >= 10**8 else ".2g"
    return f"{size / 1e9:{digits}} ({size / 2**30:{digits}})"


def speed_cells(one: Candidate) -> list[str]:
    """Tokens a second; of a training also its utilization before and its days after."""
    time = one.time
    if isinstance(time, PassTime):
        return [f"{time.tokens_per_s:,.4g}"]
    return [f"{time.mfu:.0%}", f"{time.tokens_per_s:,.0f}", f"{time.days:,.1f}" if time.days else "–"]


def accuracy(job: Job) -> list[Text]:
    """How far a step's time was off where somebody measured one."""
    return [] if isinstance(job, Inference) else [Text(published().text, "dim")]


def failures(found: Found) -> list[Text]:
    """Why the others fail, those that came closest first."""
    if not found.failed:
        return [Text(f"All {count(len(found.best), 'mesh')} fit ({count(found.tried, 'layout')} tried).", "dim")]
    lines = [Text(f"Why the others fail ({count(found.tried, 'layout')} of "
                  f"{count(len(found.best) + len(found.failed), 'mesh')} tried)", "bold")]
    for why, number in found.reasons.items():
        lines.append(Text(f"{WHY[why]}: {number:,}"))
        lines += [failure_line(one) for one in [one for one in found.failed if one.why == why][:EXAMPLES]]
        lines += [Text(f"  … {number - EXAMPLES:,} more", "dim")] if number > EXAMPLES else []
    return lines


def failure_line(one: Failure) -> Text:
    return Text(f"  {one.layout}: {one.text}")


def unmodeled(model: PlannedModel, job: Job, limits: Limits) -> list[Text]:
    """What the reserve stands for."""
    return [Text(f"Not modeled, and what the reserve of {units.percent(limits.reserve)} is for: "
                 + "; ".join(f"{what.what} ({what.size})" for what in memory.unmodeled(model, job)) + ".", "dim"),
            Text("All times are a model of the machine, none was measured.", "dim")]


def plain(model: PlannedModel, machine: Machine, job: Job, found: Found, larger: tuple[Machine, Found] | None,
          top: int) -> dict[str, Any]:
    """The same for JSON."""
    return {"model": model.name, "parameters": model.parameters, "machine": machine.to_plain(),
            "job": job_in_words(job), "tried": found.tried,
            "best": [plain_candidate(one) for one in found.best[:top]],
            "against": published().to_plain() if isinstance(job, Training) else None,
            "failed": [{"layout": str(one.layout), "why": one.why, "text": one.text} for one in found.failed],
            "enough": None if larger is None else {"devices": larger[0].devices,
                                                   "layout": str(larger[1].best[0].layout)}}


def plain_candidate(one: Candidate) -> dict[str, Any]:
    return {"layout": str(one.layout), "degrees": degrees(one), "memory": [row.to_plain() for row in one.rows],
            "held": one.held, "room": one.room, "seconds": one.seconds,
            "hidden s": one.time.hidden if isinstance(one.time, StepTime) else {},
            "time": [row.to_plain() for row in one.time.rows]}


def degrees(one: Candidate) -> dict[str, Any]:
    layout = one.layout
    made: dict[str, Any] = {axis: getattr(layout, axis) for axis in ("tp", "pp", "dp", "cp", "ep", "zero", "chunks")}
    if layout.stage_layers is not None:
        made["stage_layers"] = list(layout.stage_layers)
    if isinstance(one.job, Training):
        made |= {"micro_batch": one.job.micro_batch, "recompute": one.job.recompute}
    return made

