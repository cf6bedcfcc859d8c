"""The collectives lab: one collective, built from sends, run for real on thread ranks, and seen round by round.

    play = run("all_reduce", "ring", [[1, 2], [3, 4]])
    play.rounds[0].messages, play.rounds[0].after

The messages are those on record: who to whom, numbers, bytes. What each rank holds comes from the ranks themselves. Of
a sum one also wants to know whose terms are in it: the same collective is run once more on 2^rank instead of numbers.
No time is shown: threads of one process are no network. What a link would take is a model (`minitp.view.lab_cost`).
"""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from minitp.comm import Communicator, Partial
from minitp.comm.algorithms import ALGORITHMS, BuiltCollectives, chunks, schedule
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.launcher import launch
from minitp.launcher.world import script_defaults
from minitp.trace.recorder import Recorder
from minitp.trace.schema import MESSAGES, Event
from minitp.trace.values import condensed
from minitp.trace.wording import count, size

RANKS = (1, 8)
LIMIT = 9999.0                          # of an input's magnitude: a cell has room for it
ELEMENTS = 16                           # numbers of the whole array at most
SUMS = ("reduce", "reduce_scatter", "all_reduce")
FROM_ROOT = ("scatter", "broadcast")
ROOTED = ("scatter", "broadcast", "gather", "reduce")
_WHY: dict[str, Any] = {"site": "lab", "reason": "one hop of a collective built from messages"}
_RUN_DEADLINE = 20.0                    # seconds


