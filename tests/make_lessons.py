"""Make the lessons' notebooks from their scripts: `python -m tests.make_lessons [02_two_cuts …]`, all without a name.

A notebook is its script's cells, run from a clean kernel, with what they printed. Pictures that need a browser to draw
them are committed as still ones, so that a hosted viewer shows them; a reader's own run draws the live ones.
"""
import base64
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode
from PIL import Image
from plotly.offline import get_plotlyjs

from minitp.commands.lessons import lessons
from minitp.lesson.pictures import PLAYER, PLOTLY
from tests.app.browser import launched
from tests.lessons.notebooks import LESSONS, executed, scripts

README = LESSONS / "README.md"
WIDTH = 800                                                # px of a still picture
LARGE = 90_000                                             # bytes of one
_DRAW = """async ([figure, width]) => Plotly.toImage(
    {data: figure.data, layout: {...figure.layout, width: width, paper_bgcolor: "white"}},
    {format: "png", width: width, height: figure.layout.height || 450, scale: 1.5})"""


def main(names: list[str]) -> None:
    with launched() as browser:
        for script in scripts():
            if not names or script.stem in names:
                made(script, browser)
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")


def with_table(text: str) -> str:
    """The README's text, its table of lessons by what the notebooks' first cells say."""
    rows = "\n".join(f"| [{lesson.title}]({lesson.file.name}) | {lesson.question} | {lesson.minutes} min |"
                     for lesson in lessons())
    head = "| lesson | the question it answers | time |\n|---|---|---|\n"
    before, _, after = text.partition(head)
    return before + head + rows + "\n\n" + after.partition("\n\n")[2]


def made(script: Path, browser: Any) -> None:
    notebook = executed(jupytext.read(script))
    for number, cell in enumerate(notebook.cells):
        cell.id = sha256(f"{number} {cell.source}".encode()).hexdigest()[:8]
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            still(output, browser)
    notebook.metadata.pop("language_info", None)           # of this machine's Python
    target = LESSONS / f"{script.stem}.ipynb"
    nbformat.write(notebook, target)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


def still(output: NotebookNode, browser: Any) -> None:
    """A picture that is drawn by a browser, drawn."""
    data = output.get("data", {})
    if PLOTLY in data:
        replace(output, plotly_image(data[PLOTLY], browser))
    elif PLAYER in data.get("text/html", ""):
        replace(output, player_image(data["text/html"], browser))


def replace(output: NotebookNode, image: Image.Image) -> None:
    """As it is where that is small; else with few colors, some of which then are mixed ones of two ranks' hues."""
    data = png(image.convert("RGB"))
    if len(data) > LARGE:
        data = png(image.convert("RGB").quantize(128, dither=Image.Dither.NONE))
    alt = output.data["text/plain"]
    output.data = NotebookNode({"image/png": base64.b64encode(data).decode("ascii"), "text/plain": alt})
    output.metadata = NotebookNode({"image/png": NotebookNode({"alt": alt, "width": WIDTH})})


def png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def plotly_image(figure: dict[str, Any], browser: Any) -> Image.Image:
    page = browser.new_page()
    page.add_script_tag(content=get_plotlyjs())
    url = page.evaluate(_DRAW, [figure, WIDTH])
    page.close()
    return Image.open(BytesIO(base64.b64decode(url.partition(",")[2])))


def player_image(frame: str, browser: Any) -> Image.Image:
    """The whole scene, however high."""
    page = browser.new_page(viewport={"width": 1120, "height": 2000}, color_scheme="light")
    page.set_content(f"<body style='margin: 0'>{frame}</body>")
    page.add_style_tag(content="iframe { height: 2000px }")
    scene = page.frame_locator("iframe").locator("main")
    scene.locator(".player").wait_for()
    page.wait_for_timeout(500)
    image = Image.open(BytesIO(scene.screenshot()))
    page.close()
    return image


if __name__ == "__main__":
    main(sys.argv[1:])
