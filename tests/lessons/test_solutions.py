"""Every exercise: its solution passes, a blank is called so, and a wrong answer is no pass."""
import re
import runpy

import pytest

from minitp.lesson.exercises import exercises, judged
from tests.lessons.notebooks import LESSONS, scripts

LESSON = re.compile(r"(\d\d|[a-z])_")
SCRIPTS = [script for script in scripts() if LESSON.match(script.stem)]


def solutions(script):
    return runpy.run_path(str(LESSONS / "solutions" / script.name))["SOLUTIONS"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_solutions_pass_and_blanks_do_not(script):
    known = exercises(LESSON.match(script.stem)[1])
    solved = solutions(script)
    assert set(solved) == set(known)
    for number, answer in solved.items():
        verdict = judged(number, answer)
        assert verdict.passed is True, f"{number}: {verdict.words}"
        assert judged(number, None).passed is None
        if callable(answer):
            assert judged(number, lambda *_: None).passed is None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_exercise_is_in_its_lesson_and_blank(script):
    asked = re.findall(r'exercise\("([\w.]+)"', script.read_text("utf-8"))
    assert sorted(asked) == sorted(exercises(LESSON.match(script.stem)[1]))
