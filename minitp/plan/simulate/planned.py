"""The planner's own number for what is simulated, and why it isn't the same."""
from typing import Any, NamedTuple

from minitp.plan.job import Inference, Job
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.speed.step import training_step
from minitp.plan.speed.what_if import generation
from minitp.plan.units import duration


class Planned(NamedTuple):
    """What `minitp plan` says of the same: seconds, and of data parallelism those that it takes to run beside.

    noisy   whether what is simulated has stragglers or jitter, which the planner doesn't know
    """
    seconds: float
    beside: float = 0.0
    noisy: bool = False

    @property
    def text(self) -> str:
        """To stand beside the simulated time."""
        said = f"`minitp plan` says {duration(self.seconds)}{', without stragglers and jitter' if self.noisy else ''}"
        if not self.beside:
            return f"{said}."
        return (f"{said}: there {duration(self.beside)} of communication run beside the passes; here nothing does, and "
                "each thing waits for the one before.")

    def to_plain(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "hidden s": self.beside}


def planned(model: PlannedModel, layout: Layout, job: Job, machine: Machine, noisy: bool = False) -> Planned:
    """Of a training step, or of a whole generation."""
    if isinstance(job, Inference):
        return Planned(generation(model, layout, job, machine).seconds, noisy=noisy)
    step = training_step(model, layout, job, machine)
    return Planned(step.seconds, sum(step.hidden.values()), noisy)
