"""A real browser for the tests: the system's Chromium, driven by playwright. Skipped where there is none."""
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from minitp.trace import Trace
from minitp.view.player import assets
from minitp.view.watch import play as play_of
from tests.app.server import serving
from tests.needs import missing

PATIENCE = 120_000                     # ms that a page may take, where the machine is busy
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
INSIDE = """
const player = startStandalone(document.querySelector("main"), JSON.parse(document.getElementById("play").textContent));
Object.assign(window, {%s});
"""
NAMES = ("player", "reduce", "initialState", "timeOf", "placeAt", "moments", "advance", "captionOf", "duration", "size",
         "decodePlay", "passNs", "passName", "RANK_HUES", "createScene", "readTheme", "momentOf", "colorParts")


@contextmanager
def launched() -> Iterator[Any]:
    """The system's Chromium, driven by playwright."""
    if find_spec("playwright") is None:
        missing("playwright: pip install 'minitp[test]'")
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        missing(f"a Chromium on PATH ({', '.join(CHROMIUM)})")
    from playwright.sync_api import sync_playwright
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"],
                                         timeout=PATIENCE)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def _tabs(chromium) -> Iterator["Tabs"]:
    tabs = Tabs(chromium)
    yield tabs
    tabs.close()


class Tabs:
    """Browser tabs that go from test to test: a new one takes longer than most tests. A test finds its tab empty."""

    def __init__(self, browser: Any):
        self.browser = browser
        self.windows: dict[tuple, Any] = {}            # one for each set of settings
        self.free: dict[tuple, Any] = {}

    def take(self, width: int, scheme: str, calm: bool) -> tuple[tuple, Any]:
        """(its settings, a tab)."""
        key = width, scheme, "reduce" if calm else "no-preference"
        if key in self.free:
            return key, self.free.pop(key)
        if key not in self.windows:
            self.windows[key] = self.browser.new_context(viewport={"width": width, "height": 1400})
        page = self.windows[key].new_page()
        page.emulate_media(color_scheme=scheme, reduced_motion=key[2])
        return key, page

    def give_back(self, key: tuple, page: Any) -> None:
        if key in self.free:
            page.close()
            return
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.emulate_media(color_scheme=key[1], reduced_motion=key[2])
        self.free[key] = page

    def close(self) -> None:
        for window in self.windows.values():
            window.close()


@pytest.fixture
def watch(_tabs, tmp_path) -> Iterator[Callable[..., Any]]:
    """watch(play, width=, scheme=, fragment=, calm=, ready=) → a page with the player alone, its console clean.

    The player's functions are names of the window there, for tests that ask what only the script knows.
    """
    pages, said = [], []

    def heard(message: Any) -> None:
        said.append(getattr(message, "text", str(message)))

    def opened(play: dict[str, Any], *, width: int = 1400, scheme: str = "light", fragment: str = "",
               calm: bool = True, ready: str = ".player[data-state*=token]") -> Any:
        file = tmp_path / f"{len(pages)}.html"
        file.write_text(player_page(play), "utf-8")
        key, page = _tabs.take(width, scheme, calm)
        pages.append((key, page))
        page.on("console", heard)
        page.on("pageerror", heard)
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector(ready, timeout=PATIENCE)
        return page

    yield opened
    for key, page in reversed(pages):
        page.remove_listener("console", heard)
        page.remove_listener("pageerror", heard)
        _tabs.give_back(key, page)
    assert said == [], said


# Counts the calls of animation frames by the name of what is called: asked.get("paint") is the player's loop.
COUNT_FRAMES = """() => {
  const ask = window.requestAnimationFrame.bind(window);
  window.asked = new Map();
  window.requestAnimationFrame = what => {
    asked.set(what.name, (asked.get(what.name) || 0) + 1);
    return ask(what);
  };
  window.paintsIn = async count => {
    const before = asked.get("paint") || 0;
    for (let i = 0; i < count; i++) await new Promise(ask);
    return (asked.get("paint") || 0) - before;
  };
}"""


def player_page(play: dict[str, Any]) -> str:
    """The player's files in a page, with its functions in reach."""
    data = json.dumps(play).replace("<", "\\u003c")
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
            f'<meta name="viewport" content="width=device-width">'
            f"<style>{assets.css('standalone')}</style><main>{assets.html()}</main>"
            f'<script type="application/json" id="play">{data}</script>'
            f'<script type="module">{assets.javascript("standalone")}{INSIDE % ", ".join(NAMES)}</script></html>')


def state_of(page: Any) -> dict[str, str]:
    """The player's data-state as a dictionary."""
    return dict(part.split("=") for part in page.get_attribute(".player", "data-state").split(";"))


def press(page: Any, *keys: str) -> dict[str, str]:
    """Keys, each followed by a frame; the state afterwards."""
    page.focus(".player")
    for key in keys:
        page.keyboard.press(key)
    settle(page)
    return state_of(page)


def settle(page: Any) -> None:
    """Two frames: what was asked for is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.fixture(scope="session")
def scatter_trace() -> Trace:
    """A real run of the tiny model on 4 thread ranks, with values, loaded by scatter: every kind of collective."""
    from tests.app.real_runs import tiny_run
    return tiny_run("--load", "scatter", "--embedding", "hidden", ranks=4, tokens=6)


@pytest.fixture(scope="session")
def tiny_play(scatter_trace) -> dict[str, Any]:
    return play_of(scatter_trace)


@pytest.fixture(scope="session")
def served(chromium, tiny_run_file) -> Iterator[str]:
    """The address of the app, one server for all tests, with one run in its folder."""
    with serving(tiny_run_file.parent) as (url, _):
        yield url


@pytest.fixture(scope="session")
def tiny_run_file(scatter_trace, tmp_path_factory) -> Path:
    """The same run as a file, alone in its folder."""
    path = tmp_path_factory.mktemp("runs") / "tiny.json"
    scatter_trace.write(path)
    return path
