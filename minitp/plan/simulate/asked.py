"""What a simulation leaves open and fills in: how many replicas, how large a batch, how many of the new tokens."""
from dataclasses import replace

from minitp.errors import ConfigError
from minitp.plan.job import Inference


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


def first_tokens(job: Inference, most: int) -> tuple[Inference, str]:
    """The same generation with at most `most` new tokens, and what a reader must be told of it ("": nothing)."""
    if job.new <= most:
        return job, ""
    return replace(job, new=most), (f"Simulated are the first {most:,} of {job.new:,} new tokens: they show all that "
                                    "there is to see, and the file stays small.")
