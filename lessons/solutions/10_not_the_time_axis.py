"""Answers to the exercises of lesson 10. Try them first: the checker's words are half of the lesson."""
import numpy as np

import minitp


def attend_to_parts(tp, q, k, v):
    scores = q @ k.T                                                            # (h, S)
    largest = tp.all_reduce_max(scores.max(-1, keepdims=True), site="attention.max", reason="the largest of all scores")
    weights = np.exp(scores - largest)
    parts = np.concatenate([weights.sum(-1, keepdims=True), weights @ v], axis=-1)              # (h, 1 + E)
    parts = tp.all_reduce(minitp.Partial(parts, tp), site="attention.merge", reason="add the parts' sums and values")
    return parts[:, 1:] / parts[:, :1]


SOLUTIONS = {"10.1": 30 * 2 * 3 * 64 * 1000 * 4, "10.2": 30 * 2 * 576 * 1000 * 4, "10.3": attend_to_parts}
