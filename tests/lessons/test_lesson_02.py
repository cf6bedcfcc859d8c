"""Lesson 02's exercises: a typical mistake is met with its own words."""
import numpy as np
import pytest

import minitp
from minitp.lesson.exercises import judged

WHY = {"site": "try", "reason": "a reader's attempt"}


def added(tp, term):
    return tp.all_reduce(minitp.Partial(term, tp), **WHY)


def own(tp, h):
    mine = minitp.Cut(len(h), tp.size).of(tp.rank)
    return h[mine.start:mine.stop]


@pytest.mark.parametrize("answer, words", [
    (lambda W, p, rank: W[rank * (len(W) // p):(rank + 1) * (len(W) // p)], "don't divide evenly"),
    (lambda W, p, rank: W[:, :1], "all 4 columns"), (lambda W, p, rank: W if rank == 0 else W[:0], "as even as")])
def test_shares(answer, words):
    verdict = judged("2.2", answer)
    assert verdict.passed is False and words in verdict.words


@pytest.mark.parametrize("answer, words", [
    (lambda tp, x, up, down: np.maximum(minitp.Partial(x @ up.T, tp), 0), "Make it whole first"),
    (lambda tp, x, up, down: added(tp, own(tp, added(tp, np.maximum(x @ up.T, 0))) @ down.T), "activated its own term"),
    (lambda tp, x, up, down: added(tp, own(tp, added(tp, x @ up.T)) @ down.T), "activation is missing"),
    (lambda tp, x, up, down: np.maximum(own(tp, added(tp, x @ up.T)), 0) @ down.T, "own term of y"),
    (lambda tp, x, up, down: added(tp, np.maximum(added(tp, x @ up.T), 0) @ down.T), "(3, 2, 2)"),
    (lambda tp, x, up, down: added(tp, np.maximum(x @ up.T, 0)), "shape (4,)"),
    (lambda tp, x, up, down: added(tp, own(tp, np.maximum(added(tp, x @ up.T) + 0 * added(tp, x @ up.T), 0)) @ down.T),
     "3 sync points where 2 will do")])
def test_rows_first(answer, words):
    verdict = judged("2.3", answer)
    assert verdict.passed is False and words in verdict.words


def test_a_shard_of_the_sum_does_as_well():
    def scattered(tp, x, up, down):
        cut = minitp.Cut(len(up), tp.size)
        a_p = tp.reduce_scatter(minitp.Partial(x @ up.T, tp), axis=0, cut=cut, **WHY)
        return added(tp, np.maximum(a_p, 0) @ down.T)
    assert judged("2.3", scattered).passed
