"""Lesson 09's exercises: a typical mistake is met with its own words."""
import pytest

import minitp
from minitp.lesson.exercises import judged

ONE = {"site": "mlp", "reason": "add"}


def summed(tp, term):
    return tp.all_reduce(minitp.Partial(term.copy(), tp), **ONE)


def backward(dx_of, dy_of=lambda tp, dy: dy, weights=lambda tp, one: one, slope=lambda h: 1 - h * h):
    def answer(tp, x, h, W_up, W_down, dy):
        d = dy_of(tp, dy)
        du = d @ W_down * slope(h)
        return dx_of(tp, du @ W_up), weights(tp, du.T @ x), d.T @ h
    return answer


@pytest.mark.parametrize("answer, words", [
    (backward(lambda tp, term: term), "f is an all-reduce backward"),
    (backward(summed, dy_of=summed), "3 times too large"),
    (backward(summed, slope=lambda h: 1), "tanh's slope"),
    (backward(lambda tp, term: summed(tp, summed(tp, term) / tp.size)), "2 sync points where 1 will do"),
    (lambda tp, *_: 1, "three arrays are asked for")])
def test_mlps(answer, words):
    verdict = judged("9.2", answer)
    assert verdict.passed is False and words in verdict.words


def test_a_list_of_three_does_as_well():
    assert judged("9.2", lambda *given: list(backward(summed)(*given))).passed


@pytest.mark.parametrize("answer, words", [
    (lambda tp, *six: sum(a @ b for a, b in zip(six[:3], six[3:], strict=True)), "its own term"),
    (lambda tp, *six: sum(summed(tp, a @ b) for a, b in zip(six[:3], six[3:], strict=True)), "add the three first"),
    (lambda tp, *six: summed(tp, six[0] @ six[3]), "dq W_q + dk W_k + dv W_v")])
def test_ways_before_qkv(answer, words):
    verdict = judged("9.3", answer)
    assert verdict.passed is False and words in verdict.words
