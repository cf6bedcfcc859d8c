"""What the page Memory and machines shows is what the planner says: bars, growth, layouts, network, a check."""
from dataclasses import replace
from itertools import pairwise

import pytest

from minitp.errors import ConfigError
from minitp.plan import catalogue, memory
from minitp.plan.formula import letters
from minitp.plan.questions.base import WhatIf
from minitp.plan.rows import KINDS, total
from minitp.plan.search import judge
from minitp.plan.speed.against import published
from minitp.trace import Trace
from minitp.view import plan_ask, plan_check, plan_layouts, plan_memory, plan_network, plan_simulated
from minitp.view.colors import RANK_HUES, contrast
from minitp.view.figures import plan_check as check_figures
from minitp.view.figures import plan_memory as memory_figures
from minitp.view.figures import plan_network as network_figures
from minitp.view.plan import Asked, machine_names
from tests.app.real_runs import tiny_run

INFER = Asked(model="llama-2-7b", tp=4)
TRAIN = Asked(task="train", model="llama-2-7b", tp=2, pp=4, dp=2, zero=1, step=64, machine="8xh100-80")


def _heights(figure, names) -> dict[str, float]:
    return {trace.name: sum(trace.y) for trace in figure.data if trace.name in names}


@pytest.mark.parametrize("asked", [INFER, TRAIN, replace(INFER, model="gpt2", tp=7), replace(TRAIN, pp=3, tp=5)])
def test_a_bar_for_each_kind_of_rank(asked):
    found = plan_memory.planned(asked)
    ranks = memory.ranks(asked.planned(), asked.layout(), asked.job())
    assert {bar.place: bar.bytes for bar in found.bars} == {place: total(rows) for place, rows in ranks.items()}
    assert found.fullest.bytes == found.verdict.needed == max(bar.bytes for bar in found.bars)
    heights = _heights(memory_figures.bars_figure(found), KINDS)
    assert sum(heights.values()) == pytest.approx(sum(bar.bytes for bar in found.bars) / 1e9)
    assert len({bar.name for bar in found.bars}) == len(found.bars)


def test_a_bar_is_named_by_all_tp_ranks_that_are_like_it():
    found = plan_memory.planned(Asked())
    assert [bar.name for bar in found.bars] == ["tp 0", "tp 1–7"]
    several = plan_memory.planned(replace(INFER, model="gpt2", tp=7))
    named = [rank for bar in several.bars for part in bar.name.removeprefix("tp ").split(", ")
             for rank in range(int(part.partition("–")[0]), int(part.rpartition("–")[2]) + 1)]
    assert sorted(named) == list(range(7))


def test_letters_are_told_of_every_formula_that_is_shown():
    found = plan_memory.planned(TRAIN)
    line = plan_memory.legend_line(found.fullest.rows)
    there = {letter for row in found.fullest.rows for letter in letters(row.formula)}
    assert {part.partition(":")[0] for part in line.split("; ")} == {*there, "numbers alone"}


def test_a_step_has_how_far_its_model_is_off_published_runs():
    assert plan_memory.speed(TRAIN, plan_memory.planned(TRAIN)).against == published().text
    assert not plan_memory.speed(INFER, plan_memory.planned(INFER)).against


def test_the_bars_of_a_small_model_can_be_seen():
    small = memory_figures.bars_figure(plan_memory.planned(Asked(model="tiny")))
    assert {trace.type for trace in small.data} == {"bar"} and "85.9 GB" in small.layout.annotations[0].text
    large = memory_figures.bars_figure(plan_memory.planned(Asked()))
    assert "scatter" in {trace.type for trace in large.data} and not large.layout.annotations


def test_of_many_ranks_the_fullest_of_each_stage_is_drawn():
    found = plan_memory.planned(replace(TRAIN, model="llama-2-70b", tp=7, pp=40))
    assert len(found.bars) == 40 and found.fullest in found.bars


def test_the_verdict_in_words():
    fits = plan_memory.verdict_line(plan_memory.planned(INFER))
    assert fits.startswith("It fits.") and "GiB" in fits and "10 %" in fits
    misses = plan_memory.planned(replace(INFER, model="llama-3.1-405b"))
    assert plan_memory.verdict_line(misses).startswith("It doesn't fit.") and "devices or more" in \
        plan_memory.verdict_line(misses)
    assert plan_memory.verdict_line(plan_memory.planned(replace(INFER, nominal=True))) != fits


def test_each_slider_moves_its_own_terms():
    found = plan_memory.planned(replace(TRAIN, recompute="full"))

    def parts(doublings, more):
        return plan_memory.growing(found, doublings, more).bars[-1].parts

    base, wide, many = parts(0, 0), parts(1, 0), parts(0, 1)
    assert sum(base.values()) == found.fullest.bytes
    moved = {"with parameters": (True, False), "with batch": (False, True), "with both": (True, True),
             "with neither": (False, False)}
    for key, size in base.items():
        assert (wide[key] > size, many[key] > size) == moved[key[1]], key
    assert {grows for _, grows in base} >= {"with parameters", "with both"}


