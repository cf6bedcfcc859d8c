"""The drawing of each sync, in a real browser: without errors, inside its frame, a pure function of the state, true."""
import re
from itertools import pairwise

import pytest

from minitp.view.player import assets
from minitp.view.watch import play as play_of
from tests.app.real_runs import tiny_run

PREPARE = """() => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), heard = [];
  document.body.append(svg);
  const hear = kind => what => heard.push([kind, what]);
  const theme = readTheme(document.querySelector(".player"));
  const scene = createScene(svg, player.model, { theme, hover: hear("hover"), pin: hear("pin"), open: hear("open") });
  const state = more => ({ sync: 0, phase: 3, t: 1, clock: "steps", speed: 1, playing: false, cut: 1, toggle: "after",
    pinned: null, lane: 0, card: null, hover: null, focus: "", ...more });
  const kinds = new Map();
  for (let k = player.model.n - 1; k >= 0; k--) {
    const sync = player.model.sync(k);
    kinds.set([sync.op, sync.part, sync.after, sync.shape.length].join(), k);
  }
  Object.assign(window, { svg, scene, state, heard, theme, model: player.model, one_of_each: [...kinds.values()] });
}"""
ALL_STATES = """width => {
  const wrong = [], pinned = { kind: "term", rank: 0, index: 2 }, lane = model.ranks - 1;
  const all = [{ phase: 0, t: 0.5 }, { phase: 1, t: 0.6, clock: "measured" }, { phase: 2, t: 0.5 }, {}, { cut: 0.4 },
    { toggle: "before" }, { pinned }, { lane }];
  const draw = (now, read) => {
    const height = scene.draw(now, width), words = scene.describe(now);
    const drawn = read ? svg.outerHTML.replace(/"data:[^"]*"/g, "") : "";
    if (!(height > 0) || height % 8 || !words || /NaN|undefined|null/.test(drawn + words)) wrong.push([now, words]);
  };
  for (const sync of one_of_each) for (const more of all) draw(state({ sync, ...more }), true);
  for (let sync = 0; sync < model.n; sync++) draw(state({ sync, phase: sync % 4 }), false);
  return wrong;
}"""
OUTSIDE = """width => {
  const wrong = [];
  for (const sync of one_of_each) {
    for (const more of [{ phase: 1, t: 0.55 }, {}, { cut: 0 }, { toggle: "before" }]) {
      const height = scene.draw(state({ sync, ...more }), width), frame = svg.getBoundingClientRect();
      for (const text of svg.querySelectorAll("text")) {
        const { left, right, top, bottom, width: wide } = text.getBoundingClientRect();
        const inside = left > frame.left - 1 && right < frame.left + width + 1 && top > frame.top - 1
          && bottom < frame.top + height + 1;
        const large = Number(text.getAttribute("font-size")) >= 11;
        if (wide && !(inside && large)) wrong.push([sync, text.textContent, left - frame.left, right - frame.left]);
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
    """Any way round, the same state gives the same nodes."""
    assert drawn(tiny_play).evaluate("""() => {
      const first = model.passes[model.passes.length - 1].first, wrong = [];
      const hover = { kind: "shard", rank: 1, name: "x", x: 9, y: 9, lines: ["a", "b"] };
      const pinned = { kind: "term", rank: 0, index: 1 };
      const at = (sync, more) => {
        scene.draw(state({ sync, ...more }), 1400);
        return svg.outerHTML;
      };
      for (let k = first; k < model.n; k++) for (const [phase, t] of [[0, 0.3], [1, 0.7], [2, 0.5], [3, 0.2], [3, 1]]) {
        const before = at(k, { phase, t });
        at(k, { cut: 0.2, hover });
        at(first, { phase: 1, t: 0.1, clock: "measured", pinned, focus: "gate" });
        scene.draw(state({ sync: k }), 400);
        at(k, { phase: (phase + 2) % 4, t: 0.9 });
        if (at(k, { phase, t }) !== before) wrong.push([k, phase, t]);
      }
      return wrong;
    }""") == []


def test_ranks_arrive_in_their_true_order(drawn, tiny_play):
    syncs = drawn(tiny_play).evaluate("""() => Array.from({ length: model.n }, (_, k) => {
      const sync = model.sync(k), when = sync.times.map(() => 2);
      for (const clock of ["steps", "measured"]) for (let t = 0; t <= 1.005; t += 0.01) {
        const { ranks } = momentOf(sync, state({ sync: k, phase: 1, t, clock }));
        ranks.forEach((rank, r) => { if (rank.arrived) when[r] = Math.min(when[r], t); });
      }
      return { when, enter: sync.times.map(time => time.enter) };
    })""")
    for sync in syncs:
        by_time = sorted(range(len(sync["enter"])), key=lambda rank: sync["enter"][rank])
        assert max(sync["when"]) < 1.01
        assert all(sync["when"][a] <= sync["when"][b] for a, b in pairwise(by_time))


def test_the_equation_is_the_sum_of_what_the_ranks_gave(drawn, tiny_play):
    found = drawn(tiny_play).evaluate("""() => {
      const sums = Array.from({ length: model.n }, (_, k) => model.sync(k)).filter(sync => sync.op === "all_reduce");
      return sums.flatMap(sync => [0, 3].map(index => {
        scene.draw(state({ sync: sync.index, pinned: { kind: "out", rank: 0, index } }), 1400);
        const words = Array.from(svg.querySelectorAll("text"), text => text.textContent);
        const terms = sync.times.map((_, r) => sync.slot("in", r).at(0, index));
        return { terms, sum: sync.slot("out", -1).at(0, index), words: words.slice(words.indexOf(`y[${index}]`)) };
      }));
    }""")
    assert found
    for each in found:
        numbers = [float(word.replace("−", "-")) for word in each["words"] if re.fullmatch(r"−?\d+(\.\d+)?", word)]
        assert each["words"][1] == "="
        assert numbers[:len(each["terms"]) + 1] == pytest.approx([*each["terms"], each["sum"]], abs=0.0051)
        assert sum(each["terms"]) == pytest.approx(each["sum"], abs=1e-5)


def test_the_pointer_finds_elements_and_a_click_pins_them(drawn, tiny_play):
    page = drawn(tiny_play)
    place = page.evaluate("""() => {
      window.shown = Array.from({ length: model.n }, (_, k) => k).findLast(k => model.sync(k).part === "mlp");
      scene.draw(state({ sync: shown }), 1400);
      svg.scrollIntoView();
      const dashed = svg.querySelector("svg + [stroke-dasharray='5 3']").previousSibling.getBoundingClientRect();
      return [dashed.left + dashed.width * 3.5 / 32, dashed.top + dashed.height / 2];
    }""")
    page.mouse.move(*place)
    page.mouse.click(*place)
    heard, value = page.evaluate("heard"), page.evaluate("model.sync(shown).slot('in', 0).at(0, 3)")
    kind, pinned = heard[-1]
    assert (kind, pinned["kind"], pinned["rank"], pinned["index"]) == ("pin", "term", 0, 3)
    hover = next(what for kind, what in heard if kind == "hover" and what)
    said = page.evaluate("hover => { scene.draw(state({ sync: shown, hover }), 1400); return hover.lines; }", hover)
    number = float(said[0].split(" = ")[1].replace("−", "-"))
    assert number == pytest.approx(value, rel=0.01)
    assert page.locator("text", has_text=said[0]).count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(drawn, tiny_play, scheme):
    """Contrast of at least 4.5 between a text and the paper, or the ink of the collective's result."""
    found = drawn(tiny_play, scheme=scheme).evaluate("""() => {
      const fills = new Set();
      for (const sync of one_of_each) {
        scene.draw(state({ sync }), 1400);
        for (const text of svg.querySelectorAll("text")) fills.add(text.getAttribute("fill"));
      }
      return { fills: [...fills].map(colorParts), paper: colorParts(theme.background), ink: colorParts(theme.text) };
    }""")
    for fill in found["fills"]:
        assert contrast(fill, found["ink"] if fill == found["paper"] else found["paper"]) >= 4.5


