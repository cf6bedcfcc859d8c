"""Questions asked once for all tests."""
from functools import cache

from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import Answer, WhatIf, named


@cache
def asked(name: str, **what: object) -> Answer:
    return named(QUESTIONS, name).ask(WhatIf(**what))


def numbers(name: str, **what: object) -> dict[str, float]:
    return asked(name, **what).numbers


def text_of(name: str, **what: object) -> str:
    answer = asked(name, **what)
    return " ".join((answer.short, *answer.paragraphs, *answer.reasoning))
