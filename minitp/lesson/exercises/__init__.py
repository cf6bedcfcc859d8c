"""The exercises at the end of each lesson: `exercise("2.1", answer)` says whether the answer is right, and why not.

Those of lesson 02 are in `lesson_02.py`, of appendix A in `lesson_a.py`: EXERCISES, by number.
"""
from importlib import import_module
from typing import Any

from minitp.errors import ConfigError
from minitp.lesson.attempt import told
from minitp.lesson.exercises.base import BLANK, Exercise, Verdict
from minitp.trace.wording import plain

__all__ = ["Exercise", "Verdict", "exercise", "exercises", "judged"]


def exercise(number: str, answer: Any = None) -> None:
    """Check the answer to an exercise, and print the verdict."""
    verdict = judged(number, answer)
    sign = {None: "·", True: "✓", False: "✗"}[verdict.passed]
    print(f"{sign} Exercise {_plain(number)}: {verdict.words}")


def judged(number: str, answer: Any) -> Verdict:
    """The verdict on an answer; ConfigError where there is no such exercise."""
    number = _plain(number)
    lesson = number.partition(".")[0]
    known = exercises(lesson)
    if number not in known:
        raise ConfigError(f"there is no exercise {number!r}; lesson {lesson} has {', '.join(known)}")
    if answer is None:
        return BLANK
    asked = known[number]
    try:
        if asked.of_code and not callable(answer):
            return Verdict(False, f"a function is asked for, this is {plain(repr(answer), 60)}. Give its name alone, "
                                  "without parentheses or quotes.")
        return asked.judge(answer)
    except (Exception, SystemExit) as error:  # what a reader's code raises is the answer's fault, part of the verdict
        return Verdict(False, told(error))


def exercises(lesson: str) -> dict[str, Exercise]:
    """Those of one lesson ("2", "02" or "A"), by number."""
    name = f"lesson_{int(lesson):02d}" if lesson.isdecimal() else f"lesson_{lesson.lower()}"
    try:
        return import_module(f"{__name__}.{name}").EXERCISES
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise ConfigError(f"there is no lesson {lesson!r} with exercises") from error


def _plain(number: Any) -> str:
    """2.1 and A.1 of what people write: 02.1, a.1."""
    if not isinstance(number, str):
        raise ConfigError(f"the number of an exercise is text, in quotes, as exercise(\"2.1\", …); this is {number!r}")
    return number.strip().upper().lstrip("0")
