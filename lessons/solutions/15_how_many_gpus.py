"""Answers to the exercises of lesson 15. Try them first: the checker's words are half of the lesson."""
import numpy as np


def cards(parameters, bytes_each, card):
    return -(-parameters * bytes_each // card)


def fits(tp, held, card):
    fullest = tp.all_reduce_max(np.array([held]), site="fits", reason="the fullest rank decides")
    return bool(fullest[0] <= card)


SOLUTIONS = {"15.1": cards(529_600_819_200, 2, 141 * 10**9), "15.2": 1.4e12 / (380 * 2048) / 86400, "15.3": cards,
             "15.4": fits}
