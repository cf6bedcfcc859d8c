"""Answers to the exercises of lesson 01. Try them first: the checker's words are half of the lesson."""
import minitp


def mean(tp, x_p, n):
    term = minitp.Partial(x_p.sum(keepdims=True), tp)                 # of an empty slice: 0
    return tp.all_reduce(term, site="mean", reason="add the ranks' terms of the sum") / n


def weighted(tp, a, b):
    return tp.all_reduce(a + 2 * b, site="weighted", reason="add the ranks' terms of a + 2 b")


SOLUTIONS = {"1.1": 3 * 576 * 4, "1.2": mean, "1.3": weighted}