def contrast(one, other):
    """WCAG 2.2, of two colors as [r, g, b] up to 255."""
    def light(color):
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_picture_made_ahead_is_the_picture(drawn, tiny_play):
    """`prepare` builds the next sync's picture a piece at a time: no more and no less than `draw` does at once."""
    steps, same = drawn(tiny_play).evaluate("""() => {
      const steps = [], same = [];
      for (const sync of one_of_each) {
        scene.draw(state({ sync: sync ? 0 : 1 }), 900);
        let count = 1;
        while (!scene.prepare(state({ sync }), 900)) count++;
        scene.draw(state({ sync }), 900);
        const ahead = svg.outerHTML;
        scene.draw(state({ sync: sync ? 0 : 1 }), 900);
        scene.draw(state({ sync }), 900);
        steps.push(count);
        same.push(ahead === svg.outerHTML);
      }
      return [steps, same];
    }""")
    assert all(same) and min(steps) > tiny_play["run"]["ranks"]


def test_at_rest_nothing_covers_the_terms_in_the_gate(drawn, tiny_play):
    """A saved picture of phase 2 shows what was added: the word of each slot is on top of what lies there."""
    page, ranks = drawn(tiny_play), tiny_play["run"]["ranks"]
    seen = page.evaluate("""() => {
      const sync = one_of_each.find(k => model.sync(k).part === "mlp");
      scene.draw(state({ sync, phase: 2 }), 1000);
      svg.style.cssText = "position: fixed; left: 0; top: 0; z-index: 99";
      const words = [...svg.querySelectorAll("text")].filter(t => /^−?[\\d.]+$/.test(t.textContent)
        && t.getAttribute("text-anchor") === "middle");
      const isSeen = node => {
        for (let at = node; at !== svg; at = at.parentNode) if (at.getAttribute("opacity") === "0") return false;
        const { x, y, width, height } = node.getBoundingClientRect();
        const top = document.elementsFromPoint(x + width / 2, y + height / 2)
          .find(at => !at.closest("[opacity='0']"));
        return top === node;
      };
      return words.filter(isSeen).length;
    }""")
    assert seen == ranks
