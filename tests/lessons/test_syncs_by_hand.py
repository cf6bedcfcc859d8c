"""What lessons 06, 08 and 10 lean on: rounds counted from a trace, and exercises that say what is wrong."""
import numpy as np
import pytest

import minitp
from minitp.comm.algorithms import ALGORITHMS, BuiltCollectives
from minitp.comm.algorithms.schedules import schedule
from minitp.errors import ConfigError
from minitp.lesson import run
from minitp.lesson.exercises import judged
from minitp.lesson.hops import hops
from minitp.plan.network.collectives import cost

WHY = {"site": "test", "reason": "one message"}


def told(fn, ranks):
    return hops(run(fn, ranks, threads=True).trace)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_rounds_and_messages_are_those_of_the_schedule(algorithm, ranks):
    found = told(lambda tp: BuiltCollectives(tp, algorithm).all_reduce(minitp.Partial(np.ones(12), tp), **WHY), ranks)
    sends = [sum(hop.to is not None for hop in schedule("all_reduce", algorithm, rank, ranks).hops)
             for rank in range(ranks)]
    assert (found.rounds, found.messages) == (cost("all_reduce", algorithm, ranks).hops, sum(sends))


def test_a_chain_has_as_many_rounds_as_messages_and_pairs_share_one():
    def pair(tp, source, to):
        if tp.rank == source:
            tp.send(np.ones(3), to=to, **WHY)
        if tp.rank == to:
            tp.receive(shape=(3,), dtype=np.float64, source=source, **WHY)

    def chain(tp):
        for source in range(tp.size - 1):
            pair(tp, source, source + 1)

    def pairs(tp):
        pair(tp, 0, 1)
        pair(tp, 2, 3)

    assert told(chain, 4) == (3, 3, (24, 24, 24, 0))
    assert told(pairs, 4) == (1, 2, (24, 0, 24, 0))


def test_collectives_are_no_messages():
    assert told(lambda tp: tp.all_reduce(minitp.Partial(np.ones(2), tp), **WHY), 3) == (0, 0, (0, 0, 0))


def test_messages_count_on_every_plane_and_meet_across_them():
    def crossed(tp):
        if tp.rank == 0:
            tp.send(np.ones(2), to=1, plane="sample", **WHY)
        else:
            tp.receive(shape=(2,), dtype=np.float64, source=0, **WHY)

    assert told(crossed, 2) == (1, 1, (16, 0))


def test_a_message_that_nobody_is_known_to_have_sent_is_no_endless_loop():
    def unseen(tp):
        if tp.rank == 1:
            return tp.receive(shape=(2,), dtype=np.float64, source=0, **WHY)
        with tp.recorder.pause():
            return tp.send(np.ones(2), to=1, **WHY)

    with pytest.raises(ConfigError, match="at test rank 1 received message 0 of rank 0"):
        told(unseen, 2)


# --- wrong answers ----------------------------------------------------------------------------------------------


def summed(tp, array):
    return tp.all_reduce(minitp.Partial(array, tp), **WHY)


def summed_twice(tp, x, attention, mlp):
    return x + summed(tp, attention(x)) + summed(tp, mlp(x))


def each_to_each(tp, x, attention, mlp):
    own = attention(x) + mlp(x)
    for shift in range(1, tp.size):
        x = x + tp.exchange(own, to=(tp.rank + shift) % tp.size, shape=own.shape, dtype=own.dtype,
                            source=(tp.rank - shift) % tp.size, **WHY)
    return x + own


def on_another_plane(tp, x, attention, mlp):
    return x + sum(tp.all_reduce(minitp.Partial(term(x), tp), plane="sample", **WHY) for term in (attention, mlp))


def x_in_the_sum(tp, x, attention, mlp):
    return summed(tp, x + attention(x) + mlp(x))


def not_summed(tp, x, attention, mlp):
    return x + attention(x) + mlp(x)


def without_x(tp, x, attention, mlp):
    return summed(tp, attention(x) + mlp(x))


def lengths_of_its_own(tp, piece, cut):
    return tp.exchange(piece, to=(tp.rank + 1) % tp.size, shape=piece.shape, dtype=piece.dtype,
                       source=(tp.rank - 1) % tp.size, **WHY)


def send_first(tp, piece, cut):
    tp.send(piece, to=(tp.rank + 1) % tp.size, **WHY)
    return tp.receive(shape=piece.shape, dtype=piece.dtype, source=(tp.rank - 1) % tp.size, **WHY)


def gathered(tp, piece, cut):
    return tp.all_gather(piece, axis=0, cut=cut, **WHY)


def by_star(tp, array, shape, plane="data"):
    if tp.rank:
        return tp.receive(shape=shape, dtype=np.float64, source=0, plane=plane, **WHY)
    for other in range(1, tp.size):
        tp.send(array, to=other, plane=plane, **WHY)
    return array


