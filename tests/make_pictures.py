"""Make the README's pictures: `python -m tests.make_pictures`. They are the bundled tiny run in the exported HTML.

    watch.webp       one token through a layer: attention, MLP, their two sums
    logits.webp      the head of SmolLM2: each rank's best words, and the word that all choose

Playwright's clock stands still between frames, so that every machine makes the same ones.
"""
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from minitp.runs import samples
from minitp.trace import Trace
from minitp.view.player.export import to_html
from minitp.view.watch import play
from tests.app.browser import launched

FOLDER = Path(__file__).parents[1] / "app" / "media"
WIDTH, FRAME_MS, STEP_MS = 1120, 80, 40                    # px; how long a frame is shown; how far the run goes in it
MOST_BYTES = 1_200_000                                     # of all of them


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, launched() as browser:
        runs = {run.name: exported(run.path, Path(folder)) for run in samples()}
        page = opened(browser, runs["tiny-4-ranks"], "token=3&sync=0&phase=3")
        write("watch", [frame for _ in range(2) for frame in (*step(page), *[still(page)] * 12)])
        write("logits", [still(opened(browser, runs["smollm2-3-ranks"], "token=2&sync=61&phase=3"))])
    total = sum(file.stat().st_size for file in FOLDER.iterdir())
    print(f"{total:,} bytes in {FOLDER.name}")
    if total > MOST_BYTES:
        raise SystemExit(f"that is more than {MOST_BYTES:,}: fewer frames, or a smaller picture")


def exported(trace: Path, folder: Path) -> Path:
    file = folder / f"{trace.name}.html"
    file.write_text(to_html(play(Trace.read(trace))), "utf-8")
    return file


def opened(browser: Any, file: Path, place: str) -> Any:
    """The player at a place, its clock under our hand."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    page.clock.install()
    page.goto(f"{file.as_uri()}#{place}")
    page.clock.pause_at(2_000_000_000_000)
    page.clock.run_for(500)
    return page


def step(page: Any) -> list[Image.Image]:
    """The frames from this sync point to the next."""
    frames, before = [], None
    page.locator(".player").press("ArrowRight")
    while len(frames) < 100:
        page.clock.run_for(STEP_MS)
        frame = still(page)
        if before is not None and frame.tobytes() == before.tobytes():
            break
        frames.append(before := frame)
    return frames


def still(page: Any) -> Image.Image:
    return Image.open(BytesIO(page.locator("main").screenshot())).convert("RGB")


def write(name: str, frames: list[Image.Image]) -> None:
    height = max(frame.height for frame in frames)
    same = [padded(frame, height) for frame in frames]
    same[0].save(FOLDER / f"{name}.webp", save_all=len(same) > 1, append_images=same[1:], duration=FRAME_MS, loop=0,
                 quality=60, method=6)


def padded(frame: Image.Image, height: int) -> Image.Image:
    """A frame whose scene is lower, on the page's color."""
    whole = Image.new("RGB", (frame.width, height), frame.getpixel((0, 0)))
    whole.paste(frame)
    return whole


if __name__ == "__main__":
    main()
