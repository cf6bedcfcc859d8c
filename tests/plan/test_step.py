"""The time of a training step: its terms, and how published tables compare layouts with each other."""
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.job import FLOAT32, MIXED, MIXED_FP32_GRADIENTS, PURE_BF16, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.links import Link
from minitp.plan.network import price
from minitp.plan.speed import flops
from minitp.plan.speed.step import training_step, updated
from tests.plan.plan_models import A100, ETHERNET, GPT3, boxes, gpt, llama

LLAMA_65B = llama(80, 8192, 64, 64, 22016, 32000)
V100 = replace(A100, name="V100", bandwidth=0.9e12, flops={"fp16": 125e12})
FULL = Training(recompute="full")


def test_terms_add_up_and_utilization_stays_under_what_is_reached():
    time = training_step(GPT3, Layout(tp=8, pp=8, dp=2), replace(FULL, batch=128, tokens=300e9), boxes(128))
    assert [row.term for row in time.rows] == ["products", "tensor parallelism", "pipeline bubble",
                                               "sends between stages", "data parallelism", "optimizer"]
    assert time.seconds == pytest.approx(sum(row.seconds for row in time.rows))
    assert time.mfu < time.hfu < A100.flops_reached
    assert time.hfu / time.mfu == pytest.approx(flops.step(GPT3, FULL).hardware / flops.step(GPT3, FULL).model)
    assert time.tokens_per_s * time.seconds == pytest.approx(128 * 2048)
    assert time.days == pytest.approx(300e9 / time.tokens_per_s / 86400)
    assert time.device_hours == pytest.approx(time.days * 24 * 128)
    assert time.to_plain()["MFU"] == time.mfu
    assert training_step(GPT3, Layout(), FULL, boxes(1)).days is None


@settings(max_examples=40, deadline=None)
@given(tp=st.integers(1, 7), pp=st.integers(1, 5), dp=st.integers(1, 3), cp=st.integers(1, 3), zero=st.integers(0, 3),
       sequence=st.booleans(), rounds=st.integers(1, 4), recompute=st.sampled_from(["none", "selective", "full"]))
