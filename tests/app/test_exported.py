"""The file that `minitp watch --html` writes, opened from the disk: it plays, and asks nobody for anything."""
import pytest

from minitp.lesson import pictures
from minitp.trace import Trace
from minitp.view.player.export import to_html
from minitp.view.watch import play
from tests.app.browser import settle, state_of

CANARY = "</script><img src=x onerror=\"document.title='broken out'\">"


@pytest.fixture(scope="module")
def window(chromium):
    context = chromium.new_context(viewport={"width": 1400, "height": 1200})
    yield context
    context.close()


@pytest.fixture
def exported(window, tmp_path):
    """exported(play) → a page with the file; its console must stay clean, and nothing but the file be fetched."""
    page, said, asked = window.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    def opened(made, fragment="", at=""):
        file = tmp_path / "run.html"
        file.write_text(to_html(made, at), "utf-8")
        page.goto(file.as_uri() + fragment)
        page.wait_for_selector(".player[data-state*=token]")
        return page

    yield opened
    page.close()
    assert said == [], said
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


def test_it_plays(exported, tiny_play):
    page = exported(tiny_play)
    before = int(state_of(page)["sync"])
    page.locator(".player").press("4")
    page.locator(".player").press(" ")
    page.wait_for_function("k => Number(/sync=(\\d+)/.exec(document.querySelector('.player').dataset.state)[1]) > k",
                           arg=before)
    assert state_of(page)["playing"] == "1"


def test_a_fragment_is_a_place(exported, tiny_play):
    page = exported(tiny_play, "#token=2&sync=3&phase=1&clock=measured")
    settle(page)
    assert state_of(page) == {"token": "2", "sync": str(tiny_play["passes"]["first"][2] + 3), "phase": "1",
                              "playing": "0", "clock": "measured"}


def test_a_page_can_start_at_a_place_of_its_own(exported, tiny_play):
    page = exported(tiny_play, at="token=2&sync=3&phase=1")
    settle(page)
    assert (state_of(page)["token"], state_of(page)["phase"]) == ("2", "1")
    page = exported(tiny_play, "#token=1&sync=0", at="token=2&sync=3&phase=1")
    settle(page)
    assert state_of(page)["token"] == "1"


def test_a_strangers_words_stay_words(exported, scatter_trace):
    plain = scatter_trace.to_plain()
    plain["run"]["pieces"] = [[CANARY for _ in row] for row in plain["run"]["pieces"]]
    plain["strings"] = [f"{word}{CANARY}" if word.startswith("add ") else word for word in plain["strings"]]
    page = exported(play(Trace.from_plain(plain)))
    assert CANARY[:12] in page.locator(".player").inner_text()
    assert page.locator("img").count() == 0 and page.title() != "broken out"


def test_a_lesson_s_frame_is_as_high_as_its_scene(window, scatter_trace, monkeypatch):
    shown = []
    monkeypatch.setattr(pictures.runs, "in_notebook", lambda: True)
    monkeypatch.setattr(pictures.runs, "display", lambda data, _: shown.append(data["text/html"]))
    pictures.watch(scatter_trace, "four lanes", "token=1&sync=2")
    page = window.new_page()
    page.set_content("<main></main>")
    page.evaluate("html => { document.querySelector('main').innerHTML = html }", shown[0])     # as a notebook does
    page.wait_for_function("""() => {
        const frame = document.querySelector("iframe"), scene = frame.contentDocument?.documentElement;
        return scene?.scrollHeight > 900 && frame.offsetHeight >= scene.scrollHeight; }""")
    page.close()
