"""What a step moves: against the closed form of a run, the schedules of real collectives, and published volumes."""
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.plan.job import FLOAT32, MIXED, MIXED_FP32_GRADIENTS, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.speed import traffic
from minitp.plan.speed.syncs import syncs
from minitp.trace.predict import Steps, TrainingPlan, predict
from tests.plan.plan_models import GPT3, LLAMA31_405B, boxes, gpt, llama
from tests.plan.wire import moved

SMALL = llama(3, 24, 6, 3, 40, 50)


@pytest.mark.parametrize("model, tp, embedding, recompute", [
    (SMALL, 2, "vocab", "none"), (SMALL, 5, "vocab", "full"), (SMALL, 3, "vocab", "selective"),
    (gpt(4, 24, 6, 50), 3, "hidden", "full"), (gpt(4, 24, 6, 50), 2, "vocab", "none")])
def test_sync_points_of_a_step_are_the_closed_form_of_a_run(model, tp, embedding, recompute):
    """Op and payload of every event that the trace of such a run has, but for the norm of all gradients."""
    layout, job = Layout(tp=tp, embedding=embedding), Training(batch=6, seq=7, micro_batch=2, recompute=recompute,
                                                               precision=FLOAT32)
    plan = TrainingPlan(model.placement(tp, embedding), "float32", [Steps(0, 1, ((2, 7),) * 3)], recompute)
    events = Counter((event.phase, event.op, event.payload) for event in predict(plan)
                     if event.site != "gradients.norm")
    planned: Counter = Counter()
    for row in traffic.step(model, layout, job, boxes(tp)):
        planned["forward" if row.phase == "loss" else row.phase, row.op, row.payload] += row.count
    assert planned == events
    assert sum(sync.times for sync in syncs(model, layout, 2, 7)) > 0


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), st.integers(2, 9))
def test_a_rings_share_is_counted_from_its_schedule(op, ranks):
    shares = [rank.sent for rank in moved(op, "ring", ranks, 1)]
    assert set(shares) == {Fraction(2 if op == "all_reduce" else 1) * (ranks - 1) / ranks}
    assert traffic.wire_shares(op, (ranks,)) == (float(shares[0]),)
    assert {rank.sent for rank in moved("all_to_all", "pairwise", ranks, 1)} == {Fraction(ranks - 1, ranks * ranks)}
    assert [rank.sent for rank in moved("all_reduce", "star", ranks, 1)] == [ranks - 1, *[1] * (ranks - 1)]
    assert max(rank.sent for rank in moved("all_reduce", "doubling", 8, 1)) == 3


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
       st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
def test_levels_share_out_what_a_ring_sends(op, meeting):
    ranks = prod(meeting)
    at_least = {"all_reduce": 2 * (ranks - 1) / ranks, "all_to_all": (ranks - 1) / ranks / ranks}
    total = sum(traffic.wire_shares(op, meeting))
    least = at_least.get(op, (ranks - 1) / ranks)
    assert total == pytest.approx(least) if op != "all_to_all" else total >= least - 1e-12


def test_tensor_parallelism_moves_8bsh_a_layer_and_sequence_parallelism_as_much():
    """SC21, section 3.2: 8·b·s·h·(t − 1)/t elements a layer; KOR: the same with sequence parallelism."""
    job = Training(batch=1, seq=2048)
    sent = {}
    for sequence in (False, True):
        rows = traffic.step(GPT3, Layout(tp=8, sequence=sequence), job, boxes(8))
        inside = [row for row in rows if "layer" in row.term]
        sent[sequence] = sum(row.sent for row in inside)
        assert sum(row.count for row in inside) == 96 * (8 if sequence else 4)
    assert sent[False] == pytest.approx(96 * 8 * 2048 * 12288 * 7 / 8 * 2)
    assert sent[True] == pytest.approx(sent[False])
    full = traffic.step(GPT3, Layout(tp=8), Training(batch=1, recompute="full"), boxes(8))
    inside = sum(row.payload * row.count * 2 for row in full if "layer" in row.term)
    assert inside == 96 * 12 * 2048 * 12288 * 2                          # ZeRO, section 8: 12bsh


@pytest.mark.parametrize("zero, moved", [(0, lambda m: 8), (1, lambda m: 6), (2, lambda m: 4 * m + 2),
                                         (3, lambda m: 8 * m)])
@pytest.mark.parametrize("m", [1, 4])
def test_zero_moves_what_planner_section_4_says(zero, moved, m):
    """Bytes a parameter, times (d − 1)/d: bf16 gathers, float32 sums, m micro-batches."""
    d = 64
    job = Training(batch=d * m, seq=128, precision=MIXED_FP32_GRADIENTS)
    rows = traffic.step(SMALL, Layout(dp=d, zero=zero), job, boxes(d))
    assert {row.axis for row in rows} == {"dp"}
    assert sum(row.sent for row in rows) == pytest.approx(moved(m) * SMALL.parameters * (d - 1) / d)


@pytest.mark.parametrize(("zero", "counts"), [(1, {"reduce_scatter": {1}, "all_gather": {1}}),
                                              (2, {"reduce_scatter": {96 * 3, 3}, "all_gather": {1}}),
                                              (3, {"reduce_scatter": {96 * 3, 3}, "all_gather": {96 * 3, 3}})])
