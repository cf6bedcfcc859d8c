"""What people write before they have it, for the puzzles of sums, messages and heads; and the words it should get.

WRONG, OVER and WELL as in `attempts_on_vocabulary`.
"""
import numpy as np

import minitp
from tests.lessons.attempts_on_vocabulary import SAID, all_rows, total

# --- kv-copies ------------------------------------------------------------------------------------------------------


def on_places(dk, mine, heads):
    buffer = np.zeros((heads, *dk.shape[1:]))
    buffer[mine.start:mine.stop] = dk
    return buffer


def heads_in(held):
    return max(own.stop for own in held)


def copies_left_apart(tp, dk, held):
    return dk


def mean_of_copies(tp, dk, held):
    mine, copies = held[tp.rank], np.array([sum(k in own for own in held) for k in range(heads_in(held))])
    return (total(tp, on_places(dk, mine, heads_in(held))) / copies[:, None, None])[mine.start:mine.stop]


def sum_added_to_own(tp, dk, held):
    mine = held[tp.rank]
    return dk + total(tp, on_places(dk, mine, heads_in(held)))[mine.start:mine.stop]


def by_place_in_dk(tp, dk, held):
    slots = max(map(len, held))
    return total(tp, on_places(dk, range(len(dk)), slots))[:len(dk)]


def own_shapes(tp, dk, held):
    return total(tp, dk)


def every_head_summed(tp, dk, held):
    mine = held[tp.rank]
    return total(tp, on_places(dk, mine, heads_in(held)))[mine.start:mine.stop]


# --- ring-in-chunks -------------------------------------------------------------------------------------------------


def around(tp, mine, size):
    return tp.exchange(mine, to=(tp.rank + 1) % tp.size, shape=(size,), dtype=float, source=(tp.rank - 1) % tp.size,
                       **SAID)


def sums_alone(tp, y):
    cut, y = minitp.Cut(len(y), tp.size), y.copy()
    for turn in range(tp.size - 1):
        mine, theirs = cut.of((tp.rank - turn) % tp.size), cut.of((tp.rank - turn - 1) % tp.size)
        y[theirs.start:theirs.stop] += around(tp, y[mine.start:mine.stop], len(theirs))
    return y


def one_neighbor(tp, y):
    return y + around(tp, y, len(y))


def whole_arrays(tp, y):
    passed, result = y, y.copy()
    for _ in range(tp.size - 1):
        passed = around(tp, passed, len(y))
        result += passed
    return result


def other_way_around(tp, y):
    """To the left, and beginning with another chunk."""
    cut, y, left, right = minitp.Cut(len(y), tp.size), y.copy(), (tp.rank - 1) % tp.size, (tp.rank + 1) % tp.size
    for turn in range(2 * (tp.size - 1)):
        mine, theirs = cut.of((tp.rank + turn + 2) % tp.size), cut.of((tp.rank + turn + 3) % tp.size)
        came = tp.exchange(y[mine.start:mine.stop], to=left, shape=(len(theirs),), dtype=float, source=right, **SAID)
        y[theirs.start:theirs.stop] = came + (y[theirs.start:theirs.stop] if turn < tp.size - 1 else 0)
    return y


def by_collective(tp, y):
    return total(tp, y)


def everybody_receives(tp, y):
    return y + tp.receive(shape=y.shape, dtype=y.dtype, source=(tp.rank - 1) % tp.size, **SAID)


def equal_chunks(tp, y):
    n = len(y) // tp.size
    for turn in range(tp.size - 1):
        mine, theirs = (tp.rank - turn) % tp.size, (tp.rank - turn - 1) % tp.size
        y[theirs * n:theirs * n + n] += around(tp, y[mine * n:mine * n + n], n)
    for turn in range(tp.size - 1):
        mine, theirs = (tp.rank + 1 - turn) % tp.size, (tp.rank - turn) % tp.size
        y[theirs * n:theirs * n + n] = around(tp, y[mine * n:mine * n + n], n)
    return y


# --- norm-between ---------------------------------------------------------------------------------------------------


