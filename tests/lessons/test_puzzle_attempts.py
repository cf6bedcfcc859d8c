"""Attempts at puzzles: each typical mistake gets its own words, each waste its price, other good ways full points."""
import pytest

from minitp.lesson.puzzles import puzzle_named
from minitp.lesson.puzzles.judge import FULL, PARTS, judged
from tests.lessons import attempts_on_sums, attempts_on_vocabulary

SEED = 3


def cases(table):
    return [pytest.param(name, fn, *([found[fn]] if isinstance(found, dict) else []), id=f"{name}: {fn.__name__}")
            for module in (attempts_on_vocabulary, attempts_on_sums)
            for name, found in getattr(module, table).items() for fn in found]


@pytest.mark.parametrize(("name", "fn", "words"), cases("WRONG"))
def test_a_mistake_gets_its_own_words(name, fn, words):
    # KV heads of other numbers are needed for shapes to differ: that attempt is another mistake elsewhere
    judgment = judged(puzzle_named(name), fn, 0 if fn is attempts_on_sums.own_shapes else SEED)
    assert judgment.status in ("wrong", "failed") and judgment.points == 0
    assert words in " ".join(judgment.words)


@pytest.mark.parametrize(("name", "fn", "missed"), cases("OVER"))
def test_what_is_wasted_costs_its_points_alone(name, fn, missed):
    judgment = judged(puzzle_named(name), fn, SEED)
    assert judgment.status == "over"
    assert {part for part, kept in judgment.spent.within(puzzle_named(name).drawn(SEED).budget).items()
            if not kept} == missed
    assert judgment.points == FULL - sum(PARTS[part] for part in missed)


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 5), marks=pytest.mark.slow)], ids=["0", "others"])
@pytest.mark.parametrize(("name", "fn"), cases("WELL"))
def test_other_good_ways_are_solutions(name, fn, seeds):
    assert {judged(puzzle_named(name), fn, seed).status for seed in seeds} == {"solved"}
