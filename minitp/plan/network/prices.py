"""The time of a collective as what it is made of: stages, each within one level of a network."""
from dataclasses import dataclass
from typing import Any

MODELED = "a model; what the library really chose is unknown"


@dataclass(frozen=True)
class Stage:
    """One collective within one level: α, β and γ terms in seconds, `payload` in bytes of its whole array.

    sharing   devices for each port that they talk through at once (1: a port of one's own)
    measured  from a table, then β is what lies above the latency of its small end
    """
    level: int
    name: str
    op: str
    ranks: int
    payload: float
    algorithm: str
    latency_s: float
    bandwidth_s: float
    reduction_s: float
    sharing: float
    formula: str
    sources: tuple[str, ...]
    measured: bool = False

    @property
    def seconds(self) -> float:
        return self.latency_s + self.bandwidth_s + self.reduction_s


@dataclass(frozen=True)
class Price:
    """The time of one collective over a group: its stages one after the other, and starting it.

    launch_s      what is around the call on the device, a part of its latency; measured times hold their own
    alternatives  what it was chosen from, the cheapest first
    """
    op: str
    payload: float
    meeting: tuple[int, ...]
    algorithm: str
    stages: tuple[Stage, ...]
    launch_s: float = 0.0
    alternatives: tuple["Price", ...] = ()

    @property
    def seconds(self) -> float:
        return sum((stage.seconds for stage in self.stages), self.launch_s)

    @property
    def latency_s(self) -> float:
        return sum((stage.latency_s for stage in self.stages), self.launch_s)

    @property
    def bandwidth_s(self) -> float:
        return sum((stage.bandwidth_s for stage in self.stages), 0.0)

    @property
    def reduction_s(self) -> float:
        return sum((stage.reduction_s for stage in self.stages), 0.0)

    @property
    def levels(self) -> dict[str, float]:
        """Seconds spent on each level of the network, without the launch."""
        spent: dict[str, float] = {}
        for stage in self.stages:
            spent[stage.name] = spent.get(stage.name, 0.0) + stage.seconds
        return spent

    @property
    def overlapped_s(self) -> float:
        """The bound from below, for stages cut into chunks that follow on each other's heels: the busiest level."""
        return self.launch_s + max(self.levels.values(), default=0.0)

    @property
    def measured(self) -> bool:
        """Whether all of it comes from measured tables."""
        return bool(self.stages) and all(stage.measured for stage in self.stages)

    @property
    def formula(self) -> str:
        """Each stage's formula, in p ranks and n bytes of its own."""
        return (" + ".join(stage.formula for stage in self.stages) or "one rank: nothing moves") + (
            " + launch" if self.launch_s else "")

    @property
    def numbers(self) -> str:
        """The same with numbers put in."""
        return " + ".join(f"{stage.op} by {stage.algorithm}, p = {stage.ranks}, n = {stage.payload:,.0f} B on "
                          f"{stage.name}: {stage.seconds * 1e6:,.4g} µs" for stage in self.stages) + (
            f" + launch: {self.launch_s * 1e6:,.4g} µs" if self.launch_s else "") or "0 s"

    @property
    def source(self) -> str:
        kind = () if self.measured else (MODELED,)
        return "; ".join(dict.fromkeys((*(part for stage in self.stages for part in stage.sources), *kind)))

    def to_plain(self) -> dict[str, Any]:
        """For JSON and tables."""
        return {"op": self.op, "payload": self.payload, "meeting": list(self.meeting), "algorithm": self.algorithm,
                "seconds": self.seconds, "overlapped s": self.overlapped_s, "latency s": self.latency_s,
                "launch s": self.launch_s,
                "bandwidth s": self.bandwidth_s, "reduction s": self.reduction_s, "levels": self.levels,
                "measured": self.measured, "formula": self.formula, "numbers": self.numbers, "source": self.source,
                "alternatives": {other.algorithm: other.seconds for other in self.alternatives}}
