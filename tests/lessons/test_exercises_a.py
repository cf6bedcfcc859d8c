"""Appendix A's exercises: the mistakes one makes there are named, and a hang is an answer, not an end."""
import numpy as np
import pytest

import minitp
from minitp.lesson.exercises import judged
from minitp.lesson.exercises.lesson_a import HELD


def add(tp, x):
    return tp.all_reduce(minitp.Partial(x, tp), site="lists", reason="add")


def longest(tp, arrays):
    return int(tp.all_reduce_max(np.array([len(arrays)]), site="lists", reason="agree")[0])


def each_its_own(tp, arrays, size):
    return [add(tp, array) for array in arrays]


def the_root_s(tp, arrays, size):
    most = tp.share(len(arrays), site="lists", reason="agree")
    return [add(tp, array) for array in (*arrays, *[np.zeros(size)] * (most - len(arrays)))][:-1]


def ones_for_none(tp, arrays, size):
    return [add(tp, array) for array in (*arrays, *[np.ones(size)] * (longest(tp, arrays) - len(arrays)))]


def agrees_each_time(tp, arrays, size):
    sums, n = [], 0
    while longest(tp, arrays) > n:
        sums.append(add(tp, arrays[n] if n < len(arrays) else np.zeros(size)))
        n += 1
    return sums


@pytest.mark.parametrize("answer, says", [
    (each_its_own, "one that has nothing left to give"),
    (the_root_s, f"a list of {max(HELD)} sums"),
    (ones_for_none, "it should be"),
    (agrees_each_time, "right, but with 7 sync points"),
    (lambda tp, arrays, size: 1 / 0, "ZeroDivisionError"),
])
def test_uneven_lists(answer, says):
    verdict = judged("A.2", answer)
    assert verdict.passed is False and says in verdict.words


def ring(tp, x, first, second):
    for what in (first, second):
        if what == "send":
            tp.send(x, to=(tp.rank + 1) % tp.size, site="ring", reason="pass x on")
        else:
            got = tp.receive(shape=x.shape, dtype=x.dtype, source=(tp.rank - 1) % tp.size, site="ring", reason="take")
    return got


def halves(tp, x):
    return ring(tp, x, "send", "receive") if tp.rank % 2 == 0 else ring(tp, x, "receive", "send")


@pytest.mark.parametrize("answer, says", [
    (lambda tp, x: ring(tp, x, "send", "receive"), "on 2 ranks all wait"),
    (lambda tp, x: ring(tp, x, "receive", "send"), "on 2 ranks all wait"),
    (lambda tp, x: x, "the rank before it sent"),
])
def test_the_ring(answer, says):
    verdict = judged("A.3", answer)
    assert verdict.passed is False and says in verdict.words


def test_even_and_odd_ranks_are_a_right_answer_too():
    assert judged("A.3", halves).passed is True


@pytest.mark.parametrize("answer, right", [(0.6, True), (0.2, False), (0.8, False), ("0.6", False)])
def test_the_straggler_s_price(answer, right):
    assert judged("A.1", answer).passed is right