def test_any_layout_takes_at_least_its_operations(tp, pp, dp, cp, zero, sequence, rounds, recompute):
    """Uneven heads, layers and pieces of a sequence only cost more; more micro-batches never use devices less."""
    model = llama(5, 42, 7, 7, 90, 101)
    layout = Layout(tp=tp, pp=pp, dp=dp, cp=cp, zero=zero, sequence=sequence)
    machine = boxes(-(-layout.devices // 4) * 4, 4)
    job = Training(batch=dp * rounds, seq=30, recompute=recompute)
    one, more = (training_step(model, layout, replace(job, batch=job.batch * times), machine) for times in (1, 3))
    assert all(row.seconds >= 0 for row in one.rows)
    assert one.mfu <= one.hfu <= A100.flops_reached * (1 + 1e-9)
    assert zero >= 2 or more.mfu >= one.mfu * (1 - 1e-9)


def test_one_device_only_computes_and_updates():
    time = training_step(GPT3, Layout(), Training(batch=4), boxes(1))
    assert [row.term for row in time.rows] == ["products", "optimizer"]
    assert time.rows[0].seconds == pytest.approx(flops.step(GPT3, Training(batch=4)).model
                                                 / (A100.peak("bf16") * A100.flops_reached))
    assert time.rows[1].seconds == pytest.approx(GPT3.parameters * (2 + 24 + 2) / (2.039e12 * 0.68))


def test_bubble_of_even_stages_is_the_formula():
    deep = gpt(64, 512, 8, vocab=8)                                       # next to no head: stages alike
    rows = {row.term: row.seconds for row in training_step(deep, Layout(pp=8), replace(FULL, batch=64),
                                                           boxes(8)).rows}
    assert rows["pipeline bubble"] / rows["products"] == pytest.approx(7 / 64, rel=1e-3)
    chunks = Layout(pp=8, schedule="interleaved", chunks=4)
    finer = {row.term: row.seconds for row in training_step(deep, chunks, replace(FULL, batch=64), boxes(8)).rows}
    assert finer["pipeline bubble"] / finer["products"] == pytest.approx(7 / 64 / 4, rel=1e-3)
    assert finer["sends between stages"] > 3 * rows["sends between stages"]


def test_data_parallelism_hides_behind_passes():
    job = Training(batch=64, seq=512)
    shown, beside = (training_step(LLAMA_65B, Layout(tp=8, dp=8), job, boxes(64), overlap=overlap)
                     for overlap in (False, True))
    data = {row.term: row.seconds for row in shown.rows}["data parallelism"]
    assert shown.seconds - beside.seconds == pytest.approx(beside.hidden["dp"])
    assert beside.hidden["dp"] <= data
    by_zero = [training_step(LLAMA_65B, Layout(tp=8, dp=8, zero=zero), job, boxes(64), overlap=False).seconds
               for zero in (1, 2, 3)]
    assert by_zero == sorted(by_zero)                                     # 8 micro-batches: each stage moves more
    assert by_zero[2] > 1.5 * by_zero[0]


@pytest.mark.parametrize(("precision", "size"), [(MIXED, 28), (MIXED_FP32_GRADIENTS, 30), (FLOAT32, 28),
                                                 (PURE_BF16, 14)])
def test_an_update_reads_the_weights_where_they_are_the_only_copy(precision, size):
    numbers, moved = updated(GPT3, Layout(), Training(precision=precision), Place(0, 0, 0, 0))
    assert moved == size * numbers and numbers == GPT3.parameters


def test_first_weights_and_last_gradients_are_never_hidden():
    """However long the passes are: a layer's share of each. Of ZeRO's stages that take equally long one moves least."""
    job, machine = Training(batch=512, seq=8192), boxes(64)
    steps = [training_step(LLAMA_65B, Layout(tp=8, dp=8, zero=zero), job, machine) for zero in (0, 1, 2, 3)]
    for zero, step in enumerate(steps):
        row = next(row for row in step.rows if row.term == "data parallelism")
        bare = (("all_reduce",), ("reduce_scatter", "all_gather"))[zero > 0]
        held = LLAMA_65B.on_stage(Layout(tp=8, dp=8), Place(0, 0, 0, 0)).values()
        layer = 2 * sum(part.total for part in held) / 80
        assert row.seconds == pytest.approx(sum(price(op, layer, (1, 8), machine).seconds for op in bare))
        assert step.hidden["dp"] > 20 * row.seconds
    assert steps[1].seconds == pytest.approx(steps[3].seconds)
    assert steps[0].moved <= steps[1].moved * 1.001 < steps[2].moved < steps[3].moved


def test_links_that_another_axis_uses_hide_less():
    """The same step with tp and dp in one box, where both take its link, hides less than the passes are long."""
    job, inner = Training(batch=4, seq=256), boxes(8, inner=replace(ETHERNET, bytes_per_s=1e9))
    shared = training_step(LLAMA_65B, Layout(tp=2, dp=4), job, inner)
    terms = {row.term: row.seconds for row in shared.rows}
    backward = 2 / 3 * terms["products"]
    assert terms["tensor parallelism"] > terms["products"] > 0
    assert shared.hidden["dp"] == pytest.approx(backward)


def test_recomputed_scores_say_what_kor_counts():
    row = training_step(GPT3, Layout(tp=8), replace(FULL, recompute="selective"), boxes(8)).rows[0]
    printed = flops.gpt_selective(1, 2048, 96, 12288, 51200) / flops.step(GPT3, replace(FULL, recompute="selective")
                                                                          ).hardware
    assert f"an HFU {printed - 1:.1%} higher" in row.note


def test_slower_links_between_boxes_punish_tensor_parallelism_most():
    """Why it stays inside a box: SC21, takeaway 1."""
    job = replace(FULL, batch=64)
    inside = training_step(GPT3, Layout(tp=8, pp=8), job, boxes(64)).seconds
    across = training_step(GPT3, Layout(tp=64), job, boxes(64)).seconds
    assert across > 2 * inside


@pytest.mark.parametrize("layout, job", [(Layout(dp=3), Training(batch=4)),
                                         (Layout(pp=4, schedule="interleaved", chunks=2), Training(batch=6))])
def test_what_cannot_be_dealt_is_refused(layout, job):
    with pytest.raises(ConfigError):
        training_step(gpt(8, 512, 8), layout, job, boxes(8))


KOR = [(48, 6144, 64, 1, 4, 4, 1, 1.42, 1.10), (96, 12288, 96, 8, 64, 1, 3, 18.13, 13.75),
       (105, 20480, 128, 35, 280, 1, 3, 49.05, 37.83), (128, 25600, 160, 64, 512, 1, 1, 94.42, 71.49)]


@pytest.mark.parametrize("layers, hidden, heads, pp, batch, micro_batch, chunks, full, selective", KOR)
def test_kor_table_5(layers, hidden, heads, pp, batch, micro_batch, chunks, full, selective):
    """Seconds a step within 30 %, what selective recomputation with sequence parallelism gains within 5 points."""
    model = gpt(layers, hidden, heads)
    schedule = "interleaved" if chunks > 1 else "1f1b"
    slow, fast = (training_step(model, Layout(tp=8, pp=pp, sequence=sequence, schedule=schedule, chunks=chunks),
                                Training(batch=batch, micro_batch=micro_batch, recompute=recompute),
                                boxes(8 * pp)).seconds
                  for sequence, recompute in ((False, "full"), (True, "selective")))
    assert slow == pytest.approx(full, rel=0.3)
    assert fast == pytest.approx(selective, rel=0.3)
    assert slow / fast == pytest.approx(full / selective, abs=0.05)


def test_meg19_weak_scaling():
    """Shoeybi et al. 2019, figure 5: 100, 95, 82, 77 % at 1, 2, 4, 8 V100 of a DGX-2H, full recomputation."""
    speed = {}
    for tp, layers, hidden, heads in ((1, 40, 1536, 16), (2, 54, 1920, 20), (4, 64, 2304, 24), (8, 72, 3072, 24)):
        nvlink = Link("NVLink 2", 1.5e-6, 120e9, "of 150 in the specification")
        speed[tp] = training_step(gpt(layers, hidden, heads, positions=1024), Layout(tp=tp),
                                  Training(batch=8, micro_batch=8, seq=1024, recompute="full"),
                                  boxes(tp, 16, V100, nvlink)).flops_per_device
    efficiency = [speed[tp] / speed[1] for tp in speed]
    assert efficiency == pytest.approx([1.0, 0.95, 0.82, 0.77], abs=0.05)


def test_gpt3_on_400_cards():
    """C18: about 65 days by 8PT at 140 TFLOP/s on A100, 370 on V100 at 24.6 (by 6PT)."""
    assert flops.training_days(flops.training_flops(174.6e9, 300e9), 400, 140e12) == pytest.approx(65, rel=0.01)
    assert flops.training_days(flops.training_flops(174.6e9, 300e9), 400, 24.6e12) == pytest.approx(370, rel=0.01)
    time = training_step(GPT3, Layout(tp=8, pp=10, dp=5, stage_layers=(10,) * 6 + (9,) * 4),
                         replace(FULL, batch=1600, tokens=300e9), boxes(400))
    assert 70 < time.days < 110                                            # recomputes: 8PT; 50 machines of 8
