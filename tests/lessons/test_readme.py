"""The lessons' README, the cheat sheet and the eight figures: what they say is what is there."""
import re

from PIL import Image

from minitp.commands.lessons import lessons
from minitp.lesson.puzzles import puzzles
from minitp.lesson.puzzles.judge import FULL, RIGHT
from tests import make_cheat_sheet, make_figures
from tests.lessons.notebooks import LESSONS
from tests.make_lessons import README, with_table

TEXT = README.read_text("utf-8")
LESSON = re.compile(r"\d\d|[A-Z]")
NEXT = re.compile(r"\*\*Next:\*\* \[([^\]]+)\]\(([^)]+)\)")


def test_its_table_is_what_the_notebooks_say_of_themselves():
    assert with_table(TEXT) == TEXT
    assert all(lesson.minutes and lesson.question.endswith("?") for lesson in lessons())


def test_its_links_lead_somewhere():
    for file in (README, LESSONS / "figures" / "README.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", file.read_text("utf-8"))
        assert links
        assert not [link for link in links if not (file.parent / link).exists()]


def test_a_lessons_next_link_has_the_title_of_what_it_leads_to():
    followed = [lesson for lesson in lessons() if NEXT.search(lesson.file.with_suffix(".py").read_text("utf-8"))]
    assert len(followed) >= len(lessons()) - 2                 # the last of them may have none
    for lesson in followed:
        said, file = NEXT.search(lesson.file.with_suffix(".py").read_text("utf-8")).groups()
        heading = re.search(r"^# # (.+)$", (LESSONS / file).with_suffix(".py").read_text("utf-8"), re.M)[1]
        title = said.removeprefix("Appendix ")
        assert re.match(re.escape(title) + r"(?!\w)", heading), f"{lesson.file.name}: [{said}], but there {heading!r}"


def test_one_hour_is_about_one():
    wanted = re.search(r"### One hour(.*?)###", TEXT, re.S)[1]
    minutes = [lesson.minutes for lesson in lessons() if f"({lesson.file.name})" in wanted]
    assert len(minutes) == 3 and sum(minutes) <= 105           # with their exercises, which are left out here


def test_the_course_has_every_lesson_and_every_puzzle_once():
    weeks = [line.split(" | ") for line in re.search(r"\| week.*?\n\n", TEXT, re.S)[0].strip().splitlines()[2:]]
    assert sorted(name for week in weeks for name in LESSON.findall(week[1])) == sorted(
        lesson.name.upper() for lesson in lessons() if lesson.name != "puzzles")
    numbers = [int(number) for week in weeks for number in re.findall(r"\d+", week[3])]
    assert sorted(numbers) == list(range(1, len(puzzles()) + 1))
    assert f"of {FULL} points each: {RIGHT} for the right result" in TEXT


def test_the_cheat_sheet_is_as_computed():
    assert make_cheat_sheet.FILE.read_text("utf-8") == make_cheat_sheet.text()


def test_the_figures_are_there_with_their_words():
    told = (LESSONS / "figures" / "README.md").read_text("utf-8")
    assert len(make_figures.FIGURES) == 8 and "Free to reuse" in told
    for number, (name, caption, make) in enumerate(make_figures.FIGURES, 1):
        file = LESSONS / "figures" / f"{number}_{name}.png"
        assert Image.open(file).width >= 1000 and file.stat().st_size < 150_000
        assert f"## {number}. {caption}\n\n![{make().alt}]({file.name})" in told


def test_captions_numbers_are_the_figures():
    captions = {name: caption for name, caption, _ in make_figures.FIGURES}
    assert captions["uneven_heads"].startswith(f"{make_figures.smollm2().heads} heads on {make_figures.RANKS} ranks")
    assert "175B on 64 cards" in captions["memory"] and "It doesn't fit" in make_figures.memory().alt


def test_the_front_page_counts_right():
    front = (LESSONS.parent / "README.md").read_text("utf-8")
    assert len(lessons()) - 1 == 15 and len(puzzles()) == 12 and "[Fifteen lessons and twelve puzzles]" in front
