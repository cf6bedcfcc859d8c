"""A pipeline's schedule as data: which micro-batch each stage works on, forward or backward, in which order.

Nothing here runs a model. A schedule is one list of instructions for each stage; what a stage may start is settled by
where its input comes from (`needs`), so an order can be tested, drawn, timed and counted without any rank.

m micro-batches  p stages  v chunks of the model on each stage; chunk c of stage i is part c · p + i of the model
"""
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from minitp.errors import ConfigError
from minitp.plan.layout import Schedule

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


class Instruction(NamedTuple):
    """One pass of one micro-batch through one chunk of a stage."""
    kind: Direction
    micro_batch: int
    chunk: int = 0


class Span(NamedTuple):
    """An instruction with the time at which it begins and ends, in the units of the passes' lengths."""
    instruction: Instruction
    begin: float
    end: float


def instructions(schedule: Schedule, stages: int, micro_batches: int,
                 chunks: int = 1) -> tuple[tuple[Instruction, ...], ...]:
    """What each stage does, in order. ConfigError where the schedule can't take these numbers.

    gpipe        all forward passes, then all backward passes, the latest first (Huang et al. 2019)
    1f1b         stage i runs p - 1 - i forward passes ahead, then one forward, one backward (PipeDream-Flush:
                 Narayanan et al. 2021, figure 4 top)
    interleaved  the same over v chunks a stage, in groups of p micro-batches (Narayanan et al. 2021, section 2.2);
                 with one chunk it is 1f1b
    """
    check(schedule, stages, micro_batches, chunks)
    return tuple(of_stage(schedule, stages, micro_batches, chunks, stage) for stage in range(stages))


