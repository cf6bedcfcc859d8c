"""What-ifs of one device and of one sync point: capacity without bandwidth, and where what bounds a time changes over.

All of it is a model, by the data sheet's rates times the share that is reached.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from minitp.plan.job import Inference, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Device, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import LIBRARY
from minitp.plan.speed import flops
from minitp.plan.speed.decode import PassTime, prefill, token
from minitp.plan.speed.reading import Ends, bytes_read


def reading_all(device: Device) -> float:
    """Seconds to read all of its memory once: what a token takes at least of a dense model that fills the device."""
    return device.memory / (device.bandwidth * device.bandwidth_reached)


def computing_batch(device: Device, weights: str = "bf16", activations: str = "bf16") -> float:
    """Tokens at once from which on a device computes longer than it reads weights: peak/bandwidth · bytes/2 (Pope et
    al. 2023, section 3; about 150 on an A100 by its data sheet). Below, more sequences cost next to nothing."""
    reading = device.bandwidth * device.bandwidth_reached
    return device.peak(activations) * device.flops_reached / reading * bytes_of(weights) / 2


@dataclass(frozen=True)
class OnDevice:
    """One token of a model on as few of a device as hold it, were there no network between them.

    needed    devices by bytes of weights and cache alone      share  of their memory that these fill
    seconds   whichever is longer, reading or computing
    """
    device: Device
    needed: int
    share: float
    reading_s: float
    computing_s: float

    @property
    def seconds(self) -> float:
        return max(self.reading_s, self.computing_s)

    def to_plain(self) -> dict[str, Any]:
        return {"device": self.device.name, "memory": self.device.memory, "kind of memory": self.device.memory_kind,
                "bandwidth": self.device.bandwidth, "devices by bytes": self.needed, "share filled": self.share,
                "seconds": self.seconds, "reading s": self.reading_s, "computing s": self.computing_s,
                "reading all s": reading_all(self.device)}


def on_each(model: PlannedModel, job: Inference, devices: Iterable[Device]) -> list[OnDevice]:
    """The same token on different devices, side by side: what each is bound by (no sync points: a bound from below)."""
    read = bytes_read(model, Layout(), job, Place(0, 0, 0, 0))
    held = model.parameters * bytes_of(job.weights) + read.cache
    operations = flops.per_token(model, job.context).total * job.batch
    found = []
    for device in devices:
        needed = ceil(held / device.memory)
        found.append(OnDevice(device, needed, held / (needed * device.memory),
                              read.total / (needed * device.bandwidth * device.bandwidth_reached),
                              operations / (needed * device.peak(job.activations) * device.flops_reached)))
    return found


@dataclass(frozen=True)
class Generation:
    """A whole answer: the prompt, then `new` tokens one after the other, each at the mean length of the cache."""
    first: PassTime
    each: PassTime
    new: int

    @property
    def seconds(self) -> float:
        """The prompt's pass gives the first new token."""
        return self.first.seconds + max(0, self.new - 1) * self.each.seconds


def generation(model: PlannedModel, layout: Layout, job: Inference, machine: Machine,
               policy: str = LIBRARY) -> Generation:
    """All of an inference job."""
    middle = job.prompt + job.new // 2
    return Generation(prefill(model, layout, job, machine, policy=policy),
                      token(model, layout, job, machine, context=middle, policy=policy), job.new)


class Scaled(NamedTuple):
    """One degree of tensor parallelism in a strong scaling: speedup and efficiency against the first degree."""
    tp: int
    time: PassTime
    speedup: float
    efficiency: float


def scaling(model: PlannedModel, job: Inference, machine: Machine, degrees: Sequence[int] = (1, 2, 4, 8), *,
            ends: Ends = "cut", policy: str = LIBRARY) -> list[Scaled]:
    """The same token over more and more devices: what is read divides, what is waited for doesn't."""
    times = [(tp, token(model, Layout(tp=tp), job, machine.with_devices(tp), ends=ends, policy=policy))
             for tp in degrees]
    first, base = times[0]
    return [Scaled(tp, time, base.seconds / time.seconds, base.seconds * first / (time.seconds * tp))
            for tp, time in times]
