"""What people write before they have it, for the puzzles of the vocabulary; and the words that it should get.

WRONG has results that aren't right, OVER right ones that spend too much, with the part of the budget that is missed.
"""
import numpy as np

import minitp

SAID = {"site": "here", "reason": "try it"}


def total(tp, term):
    return tp.all_reduce(minitp.Partial(np.ascontiguousarray(term), tp), **SAID)


def all_rows(tp, rows, size):
    return tp.all_gather(rows, axis=0, cut=minitp.Cut(size, tp.size), **SAID)


def words_of(tp, columns):
    """How many words the whole vocabulary has."""
    return int(total(tp, np.array([columns]))[0])


# --- arg-max --------------------------------------------------------------------------------------------------------


def best_of_own(tp, logits, start):
    return logits.argmax(-1) + start


def local_column(tp, logits, start):
    return logits.argmax(-1)


def largest_id(tp, logits, start):
    return tp.all_reduce_max(logits.argmax(-1) + start, **SAID)


def equals_added(tp, logits, start):
    largest = tp.all_reduce_max(logits.max(-1), **SAID)
    return total(tp, np.where(logits.max(-1) == largest, logits.argmax(-1) + start, 0))


def later_equal(tp, logits, start):
    largest = tp.all_reduce_max(logits.max(-1), **SAID)
    return tp.all_reduce_max(np.where(logits.max(-1) == largest, logits.argmax(-1) + start, -1), **SAID)


def winning_column(tp, logits, start):
    every = all_rows(tp, logits.max(-1)[None], tp.size)
    columns = all_rows(tp, logits.argmax(-1)[None], tp.size)
    return columns[every.argmax(0), np.arange(len(logits))]


def winning_rank(tp, logits, start):
    return all_rows(tp, logits.max(-1)[None], tp.size).argmax(0)


def largest_logit(tp, logits, start):
    return tp.all_reduce_max(logits.max(-1), **SAID)


def gathered_logits(tp, logits, start):
    V = words_of(tp, logits.shape[1])
    return tp.all_gather(logits, axis=-1, cut=minitp.Cut(V, tp.size), **SAID).argmax(-1)


def pairs_gathered(tp, logits, start):
    """One sync point: every rank's best logit and its id, side by side."""
    best = np.stack([logits.max(-1), logits.argmax(-1) + start])[None]
    values, ids = all_rows(tp, best, tp.size).swapaxes(0, 1)
    return ids[values.argmax(0), np.arange(len(logits))].astype(int)


# --- sharded-loss ---------------------------------------------------------------------------------------------------


def target_of(logits, start, targets):
    mine = (targets >= start) & (targets < start + logits.shape[1])
    return np.where(mine, logits[np.arange(len(targets)), np.where(mine, targets - start, 0)], 0)


def no_maximum(tp, logits, start, targets):
    with np.errstate(over="ignore"):
        return np.log(total(tp, np.exp(logits).sum(-1))) - total(tp, target_of(logits, start, targets))


def own_maximum(tp, logits, start, targets):
    top = logits.max(-1)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    return np.log(sums) + top - total(tp, target_of(logits, start, targets))


def maximum_never_back(tp, logits, start, targets):
    top = tp.all_reduce_max(logits.max(-1), **SAID)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    return np.log(sums) - total(tp, target_of(logits, start, targets))


def only_own_words(tp, logits, start, targets):
    top = logits.max(-1)
    return np.log(np.exp(logits - top[:, None]).sum(-1)) + top - target_of(logits, start, targets)


def target_not_shared(tp, logits, start, targets):
    top = tp.all_reduce_max(logits.max(-1), **SAID)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    return np.log(sums) + top - target_of(logits, start, targets)


def counted_p_times(tp, logits, start, targets):
    V = words_of(tp, logits.shape[1])
    whole = tp.all_gather(logits, axis=-1, cut=minitp.Cut(V, tp.size), **SAID)
    top = whole.max(-1)
    sums = total(tp, np.exp(whole - top[:, None]).sum(-1))
    return np.log(sums) + top - whole[np.arange(len(targets)), targets]


def wrapped_target(tp, logits, start, targets):
    top = tp.all_reduce_max(logits.max(-1), **SAID)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    mine = logits[np.arange(len(targets)), (targets - start) % logits.shape[1]]
    return np.log(sums) + top - total(tp, mine)


def foreign_target(tp, logits, start, targets):
    return logits[np.arange(len(targets)), targets - start]


def mean_loss(tp, logits, start, targets):
    top = tp.all_reduce_max(logits.max(-1), **SAID)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    return float((np.log(sums) + top - total(tp, target_of(logits, start, targets))).mean())


def gathered_loss(tp, logits, start, targets):
    V = words_of(tp, logits.shape[1])
    whole = tp.all_gather(logits, axis=-1, cut=minitp.Cut(V, tp.size), **SAID)
    top = whole.max(-1)
    return np.log(np.exp(whole - top[:, None]).sum(-1)) + top - whole[np.arange(len(targets)), targets]


