"""Solutions of the puzzles, each within its budget. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def bias_once(tp, x_p, W_p, b):
    y_p = minitp.Partial(x_p @ W_p.T, tp)
    y = tp.all_reduce(y_p, site="y", reason="add the ranks' terms of y")
    return y + b                                              # y is whole now, so b comes in once


def qkv_cut(tp, x, W_qkv, H):
    E = len(W_qkv) // (3 * H)
    mine = minitp.Cut(H, tp.size).times(E).of(tp.rank)        # the rows of whole heads
    q, k, v = np.split(W_qkv, 3)                              # views: each is cut by itself
    return tuple(x @ W[mine.start:mine.stop].T for W in (q, k, v))


def gate_up_cut(tp, x, W_gu, W_down_p):
    F = len(W_gu) // 2
    mine = minitp.Cut(F, tp.size).of(tp.rank)
    a = x @ W_gu[mine.start:mine.stop].T
    h_p = a / (1 + np.exp(-a)) * (x @ W_gu[F + mine.start:F + mine.stop].T)
    return tp.all_reduce(minitp.Partial(h_p @ W_down_p.T, tp), site="mlp.down", reason="add the ranks' terms of y")


def f_and_g(tp, x, dy, W_up_p, W_down_p):
    h_p = np.maximum(x @ W_up_p.T, 0)                         # f forward: x is whole, nothing is sent
    y = tp.all_reduce(minitp.Partial(h_p @ W_down_p.T, tp), site="mlp.down", reason="g: add the ranks' terms of y")
    dh_p = np.where(h_p > 0, dy @ W_down_p, 0)                # g backward: dy is whole, nothing is sent
    dx = tp.all_reduce(minitp.Partial(dh_p @ W_up_p, tp), site="mlp.up", reason="f: add the ranks' terms of dx")
    return y, dx


def arg_max(tp, logits, start):
    best = logits.argmax(-1)                              # of equals the first, and so the smallest id
    own = np.take_along_axis(logits, best[:, None], -1)[:, 0]
    largest = tp.all_reduce_max(own, site="argmax.largest", reason="the largest logit of all ranks")
    rivals = np.where(own == largest, -(best + start), np.iinfo(best.dtype).min)
    return -tp.all_reduce_max(rivals, site="argmax.id", reason="of the ranks that have it, the smallest id")


def sharded_loss(tp, logits, start, targets):
    largest = tp.all_reduce_max(logits.max(-1), site="loss.max", reason="no exponential may overflow")
    mine = np.flatnonzero((targets >= start) & (targets < start + logits.shape[1]))
    terms = np.zeros((2, len(targets)))
    terms[0] = np.exp(logits - largest[:, None]).sum(-1)
    terms[1, mine] = logits[mine, targets[mine] - start] - largest[mine]
    total, target = tp.all_reduce(minitp.Partial(terms, tp), site="loss.sums",
                                  reason="add the ranks' exponentials; one rank has the target's logit")
    return np.log(total) - target


def tied_table(tp, E_p, start, ids, dlogits):
    mine = np.flatnonzero((ids >= start) & (ids < start + len(E_p)))
    rows = ids[mine] - start
    x_p = np.zeros((len(ids), E_p.shape[1]))
    x_p[mine] = E_p[rows]
    x = tp.all_reduce(minitp.Partial(x_p, tp), site="embedding", reason="one rank has a word's row, the others add 0")
    dx = tp.all_reduce(minitp.Partial(dlogits @ E_p, tp), site="head", reason="add the ranks' partial gradients of x")
    gradient = dlogits.T @ x
    np.add.at(gradient, rows, dx[mine])                   # a word that comes twice gets both
    return gradient


def kv_copies(tp, dk, held):
    mine = held[tp.rank]
    copied = [k for k in range(max(one.stop for one in held)) if sum(k in one for one in held) > 1]
    terms = np.zeros((len(copied), *dk.shape[1:]))
    places = [(slot, k - mine.start) for slot, k in enumerate(copied) if k in mine]
    for slot, row in places:
        terms[slot] = dk[row]
    total = tp.all_reduce(minitp.Partial(terms, tp), site="gradients.copies",
                          reason="a head's copies each saw other query heads")
    for slot, row in places:
        dk[row] = total[slot]
    return dk


def ring_in_chunks(tp, y):
    cut, total = minitp.Cut(len(y), tp.size), y.copy()

    def pass_on(chunk, reason):
        """Send chunk number `chunk` to the right; return the one before it, from the left, and where it belongs."""
        mine, theirs = cut.of(chunk % tp.size), cut.of((chunk - 1) % tp.size)
        came = tp.exchange(total[mine.start:mine.stop], to=(tp.rank + 1) % tp.size, shape=(len(theirs),), dtype=y.dtype,
                           source=(tp.rank - 1) % tp.size, site="ring", reason=reason)
        return slice(theirs.start, theirs.stop), came

    for turn in range(tp.size - 1):
        place, came = pass_on(tp.rank - turn, "add to the chunk that passes")
        total[place] += came
    for turn in range(tp.size - 1):
        place, came = pass_on(tp.rank + 1 - turn, "hand the complete chunk on")
        total[place] = came
    return total


def norm_between(tp, y_p, x_rows, weight, eps):
    cut = minitp.Cut(len(y_p), tp.size)
    x_new = x_rows + tp.reduce_scatter(minitp.Partial(y_p, tp), axis=0, cut=cut, site="attention.leave",
                                       reason="add the ranks' terms, keep own rows")
    h_rows = x_new / np.sqrt((x_new * x_new).mean(-1, keepdims=True) + eps) * weight
    return x_new, tp.all_gather(h_rows, axis=0, cut=cut, site="mlp.enter", reason="the column cut needs every row")


def global_norm(tp, gradients, holders):
    own = sum(np.vdot(one, one) / len(holders[name]) for name, one in gradients.items())
    total = tp.all_reduce(minitp.Partial(np.array(own), tp), site="gradients.norm", reason="each number's square, once")
    return float(total) ** 0.5


def few_heads(tp, x, Wq, Wk, Wv, Wo, head_size):
    y_p, seen = np.zeros_like(x), np.tri(len(x), dtype=bool)
    for start in range(0, len(Wq), head_size):            # no round at all on a rank without heads
        own = slice(start, start + head_size)
        scores = np.where(seen, x @ Wq[own].T @ (x @ Wk.T).T / head_size ** 0.5, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        y_p += weights @ (x @ Wv.T) @ Wo[:, own].T
    return tp.all_reduce(minitp.Partial(y_p, tp), site="attention.o", reason="add the heads' projections")


SOLUTIONS = {fn.__name__.replace("_", "-"): fn for fn in (
    bias_once, qkv_cut, gate_up_cut, f_and_g, arg_max, sharded_loss, tied_table, kv_copies, ring_in_chunks,
    norm_between, global_norm, few_heads)}