def check(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> None:
    """Refuse numbers that no order of this schedule can have: ConfigError."""
    for name, value in (("stages", stages), ("micro-batches", micro_batches), ("chunks", chunks)):
        if value < 1:
            raise ConfigError(f"a pipeline needs at least 1 of its {name}, got {value}")
    if schedule not in ("1f1b", "interleaved", "gpipe"):
        raise ConfigError(f"a pipeline's schedule is 1f1b, interleaved or gpipe, not {schedule!r}")
    if chunks > 1 and schedule != "interleaved":
        raise ConfigError(f"{chunks} chunks a stage need the schedule interleaved, not {schedule}")
    if chunks > 1 and micro_batches % stages:
        fewer, more = micro_batches // stages * stages, -(-micro_batches // stages) * stages
        raise ConfigError(f"{micro_batches:,} micro-batches can't be interleaved over {stages} stages: chunks are "
                          "visited by groups of as many micro-batches as there are stages, so stages must divide "
                          f"them; {f'{fewer:,} or ' if fewer else ''}{more:,} would work, and 1f1b takes any number")


def of_stage(schedule: Schedule, stages: int, micro_batches: int, chunks: int, stage: int) -> tuple[Instruction, ...]:
    """What one stage does: forwards ahead, then forward and backward in turn, then the backwards that are left."""
    forward, backward = _visits(stages, micro_batches, chunks)
    passes = len(forward)
    if schedule == "gpipe":
        return (*forward, *reversed(backward))
    behind = stages - 1 - stage
    ahead = behind if chunks == 1 else 2 * behind + (chunks - 1) * stages        # as in Megatron-LM's schedules.py
    ahead = min(ahead, passes)
    order = list(forward[:ahead])
    for n in range(ahead, passes):
        order += forward[n], backward[n - ahead]
    return (*order, *backward[passes - ahead:])


def _visits(stages: int, micro_batches: int, chunks: int) -> tuple[list[Instruction], list[Instruction]]:
    """The forward passes of a stage in order, and its backward passes: a group of p micro-batches visits chunk after
    chunk, backwards from the last chunk to the first."""
    if chunks == 1:
        return ([Instruction("forward", m) for m in range(micro_batches)],
                [Instruction("backward", m) for m in range(micro_batches)])
    groups = [range(first, first + stages) for first in range(0, micro_batches, stages)]
    return ([Instruction("forward", m, chunk) for group in groups for chunk in range(chunks) for m in group],
            [Instruction("backward", m, chunk) for group in groups for chunk in reversed(range(chunks)) for m in group])


def needs(instruction: Instruction, stage: int, stages: int, chunks: int = 1) -> tuple[tuple[int, Instruction], ...]:
    """What must have ended before `instruction` can begin on `stage`: (stage, instruction) of each.

    A forward pass needs that of the part of the model before; a backward pass its own forward pass, and the backward
    pass of the part behind.
    """
    kind, micro_batch, chunk = instruction
    part, last = chunk * stages + stage, stages * chunks - 1
    if kind == "forward":
        return () if part == 0 else (_at(part - 1, stages, "forward", micro_batch),)
    own = (stage, Instruction("forward", micro_batch, chunk))
    return (own,) if part == last else (own, _at(part + 1, stages, "backward", micro_batch))


def _at(part: int, stages: int, kind: Direction, micro_batch: int) -> tuple[int, Instruction]:
    return part % stages, Instruction(kind, micro_batch, part // stages)


def play(orders: Sequence[Sequence[Instruction]], chunks: int = 1, *, forward: float = 1.0,
         backward: float = 2.0) -> list[list[Span]]:
    """When each instruction runs, if passes of a chunk take `forward` and `backward` and messages take no time.

    ConfigError where the orders wait for each other in a circle (or for a pass that nobody does): a deadlock.
    """
    stages = len(orders)
    ended: dict[tuple[int, Instruction], float] = {}
    spans: list[list[Span]] = [[] for _ in orders]
    waiting, moved = set(range(stages)), True
    while waiting and moved:
        moved = False
        for stage in sorted(waiting):
            while len(spans[stage]) < len(orders[stage]):
                instruction = orders[stage][len(spans[stage])]
                before = [ended.get(need) for need in needs(instruction, stage, stages, chunks)]
                if None in before:
                    break
                begin = max([spans[stage][-1].end if spans[stage] else 0.0, *(t for t in before if t is not None)])
                end = begin + (forward if instruction.kind == "forward" else backward)
                spans[stage].append(Span(instruction, begin, end))
                ended[stage, instruction], moved = end, True
            else:
                waiting.discard(stage)
    if waiting:
        stage = min(waiting)
        raise ConfigError(f"this order never ends: stage {stage} waits for ever before "
                          f"{orders[stage][len(spans[stage])]}")
    return spans


@lru_cache(maxsize=4096)
def held(schedule: Schedule, stages: int, micro_batches: int, chunks: int, stage: int,
         layers: tuple[int, ...] = ()) -> tuple[int, ...]:
    """How many micro-batches of each chunk wait for their backward pass on `stage` when it holds most.

    Counted from the instructions. `layers` of each chunk weigh them; without, all chunks count alike. Together p - i in
    1F1B, m in GPipe, and on the first stage of an interleaved pipeline p · v + p - 1, that is 1 + (p - 1)/(p · v) times
    its share of the model (Korthikanti et al. 2022, section 4.2.3).
    """
    check(schedule, stages, micro_batches, chunks)
    if schedule != "gpipe":                          # nothing new is held once the first 2p have come: see the tests
        micro_batches = min(micro_batches, 2 * stages)
    now, most, at_most = [0] * chunks, -1, [0] * chunks
    for kind, _, chunk in of_stage(schedule, stages, micro_batches, chunks, stage):
        now[chunk] += 1 if kind == "forward" else -1
        weight = sum(now) if not layers else sum(map(int.__mul__, now, layers))
        if weight > most:
            most, at_most = weight, list(now)
    return tuple(at_most)


def bubble(schedule: Schedule, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Idle time of a stage as a share of its ideal time: (p - 1)/(v · m) (Narayanan et al. 2021, section 2.2)."""
    check(schedule, stages, micro_batches, chunks)
    return (stages - 1) / (chunks * micro_batches)
