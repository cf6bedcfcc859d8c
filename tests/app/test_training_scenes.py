"""Watch of a training run, in a real browser: scenes are drawn, words are Python's, the backward runs to the left."""
import re
from math import log

import pytest

from minitp.view.reading import PlayReader
from minitp.view.text import caption, pass_name
from minitp.view.watch import play as play_of
from tests.app.browser import press
from tests.app.real_runs import tiny_training
from tests.app.test_scenes import ALL_STATES, OUTSIDE, drawn  # noqa: F401  (a fixture is found by its name)
from tests.view.test_training_watch import run

OTHERS = [("uneven heads", 1400), ("tied columns", 1400), ("parallel", 1400), ("recomputed", 400),
          ("ranks without heads", 400), ("one rank", 1400)]


@pytest.fixture(scope="module")
def step_play():
    """Two steps of the tiny model on 4 ranks, as `minitp train --values` records them."""
    return play_of(tiny_training(ranks=4, steps=2))


@pytest.mark.parametrize("width", [1400, 900, 400])
def test_every_sync_of_a_step_is_drawn_inside_the_picture(drawn, step_play, width):  # noqa: F811
    page = drawn(step_play)
    assert page.evaluate(ALL_STATES, width) == []
    assert page.evaluate(OUTSIDE, width) == []


@pytest.mark.parametrize(("name", "width"), OTHERS)
def test_any_training_run_is_drawn_and_told_as_in_python(drawn, name, width):  # noqa: F811
    play = play_of(run(name))
    page, reader = drawn(play), PlayReader(play)
    assert page.evaluate(ALL_STATES, width) == []
    assert page.evaluate(OUTSIDE, width) == []
    said = page.evaluate("Array.from({ length: model.n }, (_, k) => [0, 1, 2, 3].map(phase => "
                         "captionOf(model, model.sync(k), phase)))")
    assert said == [[caption(reader, k, phase) for phase in range(4)] for k in range(reader.n)]
    named = page.evaluate("model.passes.map(pass => passName(model, pass))")
    passes = range(len(play["passes"]["first"]))
    assert [name.removesuffix(" ←") for name in named] == [pass_name(reader, i) for i in passes]


PLACES = """part => {
  const sync = one_of_each.find(k => model.sync(k).part === part);
  scene.draw(state({ sync }), 1400);
  const left = text => [...svg.querySelectorAll("text")].find(node => node.textContent.startsWith(text))
    ?.getBoundingClientRect().left;
  return ["dy", "d logits", "dx partial", "⊕ all-reduce", "feeds"].map(left).filter(x => x !== undefined);
}"""


@pytest.mark.parametrize("part", ["d_mlp", "d_attention", "d_head"])
def test_the_backward_goes_from_right_to_left(drawn, step_play, part):  # noqa: F811
    places = drawn(step_play).evaluate(PLACES, part)
    assert len(places) == 4 and places == sorted(places, reverse=True)


WORDS = """([part, more]) => {
  const sync = one_of_each.find(k => model.sync(k).part === part);
  scene.draw(state({ sync, ...more }), 1400);
  return [...svg.querySelectorAll("text")].map(node => node.textContent);
}"""


def test_the_picture_says_that_nothing_is_sent(drawn, step_play):  # noqa: F811
    page = drawn(step_play)
    for part in ("d_mlp", "d_attention"):
        assert page.evaluate(WORDS, [part, {}]).count("g: nothing to send") == 4
    assert "g: nothing to send" not in page.evaluate(WORDS, ["d_head", {}])
    assert page.evaluate(WORDS, ["norm", {}]).count("own shard: nothing sent") == 4


def test_gradients_of_weights_fill_after_the_sum(drawn, step_play):  # noqa: F811
    """A block for each weight, as wide as it is: empty until the sum is there."""
    widths = drawn(step_play).evaluate("""() => [[2, 1], [3, 0.6], [3, 1]].map(([phase, t]) => {
      const sync = one_of_each.find(k => model.sync(k).part === "d_mlp");
      scene.draw(state({ sync, phase, t }), 1400);
      return [...svg.querySelectorAll("svg")].filter(node => node.querySelector(":scope > image")
        && Number(node.getAttribute("width")) < 1).length;
    })""")
    assert widths == [12, 0, 0]                                              # gate, up and down on 4 ranks


def test_the_loss_stands_in_the_picture_with_its_numbers(drawn, step_play):  # noqa: F811
    reader, page = PlayReader(step_play), drawn(step_play)
    k = next(k for k in range(reader.n) if reader.word("site", k) == "loss.target")
    page.evaluate("k => scene.draw(state({ sync: k }), 1400)", k)
    words = page.evaluate("[...svg.querySelectorAll('text')].map(node => node.textContent)")
    said = next(word for word in words if word.startswith("loss = log "))
    assert float(said.split(" = ")[-1]) == pytest.approx(reader.slots(k)["loss", -1].numbers[0, 0], rel=0.006)
    total, target, loss = map(float, re.fullmatch(r"loss = log (\S+) − \(?(\S+?)\)? = (\S+)", said.replace(
        "(−", "(-")).groups())
    digits = len(said.split(".")[-1])
    assert round(log(total) - target, digits) == pytest.approx(loss, abs=1e-9)  # of the numbers as they are shown
    owner = int(reader.slots(k)["owner", -1].numbers[0, 0])
    assert [word for word in words if word in ("adds 0", "has its logit")] == [
        "has its logit" if rank == owner else "adds 0" for rank in range(4)]
    page.evaluate("k => scene.draw(state({ sync: k - 2 }), 1400)", k)
    words = page.evaluate("[...svg.querySelectorAll('text')].map(node => node.textContent)")
    at = words.index("the largest of")
    numbers = [float(w.replace("−", "-")) for w in words[at:at + 11] if re.fullmatch(r"−?\d+(\.\d+)?", w)]
    assert max(numbers[:4]) == numbers[4]


def test_the_strip_shows_passes_by_step(watch, step_play):
    page = watch(step_play)
    losses = [loss for loss, first in zip(step_play["passes"]["loss"], step_play["passes"]["learns"], strict=True)
              if step_play["strings"][first]]
    said = page.locator(".tokens .step").all_text_contents()
    assert len(said) == len(losses) == 2
    for step, (text, loss) in enumerate(zip(said, losses, strict=True), 1):
        assert re.fullmatch(rf"step {step} · loss {loss:.3f} · shown: “.+” → “.+”", text)
    assert page.get_attribute('[data-act="token-next"]', "title") == "One pass on (Shift+Right)"
    assert page.locator(".chip.new span").all_text_contents() == ["forward", "backward ←", "optimizer"] * 2
    assert page.text_content('[data-act="token-next"]') == "pass ▸"
    assert press(page, "Shift+ArrowRight")["token"] == "1" and "backward ←" in page.text_content(".where")
    assert press(page, "ArrowRight")["sync"] == "9"                          # upper layers come first, so Up is back
    assert press(page, "ArrowDown")["sync"] == "11" and press(page, "ArrowUp")["sync"] == "9"
