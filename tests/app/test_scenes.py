"""The drawing of each sync, in a real browser: without errors, inside its frame, a pure function of the state, true."""
import re
from itertools import pairwise

import pytest

from minitp.view.player import assets
from minitp.view.watch import play as play_of
from tests.app.real_runs import tiny_run

PREPARE = """() => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  document.body.append(svg);
  const root = document.querySelector(".player"), heard = [];
  const host = { theme: readTheme(root), hover: what => heard.push(["hover", what]), pin: what => heard.push(["pin", what]), open() {} };
  const scene = createScene(svg, player.model, host);
  const state = (more) => ({ sync: 0, phase: 3, t: 1, clock: "steps", speed: 1, playing: false, cut: 1, toggle: "after", pinned: null,
    lane: 0, card: null, hover: null, focus: "", ...more });
  Object.assign(window, { svg, scene, state, heard, model: player.model });
}"""
ALL_STATES = """width => {
  const wrong = [], seen = new Set(), all = [{ phase: 0, t: 0.5 }, { phase: 1, t: 0.6, clock: "measured" }, { phase: 2, t: 0.5 }, {},
    { cut: 0.4 }, { toggle: "before" }, { pinned: { kind: "term", rank: 0, index: 2 } }, { lane: model.ranks - 1 }];
  for (let k = 0; k < model.n; k++) {
    const kind = [model.sync(k).op, model.sync(k).part, model.sync(k).after].join(), first = !seen.has(kind);
    seen.add(kind);
    for (const more of first ? all : [{ phase: k % 4 }]) {
      const height = scene.draw(state({ sync: k, ...more }), width), words = scene.describe(state({ sync: k, ...more }));
      const drawn = first ? svg.outerHTML.replace(/"data:[^"]*"/g, "") : "";
      if (!(height > 0) || height % 8 || !words || /NaN|undefined|null/.test(drawn + words)) wrong.push([k, more, height, words]);
    }
  }
  return wrong;
}"""
OUTSIDE = """width => {
  const wrong = [], seen = new Set();
  for (let k = 0; k < model.n; k++) {
    const sync = model.sync(k), kind = [sync.op, sync.part, sync.shape.length].join();
    if (seen.has(kind)) continue;
    seen.add(kind);
    for (const more of [{ phase: 1, t: 0.55 }, { phase: 3 }, { cut: 0 }, { toggle: "before" }]) {
      const height = scene.draw(state({ sync: k, ...more }), width), frame = svg.getBoundingClientRect();
      for (const text of svg.querySelectorAll("text")) {
        const box = text.getBoundingClientRect();
        if (box.width && (box.left < frame.left - 0.5 || box.right > frame.left + width + 0.5 || box.top < frame.top - 0.5
            || box.bottom > frame.top + height + 0.5)) wrong.push([k, text.textContent, box.left - frame.left, box.right - frame.left]);
        if (Number(text.getAttribute("font-size")) < 11) wrong.push([k, text.textContent, "too small"]);
      }
    }
  }
  return wrong;
}"""


@pytest.fixture
def drawn(watch):
    """drawn(play, **more) → a page with `scene`, `svg` and `state(more)` as names of the window."""
    def opened(play, **more):
        page = watch(play, **more)
        page.evaluate(PREPARE)
        return page
    return opened


def test_top_level_names_are_unique():
    """All scripts share one scope: a name declared twice stops the whole player."""
    names = []
    for line in assets.javascript("standalone").splitlines():
        if found := re.match(r"(?:export )?(?:async )?(?:function\*?|class) (\w+)", line):
            names.append(found[1])
        elif re.match(r"(?:const|let) ", line):
            names += re.findall(r"(?:^(?:const|let) |, )(\w+) = (?![^(]*\) =>.*, \1)", line)
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_every_sync_is_drawn_in_every_phase(drawn, tiny_play, width):
    assert drawn(tiny_play).evaluate(ALL_STATES, width) == []


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_texts_lie_inside_the_picture(drawn, tiny_play, width):
    assert drawn(tiny_play).evaluate(OUTSIDE, width) == []


@pytest.mark.parametrize(("ranks", "options"), [(1, ()), (3, ("--sharded-logits",)), (9, ())])
def test_any_number_of_ranks_is_drawn(drawn, ranks, options):
    """One alone; uneven shards; more ranks than heads, so that one owns none."""
    page = drawn(play_of(tiny_run(*options, ranks=ranks, tokens=1)))
    for width in (1400, 400):
        assert page.evaluate(ALL_STATES, width) == []
        assert page.evaluate(OUTSIDE, width) == []


