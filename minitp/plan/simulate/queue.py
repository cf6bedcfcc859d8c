"""Links that several groups share at once: who holds how many ports of a box, and what a transfer then takes.

Without queues `minitp.plan.network` divides a box's ports among all its devices, as if all of them always talked at
once. With them a transfer has the ports to itself and the others that come meanwhile wait in turn, first come, first
served. What is held are the ports (Level.ports) of the outermost level that a sync crosses, one for each device that
talks through them; devices that are more than the ports share them. A port sends and receives at once: a message holds
one way at each end, a collective both.
"""
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from minitp.plan.machine import Machine
from minitp.plan.simulate.prices import of_sync


@dataclass
class Queues:
    """The ports of a machine's boxes, as syncs ask for them.

    held, free  sync → (port, how many it holds); port → how many there are. A port's number stands for all ports of one
                unit to one level, one way
    """
    machine: Machine
    held: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    free: dict[int, int] = field(default_factory=dict)
    _numbers: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def seconds(self, sync: int, op: str, payload: float, group: tuple[int, ...],
                talking: Iterable[tuple[str, int, int]]) -> float:
        """What a sync takes that has its ports to itself, and its place in the queues.

        group    its devices, to see which levels it crosses
        talking  of every simulated rank its op, its device, and how many devices of its box do the same in this sync
        """
        if len(group) < 2:
            return 0.0
        found = of_sync(self.machine, op, payload, group, "alone")
        outer = max((level for level, met in enumerate(found.meeting) if met > 1), default=0)
        ports = self.machine.levels[outer].ports if outer else 0
        if not ports:
            return found.seconds
        asked: dict[tuple[int, str], int] = {}
        below = prod(level.size for level in self.machine.levels[:outer])
        for end, device, many in talking:
            for way in ("send", "receive") if end not in ("send", "receive") else (end,):
                asked[device // below, way] = asked.get((device // below, way), 0) + many
        self.held[sync] = [(self._port(outer, *where, ports), min(many, ports)) for where, many in asked.items()]
        shared = max(1.0, max(asked.values(), default=1) / ports)
        return found.launch_s + sum(stage.latency_s + stage.reduction_s
                            + stage.bandwidth_s * (shared / stage.sharing if stage.level == outer else 1.0)
                            for stage in found.stages)

    def _port(self, level: int, unit: int, way: str, ports: int) -> int:
        number = self._numbers.setdefault((level, unit, way), len(self._numbers))
        self.free[number] = ports
        return number
