"""Lesson 05's exercises: a typical mistake is met with its own words."""
import numpy as np
import pytest

import minitp
from minitp.lesson.exercises import judged

ONE = {"site": "embedding", "reason": "add"}


def own_term(tp, ids, held, rows):
    return np.array([held[i - rows.start] if i in rows else np.zeros(held.shape[1]) for i in ids])


def not_summed(tp, ids, held, rows):
    return own_term(tp, ids, held, rows)


def no_offset(tp, ids, held, rows):
    return tp.all_reduce(minitp.Partial(held[ids], tp), **ONE)


def no_zeros(tp, ids, held, rows):
    term = held[np.clip(np.array(ids) - rows.start, 0, len(held) - 1)]
    return tp.all_reduce(minitp.Partial(term, tp), **ONE)


def whole_table(tp, ids, held, rows):
    return tp.all_gather(held, axis=0, cut=minitp.Cut(7, tp.size), **ONE)[ids]


def one_by_one(tp, ids, held, rows):
    return np.stack([tp.all_reduce(minitp.Partial(row.copy(), tp), **ONE) for row in own_term(tp, ids, held, rows)])


@pytest.mark.parametrize("answer, words", [
    (not_summed, "its own term of the sum"), (no_offset, "id minus rows.start"), (no_zeros, "must add zeros"),
    (whole_table, "never the table"), (one_by_one, "5 sync points where 1 will do"),
    (lambda tp, ids, held, rows: 3, "returned int")])
def test_lookups(answer, words):
    verdict = judged("5.2", answer)
    assert verdict.passed is False and words in verdict.words


def local_id(tp, own, cut):
    best = np.array([[own.max(), own.argmax()]])
    every = tp.all_gather(best, axis=0, cut=minitp.Cut(tp.size, tp.size), **ONE)
    return int(every[every[:, 0].argmax(), 1])


def gathers_all(tp, own, cut):
    return int(tp.all_gather(own, axis=0, cut=cut, **ONE).argmax())


def last_of_a_tie(tp, own, cut):
    best = np.array([[own.max(), cut.of(tp.rank).start + own.argmax()]])
    every = tp.all_gather(best, axis=0, cut=minitp.Cut(tp.size, tp.size), **ONE)
    return int(every[every[:, 0] == every[:, 0].max()][-1, 1])


def no_empty_shard(tp, own, cut):
    best = np.array([[own.max(), cut.of(tp.rank).start + own.argmax()]])
    every = tp.all_gather(best, axis=0, cut=minitp.Cut(tp.size, tp.size), **ONE)
    return int(every[every[:, 0].argmax(), 1])


def two_maxima(tp, own, cut):
    best = tp.all_reduce_max(np.array([own.max(initial=-np.inf)]), **ONE)[0]
    mine = [-token for token, one in zip(cut.of(tp.rank), own, strict=True) if one == best]
    return -int(tp.all_reduce_max(np.array([max(mine, default=-cut.size)]), **ONE)[0])


@pytest.mark.parametrize("answer, words", [
    (two_maxima, "the choice is right, with 2 sync points where one is enough"),
    (local_id, "not in a shard"), (gathers_all, "56 bytes are sent for 7 logits"), (last_of_a_tie, "lowest id wins"),
    (no_empty_shard, "the last one holds none"), (lambda tp, own, cut: True, "a whole number")])
def test_winners(answer, words):
    verdict = judged("5.3", answer)
    assert verdict.passed is False and words in verdict.words
