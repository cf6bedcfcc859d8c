"""What a sync takes on a machine, by where its ranks stand there."""
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from minitp.plan.machine import Machine
from minitp.plan.network import price
from minitp.trace.schema import MESSAGES


def meeting_of(machine: Machine, devices: Sequence[int]) -> tuple[int, ...]:
    """How these devices meet at each level: members of the fullest unit, then units, then units of those.

    Machine.meeting says the same of ranks that lie evenly; here they may lie anywhere, as two neighbors on either side
    of a box's wall.
    """
    met: list[int] = []
    units = Counter(devices)
    for number, level in enumerate(machine.levels):
        above = [0] * len(units) if number + 1 == len(machine.levels) else [unit // level.size for unit in units]
        units = Counter(above)
        met.append(max(units.values()))
    return tuple(met)


@lru_cache(maxsize=65536)
def seconds(machine: Machine, op: str, payload: float, devices: tuple[int, ...], generates: bool = False) -> float:
    """Of one collective over these devices, or one message between two of them; ConfigError for one without a model.

    generates   whether it is a sync point of a generation, whose small messages `plan.speed.decode` prices otherwise
    """
    if len(devices) < 2:
        return 0.0
    policy, around = policy_of(machine, op, generates)
    return around + price("send" if op == "receive" else op, payload, meeting_of(machine, devices), machine,
                          policy=policy).seconds


def policy_of(machine: Machine, op: str, generates: bool) -> tuple[str, float]:
    """(how an algorithm is chosen, seconds around the call): in a generation on GPUs as NCCL estimates it, and what
    starting it costs; the same as in `minitp.plan.speed.decode`."""
    if not generates:
        return "best", 0.0
    sent = op in MESSAGES
    return "nccl" if machine.device.kind == "gpu" and not sent else "best", machine.device.launch_s
