"""Answers to the exercises of lesson 06. Try them first: the checker's words are half of the lesson."""
import minitp
from minitp.plan.links import LINKS


def parallel_block(tp, x, attention, mlp):
    both = minitp.Partial(attention(x) + mlp(x), tp)
    return x + tp.all_reduce(both, site="block", reason="add the ranks' partial attention + MLP")


SOLUTIONS = {"6.1": 2 * 126 + 2, "6.2": 10 * (2 * 30 + 2), "6.3": parallel_block,
             "6.4": 8 * LINKS[1].latency_s * LINKS[1].bytes_per_s}