def a_sum_for_each(tp, logits, start, targets):
    top = tp.all_reduce_max(logits.max(-1), **SAID)
    sums = total(tp, np.exp(logits - top[:, None]).sum(-1))
    return np.log(sums) + top - total(tp, target_of(logits, start, targets))


def triples_gathered(tp, logits, start, targets):
    """One sync point: every rank's largest logit, its sum on that scale, its part of the target's logit."""
    top = logits.max(-1)
    own = np.stack([top, np.exp(logits - top[:, None]).sum(-1), target_of(logits, start, targets)])[None]
    tops, sums, target = all_rows(tp, own, tp.size).swapaxes(0, 1)
    largest = tops.max(0)
    return np.log((sums * np.exp(tops - largest)).sum(0)) + largest - target.sum(0)


# --- tied-table -----------------------------------------------------------------------------------------------------


def looked_up(tp, E_p, start, ids):
    mine = (ids >= start) & (ids < start + len(E_p))
    return np.where(mine[:, None], E_p[np.where(mine, ids - start, 0)], 0), np.flatnonzero(mine)


def head_alone(tp, E_p, start, ids, dlogits):
    return dlogits.T @ total(tp, looked_up(tp, E_p, start, ids)[0])


def embedding_alone(tp, E_p, start, ids, dlogits):
    gradient, (_, mine) = np.zeros_like(E_p), looked_up(tp, E_p, start, ids)
    np.add.at(gradient, ids[mine] - start, total(tp, dlogits @ E_p)[mine])
    return gradient


def last_token_alone(tp, E_p, start, ids, dlogits):
    x_p, mine = looked_up(tp, E_p, start, ids)
    gradient = dlogits.T @ total(tp, x_p)
    gradient[ids[mine] - start] += total(tp, dlogits @ E_p)[mine]
    return gradient


def own_dx(tp, E_p, start, ids, dlogits):
    x_p, mine = looked_up(tp, E_p, start, ids)
    gradient = dlogits.T @ total(tp, x_p)
    np.add.at(gradient, ids[mine] - start, (dlogits @ E_p)[mine])
    return gradient


def own_lookups(tp, E_p, start, ids, dlogits):
    x_p, mine = looked_up(tp, E_p, start, ids)
    gradient = dlogits.T @ x_p
    np.add.at(gradient, ids[mine] - start, total(tp, dlogits @ E_p)[mine])
    return gradient


def whole_dx_summed_again(tp, E_p, start, ids, dlogits):
    x_p, mine = looked_up(tp, E_p, start, ids)
    gradient = dlogits.T @ total(tp, x_p)
    dx = total(tp, total(tp, dlogits @ E_p))
    np.add.at(gradient, ids[mine] - start, dx[mine])
    return gradient


def foreign_rows(tp, E_p, start, ids, dlogits):
    return E_p[ids - start]


def gathered_table(tp, E_p, start, ids, dlogits):
    V = words_of(tp, len(E_p))
    x = all_rows(tp, E_p, V)[ids]
    gradient, (_, mine) = dlogits.T @ x, looked_up(tp, E_p, start, ids)
    np.add.at(gradient, ids[mine] - start, total(tp, dlogits @ E_p)[mine])
    return gradient


def both_at_once(tp, E_p, start, ids, dlogits):
    """One sync point: neither x nor dx waits for the other."""
    x_p, mine = looked_up(tp, E_p, start, ids)
    x, dx = total(tp, np.stack([x_p, dlogits @ E_p]))
    gradient = dlogits.T @ x
    np.add.at(gradient, ids[mine] - start, dx[mine])
    return gradient


WRONG = {
    "arg-max": {
        best_of_own: "the best of its own words", local_column: "columns of each rank's shard",
        largest_id: "the largest of the ids", equals_added: "both ids were added", later_equal: "the larger id won",
        winning_column: "the right rank won", winning_rank: "number of the rank", largest_logit: "the largest logits"},
    "sharded-loss": {
        no_maximum: "every loss is inf", own_maximum: "its own largest logit", maximum_never_back: "never added back",
        only_own_words: "over its own words", target_not_shared: "only the rank that has the target's word",
        counted_p_times: "too large by log", wrapped_target: "added some other word's logit",
        foreign_target: "no column for a target", mean_loss: "the mean over the tokens"},
    "tied-table": {
        head_alone: "head's contribution alone", embedding_alone: "embedding's contribution alone",
        last_token_alone: "comes several times", own_dx: "this rank's term of dx",
        own_lookups: "this rank's own lookups",
        whole_dx_summed_again: "embedding's contribution came in", foreign_rows: "no row for a word"},
}
OVER = {
    "arg-max": {gathered_logits: {"bytes", "memory"}},
    "sharded-loss": {gathered_loss: {"bytes", "memory"}, a_sum_for_each: {"sync points"}},
    "tied-table": {gathered_table: {"sync points", "bytes", "memory"}},
}
WELL = {"arg-max": (pairs_gathered,), "sharded-loss": (triples_gathered,), "tied-table": (both_at_once,)}
"""Other ways that keep to the budget."""
