"""Lessons 14 and 15: typical wrong answers get words of their own, and pictures say what they show."""
import numpy as np
import pytest

from minitp import Partial
from minitp.lesson import pictures
from minitp.lesson.exercises import judged


def swapped(tp, array, other):
    return tp.exchange(array, to=other, shape=array.shape, dtype=array.dtype, source=other, site="s", reason="r")


def inside_only(tp, x):
    return x + swapped(tp, x, tp.rank ^ 1)


def across_only(tp, x):
    return x + swapped(tp, x, tp.rank ^ 2)


def all_of_it_across(tp, x):
    y = inside_only(tp, x)
    return y + swapped(tp, y, tp.rank ^ 2)


def one_half(tp, x):
    halves, place = np.split(x, 2), tp.rank % 2
    mine = halves[place] + swapped(tp, halves[1 - place], tp.rank ^ 1)
    return mine + swapped(tp, mine, tp.rank ^ 2)


def halves_in_own_order(tp, x):
    mine = one_half(tp, x)
    return np.concatenate([mine, swapped(tp, mine, tp.rank ^ 1)])


def half_across(tp, x):
    half = np.split(inside_only(tp, x), 2)[tp.rank % 2]
    mine = half + swapped(tp, half, tp.rank ^ 2)
    other = swapped(tp, mine, tp.rank ^ 1)
    return np.concatenate([mine, other] if tp.rank % 2 == 0 else [other, mine])


def by_a_collective(tp, x):
    return tp.all_reduce(Partial(x, tp), site="s", reason="r")


def own(tp, held, card):
    return held <= card


def by_sum(tp, held, card):
    return bool(by_a_collective(tp, np.array([held]))[0] <= card)


def by_mean(tp, held, card):
    return bool(by_a_collective(tp, np.array([held]))[0] <= card * tp.size)


def twice(tp, held, card):
    for _ in range(2):
        fullest = tp.all_reduce_max(np.array([held]), site="s", reason="r")
    return bool(fullest[0] <= card)


@pytest.mark.parametrize("number, answer, words", [
    ("14.1", 7, "too low. Divide n½"),
    ("14.2", 30, "too high. Both have the same number"),
    ("14.3", inside_only, "its own machine's sum"),
    ("14.3", across_only, "neighbors' terms are missing"),
    ("14.3", all_of_it_across, "sends 48 bytes to the other machine where 24 do"),
    ("14.3", one_half, "That is one half"),
    ("14.3", halves_in_own_order, "have changed places"),
    ("14.3", by_a_collective, "a collective does this for you"),
    ("14.3", lambda tp, x: x, "the sum of all terms is"),
    ("14.3", lambda tp, x: x.nothing, "AttributeError"),
    ("15.1", 7, "too low. Two bytes a parameter"),
    ("15.2", 20.0, "too low. Tokens over tokens a second"),
    ("15.3", lambda parameters, each, card: parameters * each // card, "round up"),
    ("15.3", lambda parameters, each, card: parameters * each // card + 1, "Where it fits exactly"),
    ("15.3", lambda parameters, each, card: int(np.ceil(parameters * each / card)), "without a float"),
    ("15.4", own, "Each rank answers for itself"),
    ("15.4", by_sum, "must not fit one card"),
    ("15.4", by_mean, "The mean fits, the fullest rank doesn't"),
    ("15.4", twice, "with 2 sync points where one does"),
    ("15.4", lambda tp, held, card: "yes", "True or False is asked for"),
])
def test_a_wrong_answer_is_told_why(number, answer, words):
    verdict = judged(number, answer)
    assert verdict.passed is False and words in verdict.words, verdict.words


def test_what_a_right_all_reduce_wastes_inside_is_said():
    verdict = judged("14.3", half_across)
    assert verdict.passed and "inside a rank sends 72 bytes, and 48 would do" in verdict.words


def test_pictures_of_plans_are_told_in_words(capsys):
    pictures.links("llama-2-70b")
    pictures.memory(model="llama-3.1-405b", machine="8xa100-80", devices=12, tp=6, pp=2)
    links, memory = capsys.readouterr().out.splitlines()
    assert "162 sync points" in links and "NVLink, 8 ranks: 763 µs" in links
    assert "one for each kind of rank (8)" in memory and "It fits" in memory
