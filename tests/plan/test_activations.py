"""Activations against Korthikanti et al. 2022, table 2 and section 4, exactly; and how a schedule multiplies them."""
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.plan.job import Training
from minitp.plan.layout import Layout, Place
from minitp.plan.memory import activations, rows, terms
from minitp.plan.memory.rank_share import share
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row, total
from tests.plan.plan_models import GPT3, LLAMA31_8B, gpt

KORTHIKANTI = {"22B": gpt(48, 6144, 64), "175B": GPT3, "530B": gpt(105, 20480, 128), "1T": gpt(128, 25600, 160)}


def one_layer(model: PlannedModel, layout: Layout, job: Training) -> list[Row]:
    """What one layer keeps of one micro-batch on the first rank."""
    return terms.rows(activations.layer(share(model, layout, Place(0, 0, 0, 0)), job))


@settings(max_examples=40)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 3), st.integers(1, 20), st.sampled_from([8, 16]),
       st.integers(1, 8), st.booleans())
def test_table_2(t, b, s, a, e, sequence):
    h, s = a * 2 * e, 8 * s
    model, layout = gpt(2, h, a), Layout(tp=t, sequence=sequence)
    job = Training(seq=s, micro_batch=b, batch=b, stored=True, dropout=True)
    sbh, scores = s * b * h, 5 * a * s * s * b

    def held(recompute: str) -> int:
        return total(one_layer(model, layout, replace(job, recompute=recompute)))

    if sequence:
        assert held("none") * t == 34 * sbh + scores
        assert held("selective") * t == 34 * sbh
        assert held("full") * t == 2 * sbh
    else:
        assert held("none") * t == (10 * t + 24) * sbh + scores
        assert held("selective") * t == (10 * t + 24) * sbh
        assert held("full") == 2 * sbh
    fused = total(one_layer(model, layout, replace(job, stored=False)))
    assert fused == held("selective") + 4 * a * s * b // t              # a sum for each row of scores instead


@pytest.mark.parametrize(("name", "printed"), [("175B", 70), ("530B", 65)])
def test_what_selective_recomputation_saves(name, printed):
    job = Training(stored=True, dropout=True)
    whole, kept = (total(one_layer(KORTHIKANTI[name], Layout(), replace(job, recompute=recompute)))
                   for recompute in ("none", "selective"))
    assert round(100 * (1 - kept / whole)) == printed


@pytest.mark.parametrize(("name", "both", "full"), [("22B", 16.1, 7.6), ("175B", 18.5, 8.7), ("530B", 20.2, 9.5),
                                                    ("1T", 20.2, 9.5)])
def test_figure_7(name, both, full):
    """Activations left, in percent of tensor parallelism alone."""
    job = Training(stored=True, dropout=True)
    base = total(one_layer(KORTHIKANTI[name], Layout(tp=8), job))
    left = total(one_layer(KORTHIKANTI[name], Layout(tp=8, sequence=True), replace(job, recompute="selective")))
    assert 100 * left / base == pytest.approx(both, abs=0.06)
    again = total(one_layer(KORTHIKANTI[name], Layout(tp=8), replace(job, recompute="full")))
    assert 100 * again / base == pytest.approx(full, abs=0.06)


def test_first_stage_holds_all_layers_worth_whatever_p():
    """p micro-batches of L/p layers; 1 + (p - 1)/(p · v) times as much interleaved; stage i p - i; GPipe m."""
    job = Training(batch=64, stored=True, dropout=True)
    model = KORTHIKANTI["175B"]

    def stream(layout: Layout, stage: int = 0) -> float:
        held = {row.term: row.bytes for row in rows(model, layout, job, Place(0, 0, 0, stage))}
        return held["norm inputs"] / (2 * 2 * 2048 * 12288)

    for p in (2, 4, 8, 16):
        assert [stream(Layout(tp=8, pp=p), stage) for stage in range(p)] == [(p - i) * 96 / p for i in range(p)]
        assert stream(Layout(tp=8, pp=p, schedule="gpipe")) == 64 * 96 / p
    assert stream(Layout(tp=8, pp=8, schedule="interleaved", chunks=3)) == 96 * (1 + 7 / 24)


def test_outside_the_layers():
    """sbh·p/t of the embedding's dropout; 4sbh/t · (1 + V/h) of norm, head and logits (section 4.3)."""
    job = Training(batch=16, micro_batch=2, dropout=True, stored=True)
    model, sbh = KORTHIKANTI["22B"], 2048 * 2 * 6144
    first = {row.term: row.bytes for row in rows(model, Layout(tp=8, pp=4, sequence=True), job, Place(0, 0, 0, 0))}
    assert first["embedding's dropout mask"] == sbh * 4 // 8
    last = {row.term: row.bytes for row in rows(model, Layout(tp=8, pp=4, sequence=True), job, Place(0, 0, 0, 3))}
    assert last["last norm's input"] + last["head's input"] + last["logits"] == 4 * sbh // 8 * (1 + 51200 / 6144)


def test_full_recomputation_holds_one_layer_more():
    """One layer of one micro-batch is there while its backward pass runs; its input is the one that was kept."""
    job = Training(stored=True, dropout=True, recompute="full")
    held = {row.term: row.bytes for row in rows(LLAMA31_8B, Layout(), job, Place(0, 0, 0, 0))}
    layer = total(one_layer(LLAMA31_8B, Layout(), replace(job, recompute="none")))
    assert held["one layer, computed again"] == layer - 2 * 2048 * 4096
    assert held["layer inputs"] == 32 * 2 * 2048 * 4096
    scores = {row.term: row.bytes for row in rows(LLAMA31_8B, Layout(), replace(job, recompute="selective"),
                                                  Place(0, 0, 0, 0))}
    assert scores["scores, computed again"] == 5 * 32 * 2048**2


def test_a_gated_layer_with_few_kv_heads():
    """Llama 3 8B: 2 norm inputs, 2 inputs, q and output 1 each, k and v ¼ each, 3 of F = 3.5h: 17 copies of b·s·h."""
    layer = total(one_layer(LLAMA31_8B, Layout(), Training(recompute="selective")))
    assert layer == 17 * 2 * 2048 * 4096
