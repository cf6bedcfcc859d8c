"""Answers to the exercises of lesson 11. Try them first: the checker's words are half of the lesson."""
import minitp


def linear(tp, x_p, W_p, rows):
    W = tp.all_gather(W_p, axis=0, cut=minitp.Cut(rows, tp.size), site="linear", reason="borrow the others' rows")
    return x_p @ W.T


def weight_gradient(tp, x_p, dy_p):
    term = minitp.Partial(dy_p.T @ x_p, tp)
    return tp.reduce_scatter(term, axis=0, cut=minitp.Cut(dy_p.shape[1], tp.size), site="linear",
                             reason="add the gradients of all ranks' tokens; each keeps its rows")


SOLUTIONS = {"11.1": 3 * 11008 / 2, "11.2": (3 / 4 + 1) * 11008 * 4096 * 2, "11.3": linear, "11.4": weight_gradient}
