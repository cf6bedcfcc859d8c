"""The questions of `minitp plan ask`, in the order in which they are listed."""
from minitp.plan.questions import fitting, hardware, networks, running, runs, states, training
from minitp.plan.questions.base import Question

QUESTIONS: tuple[Question, ...] = (*fitting.QUESTIONS, *training.QUESTIONS, *runs.QUESTIONS, *states.QUESTIONS,
                                   *hardware.QUESTIONS, *running.QUESTIONS,
                                   *networks.QUESTIONS)
