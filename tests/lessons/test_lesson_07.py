"""Lesson 07's exercises: a typical mistake is met with its own words."""
import pytest

import minitp
from minitp.lesson.exercises import judged

ONE = {"site": "attention.o", "reason": "add"}


@pytest.mark.parametrize("answer, words", [
    (lambda heads, sharers: range(heads.start // sharers, heads.stop // sharers), "kv head is needed, too"),
    (lambda heads, sharers: range(heads[0] // sharers, heads[-1] // sharers + 1), "their range is empty"),
    (lambda heads, sharers: range(heads.start // sharers, -(-heads.stop // sharers)), "query heads needs none"),
    (lambda heads, sharers: range(3), "Head h uses kv head"), (lambda heads, sharers: [0], "a range is asked for")])
def test_covers(answer, words):
    verdict = judged("7.2", answer)
    assert verdict.passed is False and words in verdict.words


def even_shares(tp, y, W_o, H):
    mine = slice(tp.rank * (W_o.shape[1] // tp.size), (tp.rank + 1) * (W_o.shape[1] // tp.size))
    return tp.all_reduce(minitp.Partial(y @ W_o[:, mine].T, tp), **ONE)


def own_term(tp, y, W_o, H):
    mine = minitp.Cut(H, tp.size).times(W_o.shape[1] // H).of(tp.rank)
    return y @ W_o[:, mine.start:mine.stop].T


def numbers_not_heads(tp, y, W_o, H):
    mine = minitp.Cut(W_o.shape[1], tp.size).of(tp.rank)
    return tp.all_reduce(minitp.Partial(y @ W_o[:, mine.start:mine.stop].T, tp), **ONE)


def stays_away(tp, y, W_o, H):
    return tp.all_reduce(minitp.Partial(own_term(tp, y, W_o, H), tp), **ONE) if y.size else own_term(tp, y, W_o, H)


def heads_gathered(tp, y, W_o, H):
    cut = minitp.Cut(H, tp.size).times(W_o.shape[1] // H)
    return tp.all_gather(y, axis=1, cut=cut, **ONE) @ W_o.T


@pytest.mark.parametrize("answer, words", [
    (even_shares, "(3, 2, 2, 2)"), (own_term, "its own term"), (numbers_not_heads, "(3, 2, 2, 2)"),
    (stays_away, "(1, 1, 0)"), (heads_gathered, "send no heads")])
def test_projections(answer, words):
    verdict = judged("7.3", answer)
    assert verdict.passed is False and words in verdict.words