def normed(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def own_rows_of_sum(tp, y_p):
    return tp.reduce_scatter(minitp.Partial(y_p, tp), axis=0, cut=minitp.Cut(len(y_p), tp.size), **SAID)


def own_term_sliced(tp, y_p, x_rows, weight, eps):
    mine = minitp.Cut(len(y_p), tp.size).of(tp.rank)
    x_new = x_rows + y_p[mine.start:mine.stop]
    return x_new, all_rows(tp, normed(x_new, weight, eps), len(y_p))


def rows_for_h(tp, y_p, x_rows, weight, eps):
    x_new = x_rows + own_rows_of_sum(tp, y_p)
    return x_new, normed(x_new, weight, eps)


def residual_left_out(tp, y_p, x_rows, weight, eps):
    x_new = own_rows_of_sum(tp, y_p)
    return x_new, all_rows(tp, normed(x_new, weight, eps), len(y_p))


def norm_over_tokens(tp, y_p, x_rows, weight, eps):
    x_new = x_rows + own_rows_of_sum(tp, y_p)
    return x_new, all_rows(tp, x_new / np.sqrt((x_new * x_new).mean(0) + eps) * weight, len(y_p))


def not_normed(tp, y_p, x_rows, weight, eps):
    x_new = x_rows + own_rows_of_sum(tp, y_p)
    return x_new, all_rows(tp, x_new, len(y_p))


def stream_whole(tp, y_p, x_rows, weight, eps):
    x_new = all_rows(tp, x_rows + own_rows_of_sum(tp, y_p), len(y_p))
    return x_new, normed(x_new, weight, eps)


def all_reduce_and_gather(tp, y_p, x_rows, weight, eps):
    mine = minitp.Cut(len(y_p), tp.size).of(tp.rank)
    x_new = x_rows + total(tp, y_p)[mine.start:mine.stop]
    return x_new, all_rows(tp, normed(x_new, weight, eps), len(y_p))


def norm_of_all_rows(tp, y_p, x_rows, weight, eps):
    x_new = x_rows + own_rows_of_sum(tp, y_p)
    return x_new, normed(all_rows(tp, x_new, len(y_p)), weight, eps)


# --- global-norm ----------------------------------------------------------------------------------------------------


def squares(gradients):
    return {name: float((one ** 2).sum()) for name, one in gradients.items()}


def root_of_sum(tp, number):
    return float(total(tp, np.array([number]))[0]) ** 0.5


def all_that_i_have(tp, gradients, holders):
    return root_of_sum(tp, sum(squares(gradients).values()))


def copies_twice(tp, gradients, holders):
    own = squares(gradients)
    return root_of_sum(tp, sum(own[name] / (tp.size if len(holders[name]) == tp.size else 1) for name in own))


def shards_alone(tp, gradients, holders):
    own = squares(gradients)
    return root_of_sum(tp, sum(own[name] for name in own if len(holders[name]) == 1))


def norms_added(tp, gradients, holders):
    return float(total(tp, np.array([sum(squares(gradients).values()) ** 0.5]))[0])


def no_root(tp, gradients, holders):
    own = squares(gradients)
    return root_of_sum(tp, sum(own[name] / len(holders[name]) for name in own)) ** 2


def not_summed(tp, gradients, holders):
    own = squares(gradients)
    return sum(own[name] / len(holders[name]) for name in own) ** 0.5


def one_sum_each(tp, gradients, holders):
    own = squares(gradients)
    return sum(root_of_sum(tp, own.get(name, 0) / len(holders.get(name, "1"))) ** 2
               for name in ("mlp.down.weight", "norm.weight", "attention.k.weight")) ** 0.5


def first_holder_counts(tp, gradients, holders):
    own = squares(gradients)
    return root_of_sum(tp, sum(own[name] for name in own if holders[name][0] == tp.rank))


# --- few-heads ------------------------------------------------------------------------------------------------------


def term_of_heads(x, Wq, Wk, Wv, Wo, E, scale, causal=True):
    y_p = np.zeros_like(x)
    for start in range(0, len(Wq), E):
        scores = x @ Wq[start:start + E].T @ (x @ Wk.T).T * scale
        weights = np.exp(np.where(np.tri(len(x)), scores, -np.inf) if causal else scores)
        y_p += weights / weights.sum(-1, keepdims=True) @ (x @ Wv.T) @ Wo[:, start:start + E].T
    return y_p


def root_of_hidden(tp, x, Wq, Wk, Wv, Wo, head_size):
    return total(tp, term_of_heads(x, Wq, Wk, Wv, Wo, head_size, x.shape[1] ** -0.5))


def not_scaled(tp, x, Wq, Wk, Wv, Wo, head_size):
    return total(tp, term_of_heads(x, Wq, Wk, Wv, Wo, head_size, 1))


def sees_the_future(tp, x, Wq, Wk, Wv, Wo, head_size):
    return total(tp, term_of_heads(x, Wq, Wk, Wv, Wo, head_size, head_size ** -0.5, causal=False))


def own_heads(tp, x, Wq, Wk, Wv, Wo, head_size):
    return term_of_heads(x, Wq, Wk, Wv, Wo, head_size, head_size ** -0.5)


def mean_over_ranks(tp, x, Wq, Wk, Wv, Wo, head_size):
    return total(tp, own_heads(tp, x, Wq, Wk, Wv, Wo, head_size)) / tp.size


def stays_away(tp, x, Wq, Wk, Wv, Wo, head_size):
    return total(tp, own_heads(tp, x, Wq, Wk, Wv, Wo, head_size)) if len(Wq) else np.zeros_like(x)


def unknown_size(tp, x, Wq, Wk, Wv, Wo, head_size):
    q = (x @ Wq.T).reshape(len(x), len(Wq) // head_size, -1)
    return total(tp, q)


def largest_of_nothing(tp, x, Wq, Wk, Wv, Wo, head_size):
    scores = (x @ Wq.T).reshape(len(x), len(Wq) // head_size, head_size)
    return total(tp, scores - scores.max())


def a_sum_for_each_head(tp, x, Wq, Wk, Wv, Wo, head_size):
    heads = [np.zeros_like(x) for _ in range(3)]
    for start in range(0, len(Wq), head_size):
        own = slice(start, start + head_size)
        heads[start // head_size] = term_of_heads(x, Wq[own], Wk, Wv, Wo[:, own], head_size, head_size ** -0.5)
    return sum(total(tp, head) for head in heads)


WRONG = {
    "kv-copies": {
        copies_left_apart: "would drift apart", mean_of_copies: "not estimates of one mean",
        sum_added_to_own: "in it twice", by_place_in_dk: "by their place in `dk`",
        own_shapes: "different numbers of heads"},
    "ring-in-chunks": {
        sums_alone: "after the first way around", one_neighbor: "added one neighbor's term",
        everybody_receives: "send and receive in the same round", equal_chunks: "numbers are still the rank's own"},
    "norm-between": {
        own_term_sliced: "its own term of y", rows_for_h: "h is asked for whole",
        residual_left_out: "residual x is missing", norm_over_tokens: "A norm over tokens",
        not_normed: "h is x_new itself", stream_whole: "both are whole"},
    "global-norm": {
        all_that_i_have: "times too large: every rank counted all",
        copies_twice: "the head that two ranks hold came in twice",
        shards_alone: "only what one rank alone holds", norms_added: "Lengths don't add", no_root: "its root",
        not_summed: "its own part of the norm"},
    "few-heads": {
        root_of_hidden: "divided by √D", not_scaled: "not divided by √E", sees_the_future: "Token t sees tokens 0…t",
        own_heads: "its own term of y", mean_over_ranks: "the mean over the ranks", stays_away: "owes the sum its term",
        unknown_size: "Write all sizes out", largest_of_nothing: "no largest of no numbers"},
}
OVER = {
    "kv-copies": {every_head_summed: {"bytes", "memory"}},
    "ring-in-chunks": {whole_arrays: {"bytes", "memory"}, by_collective: {"sync points", "bytes"}},
    "norm-between": {all_reduce_and_gather: {"bytes"}, norm_of_all_rows: {"memory"}},
    "global-norm": {one_sum_each: {"sync points", "bytes"}},
    "few-heads": {a_sum_for_each_head: {"sync points", "bytes"}},
}
WELL = {"ring-in-chunks": (other_way_around,), "global-norm": (first_holder_counts,)}
