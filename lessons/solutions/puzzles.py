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


SOLUTIONS = {"bias-once": bias_once, "qkv-cut": qkv_cut, "gate-up-cut": gate_up_cut, "f-and-g": f_and_g}