def test_the_picture_is_a_function_of_the_state(drawn, tiny_play):
    same = drawn(tiny_play).evaluate("""() => {
      const first = model.passes[model.passes.length - 1].first, wrong = [];
      const at = (k, phase, t, more) => { scene.draw(state({ sync: k, phase, t, ...more }), 1400); return svg.outerHTML; };
      for (let k = first; k < model.n; k++) for (const [phase, t] of [[0, 0.3], [1, 0.7], [2, 0.5], [3, 0.2], [3, 1]]) {
        const before = at(k, phase, t);
        at(k, 3, 1, { cut: 0.2, hover: { kind: "shard", rank: 1, name: "x", x: 9, y: 9, lines: ["a", "b"] } });
        at(first, 1, 0.1, { clock: "measured", pinned: { kind: "term", rank: 0, index: 1 }, focus: "gate" });
        scene.draw(state({ sync: k }), 400);
        at(k, (phase + 2) % 4, 0.9);
        if (at(k, phase, t) !== before) wrong.push([k, phase, t]);
      }
      return wrong;
    }""")
    assert same == []


def test_ranks_arrive_in_their_true_order(drawn, tiny_play):
    orders = drawn(tiny_play).evaluate("""() => Array.from({ length: model.n }, (_, k) => k).map(k => {
      const sync = model.sync(k), when = sync.times.map(() => 2), waits = [];
      for (const clock of ["steps", "measured"]) for (let t = 0; t <= 1; t += 0.01) {
        momentOf(sync, state({ sync: k, phase: 1, t, clock })).ranks.forEach((rank, r) => { if (rank.arrived && when[r] > t) when[r] = t; });
      }
      return { when, enter: sync.times.map(time => time.enter), end: momentOf(sync, state({ sync: k, phase: 1, t: 1 })).arrived };
    })""")
    for sync in orders:
        by_time = sorted(range(len(sync["enter"])), key=lambda rank: sync["enter"][rank])
        assert sync["end"] == len(by_time) and max(sync["when"]) <= 1
        assert all(sync["when"][a] <= sync["when"][b] for a, b in pairwise(by_time))


def test_the_equation_is_the_sum_of_what_the_ranks_gave(drawn, tiny_play):
    found = drawn(tiny_play).evaluate("""() => Array.from({ length: model.n }, (_, k) => k).filter(k => model.sync(k).op === "all_reduce")
      .flatMap(k => [0, 3].map(index => {
        scene.draw(state({ sync: k, pinned: { kind: "out", rank: 0, index } }), 1400);
        const sync = model.sync(k), words = Array.from(svg.querySelectorAll("text"), text => text.textContent);
        return { index, terms: sync.times.map((_, r) => sync.slot("in", r).at(0, index)), sum: sync.slot("out", -1).at(0, index),
          words: words.slice(words.indexOf(`y[${index}]`)) };
      }))""")
    assert found
    for each in found:
        numbers = [float(word.replace("−", "-")) for word in each["words"] if re.fullmatch(r"−?\d+(\.\d+)?", word)]
        shown = numbers[:len(each["terms"]) + 1]
        assert each["words"][1] == "="
        assert shown == pytest.approx([*each["terms"], each["sum"]], abs=0.0051)
        assert sum(each["terms"]) == pytest.approx(each["sum"], abs=1e-5)


def test_the_pointer_finds_elements_and_a_click_pins_them(drawn, tiny_play):
    page = drawn(tiny_play)
    place = page.evaluate("""() => {
      const k = Array.from({ length: model.n }, (_, k) => k).findLast(k => model.sync(k).part === "mlp");
      scene.draw(state({ sync: k }), 1400);
      svg.scrollIntoView();
      window.shown = k;
      const inner = Array.from(svg.querySelectorAll("svg")).find(one => one.parentNode.querySelector("[stroke-dasharray='5 3']"));
      const box = inner.getBoundingClientRect();
      return [box.left + box.width * 3.5 / 32, box.top + box.height / 2];
    }""")
    page.mouse.move(*place)
    page.mouse.click(*place)
    heard = page.evaluate("heard")
    what, value = heard[-1][1], page.evaluate("model.sync(shown).slot('in', 0).at(0, 3)")
    assert heard[-1][0] == "pin" and (what["kind"], what["rank"], what["index"]) == ("term", 0, 3)
    hovered = next(what for kind, what in heard if kind == "hover" and what)
    note = page.evaluate("what => { scene.draw(state({ sync: shown, hover: what }), 1400); return svg.lastChild.textContent; }", hovered)
    assert f"[3] = {'−' if value < 0 else ''}{abs(value):.3}"[:9] in note


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(drawn, tiny_play, scheme):
    """Contrast of at least 4.5 between a text and the paper, or the ink of the collective's result."""
    page = drawn(tiny_play, scheme=scheme)
    fills = page.evaluate("""() => { const fills = new Set();
      for (let k = 0; k < model.n; k += 3) { scene.draw(state({ sync: k }), 1400);
        for (const text of svg.querySelectorAll("text")) fills.add(text.getAttribute("fill")); }
      const theme = readTheme(document.querySelector(".player"));
      return { fills: [...fills].map(colorParts), paper: colorParts(theme.background), ink: colorParts(theme.text) }; }""")

    def light(color):
        return sum(w * (c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4)
                   for w, c in zip((0.2126, 0.7152, 0.0722), color, strict=True))

    def contrast(a, b):
        high, low = sorted((light(a), light(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for fill in fills["fills"]:
        assert contrast(fill, fills["ink"] if fill == fills["paper"] else fills["paper"]) >= 4.5
