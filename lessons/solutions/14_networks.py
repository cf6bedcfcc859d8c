"""Answers to the exercises of lesson 14. Try them first: the checker's words are half of the lesson."""
import numpy as np


def two_levels(tp, x):
    def swap(array, other, why):
        return tp.exchange(array, to=other, shape=array.shape, dtype=array.dtype, source=other, site="two_levels",
                           reason=why)

    neighbor, across = tp.rank ^ 1, tp.rank ^ 2
    halves = np.split(x, 2)
    place = tp.rank % 2                                           # which half this rank adds up
    mine = halves[place] + swap(halves[1 - place], neighbor, "add up one half inside the machine")
    mine = mine + swap(mine, across, "add the other machine's sum of this half")
    other = swap(mine, neighbor, "give the neighbor the half it lacks")
    return np.concatenate([mine, other] if place == 0 else [other, mine])


SOLUTIONS = {"14.1": int(5e-6 * 25e9 / 16384) + 1, "14.2": 30 - 5, "14.3": two_levels}