def test_memory_is_not_parameters_times_batch():
    """C13."""
    grown = plan_memory.growing(plan_memory.planned(TRAIN), 1, 2)
    first, wide, many, both = (bar.bytes for bar in grown.bars)
    assert first < wide < both and first < many < both
    assert both / first < 0.8 * grown.parameters * grown.sequences
    assert both != pytest.approx(wide + many - first)                    # there is a term with their product
    assert both / first < 100 and f"{both / first:.3g} × the memory" in plan_memory.growth_line(grown)
    figure = memory_figures.growing_figure(grown)
    marks = next(trace for trace in figure.data if trace.type == "scatter")
    assert len(marks.y) + len(figure.layout.annotations) == 4            # what lies above the picture has an arrow


def test_the_hues_of_memory_are_none_of_the_ranks_and_neighbors_differ():
    hues = memory_figures.HUES
    assert set(hues) == set(KINDS) and not set(hues.values()) & set(RANK_HUES)
    assert network_figures.MEASURED not in {*RANK_HUES, *hues.values()}
    for stack in (("weights", "gradients", "optimizer", "activations"), ("weights", "activations", "kv cache")):
        for lower, upper in pairwise(stack):
            assert contrast(hues[lower], hues[upper]) > 1.4


def test_a_found_layout_goes_back_into_the_inputs():
    asked = replace(TRAIN, devices=16, keep=("recompute", "micro"))
    outcome = plan_layouts.found(asked)
    rows = plan_layouts.rows(outcome)
    assert len(rows) == len(outcome.best) and rows[0]["step s (model)"] == min(row["step s (model)"] for row in rows)
    one = outcome.best[3]
    put = plan_layouts.loaded(asked, one)
    assert put.layout() == one.layout and put.job() == one.job
    assert plan_memory.planned(put).fullest.bytes == one.held


def test_the_search_tries_experts_and_chunks_unless_they_are_kept():
    asked = Asked(model="mixtral-8x7b", devices=16, batch=64, tp=1, ep=4)
    eps = {one.layout.ep for one in plan_layouts.found(asked).best}
    assert len(eps) > 1 and {one.layout.ep for one in plan_layouts.found(replace(asked, keep=("ep",))).best} == {4}
    steps = replace(TRAIN, devices=16, chunks=2, keep=("recompute", "micro", "zero", "tp"))
    assert {one.layout.chunks for one in plan_layouts.found(steps).best} > {1}
    kept = plan_layouts.found(replace(steps, keep=(*steps.keep, "chunks")))
    assert {one.layout.chunks for one in (*kept.best, *kept.failed)} == {2}


def test_the_search_keeps_what_it_is_told_and_says_why_others_fail():
    asked = replace(TRAIN, model="llama-2-70b", devices=8, keep=("tp", "zero"), tp=4, zero=2)
    outcome = plan_layouts.found(asked)
    assert {one.layout.tp for one in (*outcome.best, *outcome.failed)} == {4}
    assert not outcome.best and "No layout" in plan_layouts.best_line(outcome)
    assert plan_layouts.failures(outcome)[0]["why"] in plan_layouts.WHY.values()
    assert f"{outcome.tried:,} layouts" in plan_layouts.summary_line(outcome)
    assert judge(asked.planned(), outcome.failed[0].layout, outcome.failed[0].job, outcome.machine) == \
        outcome.failed[0]


def test_what_cannot_be_laid_out_is_told():
    assert "33" in plan_layouts.possible(replace(TRAIN, pp=33)) or plan_layouts.possible(replace(TRAIN, pp=33))
    assert plan_layouts.possible(replace(TRAIN, ep=3)) and not plan_layouts.possible(TRAIN)


@pytest.mark.parametrize("asked, group", [(INFER, 4), (replace(INFER, group="dp"), 8), (replace(TRAIN, group="dp"), 2),
                                          (replace(INFER, group="all", devices=32), 32)])
def test_the_network_of_a_group(asked, group):
    found = plan_network.network(asked)
    assert found.group.members == found.curve.members == group
    figure = network_figures.curve_figure(found)
    stars = [trace for trace in figure.data if str(getattr(trace.marker, "symbol", "")).startswith("star")]
    assert [trace.x[0] for trace in stars] == [mark.payload for mark in found.curve.marks]
    if found.curve.half is not None:                    # the note stands at its line, whose place is in bytes
        (line,), (note,) = figure.layout.shapes, figure.layout.annotations
        assert 10**note.x == pytest.approx(line.x0) and note.text == "n½"
    assert found.syncs == 2 * asked.planned().config.layers + 2
    assert f"for {found.syncs:,}, 2 in each layer and 2 at the ends" in plan_network.links_line(found, False)


