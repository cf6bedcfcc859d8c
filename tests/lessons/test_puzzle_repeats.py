"""An attempt runs more than once: each run counts, and what a function keeps from one for the next wins nothing."""
from itertools import pairwise

import numpy as np
import pytest

from minitp.errors import ConfigError
from minitp.lesson.puzzles import puzzle_named, puzzles
from minitp.lesson.puzzles.judge import FULL, MOST_RUNS, RIGHT, judged
from minitp.lesson.puzzles.spent import of_all, said
from minitp.lesson.puzzles.values import same
from tests.lessons.test_puzzles import SUM, hoarding, right, twice


class Calls:
    """How often each rank has called, this call counted."""

    def __init__(self):
        self.of = {}

    def __call__(self, tp):
        self.of[tp.rank] = self.of.get(tp.rank, 0) + 1
        return self.of[tp.rank]


def shapes(value):
    return [shapes(one) for one in value] if isinstance(value, list) else np.shape(value)


@pytest.mark.parametrize("name", list(puzzles()))
def test_a_repeat_has_the_same_sizes_and_budget_and_other_numbers(name):
    for seed in range(4):
        worlds = [puzzle_named(name).drawn(seed, repeat) for repeat in range(MOST_RUNS)]
        assert len({world.budget for world in worlds}) == 1
        for one, other in pairwise(worlds):
            for mine, others in zip(one.inputs, other.inputs, strict=True):
                assert list(map(shapes, mine.values())) == list(map(shapes, others.values()))
            assert not all(map(same, one.truth, other.truth))
        assert all(map(same, worlds[1].truth, puzzle_named(name).drawn(seed, 1).truth))


def test_a_run_that_is_wrong_later_is_wrong_whatever_the_first_one_said():
    calls = Calls()

    def first_alone(tp, x):
        return None if calls(tp) > 1 else twice(tp, x)

    found = judged(SUM, first_alone)
    assert (found.status, found.points) == ("wrong", 0)
    assert "run a second time" in found.words[0] and "returned nothing: None" in found.words[1]


@pytest.mark.parametrize("key", [lambda tp, x: tp.rank, lambda tp, x: (tp.rank, x.tobytes()),
                                 lambda tp, x: (tp.rank, x.shape)], ids=["rank", "numbers", "sizes"])
def test_remembering_answers_wins_nothing(key):
    kept = {}

    def memoizing(tp, x):
        if key(tp, x) not in kept:
            kept[key(tp, x)] = hoarding(tp, x) + 0 * twice(tp, x)
        return kept[key(tp, x)]

    assert judged(SUM, memoizing).points in (0, RIGHT)


def test_what_the_first_run_overspent_counts_though_the_measured_one_did_not():
    calls = Calls()

    def thrifty_later(tp, x):
        return twice(tp, x) if calls(tp) == 1 else right(tp, x)

    found = judged(SUM, thrifty_later)
    assert (found.status, found.points) == ("over", FULL - 3)
    assert "sync points: 2, at most 1" in " ".join(found.words)
    assert sum("rank 0: all_reduce at here" in line for line in found.words) == 2


def test_memory_is_measured_once_more_where_it_is_over_and_the_smaller_number_counts():
    calls = Calls()

    def outgrown_once(tp, x):
        return hoarding(tp, x) if calls(tp) == 2 else right(tp, x)

    found = judged(SUM, outgrown_once)
    assert (found.status, found.points) == ("solved", FULL), found.words
    assert set(calls.of.values()) == {MOST_RUNS}
    calls.of.clear()

    def wrong_at_last(tp, x):
        return hoarding(tp, x) if calls(tp) < 3 else x

    assert judged(SUM, wrong_at_last).status == "wrong"


def test_the_record_of_a_run_is_what_its_measurement_says():
    found = judged(SUM, right)
    spent = said(found.tried.run)
    assert (spent.sync_points, spent.payload, spent.ring) == (1, found.spent.payload, found.spent.ring)
    assert of_all(spent, [found.spent]) == found.spent and not spent.memory


# --- what ranks share beside tp, and results that aren't what they seem -----------------------------------------------


def test_ranks_that_share_a_name_and_move_nothing_haven_t_solved_it():
    shared = {}

    def through_a_name(tp, x):
        shared[tp.rank] = x
        tp.barrier(site="here", reason="all have put theirs")
        total = sum(shared[rank] for rank in range(tp.size))
        tp.barrier(site="here", reason="all have taken it")
        return total

    found = judged(SUM, through_a_name)
    assert (found.status, found.points) == ("wrong", 0) and "nothing was moved" in found.words[0]


class Agreeable(np.ndarray):
    def __array_ufunc__(self, *_args, **_more):
        return np.zeros(1)


@pytest.mark.parametrize("result, words", [
    (lambda x: np.zeros(x.shape).view(Agreeable), "a Agreeable, which is no plain array"),
    (lambda x: np.ma.masked_array(x, mask=True), "a MaskedArray"),
    (lambda x: 10 ** 400, "a whole number of 1,329 bits"),
    (lambda x: np.broadcast_to(1.0, (10 ** 5, 10 ** 6)), "has the shape"),
    (lambda x: np.array([None]), "an array of object"),
    (lambda x: type("Half", (float,), {"__abs__": lambda self: 0})(1), "a Half"),
], ids=["subclass", "mask", "large", "broadcast", "objects", "number"])
def test_a_result_is_a_plain_array_or_number(result, words):
    found = judged(SUM, lambda tp, x: result(x))
    assert (found.status, found.points) == ("wrong", 0) and words in found.words[0]


class OddError(Exception):
    __notes__ = 1, 2

    def __str__(self):
        raise KeyError


def test_an_error_whose_words_fail_is_told(capsys):
    def failing(tp, x):
        raise OddError

    assert judged(SUM, failing).status == "failed"


@pytest.mark.parametrize("seed", [-1, None, 1.5, "3"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises((ConfigError, TypeError)):
        puzzle_named("bias-once").drawn(seed)
