"""Exercises of lesson 07: uneven cuts, copies of kv heads, ranks that own nothing."""
from collections.abc import Callable
from typing import Any

import numpy as np

import minitp
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.lesson.exercises.checking import on_ranks, sent_too_much
from minitp.plan import catalogue

BIG_RANKS = 16                         # of 7.1
TOKENS, D, E = 2, 5, 2
ITEM = 8                               # bytes of a float64
MODELS = ((9, 3), (8, 4), (8, 1), (6, 6), (28, 4))          # query heads, kv heads
WORLDS = (1, 2, 3, 4, 5, 7, 11)


def _holders() -> float:
    """7.1: how many ranks hold each kv head, on average (here each has as many)."""
    placement = minitp.Placement(catalogue.model("llama-3.1-405b").config, BIG_RANKS)
    return placement.copies(placement.parameter("layers.0.attention.k.weight"))


def _kv_heads(kv_heads: Callable[..., Any]) -> Verdict:
    """7.2: `kv_heads(heads, sharers)` is the cover of a rank's query heads."""
    asked = [(minitp.Cut(heads, ranks).of(rank), heads // kv) for heads, kv in MODELS for ranks in WORLDS
             for rank in range(ranks)] + [(range(4, 4), 3)]               # a cut of one's own may leave out any rank
    try:
        given = [kv_heads(heads, sharers) for heads, sharers in asked]
    except IndexError as error:                                           # heads[0], heads[-1] of an empty range
        return Verdict(False, f"IndexError: {error}. Some ranks have no query heads: their range is empty, and so is "
                              "the answer.")
    if all(one is None for one in given):
        return BLANK
    for (heads, sharers), found in zip(asked, given, strict=True):
        if not isinstance(found, range):
            return Verdict(False, f"a range is asked for, this is {found!r}.")
        wanted = sorted({head // sharers for head in heads})
        if [*found] != wanted:
            return Verdict(False, f"query heads {[*heads]}, {sharers} to a kv head, need kv heads {wanted}, not "
                                  f"{[*found]}. {_hint(heads, len(found) < len(wanted))}")
    return Verdict(True, f"right for {len(MODELS)} models on up to {WORLDS[-1]} ranks, with copies and empty ranks.")


def _hint(heads: range, too_few: bool) -> str:
    if not len(heads):
        return "A rank without query heads needs none."
    if too_few:
        return "The last query head's kv head is needed, too, though it may serve other ranks as well."
    return "Head h uses kv head h // sharers; the rank needs those from its first head's to its last head's."


def _project(project: Callable[..., Any]) -> Verdict:
    """7.3: `project(tp, y, W_o, H)` is the whole output projection, of uneven shares of heads, by one all-reduce."""
    rng = np.random.default_rng(7)
    found = None
    for H, ranks in ((9, 4), (2, 3)):
        y, W_o = rng.normal(size=(TOKENS, H * E)), rng.normal(size=(D, H * E))
        cut = minitp.Cut(H, ranks).times(E)
        wanted = y @ W_o.T

        def fn(tp: minitp.Communicator, y: Any = y, W_o: Any = W_o, H: int = H, cut: minitp.Cut = cut) -> Any:
            own = cut.of(tp.rank)
            return project(tp, y[:, own.start:own.stop].copy(), W_o.copy(), H)
        shares = minitp.Cut(H, ranks).sizes
        found = on_ranks(fn, ranks, f"Here {H} heads of {E} numbers lie on {ranks} ranks: {shares}.")
        if isinstance(found, Verdict):
            return found
        for rank, whole in enumerate(found.results):
            own = cut.of(rank)
            if not isinstance(whole, np.ndarray) or whole.shape != wanted.shape or not np.allclose(whole, wanted):
                term = y[:, own.start:own.stop] @ W_o[:, own.start:own.stop].T
                alone = isinstance(whole, np.ndarray) and whole.shape == term.shape and np.allclose(whole, term)
                return Verdict(False, f"{H} heads on {ranks} ranks: rank {rank} returned "
                                      + ("its own term: it has to be added to the other ranks'." if alone else
                                         "something else. Its heads meet the columns of W_o of the same heads: "
                                         f"Cut(H, p).times(E) gives {[*own]}."))
        if worse := sent_too_much(found, 1, wanted.size * ITEM, "add the terms, and send no heads."):
            return worse
    return Verdict(True, "right, also where a rank has no head at all: its term is zeros, and it takes part.")


EXERCISES = {
    "7.1": number(_holders, lambda ranks: f"{ranks:g} ranks hold each kv head: {BIG_RANKS} ranks have 8 query heads "
                                          "each, and 16 share a kv head. Code that deals kv heads out finds half a "
                                          "head for each rank, and fails.",
                  hint="How many query heads has a rank, and how many of them share a kv head?"),
    "7.2": Exercise(_kv_heads),
    "7.3": Exercise(_project),
}
