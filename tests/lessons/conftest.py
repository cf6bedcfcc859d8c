"""Fixtures of the lessons' tests."""
import jaxtyping
import pytest

from minitp.launcher import threads
from minitp.lesson.puzzles import judge
from minitp.lesson.puzzles.spent import measured


@pytest.fixture(autouse=True)
def stuck_ranks_are_told_soon(monkeypatch):
    """Many attempts here hang on purpose: what is said then doesn't depend on how long it was waited for."""
    monkeypatch.setattr(threads, "_STUCK", 0.2)


@pytest.fixture(autouse=True)
def no_checks_while_memory_is_measured(monkeypatch):
    """What the checks of shapes remember of every call would count as a rank's. The run before is checked."""
    def unchecked(*args):
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            return measured(*args)
        finally:
            jaxtyping.config.update("jaxtyping_disable", before)

    monkeypatch.setattr(judge, "measured", unchecked)
