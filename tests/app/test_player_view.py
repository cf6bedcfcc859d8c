"""What the player shows, in a real browser: words, numbers, strangers' text, colors, widths, links, pictures."""
import copy
from urllib.parse import urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest

from minitp.trace.wording import duration, size
from minitp.view.colors import RANK_HUES
from minitp.view.reading import PlayReader
from minitp.view.text import caption
from tests.app.browser import press, settle, state_of

HOSTILE = ["<img src=x onerror=document.title='run'>", "w" * 200, "\n", "\x07\u202egnp", "<b>bold</b>", " ",
           "[a](javascript:1)"]


def test_captions_are_those_of_the_text(watch, tiny_play):
    reader = PlayReader(tiny_play)
    said = watch(tiny_play).evaluate("Array.from({ length: player.model.n }, (_, k) => [0, 1, 2, 3].map("
                                     "phase => captionOf(player.model, player.model.sync(k), phase)))")
    assert said == [[caption(reader, k, phase) for phase in range(4)] for k in range(reader.n)]


def test_numbers_are_worded_as_in_python(watch, tiny_play):
    draw = np.random.default_rng(0)
    numbers = [0, 1, 999, 1000, 1005, 9999, 10_000, 12_250, 12_350, 999_499, 999_500, 10**6, 2_345_000, 10**9, 10**12,
               10**15, *(10 ** draw.uniform(0, 15, 300)).astype(int).tolist()]
    page = watch(tiny_play)
    assert page.evaluate("numbers => numbers.map(duration)", numbers) == [duration(x) for x in numbers]
    assert page.evaluate("numbers => numbers.map(size)", numbers) == [size(x) for x in numbers]


def test_ranks_have_the_same_hues_as_on_the_other_pages(watch, tiny_play):
    assert watch(tiny_play).evaluate("RANK_HUES") == list(RANK_HUES)


def test_strangers_words_are_shown_as_text(watch, tiny_play):
    play = with_words(tiny_play)
    page = watch(play, width=400)
    for key in ("Home", "End"):
        press(page, key)
    shown = page.locator(".chip.new span").all_text_contents()
    assert shown[0] == "<img src=x onerror=docu…" and "⏎" in shown and "␣" in shown
    assert page.locator(".player img, .player b, .player a").count() == 0
    assert page.title() != "run"
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert len(page.locator(".chip.new").nth(1).get_attribute("title")) == 200


def with_words(play):
    """The play with hostile words as tokens, prompt, sites and reasons."""
    play = copy.deepcopy(play)
    play["prompt"] = HOSTILE[:4]
    play["run"]["title"] = play["run"]["notes"] = HOSTILE
    first = len(play["strings"])
    play["strings"] = play["strings"] + HOSTILE
    texts = [at for at, phase in enumerate(play["passes"]["phase"]) if play["strings"][phase] != "load"]
    for at, word in zip(texts, range(first, first + len(HOSTILE)), strict=False):
        play["passes"]["text"][at] = play["passes"]["input"][at] = word
    play["syncs"]["site"][-1] = play["syncs"]["reason"][-1] = play["syncs"]["before"][-1] = first
    return play


def test_a_play_without_arrays_tour_and_times_is_drawn(watch, tiny_play):
    play = {key: value for key, value in tiny_play.items() if key in ("run", "strings", "shapes", "passes", "syncs")}
    page = watch(play)
    press(page, "Home", "ArrowRight", ".", "x", "End")
    assert page.locator(".beads [data-k]").count() == play["passes"]["count"][-1]


def test_a_play_without_syncs_says_so(watch, tiny_play):
    play = copy.deepcopy(tiny_play) | {"syncs": {"pass": []}, "passes": {}}
    page = watch(play, ready=".player.empty")
    assert "no sync point" in page.text_content(".caption")


