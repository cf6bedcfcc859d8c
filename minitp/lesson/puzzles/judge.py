"""An attempt at a puzzle, judged: run on the ranks of a world, compared with the truth, measured, scored.

Points: 6 for the right result, then 2 for its sync points, 1 for their bytes, 1 for its memory, each within budget.
"""
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from minitp.lesson.attempt import DEADLINE, Attempt, answering, attempt, told
from minitp.lesson.puzzles.base import Budget, Puzzle, World
from minitp.lesson.puzzles.spent import ALLOWANCE, Spent, measured, of_all, said
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
MOST_RUNS = 3                                    # of one attempt: to see whether it is right; measured, at most twice


@dataclass(frozen=True)
class Judgment:
    """words: what is wrong, or how the points come about. tried: its first run, None of a blank."""
    status: Status
    points: int
    words: list[str]
    tried: Attempt | None = None
    spent: Spent | None = None


def judged(puzzle: Puzzle, fn: Callable[..., Any], seed: int = 0, deadline: float = DEADLINE) -> Judgment:
    """Run once to see whether it is right, and what is right again, measured, with other numbers of the same sizes: it
    must be right each time, and what it says the most counts. So nothing is won by remembering the first run."""
    world = puzzle.drawn(seed)
    tried = attempt(_body(fn, world), world.ranks, deadline)
    if tried.run is None:
        return Judgment("failed", 0, [tried.error, *(known for piece, known in puzzle.errors.items()
                                                     if piece in tried.error)], tried)
    if tried.blank:
        return Judgment("blank", 0, ["still blank."])
    if mistakes := wrong(world, tried.run.results):
        return Judgment("wrong", 0, mistakes, tried)
    try:
        again = _again(puzzle, fn, seed, deadline)
    except (Exception, SystemExit) as error:     # right the first time: it leans on something outside the function
        return Judgment("failed", 0, [f"right, but run a second time it failed. {told(error)}"], tried)
    if again.mistakes:
        return Judgment("wrong", 0, ["right, but run a second time, with other numbers of the same sizes, it is wrong. "
                                     "Does it keep something from its first run?", *again.mistakes], tried)
    if (world.budget.payload or world.budget.sent) and any(one.is_silent for one in again.spent):
        return Judgment("wrong", 0, ["the result is right, and nothing was moved to make it: the ranks share something "
                                     "outside tp, a global name, say. Ranks of a real run are processes and share "
                                     "nothing: what another rank needs must go through tp."], tried)
    spent = of_all(said(tried.run), again.spent)
    kept = spent.within(world.budget)
    points = RIGHT + sum(PARTS[part] for part, well in kept.items() if well)
    most = max([tried.run, *again.runs], key=lambda ran: (ran.sync_points, ran.payload))
    words = [f"the result is right: {RIGHT} points.", *_words(spent, world.budget, kept, most)]
    return Judgment("solved" if all(kept.values()) else "over", points, words, tried, spent)


@dataclass
class _Again:
    """The measured runs of an attempt, and what was wrong with the last of them."""
    runs: list[Run] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)


def _again(puzzle: Puzzle, fn: Callable[..., Any], seed: int, deadline: float) -> _Again:
    """Once more, measured; and where its memory is over budget, yet once."""
    found = _Again()
    for repeat in range(1, MOST_RUNS):
        world = puzzle.drawn(seed, repeat)
        ran, spent = measured(partial(run, ranks=world.ranks, threads=True, deadline=deadline), world.ranks,
                              answering(_body(fn, world)))
        found.runs.append(ran)
        found.spent.append(spent)
        found.mistakes = wrong(world, ran.results)
        if found.mistakes or spent.within(world.budget)["memory"]:
            break
    return found


def _body(fn: Callable[..., Any], world: World) -> "Callable[[Communicator], Any]":
    """What a rank runs. Its inputs are copies of its own, made here: they are no memory of its, and may be changed."""
    inputs = [copy.deepcopy(list(given.values())) for given in world.inputs]
    return lambda tp: fn(tp, *inputs[tp.rank])           # by place: what the writer calls them is the writer's matter


def _words(spent: Spent, budget: Budget, kept: dict[str, bool], most: Run) -> list[str]:
    """A line for each part of the budget, and where too much was said, what was said in the run that said most."""
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
                  for event in most.trace if event.rank == 0][:_MOST_LINES]
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
