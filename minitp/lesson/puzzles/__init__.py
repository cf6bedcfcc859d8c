"""The puzzles: a function on small worlds, judged by value, state, and what it spends.

    puzzle("bias-once", bias_once)            # prints what is wrong, or the score; draws the attempt's timeline
    minitp grade puzzles.ipynb                # all functions of a file, on seeds its writer hasn't seen
"""
from functools import cache
from importlib import import_module

from minitp.errors import ConfigError
from minitp.lesson.puzzles.base import Puzzle

MODULES = ("bias",)
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
