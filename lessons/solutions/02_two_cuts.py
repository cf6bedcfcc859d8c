"""Answers to the exercises of lesson 02. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def share(W_up, p, rank):
    mine = minitp.Cut(len(W_up), p).of(rank)
    return W_up[mine.start:mine.stop]


def mlp(tp, x, W_up, W_down):
    mine = minitp.Cut(len(x), tp.size).of(tp.rank)
    h_p = minitp.Partial(x[mine.start:mine.stop] @ W_up[:, mine.start:mine.stop].T, tp)
    h = np.maximum(tp.all_reduce(h_p, site="mlp.up", reason="the activation needs the whole sum"), 0)
    rows = minitp.Cut(len(W_down), tp.size)
    held = rows.of(tp.rank)
    return tp.all_gather(h @ W_down[held.start:held.stop].T, axis=0, cut=rows, site="mlp.down",
                         reason="lay y's pieces side by side")


SOLUTIONS = {"2.1": 576 * 4, "2.2": share, "2.3": mlp}
