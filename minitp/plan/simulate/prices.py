"""What a sync takes on a machine, by where its ranks stand there."""
from collections.abc import Iterable

from minitp.plan.machine import Machine
from minitp.plan.network import Price, Sharing, price


def of_sync(machine: Machine, op: str, payload: float, devices: Iterable[int], sharing: Sharing = "all") -> Price:
    """One collective over these devices, or one message between two of them, as their library prices it; ConfigError
    for one without a model."""
    return price("send" if op == "receive" else op, payload, machine.meeting_of(devices), machine, sharing=sharing)