@dataclass(frozen=True)
class Cell:
    """One number that a rank holds. `row`: where it is drawn; `terms`: whose numbers are in it."""
    row: int
    piece: int
    number: float
    terms: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """One message as it was recorded; `pieces` by number: piece r is rank r's, or one of equal chunks."""
    source: int
    target: int
    pieces: tuple[int, ...]
    numbers: tuple[float, ...]
    bytes: int

    @property
    def elements(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Round:
    """Messages that are under way at the same time, and what each rank holds before and after them."""
    messages: tuple[Message, ...]
    before: tuple[tuple[Cell, ...], ...]
    after: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Play:
    """A collective that has run. `rows`: how many rows the fullest rank needs; `result`: what each rank was given back,
    None where it gets nothing."""
    op: str
    algorithm: str
    ranks: int
    root: int
    payload: int                        # bytes of the whole array
    rounds: tuple[Round, ...]
    start: tuple[tuple[Cell, ...], ...]
    rows: int
    pieces: int
    result: tuple[tuple[float, ...] | None, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(message for round in self.rounds for message in round.messages)

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes on the wire, by the rank that sent them."""
        return tuple(sum(m.bytes for m in self.messages if m.source == rank) for rank in range(self.ranks))


# --- what goes in ----------------------------------------------------------------------------------------------------

def bringers(op: str, ranks: int, root: int) -> tuple[int, ...]:
    """The ranks that bring numbers: the root alone, or all."""
    return (root,) if op in FROM_ROOT else tuple(range(ranks))


def most_elements(op: str, ranks: int) -> int:
    """How many numbers each of them can bring."""
    return max(1, ELEMENTS // ranks) if op in ("gather", "all_gather") else ELEMENTS


def example(op: str, ranks: int, elements: int, root: int = 0) -> list[list[float]]:
    """Small whole numbers, all different; one row for each rank that brings some."""
    return [[float(10 * rank + i + 1) for i in range(elements)] for rank in bringers(op, ranks, root)]


def cleaned(numbers: Sequence[Sequence[Any]]) -> tuple[tuple[tuple[float, ...], ...], bool]:
    """(the numbers with what is none as 0 and what is too large at the limit, whether any had to be changed)."""
    made = tuple(tuple(_clean(x) for x in row) for row in numbers)
    return made, any(a != b for row, new in zip(numbers, made, strict=True) for a, b in zip(row, new, strict=True))


def _clean(number: Any) -> float:
    try:
        value = float(number)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(-LIMIT, min(LIMIT, value)) if isfinite(value) else 0.0


def _check(op: str, algorithm: str, numbers: Sequence[Sequence[float]], ranks: int, root: int) -> None:
    if algorithm not in ALGORITHMS.get(op, ()):
        raise ConfigError(f"the lab has no {op!r} by {algorithm!r}; it has "
                          + "; ".join(f"{name} by {', '.join(by)}" for name, by in ALGORITHMS.items()))
    if not RANKS[0] <= ranks <= RANKS[1] or not 0 <= root < ranks:
        raise ConfigError(f"the lab has {RANKS[0]} to {RANKS[1]} ranks and a root among them; {count(ranks, 'rank')} "
                          f"and root {root} were asked for")
    if len(numbers) != len(bringers(op, ranks, root)) or len({len(row) for row in numbers}) > 1:
        raise ConfigError(f"{op} on {count(ranks, 'rank')} takes {len(bringers(op, ranks, root))} rows of numbers of "
                          "one length, a row for each rank that brings some")
    if len(numbers[0]) > most_elements(op, ranks):
        raise ConfigError(f"{op} on {count(ranks, 'rank')} takes up to {most_elements(op, ranks)} numbers a rank, "
                          f"{len(numbers[0])} were given")


# --- the run ---------------------------------------------------------------------------------------------------------

def run(op: str, algorithm: str, numbers: Sequence[Sequence[float]], ranks: int | None = None, root: int = 0) -> Play:
    """Run it on threads of this process. `numbers`: one row for each rank that brings some; `ranks`: as many as rows,
    unless only the root brings any. ConfigError where the lab doesn't have what is asked."""
    ranks = len(numbers) if ranks is None else ranks
    _check(op, algorithm, numbers, ranks, root)
    brought = np.array(numbers, np.float64)

    def on_rank(comm: Communicator) -> dict[str, Any]:
        seen, masks = _Seen(), _Seen()
        result = _call(op, BuiltCollectives(comm, algorithm, seen), comm, brought, root)
        with comm.recorder.pause():
            _call(op, BuiltCollectives(comm, algorithm, masks), comm, _masks(op, brought, comm.size, root), root)
        return {"seen": seen.by_round, "masks": masks.by_round, "result": result, "recorder": comm.recorder}

    with script_defaults(None, None):               # `minitp run -n` says how many ranks a script has, not the lab
        told = launch(on_rank, ranks=ranks, world="threads", deadline=_RUN_DEADLINE / 2, run_deadline=_RUN_DEADLINE,
                      recorder=lambda rank: Recorder(rank, keep_values=True))
    return _assembled(op, algorithm, ranks, root, brought, told)


class _Seen:
    """A watcher that keeps copies."""

    def __init__(self) -> None:
        self.by_round: dict[int, dict[int, np.ndarray]] = {}

    def __call__(self, round: int, parts: Mapping[int, np.ndarray]) -> None:
        self.by_round[round] = {piece: part.copy() for piece, part in parts.items()}


def _masks(op: str, brought: np.ndarray, ranks: int, root: int) -> np.ndarray:
    """2^rank in place of the numbers of each rank: a sum of them says whose terms it has. What is scattered belongs to
    the rank that will get it."""
    if op == "scatter":
        return np.repeat([1 << rank for rank in range(ranks)], Cut(brought.shape[1], ranks).sizes)[None]
    return np.array([[1 << rank] * brought.shape[1] for rank in bringers(op, ranks, root)], np.int64)


def _call(op: str, built: BuiltCollectives, comm: Communicator, brought: np.ndarray, root: int) -> np.ndarray | None:
    """`op` on this rank's numbers: a term of a sum, a shard, or what the root holds."""
    p, elements = comm.size, brought.shape[1]
    if op in FROM_ROOT:
        whole = brought[0] if comm.rank == root else None
        told: dict[str, Any] = {"shape": (elements,), "dtype": brought.dtype, "root": root}
        if op == "broadcast":
            return built.broadcast(whole, **told, **_WHY)
        held = map(Cut(elements, p).of, range(p))
        return built.scatter(whole, pieces=[(slice(h.start, h.stop),) for h in held], axis=0, **told, **_WHY)
    rooted: dict[str, Any] = {"root": root} if op in ROOTED else {}
    mine = brought[comm.rank]
    if op in SUMS:
        how: dict[str, Any] = {"axis": 0, "cut": Cut(elements, p)} if op == "reduce_scatter" else rooted
        return getattr(built, op)(Partial(mine.copy(), comm), **how, **_WHY)
    if op == "all_to_all":
        return built.all_to_all(mine[None], axis=0, cut=Cut(p, p), to_axis=1, to_cut=Cut(elements, p), **_WHY)
    return getattr(built, op)(mine, axis=0, cut=Cut(elements * p, p), **rooted, **_WHY)


# --- what is seen of it ----------------------------------------------------------------------------------------------

def _assembled(op: str, algorithm: str, ranks: int, root: int, brought: np.ndarray, told: list[dict]) -> Play:
    plans = [schedule(op, algorithm, rank, ranks, root) for rank in range(ranks)]
    messages: list[list[Message]] = [[] for _ in range(plans[0].rounds)]
    for rank, plan in enumerate(plans):
        pieces = {hop.round: hop.gives for hop in plan.hops}
        for event, numbers in _sends(told[rank]["recorder"]):
            messages[event.step or 0].append(Message(rank, event.peer if event.peer is not None else rank,
                                                     pieces[event.step or 0], numbers, event.payload))
    counts = _counts(op, algorithm, ranks, brought.shape[1])
    held = [[_cells(op, counts, told[rank], round) for rank in range(ranks)] for round in range(-1, plans[0].rounds)]
    rounds = tuple(Round(tuple(sent), tuple(before), tuple(after))
                   for sent, before, after in zip(messages, held[:-1], held[1:], strict=True))
    rows = max((cell.row + 1 for lanes in held for lane in lanes for cell in lane), default=0)
    results = (rank["result"] for rank in told)
    return Play(op, algorithm, ranks, root, 8 * sum(counts), rounds, tuple(held[0]), rows, len(counts),
                tuple(None if result is None else tuple(result.reshape(-1).tolist()) for result in results))


def _sends(recorder: Recorder) -> list[tuple[Event, tuple[float, ...]]]:
    """The recorded sends of a rank with the numbers they carried: a trace keeps all of so few."""
    return [(recorder.events[event], tuple((condensed(before) or {})["data"].tolist()))
            for event, before, _ in recorder.values if recorder.events[event].op == MESSAGES[0]]


def _counts(op: str, algorithm: str, ranks: int, elements: int) -> tuple[int, ...]:
    """Numbers in each piece."""
    if op == "all_to_all":
        return Cut(elements, ranks).sizes * ranks
    if op in ("gather", "all_gather"):
        return (elements,) * ranks
    return Cut(elements, chunks(op, algorithm, ranks)).sizes


def _cells(op: str, counts: Sequence[int], told: dict[str, Any], round: int) -> tuple[Cell, ...]:
    """What a rank holds after `round`, or after the last before it in which it took part.

    A number has the row of its place in the whole array; of a table's parts (all-to-all) a rank's lie close together.
    """
    latest = max(r for r in told["seen"] if r <= round)
    numbers, masks = told["seen"][latest], told["masks"][latest]
    starts = np.concatenate([[0], np.cumsum(counts)])
    cells: list[Cell] = []
    for piece in sorted(numbers):
        for i, (number, mask) in enumerate(zip(numbers[piece].tolist(), masks[piece].tolist(), strict=True)):
            row = len(cells) if op == "all_to_all" else int(starts[piece]) + i
            cells.append(Cell(row, piece, number, tuple(r for r in range(RANKS[1]) if mask >> r & 1)))
    return tuple(cells)


# --- in words --------------------------------------------------------------------------------------------------------

def number_text(number: float) -> str:
    return f"{number:.5g}".replace("-", "−")


def pieces_text(play: Play, pieces: Sequence[int]) -> str:
    """piece 2; pieces 0–3; everything; a part of all-to-all as 0→3."""
    if play.op == "all_to_all":
        parts = [f"{piece // play.ranks}→{piece % play.ranks}" for piece in pieces]
        return ", ".join(parts) if len(parts) <= 4 else f"{len(parts)} parts: {', '.join(parts[:3])}, …"
    if len(pieces) == play.pieces:
        return "everything" if play.pieces > 1 else "piece 0"
    return ("piece " if len(pieces) == 1 else "pieces ") + ", ".join(map(str, sorted(pieces)))


def round_rows(play: Play, round: int) -> list[dict[str, Any]]:
    """A round as a table: its messages, then what each rank holds."""
    shown = play.rounds[round]
    rows: list[dict[str, Any]] = [
        {"round": round + 1, "what": f"rank {m.source} → rank {m.target}", "pieces": pieces_text(play, m.pieces),
         "numbers": ", ".join(map(number_text, m.numbers)), "bytes": size(m.bytes)} for m in shown.messages]
    return rows + [{"round": round + 1, "what": f"rank {rank} holds", "pieces": "",
                    "numbers": _lane_text(play, lane), "bytes": ""} for rank, lane in enumerate(shown.after)]


def _lane_text(play: Play, lane: Sequence[Cell]) -> str:
    if not lane:
        return "nothing"
    return ", ".join(number_text(cell.number) + _terms_text(play, cell) for cell in lane)


def _terms_text(play: Play, cell: Cell) -> str:
    if play.op not in SUMS:
        return ""
    return " (the sum)" if len(cell.terms) == play.ranks else f" (of {'+'.join(map(str, cell.terms))})"


def round_alt(play: Play, round: int) -> str:
    """The picture of a round in one sentence."""
    said = [f"rank {m.source} sends {pieces_text(play, m.pieces)} ({size(m.bytes)}) to rank {m.target}"
            for m in play.rounds[round].messages]
    together = ", all at the same time" if len(said) > 1 else ""
    return f"Round {round + 1} of {len(play.rounds)}{together}: " + "; ".join(said) + "."
