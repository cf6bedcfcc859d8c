"""Exercises of lesson 15: how many GPUs."""
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.lesson.attempt import attempt
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict, number
from minitp.plan import catalogue
from minitp.plan.questions.parts import cards, weights_of
from minitp.plan.speed.flops import DAY

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

CASES = ((176_247_271_424, 2, 80 * 10**9), (10**9, 2, 2 * 10**9), (10**9 + 1, 2, 2 * 10**9), (3, 2, 10**12),
         (10**17 + 1, 16, 10**6))
"""parameters, bytes each, a card's bytes: a usual one, just full, one parameter more, far too small, beyond floats."""
HELD = (700, 512, 611)                 # bytes of three ranks: uneven, as real cuts are
CARDS = (699, 700, 608, 10_000)        # too small by one byte, just enough, the mean, large


def _by_bytes() -> float:
    """15.1: cards by bytes and name."""
    return cards(weights_of(catalogue.model("mt-nlg-530b"), "bf16"), catalogue.device("h200")).nominal


def _days() -> float:
    """15.2: tokens over tokens a second."""
    run = catalogue.run("llama-65b")
    return run.training.tokens / (run.published["tokens_per_s_gpu"] * run.machine.devices) / DAY


def _cards(count: Any) -> Verdict:
    """15.3: parameters · bytes over a card's, rounded up, in whole numbers."""
    found = [count(*case) for case in CASES]
    if all(one is None for one in found):
        return BLANK
    for (parameters, each, card), got in zip(CASES, found, strict=True):
        right = -(-parameters * each // card)
        if got != right or isinstance(got, float):
            return Verdict(False, f"{parameters:,} parameters of {each} bytes on cards of {card:,} take {right:,}, not "
                                  f"{got!r}. {_hint(parameters * each, card, got)}")
    return Verdict(True, "right, also where a card is just full, and where a float has too few digits.")


def _hint(size: int, card: int, got: Any) -> str:
    if size < 2**53 and got == size // card:
        return "What is left over needs a card as well: round up."
    if got == size // card + 1:
        return "Where it fits exactly no further card is needed."
    return "Divide the bytes by a card's, all in whole numbers, and round up: -(-a // b) does it without a float."


def _fits(judge: Any) -> Verdict:
    """15.4: the same verdict on every rank, by what the fullest holds, with one collective."""
    payload = 0
    for card in CARDS:
        tried = attempt(partial(_asked, judge, card), len(HELD))
        if tried.blank:
            return BLANK
        if tried.run is None:
            return Verdict(False, tried.error)
        got, right = tried.run.results, max(HELD) <= card
        if any(not isinstance(one, bool | np.bool_ | int) for one in got):
            return Verdict(False, f"the ranks returned {got}: True or False is asked for, no array or word.")
        if any(bool(one) != right for one in got):
            return Verdict(False, _wrong(card, [bool(one) for one in got], right))
        if tried.run.sync_points != 1:
            return Verdict(False, f"right, with {tried.run.sync_points} sync points where one does.")
        payload = tried.run.payload
    return Verdict(True, f"right: the fullest rank decides, and one sync point of {payload} bytes tells all.")


def _asked(judge: Any, card: int, tp: "Communicator") -> Any:
    return judge(tp, HELD[tp.rank], card)


def _wrong(card: int, got: list[bool], right: bool) -> str:
    told = (f"the ranks hold {', '.join(map(str, HELD))} bytes, a card has {card}: {right} on every rank; you have "
            f"{got}.")
    if got == [held <= card for held in HELD]:
        return told + " Each rank answers for itself. All must know what the fullest holds, or they part ways."
    if all(one == (sum(HELD) <= card) for one in got):
        return told + " The sum over all ranks must not fit one card: each rank has a card of its own."
    if all(one == (sum(HELD) <= card * len(HELD)) for one in got):
        return told + " The mean fits, the fullest rank doesn't: cuts are uneven, and a card can't lend its room."
    return told


EXERCISES = {
    "15.1": number(_by_bytes, lambda n: f"{n} cards, before any cache or reserve.",
                   hint="Two bytes a parameter, over a card's bytes, rounded up."),
    "15.2": number(_days, lambda days: f"{days:.1f} days; its authors say about "
                                       f"{catalogue.run('llama-65b').published['days']:g}.",
                   hint="Tokens over tokens a second of all cards together; a day has 86,400 seconds.", tolerance=0.02),
    "15.3": Exercise(_cards),
    "15.4": Exercise(_fits),
}