def test_attention_and_mlp_side_by_side_need_one_sync_a_layer():
    asked = Asked(model="palm-540b", tp=8)
    found = plan_network.network(asked)
    assert (found.inside, found.syncs) == (1, asked.planned().config.layers + 2)
    assert "1 in each layer" in plan_network.links_line(found, True)


def test_a_benchmarks_points_are_not_followed():
    measured = [name for name in machine_names() if _points(name)]
    assert measured
    found = plan_network.network(Asked(model="llama-2-7b", machine=measured[0], group="box"))
    assert not plan_network.follows(found) and "doesn't follow" in plan_network.measured_line(found)
    assert all(row["time (model)"] for row in plan_network.curve_rows(found))
    assert not plan_network.measured_line(replace(found, curve=replace(found.curve, measured=())))
    taken = replace(found.curve, chosen=("measured",) * len(found.curve.sizes))
    followed = replace(found, curve=taken)
    assert "calibrated" in plan_network.measured_line(followed)
    assert all(row["between measured points"] and not row["time (model)"]
               for row in plan_network.curve_rows(followed))


def _points(name: str) -> bool:
    levels = catalogue.machine(name).levels
    return any(op == "all_reduce" and ranks == levels[0].size for op, ranks in levels[0].tables)


def test_a_syncs_payload_is_that_of_the_job():
    model = INFER.planned()
    assert plan_network.marks(replace(INFER, batch=8), model)[0][1] == 8 * model.config.hidden * 2
    names = [name for name, _ in plan_network.marks(TRAIN, TRAIN.planned())]
    assert names[0].startswith("training") and names[1].startswith("gradients")


@pytest.mark.parametrize("rows", [plan_network.curve_rows, plan_network.link_rows])
def test_measured_and_modeled_share_no_column_of_the_network(rows):
    for row in rows(plan_network.network(replace(INFER, tp=8))):
        for name, value in row.items():
            assert not value or "model" in name or "measured" in name or name in (
                "payload", "ranks", "algorithm", "messages in turn", "taken")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return tiny_run()


def test_a_run_without_calibration_has_counts_and_bytes(trace, monkeypatch, tmp_path):
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path))
    assert plan_check.calibrated() is None and plan_check.calibration() == 0
    found = plan_check.compared(trace, None)
    assert found.exact and plan_check.exact_line(found).startswith("All ")
    assert all(row["exact"] for row in plan_check.count_rows(found))


def test_a_check_draws_what_has_both_times(trace):
    found = plan_check.compared(trace, Asked().described())
    points = plan_check.points(found)
    assert points and all(point.measured > 0 and point.modeled > 0 for point in points)
    figure = check_figures.check_figure(points)
    drawn = [(x, y) for part in figure.data if part.mode == "markers" for x, y in zip(part.x, part.y, strict=True)]
    assert sorted(drawn) == sorted((point.measured, point.modeled) for point in points)
    for row in plan_check.time_rows(found):
        assert not [name for name in row if "model" in name and "measured" in name]
    assert "more ranks than cores" in plan_check.times_line(points, True)
    assert plan_check.times_line([]).startswith("No kind") and "25 %" in plan_check.times_line(points)


def test_a_simulated_run_is_no_measurement(trace, tmp_path):
    asked = Asked(model="tiny", tp=2, prompt=4, new=2)
    name = plan_simulated.write(asked, tmp_path)
    assert name == plan_simulated.write(replace(asked, show="layouts"), tmp_path)
    made = Trace.read(tmp_path / name)
    assert "simulated" in made.run
    with pytest.raises(ConfigError, match="simulated"):
        plan_check.compared(made, None)
    assert plan_simulated.file_name(replace(asked, tp=1)) != name


def test_of_a_long_generation_only_the_first_tokens_are_simulated_and_that_is_told():
    job, told = plan_simulated.shown(Asked(model="tiny", prompt=4, new=200))
    assert job.new == plan_simulated.MOST_TOKENS and f"first {job.new} of 200" in told
    assert plan_simulated.shown(Asked(new=2)) == (Asked(new=2).job(), "")
    assert plan_simulated.shown(TRAIN) == (TRAIN.job(), "")
    with pytest.raises(ConfigError, match="new tokens"):
        plan_simulated.shown(Asked(new=0))


def test_a_question_is_asked_with_the_pages_inputs():
    asked = Asked(model="llama-2-7b", memory="1 TB", seq=4096, task="train")
    assert plan_ask.what_if(asked, ["model", "memory", "seq", "devices"]) == WhatIf(
        model="llama-2-7b", memory=10**12, seq=4096)
    assert plan_ask.what_if(asked, []) == WhatIf()
