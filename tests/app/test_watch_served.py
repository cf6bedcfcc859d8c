"""Watch in the app: what only a real server and a real browser show together."""
import json
import re

import pytest

from minitp.trace import Trace
from tests.app.browser import COUNT_FRAMES, press, settle, state_of


@pytest.fixture(scope="module")
def address(served, tiny_run_file):
    """The app with one run in its folder."""
    return f"{served}/?run={tiny_run_file.name}"


@pytest.fixture(scope="module")
def window(chromium):
    """One for all tabs: what the app's own page loads is loaded once."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1600})
    yield context
    context.close()


@pytest.fixture
def tab(window, address):
    """tab(query) → a page that shows the player. Its console must stay clean, its messages small."""
    page, said, sizes = window.new_page(), [], []
    page.on("console", lambda message: message.type in ("error", "warning") and said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))

    def opened(query: str = ""):
        page.goto(address + query)
        page.wait_for_selector(".player[data-state*=token]", timeout=60_000)
        return page

    yield opened
    page.close()
    assert said == [], said
    assert max(sizes) <= 2**20


def test_a_click_on_a_bead_tells_what_lies_behind(tab, tiny_play):
    page = tab()
    k = tiny_play["passes"]["first"][2] + 3
    press(page, "Shift+ArrowRight")
    page.locator(f".beads [data-k='{k}']").click()
    page.get_by_text("· layer 1 · attention · sync point 4 of 6").wait_for()
    page.wait_for_url(re.compile(r"token=2&sync=3"))
    assert state_of(page)["sync"] == str(k)
    page.get_by_text(re.compile(r"Called at \S+\.py:\d+")).wait_for()


def choose_another(page, label, choice):
    """Choose in a selectbox, which takes no keys while it unfolds."""
    box = page.get_by_role("combobox", name=label)
    for _ in range(50):
        box.press("ArrowDown")
        page.wait_for_timeout(200)
        if page.get_by_role("option").count():
            break
    page.get_by_role("option", name=choice).click()


def test_a_rerun_keeps_the_place_and_goes_on_playing(tab):
    page = tab()
    before = press(page, "ArrowRight", "ArrowRight", ",", "c", " ")
    page.get_by_text("Break it").click()
    choose_another(page, "Leave out the sum at", "layers.1.mlp.down")         # a whole rerun of the page
    page.locator("code", has_text="--break layers.1.mlp.down").wait_for()
    after = state_of(page)
    assert after["playing"] == "1" and after["clock"] == "measured"
    assert int(after["sync"]) >= int(before["sync"])


def test_an_edited_copy_of_the_open_run_is_what_is_shown(tab, tiny_run_file, tmp_path):
    plain = Trace.read(tiny_run_file).to_plain()
    plain["run"]["pieces"] = [f"edited{i}" for i in range(len(plain["run"]["pieces"]))]      # its id stays
    (tmp_path / tiny_run_file.name).write_text(json.dumps(plain))
    page = tab()
    assert not page.locator(".player", has_text="edited0").count()
    page.locator("input[type=file]").set_input_files(tmp_path / tiny_run_file.name)
    page.wait_for_url(re.compile(r"run=upload-"))
    page.locator(".player", has_text="edited0").wait_for()


def test_leaving_and_coming_back_keeps_the_place_and_one_loop(tab):
    page = tab()
    press(page, "ArrowRight", "ArrowRight", " ")
    page.get_by_role("link", name="Run").first.click()
    page.wait_for_selector(".player", state="detached")
    page.evaluate(COUNT_FRAMES)
    assert page.evaluate("paintsIn(5)") == 0                                   # no loop without a player
    page.get_by_role("link", name="Watch a token").first.click()
    page.wait_for_selector(".player[data-state*=token]")
    assert state_of(page)["phase"] in "0123" and int(state_of(page)["sync"]) > 20
    press(page, " ")
    assert 15 <= page.evaluate("paintsIn(20)") <= 22


def test_an_address_leads_to_its_place_and_is_clamped_with_a_word(tab, tiny_play):
    page = tab("&token=2&sync=1&phase=1&clock=measured")
    settle(page)
    assert state_of(page) == {"token": "2", "sync": str(tiny_play["passes"]["first"][2] + 1), "phase": "1",
                              "playing": "0", "clock": "measured"}
    page = tab("&token=99999&sync=1")
    page.get_by_text("The address asks for a token").wait_for()
