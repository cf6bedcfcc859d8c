"""The questions of `minitp plan ask`, in the order in which they are listed."""
from minitp.plan.questions.base import Question

QUESTIONS: tuple[Question, ...] = ()
