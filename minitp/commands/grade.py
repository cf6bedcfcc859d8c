"""`minitp grade`: the puzzles of a notebook or script, on seeds that its writer hasn't seen."""
import json
import os
import secrets
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minitp.errors import ConfigError
from minitp.trace.wording import count, plain

_SEEDS = 2                                       # drawn where none are given
_LARGEST = 1_000_000


def grade(file: Path, seeds: Sequence[int], timeout: float, as_json: bool) -> None:
    """A table, or one JSON object. ConfigError, FileFormatError or OSError where there is nothing to grade."""
    from minitp.lesson.puzzles.cells import cells_of
    from minitp.lesson.puzzles.grading import graded
    if os.name != "posix":
        raise ConfigError("grading runs foreign code in a process that it limits and ends by signals, which this "
                          "system hasn't: grade on Linux or macOS")
    cells = cells_of(file)
    drawn = list(dict.fromkeys(seeds)) or [secrets.randbelow(_LARGEST) for _ in range(_SEEDS)]
    with _leaving_nothing():
        found = graded(file, cells, drawn, timeout)
    row = _as_plain(file, drawn, found, [cell.where for cell in cells])
    if as_json:
        print(json.dumps(row))
    else:
        _show(row)


@contextmanager
def _leaving_nothing() -> Iterator[None]:
    """Whoever ends this process by a signal ends the cells as well, and their folder goes."""
    def leave(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():    # a notebook's or an app's own: its matter
        yield
        return
    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _as_plain(file: Path, seeds: list[int], found: Any, where: list[str]) -> dict[str, Any]:
    """{file, seeds, points, of, puzzles: [{name, title, function, status, points, of, words, by_seed}], cells:
    [{where, error}]}; words are those of the seed that counts."""
    from minitp.lesson.puzzles import puzzles
    from minitp.lesson.puzzles.judge import FULL
    rows = [{"name": name, "title": puzzle.title, "function": puzzle.function, "status": found.worst(name)["status"],
             "points": found.worst(name)["points"], "of": FULL, "words": found.worst(name)["words"],
             "by_seed": found.verdicts[name]} for name, puzzle in puzzles().items()]
    return {"file": file.name, "seeds": seeds, "points": found.points, "of": FULL * len(rows), "puzzles": rows,
            "cells": [{"where": where[number], "error": found.errors[number]} for number in sorted(found.errors)]}


def _show(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    console = Console()
    table = Table(title=Text(f"{plain(row['file'])}: {row['points']} of {count(row['of'], 'point')}"), box=None,
                  title_justify="left")
    for name in ("puzzle", "points", "", "what is wrong, or over budget"):
        table.add_column(name, justify="right" if name == "points" else "left")
    for puzzle in row["puzzles"]:
        lines = [plain(words.partition("\n")[0], 400) for words in puzzle["words"] if puzzle["status"] != "solved"]
        over = [line for line in lines if "over budget" in line]
        table.add_row(Text(puzzle["name"]), f"{puzzle['points']}/{puzzle['of']}", Text(puzzle["status"]),
                      Text("\n".join(over if puzzle["status"] == "over" else lines)))
    console.print(table)
    for cell in row["cells"]:
        console.print(Text(f"{cell['where']}: {plain(cell['error'], 400)}"))
    seeds = " ".join(f"--seed {seed}" for seed in row["seeds"])
    console.print(Text(f"Judged with {seeds}: the same options give the same worlds again."))
