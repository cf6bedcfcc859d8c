"""The puzzles: a function on small worlds, judged by value, state, and what it spends.

    puzzle("bias-once", bias_once)            # prints what is wrong, or the score; draws the attempt's timeline
    minitp grade puzzles.ipynb                # all functions of a file, on seeds its writer hasn't seen
"""
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from minitp.errors import ConfigError
from minitp.lesson import pictures
from minitp.lesson.puzzles.base import Puzzle
from minitp.lesson.puzzles.judge import FULL, judged

MODULES = ("bias", "fused", "f_and_g", "arg_max", "vocab_loss", "tied_table", "kv_copies", "ring", "rows_norm",
           "global_norm", "few_heads")
"""Those that have PUZZLES, in the order in which the puzzles are numbered."""


@cache
def puzzles() -> dict[str, Puzzle]:
    """All of them, by name, in order."""
    found = [one for module in MODULES for one in import_module(f"{__name__}.{module}").PUZZLES]
    return {one.name: one for one in found}


def puzzle_named(name: str) -> Puzzle:
    """ConfigError where there is none of this name."""
    if name not in puzzles():
        raise ConfigError(f"there is no puzzle {name!r}; there are {', '.join(puzzles())}")
    return puzzles()[name]


def puzzle(name: str, fn: Callable[..., Any], seed: int = 0) -> None:
    """Judge fn(tp, …): print the points and how they come about, or what is wrong, and draw the attempt's timeline.

    Another seed makes other numbers, sizes and numbers of ranks.
    """
    asked = puzzle_named(name)
    if not callable(fn):
        raise ConfigError(f'a puzzle judges a function: puzzle("{name}", {asked.function}), without a call')
    found = judged(asked, fn, seed)
    if found.status == "blank":
        print(f"· {asked.title}: still blank.")
        return
    print(f"{'✓' if found.status == 'solved' else '✗'} {asked.title}: {found.points} of {FULL} points.")
    for words in found.words:
        print(f"  {words}".replace("\n", "\n  "))
    if found.tried is not None:
        pictures.timeline(found.tried)
