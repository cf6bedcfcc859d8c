"""Answers to the exercises of appendix A. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def sums_of_uneven(tp, arrays, size):
    most = tp.all_reduce_max(np.array([len(arrays)]), site="lists", reason="agree on the longest list")
    sums = []
    for n in range(int(most[0])):
        term = arrays[n] if n < len(arrays) else np.zeros(size)
        sums.append(tp.all_reduce(minitp.Partial(term, tp), site="lists", reason="add the ranks' arrays"))
    return sums


def pass_on(tp, x):
    after, before = (tp.rank + 1) % tp.size, (tp.rank - 1) % tp.size
    return tp.exchange(x, to=after, shape=x.shape, dtype=x.dtype, source=before, site="ring", reason="pass x on")


SOLUTIONS = {"A.1": (4 - 1) * 100 * (0.012 - 0.010), "A.2": sums_of_uneven, "A.3": pass_on}