def test_what_is_whole_for_one_layer_moves_layer_by_layer(zero, counts):
    """As many collectives as layers and micro-batches, and one of each end: memory holds one layer at a time."""
    rows = traffic.step(GPT3, Layout(dp=64, zero=zero), Training(batch=64 * 3), boxes(64))
    assert {op: {row.count for row in rows if row.op == op} for op in counts} == counts
    layer = GPT3.on_stage(Layout(), Place(0, 0, 0, 0))["layer"].total / 96 * MIXED.gradients
    assert zero == 1 or next(row.payload for row in rows if row.count == 96 * 3) == layer


def test_traffic_of_405b_on_its_levels():
    """TP stays inside boxes of 8; PP and DP go between; the slow link carries less by far."""
    layout = Layout(tp=8, pp=16, dp=64, zero=1, sequence=True)
    rows = traffic.step(LLAMA31_405B, layout, Training(batch=2048, seq=8192), boxes(8192))
    assert {(row.axis, level) for row in rows for level in row.wire} == {
        ("sp", "box"), ("pp", "network"), ("dp", "network")}
    axes = traffic.by_axis(rows)
    links = {level: sum(row.per_link.get(level, 0) for row in rows) for level in ("box", "network")}
    assert axes["sp"] > 10 * axes["pp"] and axes["sp"] > 10 * axes["dp"]
    assert links["box"] == pytest.approx(axes["sp"])
    assert links["network"] == pytest.approx(axes["pp"] + axes["dp"])   # a port for each device


def test_pipeline_sends_a_part_each_and_chunks_send_more():
    one, whole = (traffic.step(GPT3, Layout(tp=8, pp=8), Training(batch=64), boxes(64), 3, scatter)
                  for scatter in (True, False))
    sends = [row for row in one if row.op == "send"]
    assert [row.payload for row in sends] == [2 * 2048 * 12288 / 8] * 2      # SC21: 3,145,728 elements
    assert [row.count for row in sends] == [64, 64]
    assert [row.payload for row in whole if row.op == "send"] == [2 * 2048 * 12288] * 2
    assert any("gather of what comes" in row.term for row in one)
    layout = Layout(tp=8, pp=8, schedule="interleaved", chunks=4)
    ends = {stage: sum(row.count for row in traffic.step(GPT3, layout, Training(batch=64), boxes(64), stage)
                       if row.op == "send") for stage in (0, 3, 7)}
    assert ends == {0: 64 * (4 + 3), 3: 64 * 8, 7: 64 * (4 + 3)}
    tied = [row for row in traffic.step(GPT3, Layout(pp=2), Training(batch=2), boxes(2), 0) if "tied" in row.term]
    assert tied[0].payload == 2 * 51200 * 12288


def test_a_cut_context_passes_keys_and_values_on():
    layout = Layout(tp=8, cp=16, pp=16, dp=8)
    rows = traffic.step(LLAMA31_405B, layout, Training(batch=128, seq=131072), boxes(16384), 0)
    ring = [row for row in rows if row.axis == "cp"]
    assert ring[0].payload == 2 * (131072 / 16) * 128 * 2                    # one kv head a rank
    assert ring[0].count == 15 * 8 * 16
    assert ring[1].count == 2 * ring[0].count
    replicas = next(row for row in rows if row.axis == "dp")
    assert prod(replicas.meeting) == 128                                      # weights are whole on cp · dp
    cut = traffic.step(LLAMA31_405B, replace(layout, zero=1), Training(batch=128, seq=131072), boxes(16384), 0)
    assert [(row.op, prod(row.meeting)) for row in cut if row.axis == "dp"] == [
        ("reduce_scatter", 8), ("all_gather", 8), ("all_reduce", 16)]


def test_experts_exchange_tokens_and_sum_over_their_own_replicas():
    mixtral = llama(4, 64, 8, 8, 128, 100, experts=8, active=2)
    rows = traffic.step(mixtral, Layout(dp=8, ep=4), Training(batch=8, seq=32), boxes(8))
    exchange = [row for row in rows if row.axis == "ep"]
    assert [row.count for row in exchange] == [8, 8]
    assert exchange[0].sent == pytest.approx(8 * 32 * 64 * 2 * 2 * 3 / 4)     # a rank's tokens, twice, less its own
    sums = {row.term: row for row in rows if row.axis == "dp"}
    assert prod(sums["gradients of experts"].meeting) == 2
    assert sums["gradients of experts"].payload == 4 * 2 * 3 * 64 * 128 * 2


def test_copied_kv_heads_and_cut_norms_are_owed_once():
    rows = traffic.step(SMALL, Layout(tp=5, sequence=True), Training(batch=4, seq=32), boxes(5))
    owed = {row.term: row for row in rows if row.phase == "optimizer"}
    assert owed["gradients of copied kv heads"].payload == 2 * 3 * 2 * 24 * 12
    assert owed["gradients of norms and biases"].payload == 2 * 3 * 2 * 24
    assert {row.count for row in owed.values()} == {1}
    assert rows[0].to_plain()["sent"] == rows[0].sent
