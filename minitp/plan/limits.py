"""What a search of layouts may change and what it tries: meshes, experts' shares, chunks, micro-batches."""
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isqrt, prod
from typing import Literal

from minitp.plan import memory
from minitp.plan.job import LARGEST, Inference, Job
from minitp.plan.layout import AXES
from minitp.plan.model import PlannedModel
from minitp.trace.wording import count

RECOMPUTE: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
ZERO: tuple[Literal[0, 1, 2, 3], ...] = (0, 1, 2, 3)


@dataclass(frozen=True)
class Limits:
    """What a search may not change; None: it is left open.

    tp, pp, dp, cp  every divisor of the devices is tried
    ep              every number of replicas that the experts can be dealt to evenly
    zero            every stage; recompute: the least that fits
    micro_batch, chunks  1, 2, 4 … as long as it fits and the step gets faster
    stage_layers    layers of each chunk: as even as can be
    sequence        of a training with tp: on, and the best of a mesh once more without
    reserve         share of a device that is kept free; `nominal`: of the size in its name
    """
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = 1
    ep: int | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    micro_batch: int | None = None
    chunks: int | None = None
    sequence: bool | None = None
    stage_layers: tuple[int, ...] | None = None
    reserve: float = memory.RESERVE
    nominal: bool = False


def meshes(devices: int, limits: Limits) -> Iterator[tuple[int, int, int, int]]:
    """(tp, cp, pp, dp) with the product `devices`."""
    for tp in _degrees(devices, limits.tp):
        for cp in _degrees(devices // tp, limits.cp):
            for pp in _degrees(devices // tp // cp, limits.pp):
                dp = devices // tp // cp // pp
                if limits.dp in (None, dp) and dp * cp % (limits.ep or 1) == 0:
                    yield tp, cp, pp, dp


def _degrees(devices: int, fixed: int | None) -> Iterable[int]:
    """The divisors, or the one that was asked for if it is one."""
    if fixed is not None:
        return [fixed] if devices % fixed == 0 else []
    return divisors(devices)


def divisors(number: int) -> list[int]:
    """In rising order, found in as many trials as its square root."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def expert_degrees(model: PlannedModel, replicas: int, fixed: int | None) -> Iterable[int]:
    """Shares of the replicas that a layer's experts can be dealt to evenly; of a dense model 1."""
    if fixed is not None:
        return [fixed]
    return [n for n in range(1, min(replicas, model.experts) + 1) if replicas % n == 0 and model.experts % n == 0]


def chunks(model: PlannedModel, pp: int, limits: Limits) -> Iterable[int]:
    """1, 2, 4 … model chunks a stage, as long as each has a layer; and as many as leave the ends a chunk of their
    own."""
    if limits.chunks is not None:
        return [limits.chunks]
    if limits.stage_layers is not None:
        return [len(limits.stage_layers) // pp]
    if pp == 1:
        return [1]
    layers, powers = model.config.layers, [2**k for k in range(LARGEST.bit_length())]
    alone = [(layers + 2) // pp] if (layers + 2) % pp == 0 and layers + 2 > pp else []
    return sorted({1, *(each for each in powers if pp * each <= layers), *alone})


def undealt(pp: int, limits: Limits, training: bool) -> str:
    """Why the layers that were named for each chunk are none for so many stages; empty where they are."""
    if limits.stage_layers is None:
        return ""
    named = len(limits.stage_layers)
    fits = named == pp * limits.chunks if limits.chunks else named % pp == 0 and (training or named == pp)
    return "" if fits else (f"layers are named for {count(named, 'chunk')}, and there are {count(pp, 'stage')}"
                            + (f" of {count(limits.chunks, 'chunk')}" if limits.chunks else ""))


def micro_batches(batch: int, dp: int, fixed: int | None) -> Iterator[int]:
    """1, 2, 4 … sequences at once, as long as the batch can be dealt so; where it can't at all, 1."""
    size = fixed or 1
    yield size
    while fixed is None and batch % (dp * 2 * size) == 0:
        size *= 2
        yield size


def variants(job: Job, limits: Limits) -> int:
    """How many layouts of a mesh are tried, about: a search that would take minutes is refused before it begins."""
    if isinstance(job, Inference):
        return 1
    return prod(number for number, fixed in ((len(ZERO), limits.zero), (len(RECOMPUTE), limits.recompute),
                                             (3, limits.micro_batch)) if fixed is None)


def no_mesh(devices: int, limits: Limits) -> str:
    """Why no mesh is as it was asked for, and what would work."""
    asked = {axis: getattr(limits, axis) for axis in AXES if (getattr(limits, axis) or 1) > 1 or axis == "dp"}
    given = {axis: degree for axis, degree in asked.items() if degree is not None}
    product = prod(given.values())
    if devices % product == 0 and (limits.ep or 1) > 1:
        of = f"{count(devices, 'device')} with {_named(given)}" if given else count(devices, "device")
        return f"ep = {limits.ep:,} must divide dp · cp, and no mesh of {of} has such replicas"
    if len(given) > 1:
        not_so = "not" if limits.dp else "which doesn't divide"
        return (f"{_named(given)} are {count(product, 'device')} together, {not_so} {count(devices, 'device')}: "
                f"--gpus {max(product, devices // product * product):,} would work")
    (axis, degree), = given.items()
    would = ", ".join(f"{n:,}" for n in divisors(devices)[:12])
    near = sorted({max(degree, devices // degree * degree), -(-devices // degree) * degree})
    return (f"{axis} {degree:,} doesn't divide {count(devices, 'device')}: {would} would, or --gpus "
            + " or ".join(f"{n:,}" for n in near))


def _named(given: dict[str, int]) -> str:
    return ", ".join(f"{axis} {degree:,}" for axis, degree in given.items())
