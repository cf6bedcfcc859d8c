"""Answers to the exercises of lesson 07. Try them first: the checker's words are half of the lesson."""
import minitp


def kv_heads(heads, sharers):
    first = heads.start // sharers
    return range(first, -(-heads.stop // sharers) if heads else first)


def project(tp, y, W_o, H):
    size = W_o.shape[1] // H
    mine = minitp.Cut(H, tp.size).times(size).of(tp.rank)
    term = y @ W_o[:, mine.start:mine.stop].T                  # zeros where this rank has no head
    return tp.all_reduce(minitp.Partial(term, tp), site="attention.o", reason="add the ranks' heads")


SOLUTIONS = {"7.1": 2, "7.2": kv_heads, "7.3": project}
