"""The player's state inside a real browser: its reducer, its keys, its scrubber, its one loop."""
import base64

import numpy as np
import pytest

from tests.app.browser import COUNT_FRAMES, press, settle, state_of

INVERSE = """([one, other]) => {
  const model = player.model, wrong = [];
  for (let i = 0; i < 12 * model.n; i++) {
    const sync = Math.floor(i / 12), phase = Math.floor(i / 3) % 4, t = [0, 0.25, 1][i % 3];
    const state = { ...initialState(model), sync, phase, t, clock: "measured", pinned: { kind: "vector", rank: 1 } };
    const there = reduce(model, state, one), back = reduce(model, there, other);
    const moved = there.sync !== state.sync || there.phase !== state.phase;
    if (moved && JSON.stringify(back) !== JSON.stringify(state)) wrong.push([state, there, back]);
    if (!moved && one.type !== "token" && sync > 0 && sync < model.n - 1) wrong.push([state, there]);
  }
  return wrong;
}"""


COMES_TO_REST = """async () => {
  for (let i = 0; i < 500; i++) if (await paintsIn(10) === 0) return true;      // nothing moves, so nothing is drawn
  return false;
}"""


@pytest.mark.parametrize("kind", ["sync", "phase"])
def test_next_then_back_is_the_identity_everywhere(watch, tiny_play, kind):
    page = watch(tiny_play)
    for by in (1, -1):
        assert page.evaluate(INVERSE, [{"type": kind, "by": by}, {"type": kind, "by": -by}]) == []


def test_both_ends_clamp(watch, tiny_play):
    page = watch(tiny_play)
    last = len(tiny_play["syncs"]["pass"]) - 1
    assert press(page, "Home", "ArrowLeft", "ArrowLeft")["sync"] == "0"
    assert press(page, "End", "ArrowRight", "ArrowRight")["sync"] == str(last)
    assert press(page, ".")["sync"] == str(last)


def test_every_key(watch, tiny_play):
    page = watch(tiny_play)
    first, count = tiny_play["passes"]["first"], tiny_play["passes"]["count"]
    prefill = [tiny_play["strings"][i] for i in tiny_play["passes"]["phase"]].index("prefill")
    start = first[prefill]
    assert state_of(page) == {"token": str(prefill), "sync": str(start), "phase": "3", "playing": "0",
                              "clock": "steps"}
    assert press(page, "ArrowRight", "ArrowRight", "ArrowLeft")["sync"] == str(start + 1)
    assert press(page, "ArrowUp")["sync"] == str(start + 3)                   # attention of layer 0 → of layer 1
    assert press(page, "ArrowDown")["sync"] == str(start + 1)
    assert press(page, "Shift+ArrowRight")["sync"] == str(first[prefill + 1] + 1)
    assert press(page, "Shift+ArrowLeft")["sync"] == str(start + 1)
    assert press(page, ",", ",")["phase"] == "1"
    assert press(page, ".")["phase"] == "2"
    assert press(page, "c")["clock"] == "measured"
    press(page, "x", "2", "a")
    assert page.evaluate("(({ cut, speed, toggle }) => [cut, speed, toggle])(player.state())") == [0, 2, "before"]
    assert press(page, " ")["playing"] == "1"
    assert press(page, " ")["playing"] == "0"
    assert press(page, "End")["sync"] == str(first[-1] + count[-1] - 1)
    page.evaluate("player.act({ type: 'pin', what: { kind: 'vector', rank: 0 } })")
    press(page, "Escape")
    assert page.evaluate("player.state().pinned") is None


def test_keys_of_fields_and_of_the_browser_are_theirs(watch, tiny_play):
    page = watch(tiny_play)
    before = state_of(page)
    page.evaluate("document.querySelector('.player').append(document.createElement('input'))")
    page.focus(".player input")
    page.keyboard.type("cx 1.")
    page.keyboard.press("ArrowRight")
    assert page.input_value(".player input") == "cx 1."
    page.focus(".player")
    page.keyboard.press("Control+c")
    settle(page)
    assert state_of(page) == before


def test_buttons_do_what_keys_do(watch, tiny_play):
    page = watch(tiny_play)
    for button, key in [("next", "ArrowRight"), ("phase-back", ","), ("layer-up", "ArrowUp"), ("clock", "c"),
                        ("token-next", "Shift+ArrowRight"), ("token-back", "Shift+ArrowLeft"), ("back", "ArrowLeft"),
                        ("end", "End"), ("home", "Home")]:
        begun = page.evaluate("player.state()")
        page.click(f"[data-act={button}]")
        settle(page)
        clicked = state_of(page)
        page.evaluate("state => { player.act({ type: 'seek', ...state, clock: state.clock, jump: true }) }", begun)
        assert press(page, key) == clicked, button


