"""Exercises of lesson 05: the embedding table, and logits that stay shards."""
from collections.abc import Callable
from typing import Any

import numpy as np

import minitp
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import bytes_sent, has_shape, is_near, meetings, met, on_ranks, sent_too_much
from minitp.lesson.runs import run
from minitp.plan import catalogue

RANKS, V, D, BATCH = 3, 7, 4, 8
ITEM = 8                               # bytes of a float64


def _gathered() -> float:
    """5.1: bytes of the gathered logits of a batch, one token of each text."""
    vocab = catalogue.model("llama-3-8b").config.vocab

    def gather(tp: minitp.Communicator) -> None:
        cut = minitp.Cut(vocab, tp.size)
        tp.all_gather(np.zeros((BATCH, 1, len(cut.of(tp.rank))), np.float32), axis=-1, cut=cut, site="head",
                      reason="lay the ranks' logits side by side")
    return run(gather, RANKS, threads=True).payload


def _lookup(lookup: Callable[..., Any]) -> Verdict:
    """5.2: `lookup(tp, ids, held, rows)` gives the whole rows of all ids, by one all-reduce of them."""
    table = np.random.default_rng(5).normal(size=(V, D))
    ids = [V - 1, 0, 3, 3, 2]
    wanted = table[ids]

    def fn(tp: minitp.Communicator) -> Any:
        rows = minitp.Cut(V, tp.size).of(tp.rank)
        return lookup(tp, list(ids), table[rows.start:rows.stop].copy(), rows)
    found = on_ranks(fn, RANKS, "A token's row in `held` is its id minus rows.start, and it is there only if the id "
                                "is in `rows`.")
    if isinstance(found, Verdict):
        return found
    for rank, x in enumerate(found.results):
        rows = minitp.Cut(V, RANKS).of(rank)
        own = np.where([[one in rows] for one in ids], wanted, 0)
        if not has_shape(x, wanted.shape):
            return Verdict(False, f"rank {rank} returned {type(x).__name__} of shape {getattr(x, 'shape', '–')}; all "
                                  f"rows are {wanted.shape}, a NumPy array.")
        if not is_near(x, wanted):
            return Verdict(False, f"rank {rank} returned its own term of the sum: the other ranks' tokens are still "
                                  "zeros. It has to be added up." if is_near(x, own) else
                           f"rank {rank} returned wrong rows for {int((~np.isclose(x, wanted)).any(-1).sum())} of the "
                           f"{len(ids)} tokens. A rank that doesn't hold a token's row must add zeros, else the sum "
                           "holds somebody else's row as well.")
    needed = len(ids) * D * ITEM
    return sent_too_much(found, 1, needed, "what has to travel are the tokens' rows, never the table.") or Verdict(
        True, f"right, with one sync of {needed} bytes. Only one rank knew each row.")


def _winner(winner: Callable[..., Any]) -> Verdict:
    """5.3: `winner(tp, own_logits, cut)` is the id of the largest of all logits, from two numbers a rank."""
    rng = np.random.default_rng(6)
    tie = np.zeros(V)
    tie[[2, 5]] = 1
    for logits, hint in [
            (rng.permutation(V) - float(V), ""), (np.sort(rng.normal(size=V)), ""),
            (tie, "Of equal logits the lowest id wins."),
            (np.array([-2.0, -1.0]), f"Here {RANKS} ranks share {RANKS - 1} tokens: the last one holds none, and must "
                                     "still take part, with a candidate that loses.")]:
        judged = _winner_of(winner, logits, hint)
        if not judged.passed:
            return judged
    return Verdict(True, f"right, also with ties and an empty shard; {RANKS * 2 * ITEM} bytes for any vocabulary.")


def _winner_of(winner: Callable[..., Any], logits: np.ndarray, hint: str) -> Verdict:
    """The verdict on one choice."""
    cut = minitp.Cut(len(logits), RANKS)

    def fn(tp: minitp.Communicator) -> Any:
        own = cut.of(tp.rank)
        return winner(tp, logits[own.start:own.stop].copy(), cut)
    found = on_ranks(fn, RANKS, hint)
    if isinstance(found, Verdict):
        return found
    wanted = int(logits.argmax())
    for rank, token in enumerate(found.results):
        if isinstance(token, bool) or not isinstance(token, int | np.integer):
            return Verdict(False, f"rank {rank} returned {token!r}; a token's id is a whole number.")
        if token != wanted:
            return Verdict(False, f"of {len(logits)} logits in shards of {cut.sizes} rank {rank} chose {token}; the "
                                  f"largest is at {wanted}. An id counts in the whole vocabulary, not in a shard. "
                                  f"{hint}".rstrip())
    sent, most = bytes_sent(found), RANKS * 2 * ITEM
    gather = f"One gather of two numbers a rank, {most} bytes, will do at any size of the vocabulary."
    if sent > most:
        return Verdict(False, f"the choice is right, and {sent} bytes are sent for {len(logits)} logits. {gather}")
    if meetings(found) > 1:
        return Verdict(False, f"the choice is right, with {met(found)} where one is enough. {gather}")
    return Verdict(True, "right.")


EXERCISES = {
    "5.1": number(_gathered, lambda bytes: f"{bytes:,} bytes a pass: {BATCH} texts × V × 4 bytes, at any number of "
                                           "ranks.",
                  hint="Each text has V logits of 4 bytes each for its next token."),
    "5.2": Exercise(_lookup),
    "5.3": Exercise(_winner),
}
