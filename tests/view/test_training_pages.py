"""What the pages for measuring say of a training run: passes by phase, a step's bill, losses that agree, held bytes."""
import re
from copy import deepcopy

import pytest

from minitp.config import TINY
from minitp.placement import Placement
from minitp.plan.links import LINKS
from minitp.runs import title, training_steps
from minitp.trace import Timeline
from minitp.train.config import TrainConfig
from minitp.view import compare, question, timeline
from minitp.view.bill import PARTS
from minitp.view.compare import Run
from minitp.view.figures.timeline import lanes_figure, overview_figure
from minitp.view.ledger import Ledger
from minitp.view.passes import Passes
from minitp.view.replay import Script, cutting, cutting_lines, replay
from minitp.view.shards import trained
from tests.train.training_runs import UNEQUAL
from tests.view.view_runs import training

FIRST_STEP = ["forward", "backward"] * len(UNEQUAL) + ["optimizer"]


@pytest.fixture(scope="module")
def passes() -> Passes:
    return Passes(Timeline.of(training(3)))


def test_a_step_is_shown_by_phase(passes):
    work = passes.work
    assert passes.unit == "pass" and [row.phase for row in work[:len(FIRST_STEP)]] == FIRST_STEP
    assert work[0].name == "step 1, forward of micro-batch 1" and work[6].name == "step 1, optimizer"
    assert [row.name for row in work[7:10]] == ["evaluation after step 1, batch 1", "prompt → first token", "token 2"]
    assert timeline.step_from(passes, 0) == 7 and timeline.step_from(passes, 7) == timeline.step_from(passes, 9) == 1
    bars = timeline.detail(passes, 0, 6)
    assert [block.label for block in bars.blocks] == [
        "forward 1", "backward 1", "forward 2", "backward 2", "forward 3", "backward 3", "optimizer"]
    drawn = lanes_figure(bars, timeline.hover_texts(passes, bars))
    assert list(drawn.layout.yaxis.categoryarray) == ["rank 2", "rank 1", "rank 0", "passes"]
    of_phase = re.findall(r"(\w+) (\d+) %", timeline.share_line(passes).partition("By phase: ")[2])
    assert [name for name, _ in of_phase] == ["forward", "backward", "optimizer", "evaluation", "sample"]
    assert sum(int(number) for _, number in of_phase) == pytest.approx(100, abs=3)


def test_phases_look_different_in_the_overview(passes):
    groups, _ = timeline.overview(passes.work, passes.unit)
    figure = overview_figure(groups, unit=passes.unit)
    looks = {bar.name: bar.marker.color for bar in figure.data if "computing" in bar.name}
    assert len({looks[f"computing, {phase}"] for phase in ("forward", "backward", "optimizer")}) == 3
    assert sum(len(bar.x) for bar in figure.data if "computing" in bar.name) == len(passes.work)
    assert "token" not in figure.layout.yaxis.title.text


def test_a_training_run_is_replayed_and_its_step_cut_further(passes):
    run = replay(Script.of(passes), LINKS[0])
    assert len(run.passes) == len(passes.work)
    found = cutting(passes)
    assert (found.what, found.unit) == ("training step", "step") and " a step" in cutting_lines(found)[0]
    steps = [row for row in passes.work if row.phase in ("forward", "backward", "optimizer")]
    assert found.sync_points == sum(row.sync_points for row in steps) // 3
    assert found.computing == pytest.approx(sum(row.computing for row in steps) / 3 * 3 / 1e9)


@pytest.mark.parametrize("ranks, options, forms", [
    (3, {}, ["2L + 1 = 5", "3", "2L + 1 = 5", "1"]),
    (5, {"recompute": "full"}, ["2L + 1 = 5", "3", "4L + 1 = 9", "2"])])      # two hold the same kv head
def test_the_bill_of_a_step_is_what_was_recorded(ranks, options, forms):
    found = Ledger.of(Timeline.of(training(ranks, **options)))
    assert not found.differences and not found.silent
    assert [item.part for item in found.bill] == list(PARTS) and [item.form for item in found.bill] == forms
    assert [item.times for item in found.bill] == [5, 5, 5, 3]           # 3 + 1 + 1 micro-batches, 3 steps
    assert all(item.recorded == (item.predicted, item.predicted) and item.recorded_bytes[0] for item in found.bill)
    assert f"3 training steps: {sum(item.predicted for item in found.bill)} sync points" in found.formula
    assert [row.key for row in found.per_pass[0]] == [row.name for row in Passes(found.timeline).rows]


