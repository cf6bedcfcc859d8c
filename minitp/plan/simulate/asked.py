"""What a simulation leaves open and fills in: how many replicas, how large a batch, how many of the new tokens."""
from dataclasses import replace

from minitp.errors import ConfigError
from minitp.plan import positions
from minitp.plan.job import Inference, Job
from minitp.plan.layout import Layout
from minitp.plan.limits import Limits
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.model import PlannedModel
from minitp.plan.search import search, unfit
from minitp.plan.units import both


def replicas(devices: int | None, replica: int, dp: int | None, there: int = 1) -> int:
    """How many replicas of `replica` devices: as asked for, or as many as the devices are enough for, of which the
    machine has `there` where nobody says how many. ConfigError where the numbers don't go together."""
    if dp is None:
        if devices is None:
            return max(1, there // replica)
        if devices % replica:
            raise ConfigError(f"{devices:,} devices can't be dealt to replicas of tp · pp = {replica:,} each: "
                              f"{devices // replica * replica or replica:,} would work")
        return devices // replica
    if devices is not None and replica * dp != devices:
        raise ConfigError(f"tp · pp = {replica:,} times dp = {dp:,} are {replica * dp:,} devices, not {devices:,}: "
                          "leave out --gpus or --dp")
    return dp


def usual_batch(training: bool, dp: int, pp: int, micro_batch: int | None) -> int:
    """Sequences where none are asked for: one a replica; in a training as many micro-batches as there are stages."""
    return dp * (micro_batch or 1) * pp if training else dp


def fastest_that_fits(model: PlannedModel, machine: Machine, job: Job, limits: Limits) -> tuple[Layout, Job] | None:
    """The layout of all devices that the search puts first, and the job with what it chose; None where none fits.
    Experts stay whole: sharing them isn't simulated."""
    found = search(model, machine, job, replace(limits, ep=1)).best
    return (found[0].layout, found[0].job) if found else None


def first_tokens(job: Inference, most: int) -> tuple[Inference, str]:
    """The same generation with at most `most` new tokens, and what a reader must be told of it ("": nothing)."""
    if job.new <= most:
        return job, ""
    return replace(job, new=most), (f"Simulated are the first {most:,} of {job.new:,} new tokens: they show all that "
                                    "there is to see, and the file stays small.")


def warnings_of(model: PlannedModel, layout: Layout, job: Job, machine: Machine) -> list[str]:
    """What a reader of the simulation must know: that it doesn't fit the devices, or goes beyond the model's positions.
    ConfigError where the model can't be laid out so at all."""
    told = [*filter(None, [positions.checked(model, job)])]
    why = unfit(model, layout, job)
    if why is not None:
        raise ConfigError(f"{layout} can't run this: {why[1]}")
    judged = verdict(model, layout, job, Capacity.of(machine.device, 0))
    if not judged.fits:
        told.append(f"It doesn't fit: the fullest device needs {both(judged.needed)} and has "
                    f"{both(judged.capacity.usable)}. The times are of a run that couldn't be.")
    return told
