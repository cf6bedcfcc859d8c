"""An attempt at a puzzle, judged: run on the ranks of a world, compared with the truth, measured, scored.

Points: 6 for the right result, then 2 for its sync points, 1 for their bytes, 1 for its memory, each within budget.
"""
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from minitp.lesson.attempt import DEADLINE, attempt
from minitp.lesson.puzzles.base import Budget, Puzzle, World
from minitp.lesson.puzzles.spent import ALLOWANCE, Spent, measured
from minitp.lesson.puzzles.values import wrong
from minitp.lesson.runs import Run, run
from minitp.trace.wording import count, plain, size

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

Status = Literal["blank", "failed", "wrong", "over", "solved"]

RIGHT = 6
PARTS = {"sync points": 2, "bytes": 1, "memory": 1}
FULL = RIGHT + sum(PARTS.values())
_MOST_LINES = 12


@dataclass(frozen=True)
class Judgment:
    """words: what is wrong, or how the points come about. run: of the attempt, None where it didn't end well."""
    status: Status
    points: int
    words: list[str]
    run: Run | None = None
    spent: Spent | None = None


def judged(puzzle: Puzzle, fn: Callable[..., Any], seed: int = 0, deadline: float = DEADLINE) -> Judgment:
    """Run twice: once to see whether it is right, and what is right again, measured."""
    world = puzzle.drawn(seed)
    tried = attempt(_body(fn, world), world.ranks, deadline)
    if tried.run is None:
        return Judgment("failed", 0, [tried.error, *(known for piece, known in puzzle.errors.items()
                                                     if piece in tried.error)])
    if tried.blank:
        return Judgment("blank", 0, ["still blank."])
    if mistakes := wrong(world, tried.run.results):
        return Judgment("wrong", 0, mistakes, tried.run)
    try:
        spent = _measured(fn, world, deadline)
    except (Exception, SystemExit) as error:     # right the first time: it leans on something outside the function
        return Judgment("failed", 0, [f"right, but run a second time it failed. {type(error).__name__}: {error}"],
                        tried.run)
    kept = spent.within(world.budget)
    points = RIGHT + sum(PARTS[part] for part, well in kept.items() if well)
    words = [f"the result is right: {RIGHT} points.", *_words(spent, world.budget, kept, tried.run)]
    return Judgment("solved" if all(kept.values()) else "over", points, words, tried.run, spent)


def _measured(fn: Callable[..., Any], world: World, deadline: float) -> Spent:
    """Once; where its memory is over budget once more, and the smaller number counts. A cache of Python's own that
    outgrows its place does so in one of the two, and is not the attempt's."""
    def once() -> Spent:
        return measured(lambda body: run(body, world.ranks, threads=True, deadline=deadline), world.ranks,
                        _body(fn, world))

    spent = once()
    return spent if spent.within(world.budget)["memory"] else min(spent, once(), key=lambda one: one.memory)


def _body(fn: Callable[..., Any], world: World) -> "Callable[[Communicator], Any]":
    """What a rank runs. Its inputs are copies of its own, made here: they are no memory of its, and may be changed."""
    inputs = [copy.deepcopy(list(given.values())) for given in world.inputs]
    return lambda tp: fn(tp, *inputs[tp.rank])           # by place: what the writer calls them is the writer's matter


def _words(spent: Spent, budget: Budget, kept: dict[str, bool], attempted: Run) -> list[str]:
    """A line for each part of the budget, and where too much was said, what was said."""
    lines = [_line("sync points", kept, _met(spent.sync_points, spent.messages),
                   _met(budget.sync_points, budget.messages)),
             _line("bytes", kept, _moved(spent.payload, spent.sent) + _around(spent.ring, budget),
                   _moved(budget.payload, budget.sent) + _around(budget.ring, budget)),
             _line("memory", kept, f"rank {spent.hungriest} held {size(spent.memory)} at once beyond what it was given",
                   size(budget.memory + ALLOWANCE))]
    if spent.unseen:
        lines.append("  ranks met in ways that aren't on record: talk through the methods of tp alone.")
    elif not kept["sync points"] or not kept["bytes"]:
        lines += [f"  rank 0: {event.op} at {plain(event.site)}, {event.before} → {event.after}, {size(event.payload)}"
                  for event in attempted.trace if event.rank == 0][:_MOST_LINES]
    return lines


def _line(part: str, kept: dict[str, bool], was: str, may: str) -> str:
    got = count(PARTS[part], "point") if kept[part] else f"over budget, 0 of {count(PARTS[part], 'point')}"
    return f"{part}: {was}, at most {may}: {got}."


def _met(sync_points: int, messages: int) -> str:
    return _both(str(sync_points), count(messages, "message"), sync_points, messages)


def _moved(payload: int, sent: int) -> str:
    return _both(size(payload), f"{size(sent)} in messages", payload, sent)


def _around(ring: int | None, budget: Budget) -> str:
    return "" if budget.ring is None or ring is None else f" ({size(ring)} sent by a rank of a ring)"


def _both(collective: str, message: str, some: int, more: int) -> str:
    """What there is of either; of the first alone where there is none."""
    return " and ".join([collective] * bool(some or not more) + [message] * bool(more))
