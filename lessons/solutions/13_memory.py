"""Answers to the exercises of lesson 13. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def total_gradient(tp, pieces):
    running = np.zeros(pieces[0].shape, np.float32)
    for piece in pieces:
        running += piece.astype(np.float32)
    return tp.all_reduce(minitp.Partial(running, tp), site="gradient", reason="add all ranks' gradients")


def zero_1(tp, w, g, m_p):
    cut = minitp.Cut(len(w), tp.size)
    mine = cut.of(tp.rank)
    g_p = tp.reduce_scatter(minitp.Partial(g, tp), axis=0, cut=cut, site="gradient", reason="each keeps its slice")
    m_p = 0.9 * m_p + g_p
    w_p = w[mine.start:mine.stop] - 0.1 * m_p
    return tp.all_gather(w_p, axis=0, cut=cut, site="weights", reason="everybody needs all updated weights"), m_p


SOLUTIONS = {"13.1": 1175.2, "13.2": 15, "13.3": total_gradient, "13.4": zero_1}
