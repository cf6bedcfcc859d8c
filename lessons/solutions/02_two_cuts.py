"""Answers to the exercises of lesson 02. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def share(W_up, p, rank):
    mine = minitp.Cut(len(W_up), p).of(rank)
    return W_up[mine.start:mine.stop]


def mlp(tp, x_p, up, down):
    a = tp.all_reduce(minitp.Partial(x_p @ up.T, tp), site="mlp.up", reason="the activation needs the whole sum")
    mine = minitp.Cut(len(up), tp.size).of(tp.rank)                   # whole → shard: free
    h_p = np.maximum(a[mine.start:mine.stop], 0)
    return tp.all_reduce(minitp.Partial(h_p @ down.T, tp), site="mlp.down", reason="add the ranks' partial sums of y")


SOLUTIONS = {"2.1": 576 * 4, "2.2": share, "2.3": mlp}
