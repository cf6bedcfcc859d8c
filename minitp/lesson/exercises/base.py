"""What an exercise is: a judge of answers. Numbers are computed here, too; none is typed."""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minitp.lesson.carry import plain_number


@dataclass(frozen=True)
class Verdict:
    """passed: None for a blank answer. words: what is right or wrong about it, and never only that."""
    passed: bool | None
    words: str


BLANK = Verdict(None, "still blank.")


@dataclass(frozen=True)
class Exercise:
    """judge: an answer → the verdict. It is never None; a function that returns None is BLANK, and no mistake.
    of_code: the answer is a function; judge sees no other."""
    judge: Callable[[Any], Verdict]
    of_code: bool = True


def number(right: Callable[[], float], because: Callable[[float], str], *, hint: str,
           tolerance: float = 0.0) -> Exercise:
    """An exercise whose answer is a number; `tolerance` is relative, for what may be rounded."""
    def judge(answer: Any) -> Verdict:
        wanted, answer = right(), plain_number(answer)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or answer != answer:
            return Verdict(False, f"a number is asked for, this is {answer!r}.")
        if abs(answer - wanted) <= tolerance * abs(wanted):
            return Verdict(True, because(wanted))
        return Verdict(False, f"{answer:,} is too {'high' if answer > wanted else 'low'}. {hint}")
    return Exercise(judge, of_code=False)