SNAPSHOT = "[document.querySelector('.scene').outerHTML, document.querySelector('.caption').textContent, " \
           "document.querySelector('.where').textContent, document.querySelector('.when').textContent]"


def test_scrubbing_to_a_sync_equals_stepping_there(watch, tiny_play):
    tiny_play = evenly(tiny_play)                                              # a pixel can't hold two ticks
    page = watch(tiny_play)
    pass_index = int(state_of(page)["token"])
    first, count = tiny_play["passes"]["first"][pass_index], tiny_play["passes"]["count"][pass_index]
    stepped = []
    for _ in range(count):
        settle(page)
        stepped.append((state_of(page), page.evaluate(SNAPSHOT)))
        press(page, "ArrowRight")
    press(page, "ArrowLeft")
    for k in reversed(range(count)):
        box = page.locator(".detail").bounding_box()
        share = page.evaluate("([k, pass]) => moments(player.model, k)[3] / passNs(player.model, pass)",
                              [first + k, pass_index])
        x = box["x"] + 64 + share * (box["width"] - 72)
        page.mouse.move(x + 30, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(x, box["y"] + 30)
        page.mouse.up()
        page.mouse.move(0, 0)
        settle(page)
        assert (state_of(page), page.evaluate(SNAPSHOT)) == stepped[k]


def evenly(play):
    """The play with 100 µs for every sync: 60 of compute, 20 of waiting but for the last rank, 20 of moving."""
    passes, ranks = play["syncs"]["pass"], play["run"]["ranks"]
    place = np.array([k - play["passes"]["first"][at] for k, at in enumerate(passes)])
    times = 100_000 * place[:, None, None] + np.array([0, 60_000, 80_000, 100_000, 0])
    times = np.broadcast_to(times, (len(passes), ranks, 5)).copy()
    times[:, -1, 1], times[:, :, 4] = times[:, -1, 2], 1
    ticks = play["passes"] | {"tick": [1] * len(play["passes"]["first"])}
    return play | {"passes": ticks, "times": base64.b64encode(times.astype("<i4").tobytes()).decode()}


def test_a_moment_and_its_place_are_each_others_inverse(watch, tiny_play):
    """Whatever the clock says, the playhead stands at the place that the picture shows."""
    wrong = watch(tiny_play).evaluate("""() => {
      const model = player.model, wrong = [];
      for (let sync = 0; sync < model.n; sync++) {
        const at = moments(model, sync);
        if (at.some((ns, i) => i && ns < at[i - 1])) wrong.push(at);
        for (let phase = 0; phase < 4; phase++) for (const t of [0.1, 0.5, 1]) {
          const ns = timeOf(model, { sync, phase, t }), place = placeAt(model, model.sync(sync).pass, ns);
          if (Math.abs(timeOf(model, place) - ns) > 1e-6) wrong.push([sync, phase, t, place]);
        }
      }
      return wrong;
    }""")
    assert wrong == []


@pytest.mark.parametrize("clock", ["steps", "measured"])
def test_playing_passes_every_sync_once_and_stops_at_the_end(watch, tiny_play, clock):
    seen = watch(tiny_play).evaluate("""clock => {
      let state = { ...initialState(player.model), sync: 0, phase: 0, t: 0, playing: true, clock };
      const seen = [];
      for (let frame = 0; state.playing && frame < 1e5; frame++) {
        if (seen[seen.length - 1] !== state.sync) seen.push(state.sync);
        state = reduce(player.model, state, { type: "tick", ms: 100 });
      }
      return [seen, state.phase, state.t];
    }""", clock)
    assert seen == [list(range(len(tiny_play["syncs"]["pass"]))), 3, 1]


def test_one_loop_while_playing_and_none_while_still(watch, tiny_play):
    page = watch(tiny_play, calm=False)
    page.evaluate(COUNT_FRAMES)
    press(page, " ", "2", "c", "4")
    assert 18 <= page.evaluate("paintsIn(20)") <= 22
    press(page, " ")
    assert page.evaluate(COMES_TO_REST)


def test_a_tween_ends_where_a_jump_does(watch, tiny_play):
    still, moving = watch(tiny_play), watch(tiny_play, calm=False)
    moving.evaluate(COUNT_FRAMES)
    for page in (still, moving):
        press(page, "ArrowRight", "ArrowRight", "ArrowLeft", ",")
    assert moving.evaluate(COMES_TO_REST)
    assert moving.evaluate(SNAPSHOT) == still.evaluate(SNAPSHOT)
