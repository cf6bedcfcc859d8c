"""Answers to the exercises of lesson 03. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def mlp(tp, x, gate, up, down):
    a = x @ gate.T                                                    # (F_p,)
    h_p = a / (1 + np.exp(-a)) * (x @ up.T)                           # (F_p,) shard
    return tp.all_reduce(minitp.Partial(h_p @ down.T, tp), site="mlp.down", reason="add the ranks' partial MLP output")


SOLUTIONS = {"3.1": 30 * 576 * 4, "3.2": mlp, "3.3": mlp}
