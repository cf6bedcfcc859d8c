"""How far a model can count: the positions of its learned table, or those that its rotary angles were trained for."""
from minitp.errors import ConfigError
from minitp.plan.job import Inference, Job
from minitp.plan.model import PlannedModel


def beyond(model: PlannedModel, job: Job) -> str:
    """What is wrong with a sequence that is longer than the model's positions; empty where none is.

    A learned table ends (`refused` says so); rotary angles go on, and the model wasn't trained for them. ALiBi has no
    end.
    """
    tokens = job.context if isinstance(job, Inference) else job.seq
    most = model.config.positions
    if tokens <= most or model.alibi:
        return ""
    what = f"{job.prompt:,} + {job.new:,} tokens" if isinstance(job, Inference) else f"sequences of {job.seq:,} tokens"
    if refused(model):
        return f"{model.name} has a learned table of {most:,} positions: {what} can't be run"
    return f"{model.name} was made for {most:,} positions: {what} are beyond what it was trained for"


def refused(model: PlannedModel) -> bool:
    """Whether positions end where the model's table ends."""
    return model.config.rotary is None and not model.alibi


def checked(model: PlannedModel, job: Job) -> str:
    """The warning, empty where there is none; ConfigError where there is no such position."""
    told = beyond(model, job)
    if told and refused(model):
        raise ConfigError(f"{told}; up to {model.config.positions:,} would work")
    return told
