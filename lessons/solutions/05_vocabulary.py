"""Answers to the exercises of lesson 05. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def lookup(tp, ids, held, rows):
    term = np.zeros((len(ids), held.shape[1]))
    for place, token in enumerate(ids):
        if token in rows:
            term[place] = held[token - rows.start]
    return tp.all_reduce(minitp.Partial(term, tp), site="embedding", reason="one rank has the row, the others add 0")


def winner(tp, own_logits, cut):
    candidate = np.array([[-np.inf, cut.size]])                # of an empty shard: loses to any logit
    if own_logits.size:
        best = int(own_logits.argmax())                        # the first of several: the lowest id
        candidate = np.array([[own_logits[best], cut.of(tp.rank).start + best]])
    every = tp.all_gather(candidate, axis=0, cut=minitp.Cut(tp.size, tp.size), site="sample", plane="sample",
                          reason="each rank's best, as (logit, id)")
    return int(every[every[:, 0].argmax(), 1])


SOLUTIONS = {"5.1": 8 * 128_256 * 4, "5.2": lookup, "5.3": winner}
