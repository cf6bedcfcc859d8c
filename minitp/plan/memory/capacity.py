"""Whether a plan fits a device, with how much to spare; and the most, or the fewest, that fits.

A device has two sizes: the one in its name and the one it reports. Of the one that is asked for a reserve stays free
for what isn't modeled (`memory.UNMODELED`). The solvers try real plans and halve the interval between one that fits and
one that doesn't: they know no formula of their own.
"""
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from minitp.errors import ConfigError
from minitp.plan import memory
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Device
from minitp.plan.memory import RESERVE
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row, total

LIMIT = 2**48
"""Where the solvers stop to look for more."""


@dataclass(frozen=True)
class Capacity:
    """A device's memory in bytes. `nominal`: by its name; `real`: as it reports; `reserve`: the share kept free.

    `real_counts`: whether plans are held against the real size or the nominal one.
    """
    nominal: int
    real: int
    reserve: float = RESERVE
    real_counts: bool = True

    def __post_init__(self):
        if not 0 <= self.reserve < 1:
            raise ConfigError(f"the reserve is a share of the memory from 0 to below 1, got {self.reserve!r}")
        if self.nominal < 1 or self.real < 1:
            raise ConfigError(f"a device's memory must be at least 1 byte, got {self.nominal:,} and {self.real:,}")

    @classmethod
    def of(cls, device: Device, reserve: float = RESERVE, *, nominal: bool = False) -> "Capacity":
        return cls(device.memory, device.memory_real, reserve, not nominal)

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.real if self.real_counts else self.nominal

    @property
    def kept(self) -> int:
        """Bytes of the reserve."""
        return ceil(self.bytes * self.reserve)

    @property
    def usable(self) -> int:
        return self.bytes - self.kept

    def row(self) -> Row:
        """The reserve as a row, for a picture of the whole device."""
        return Row("reserve", "for what isn't modeled", "reserve · memory", f"{self.reserve:.0%} · {self.bytes:,}",
                   self.kept, "minitp.plan.memory.UNMODELED", "context, fragmentation, libraries' buffers, buckets")


@dataclass(frozen=True)
class Verdict:
    """Whether the fullest rank fits. `needed`: its bytes; `place`: where it is, None where rows were given alone."""
    needed: int
    capacity: Capacity
    place: Place | None = None

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity.usable

    @property
    def room(self) -> int:
        """Bytes left beside the reserve; negative: bytes missing."""
        return self.capacity.usable - self.needed

    @property
    def share(self) -> float:
        """Needed, as a share of the device's whole memory."""
        return self.needed / self.capacity.bytes

    def __bool__(self) -> bool:
        return self.fits

    def to_plain(self) -> dict[str, Any]:
        """For JSON: bytes, and the reserve as a share."""
        return {"fits": self.fits, "needed": self.needed, "room": self.room, "nominal": self.capacity.nominal,
                "real": self.capacity.real, "usable": self.capacity.usable, "reserve": self.capacity.reserve,
                "place": None if self.place is None else self.place._asdict()}


def fits(rows: Iterable[Row], device: Device, *, reserve: float = RESERVE, nominal: bool = False) -> Verdict:
    """Whether these rows fit a device beside the reserve. `nominal`: by the size in its name."""
    return Verdict(total(rows), Capacity.of(device, reserve, nominal=nominal))


def verdict(model: PlannedModel, layout: Layout, job: Job, capacity: Capacity) -> Verdict:
    """Of the rank of a layout that holds most. Quick: no row is worded."""
    place, needed = memory.fullest(model, layout, job)
    return Verdict(needed, capacity, place)


def most(fit: Callable[[int], bool], limit: int = LIMIT) -> int:
    """The largest whole number n of 1 … limit for which `fit(n)` holds, 0 if none; `fit` must not hold again beyond."""
    if not fit(1):
        return 0
    fine, bad = 1, 2
    while bad <= limit and fit(bad):
        fine, bad = bad, bad * 2
    bad = min(bad, limit + 1)
    while bad - fine > 1:
        middle = (fine + bad) // 2
        fine, bad = (middle, bad) if fit(middle) else (fine, middle)
    return fine


def most_sequences(model: PlannedModel, layout: Layout, job: Job, capacity: Capacity) -> int:
    """The largest batch that fits. Generation: sequences at once over all replicas. Training: the largest micro-batch,
    with as many micro-batches a step as before."""
    if isinstance(job, Inference):
        return most(lambda n: _fits(model, layout, replace(job, batch=n), capacity))
    times = job.micro_batches(layout.dp) * layout.dp
    return most(lambda n: _fits(model, layout, replace(job, micro_batch=n, batch=n * times), capacity))


def longest_context(model: PlannedModel, layout: Layout, job: Job, capacity: Capacity) -> int:
    """The longest sequence in tokens that fits: of a generation prompt and new tokens (the prompt grows), of a training
    `seq`. By bytes alone: what positions a model was trained on is for the caller to compare. 0: none fits."""
    if isinstance(job, Training):
        return most(lambda n: _fits(model, layout, replace(job, seq=n), capacity))
    prompt = most(lambda n: _fits(model, layout, replace(job, prompt=n), capacity))
    return prompt + job.new if prompt else 0


def fewest_by_bytes(model: PlannedModel, job: Job, capacity: Capacity) -> int:
    """Devices whose memory together takes all bytes of the job, as if any cut were even: a floor for any layout."""
    alone = job if isinstance(job, Inference) else replace(job, batch=job.micro_batch)
    return ceil(memory.fullest(model, Layout(), alone)[1] / capacity.usable)


def fewest_devices(model: PlannedModel, job: Job, capacity: Capacity, layouts: Callable[[int], Iterable[Layout]],
                   limit: int = 4096) -> tuple[int, Layout] | None:
    """The fewest single devices for which one of `layouts(devices)` fits, by memory alone, and that layout; None up to
    `limit`. Whole machines, and how fast they are: `minitp.plan.search.fewest`.

    Layouts that a job or a model can't have are passed over.
    """
    for devices in range(1, limit + 1):
        for layout in layouts(devices):
            try:
                if _fits(model, layout, job, capacity):
                    return devices, layout
            except ConfigError:
                continue
    return None


def tensor_and_pipeline(per_machine: int, layers: int) -> Callable[[int], Iterable[Layout]]:
    """Layouts of n devices that keep a tp group inside a machine: tp · pp = n with tp at most `per_machine`, the
    largest tp first."""
    def layouts(devices: int) -> Iterable[Layout]:
        for tp in range(min(per_machine, devices), 0, -1):
            if devices % tp == 0 and devices // tp <= layers:
                yield Layout(tp=tp, pp=devices // tp)
    return layouts


def _fits(model: PlannedModel, layout: Layout, job: Job, capacity: Capacity) -> bool:
    return verdict(model, layout, job, capacity).fits
