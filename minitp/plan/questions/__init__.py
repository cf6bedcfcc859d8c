"""The questions of `minitp plan ask`, in the order in which they are listed."""
from minitp.plan.questions import (
    biggest,
    fitting,
    hardware,
    machines,
    networks,
    running,
    runs,
    serving,
    star,
    states,
    training,
)
from minitp.plan.questions.base import Question

QUESTIONS: tuple[Question, ...] = (*fitting.QUESTIONS, *machines.QUESTIONS, *training.QUESTIONS, *biggest.QUESTIONS,
                                   *runs.QUESTIONS, *states.QUESTIONS, *hardware.QUESTIONS, *running.QUESTIONS,
                                   *serving.QUESTIONS, *networks.QUESTIONS, *star.QUESTIONS)


def claims() -> dict[str, tuple[str, ...]]:
    """The source discussion's statements that are met here: id → the questions that meet it, both in order."""
    ids = sorted({claim for question in QUESTIONS for claim in question.claims})
    return {claim: tuple(question.name for question in QUESTIONS if claim in question.claims) for claim in ids}