def softmaxed(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def own_part(tp, q, k, v):
    return softmaxed(q @ k.T) @ v


def mean_of_parts(tp, q, k, v):
    return summed(tp, own_part(tp, q, k, v) / tp.size)


def merged(tp, q, k, v, weigh=lambda weights: weights, divide=True, one_for_all=False):
    """Exact, where nothing else is asked."""
    scores = q @ k.T
    largest = tp.all_reduce_max(scores.max(None if one_for_all else -1, keepdims=True), **WHY)
    weights = weigh(np.exp(scores - largest))
    both = summed(tp, np.concatenate([weights @ v, weights.sum(-1, keepdims=True)], axis=-1))
    with np.errstate(invalid="ignore"):                                          # 0 / 0, where one largest is for all
        return both[:, :-1] / both[:, -1:] if divide else both[:, :-1]


def nothing_subtracted(tp, q, k, v):
    with np.errstate(all="ignore"):
        return summed(tp, np.exp(q @ k.T) @ v)


def sums_forgotten(tp, q, k, v):
    return merged(tp, q, k, v, lambda weights: weights / weights.sum(-1, keepdims=True)
                  * weights.max(-1, keepdims=True))


def sums_forgotten_and_no_division(tp, q, k, v):
    return merged(tp, q, k, v, lambda weights: weights / weights.sum(-1, keepdims=True)
                  * weights.max(-1, keepdims=True), divide=False)


def of_the_best_rank(tp, q, k, v):
    scores = q @ k.T
    best = tp.all_reduce_max(scores.max(-1, keepdims=True), **WHY) == scores.max(-1, keepdims=True)
    return summed(tp, np.where(best, own_part(tp, q, k, v), 0))


def of_the_best_token(tp, q, k, v):
    scores = q @ k.T
    best = tp.all_reduce_max(scores.max(-1, keepdims=True), **WHY) == scores.max(-1, keepdims=True)
    return summed(tp, np.where(best, v[scores.argmax(-1)], 0))


def everything_gathered(tp, q, k, v):
    cut = minitp.Cut(8, 3, ends=(3, 4, 8))
    k, v = (tp.all_gather(part, axis=0, cut=cut, **WHY) for part in (k, v))
    return softmaxed(q @ k.T) @ v


@pytest.mark.parametrize("number, answer, words", [
    ("6.1", 126, "too low. A pass has 2L + 2"),
    ("6.2", 60 * 62, "too high. Count passes"),
    ("6.3", summed_twice, "right, with 2 sync points"),
    ("6.3", each_to_each, "right, with 2 meetings (receive, send)"),
    ("6.3", on_another_plane, "right, with 2 meetings (all_reduce)"),
    ("6.3", x_in_the_sum, "x is in the sum 3 times"),
    ("6.3", not_summed, "the other ranks' terms are missing"),
    ("6.3", without_x, "without x, which the block adds them to"),
    ("6.4", 125_000, "too low"),
    ("8.2", 16_384, "too low. Count the chunks"),
    ("8.3", send_first, "`tp.exchange` does both at once"),
    ("8.3", lengths_of_its_own, "how long the part is that comes"),
    ("8.3", gathered, "a collective that is there already"),
    ("8.4", by_star, "3 rounds on 4 ranks, where 2 are enough"),
    ("8.4", lambda tp, array, shape: by_star(tp, array, shape, "sample"), "3 rounds on 4 ranks, where 2 are enough"),
    ("10.1", 30 * 2 * 576 * 4000, "too high. A key and a value"),
    ("10.3", own_part, "nothing was merged"),
    ("10.3", mean_of_parts, "mean of the ranks' outputs"),
    ("10.3", sums_forgotten, "by its largest score alone"),
    ("10.3", sums_forgotten_and_no_division, "by its largest score alone"),
    ("10.3", lambda *given: merged(*given, divide=False), "divide them by the sum of all weights"),
    ("10.3", lambda *given: merged(*given, one_for_all=True), "that a head has on any rank"),
    ("10.3", nothing_subtracted, "aren't finite"),
    ("10.3", of_the_best_rank, "the output of the rank with the largest score"),
    ("10.3", of_the_best_token, "softmax gives every token a weight"),
    ("10.3", everything_gathered, "bytes of payload on 3 ranks"),
])
def test_a_wrong_answer_is_told_why(number, answer, words):
    verdict = judged(number, answer)
    assert verdict.passed is False and words in verdict.words, verdict.words


def test_one_meeting_is_right_on_any_plane_and_counted_in_words():
    def once(tp, x, attention, mlp):
        return x + tp.all_reduce(minitp.Partial(attention(x) + mlp(x), tp), plane="sample", **WHY)

    assert judged("6.3", once).words == "right, with 1 meeting (all_reduce)."
    assert judged("6.3", lambda tp, x, *two: x + summed(tp, sum(one(x) for one in two))).words.endswith("1 sync point.")
    assert judged("10.3", merged).words.startswith("right, with 2 sync points and 112 bytes")