def test_losses_are_compared_and_steps_timed():
    runs = [Run(str(ranks), Timeline.of(deepcopy(training(ranks)))) for ranks in (3, 1)]
    for run, losses in zip(runs, ([2.0, 1.0 + 1e-7, 0.5], [2.0, 1.0, 0.5]), strict=True):
        run.timeline.trace.run["losses"] = losses
    headers = {run.name: run.timeline.trace.run for run in runs}
    assert question.groups(headers) == [["1", "3"]]
    one, three = compare.compare(runs)
    assert (one.ranks, one.unit, one.loss, three.loss) == (1, "step", 0.0, pytest.approx(1e-7))
    assert one.sync_points == three.sync_points == (5 * (5 + 3 + 5) + 3) // 3
    assert one.memory[1] > three.memory[1] and three.time > 0
    assert compare.verdict([one, three]).startswith("The same losses on 1, 3 ranks")
    runs[0].timeline.trace.run["losses"][2] = 0.6
    assert "differ by up to 0.2" in compare.verdict(compare.compare(runs))
    runs[0].timeline.trace.run["losses"] = "x"
    assert "don't say" in compare.verdict(compare.compare(runs))


def test_only_like_trainings_are_compared():
    def header(ranks, **settings):
        run = deepcopy(training(3).run) | {"ranks": ranks}
        run["training"]["settings"] = TrainConfig().deciding() | settings
        return run

    unlike = [{"batch": 8}, {"tokens": 32}, {"micro_batches": 2}, {"recompute": "full"}, {"dropout": 0.1}, {"seed": 1},
              {"label_smoothing": 0.1}, {"dtype": "bf16"}, {"rate": 0.1}, {"from": "tiny"}]
    headers = {f"{number} on {ranks}": header(ranks, **settings)
               for number, settings in enumerate([{}, *unlike]) for ranks in (1, 2)}
    assert question.groups(headers) == [[f"{number} on 1", f"{number} on 2"] for number in range(11)]
    words = question.training_in_words(header(2, dtype="bf16", dropout=0.1))
    assert words.startswith("3 training steps · ") and words.endswith("16×64 tokens, bf16, seed 0, dropout 0.1")
    assert len({question.training_in_words(headers[f"{number} on 1"]) for number in range(11)}) == 11


@pytest.mark.parametrize("settings", [
    None, 3, [1], {"batch": [[]], "tokens": {}}, {"batch": 10**400, "tokens": float("nan"), "dtype": "x" * 10**6,
                                                  "seed": "\x1b[31m<b>"}, {str(i): i for i in range(10**5)}])
def test_a_strangers_settings_are_words_of_bounded_length(settings):
    run = deepcopy(training(3).run)
    run["training"]["settings"] = settings
    assert question.question_of(run) and len(question.precision_of(run)) <= 20
    assert len(question.training_in_words(run)) < 400 and "\x1b" not in question.training_in_words(run)
    assert len(question.settings_of(run)) <= 60


def test_the_list_of_runs_names_the_steps():
    run = training(3).run
    assert title(run).startswith("3 training steps · ") and title(run).endswith("on 3 ranks (threads)")


@pytest.mark.parametrize("header", [
    None, [], {}, {"segments": None}, {"segments": [1, {}, {"steps": 3}, {"steps": [1]}, {"steps": [0, "2"]}]}])
def test_a_header_that_tells_of_no_steps(header):
    assert training_steps({"training": header}) == 0


def test_what_training_holds():
    placement = Placement(TINY, 3)
    numbers = [placement.elements(rank) for rank in range(3)]
    whole, half = trained(placement, 4), trained(placement, 2)
    assert whole.gradients == tuple(4 * n for n in numbers) and whole.moments == tuple(8 * n for n in numbers)
    assert not any(whole.master) and half.master == tuple(4 * n for n in numbers)
    assert half.weights == tuple(2 * n for n in numbers) and "master weights" in half.rows()[0]
