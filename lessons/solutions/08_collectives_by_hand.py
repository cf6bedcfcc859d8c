"""Answers to the exercises of lesson 08. Try them first: the checker's words are half of the lesson."""
import numpy as np

WHY = {"site": "by hand", "reason": "one message of a collective"}


def ring_all_gather(tp, piece, cut):
    p, whole = tp.size, np.empty(cut.size, piece.dtype)
    mine = cut.of(tp.rank)
    whole[mine.start:mine.stop] = piece
    for step in range(p - 1):
        coming = cut.of((tp.rank - step - 1) % p)
        piece = tp.exchange(piece, to=(tp.rank + 1) % p, shape=(len(coming),), dtype=piece.dtype,
                            source=(tp.rank - 1) % p, **WHY)
        whole[coming.start:coming.stop] = piece
    return whole


def tree_broadcast(tp, array, shape):
    distance = 1
    while distance < tp.size and not tp.rank & distance:
        distance *= 2
    if tp.rank:
        array = tp.receive(shape=shape, dtype=np.float64, source=tp.rank - distance, **WHY)
    while distance > 1:
        distance //= 2
        if tp.rank + distance < tp.size:
            tp.send(array, to=tp.rank + distance, **WHY)
    return array


SOLUTIONS = {"8.1": 2 * (8 - 1), "8.2": 2 * (8 - 1) * 16_384 // 8, "8.3": ring_all_gather, "8.4": tree_broadcast}