CONTRAST = """() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (color, under) => {
    for (const fill of [under, color]) {
      pen.fillStyle = fill;
      pen.fillRect(0, 0, 1, 1);
    }
    return `rgb(${Array.from(pen.getImageData(0, 0, 1, 1).data).slice(0, 3).join(",")})`;
  };
  const light = color => {
    const part = x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = color.match(/\\d+/g).map(x => part(x / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paperOf = node => !node ? "rgb(255,255,255)"
    : over(getComputedStyle(node).backgroundColor, paperOf(node.parentElement));
  const poor = [];
  for (const node of document.querySelectorAll(".player :is(h2, h3, p, button, span, li, .labels text)")) {
    if (!node.textContent.trim() || !node.checkVisibility()) continue;
    const paper = paperOf(node), style = getComputedStyle(node);
    const ink = over(node.tagName === "text" ? style.fill : style.color, paper);
    const [low, high] = [light(ink), light(paper)].sort((a, b) => a - b);
    if ((high + 0.05) / (low + 0.05) < 4.5) poor.push([node.outerHTML.slice(0, 80), ink, paper]);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(watch, tiny_play, scheme):
    page = watch(tiny_play, scheme=scheme)
    assert page.evaluate(CONTRAST) == []
    press(page, "Home")
    page.evaluate("player.act({ type: 'card', index: 0 })")
    settle(page)
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_no_page_scrolls_sideways(watch, tiny_play, width):
    page = watch(tiny_play, width=width)
    for key in ("Home", "ArrowRight", "End"):
        press(page, key)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.is_visible(".lanes") == (width < 1000)                        # under 900 px one lane at a time
    small = page.evaluate("Array.from(document.querySelectorAll('.player button')).filter(b => b.checkVisibility() && "
                          "b.getBoundingClientRect().height < 28 && !b.matches('.chip')).map(b => b.textContent)")
    assert small == []


def test_a_theme_change_restyles(watch, tiny_play):
    page = watch(tiny_play)
    ink = "getComputedStyle(document.querySelector('.scene text')).fill"
    before = page.evaluate(ink)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    settle(page)
    settle(page)
    assert page.evaluate(ink) != before
    assert page.evaluate(CONTRAST) == []


def test_a_copied_link_leads_to_the_same_state(watch, tiny_play):
    page = watch(tiny_play)
    asked = press(page, "ArrowRight", "ArrowRight", "Shift+ArrowRight", ",", "c", "x", "a")
    page.evaluate("navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }")
    page.click("[data-act=link]")
    page.wait_for_function("window.copied")
    link = page.evaluate("copied")
    again = watch(tiny_play, fragment="#" + urlsplit(link).fragment)
    settle(again)
    assert state_of(again) == asked
    assert again.text_content(".caption") == page.text_content(".caption")
    assert again.get_attribute("[data-act=cut]", "aria-pressed") == "false"
    assert again.text_content("[data-act=toggle]") == page.text_content("[data-act=toggle]") == "Activate, then add"


@pytest.mark.parametrize("fragment", ["#token=999999999&sync=7777&phase=9&clock=never", "#token=-1&sync=1e9",
                                      "#sync=<b>", "#%E0%A4%A"])
def test_any_fragment_is_clamped(watch, tiny_play, fragment):
    state = state_of(watch(tiny_play, fragment=fragment))
    assert 0 <= int(state["sync"]) < len(tiny_play["syncs"]["pass"])
    assert state["clock"] == "steps" and 0 <= int(state["phase"]) <= 3


def test_pictures_need_nothing_but_themselves(watch, tiny_play):
    page = watch(tiny_play)
    with page.expect_download() as saved:
        page.click("[data-act=svg]")
    root = ElementTree.parse(saved.value.path()).getroot()
    text = " ".join(root.itertext())
    assert page.text_content(".caption").split()[0] in text and page.text_content(".where") in text
    assert all("var(" not in value for node in root.iter() for value in node.attrib.values())
    with page.expect_download() as saved:
        page.click("[data-act=png]")
    data = saved.value.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 5_000


def test_the_tour_asks_before_it_tells(watch, tiny_play):
    page = watch(tiny_play)
    asking = next(i for i, card in enumerate(tiny_play["tour"]) if card["question"])
    page.click("[data-act=tour]")
    for _ in range(asking):
        page.click("[data-act=card-next]")
    settle(page)
    card = tiny_play["tour"][asking]
    assert state_of(page)["sync"] == str(card["sync"])
    assert not page.is_visible(".tour-reveal")
    page.locator(".choice").nth(card["answer"]).click()
    settle(page)
    assert page.text_content(".tour-reveal") == f"Yes. {card['reveal']}"
    assert press(page, "ArrowRight")["sync"] == str(card["sync"] + 1)          # free play goes on in the same view
    assert page.is_visible(".tour")
    page.click("[data-act=card-leave]")
    settle(page)
    assert not page.is_visible(".tour")


def test_what_was_broken_is_crossed_out(watch, tiny_play):
    play = copy.deepcopy(tiny_play)
    at = play["passes"]["first"][1] + 2
    play["syncs"]["broken"][at] = 1
    page = watch(play)
    assert page.locator(".beads .cross").count() == 1
    page.locator(f".beads [data-k='{at}']").click()
    settle(page)
    press(page, ",")
    assert page.text_content(".caption").startswith("Broken here")
