"""The time of a token: what is read, how often ranks meet, what bounds it, and published speeds."""
from dataclasses import replace

import pytest

from minitp.errors import ConfigError
from minitp.plan import memory
from minitp.plan.job import Inference
from minitp.plan.layout import Layout, Place
from minitp.plan.links import Link
from minitp.plan.machine import Level, Machine
from minitp.plan.rows import by_kind
from minitp.plan.simulate import simulated
from minitp.plan.speed import flops
from minitp.plan.speed.decode import prefill, token
from minitp.plan.speed.reading import bytes_read
from minitp.plan.speed.what_if import scaling
from minitp.trace.predict import GenerationPlan, forward_pass
from tests.plan.plan_models import (
    A100,
    ETHERNET,
    GPT3,
    LLAMA2_7B,
    LLAMA2_70B,
    LLAMA31_8B,
    LLAMA31_70B,
    LLAMA31_405B,
    boxes,
    gpt,
    llama,
)

ONE = Inference(prompt=1, new=0)
GPT_FAST = [                        # bytes/s reached, tokens/s and GB read by tp: gpt-fast's README, A100-80, batch 1
    (LLAMA2_7B, 1397.31e9, {2: (168.84, 7.0007), 4: (254.02, 3.7628), 8: (328.43, 2.1438)}, True),
    (LLAMA2_70B, 1481.87e9, {2: (21.32, None), 8: (62.5, None)}, True),
    (LLAMA31_8B, 1408.37e9, {1: (93.83, 15.0098), 2: (149.1, 8.0303), 8: (276.01, None)}, False),
    (LLAMA31_70B, 1360.53e9, {2: (16.03, None), 4: (37.45, None), 8: (58.78, 19.2176)}, False)]


def tabled(bandwidth: float, seconds: float, ranks: int) -> Machine:
    """One box with a rate that is reached, and all-reduces that all take the same."""
    device = replace(A100, bandwidth=bandwidth, bandwidth_reached=1.0)
    table = {("all_reduce", ranks): ((1, seconds), (10**9, seconds))}
    return Machine("by rates", device, (Level("box", ranks, Link("NVLink", 1e-6, 235e9, "made"), 0, table),))


@pytest.mark.parametrize("model, rate, published, table_counted", GPT_FAST)
def test_gpt_fast_is_met_within_a_fifth(model, rate, published, table_counted):
    for tp, (speed, gigabytes) in published.items():
        time = token(model, Layout(tp=tp), ONE, tabled(rate, 22e-6, tp), ends="copied", policy="tables")
        assert time.tokens_per_s == pytest.approx(speed, rel=0.2)
        assert time.syncs == 2 * model.config.layers                     # copied ends meet at none
        if gigabytes:
            read = bytes_read(model, Layout(tp=tp), ONE, Place(0, 0, 0, 0), ends="copied")
            assert (read.weights + read.table * table_counted) / 1e9 == pytest.approx(gigabytes, rel=0.003)


@pytest.mark.parametrize("model, layout", [
    (llama(3, 24, 6, 3, 40, 50), Layout(tp=5)), (llama(5, 24, 6, 2, 40, 50), Layout(tp=4, pp=3)),
    (gpt(4, 24, 6, 50), Layout(tp=3, embedding="hidden"))])
def test_sync_points_are_those_of_the_closed_form(model, layout):
    """Count and latency: an all-reduce of many hops on a link where only messages cost."""
    link = Link("by hop", 1.0, 1e30, "made")
    machine = Machine("hops", A100, (Level("net", layout.devices, link),))
    time = token(model, layout, ONE, machine, policy="ring")
    plan = GenerationPlan(model.placement(layout.tp, layout.embedding), "slice", "float32", 1, [("decode", 1)], 1)
    events = list(forward_pass(plan, "decode", 0, 1))
    assert time.syncs == len(events) == 2 * model.config.layers + 2
    hops = {"all_reduce": 2 * (layout.tp - 1), "all_gather": layout.tp - 1}
    messages = layout.pp if layout.pp > 1 else 0
    assert time.latency_s == pytest.approx(sum(hops[event.op] for event in events) + messages)


def test_payload_is_scaled_to_its_type_and_logits_stay_float32():
    machine = Machine("bytes", A100, (Level("net", 2, Link("by byte", 0.0, 1.0, "made")),))
    plan = GenerationPlan(LLAMA2_7B.placement(2), "slice", "float32", 1, [("decode", 1)], 1)
    events = list(forward_pass(plan, "decode", 0, 1))
    logits = events[-1].payload / 2                                     # a rank gets the other's half
    stream = sum(event.payload for event in events[:-1])                # a ring of 2 moves n in all
    for dtype, share in (("float32", 1.0), ("bf16", 0.5), ("q80", 34 / 128)):
        time = token(LLAMA2_7B, Layout(tp=2), replace(ONE, activations=dtype), machine, policy="ring")
        assert time.moving_s == pytest.approx(stream * share + logits)


def test_every_rank_of_a_grid_reads_its_share():
    job = Inference(batch=4, prompt=1000, new=24)
    layout = Layout(tp=8, pp=2)
    reads = [bytes_read(LLAMA31_405B, layout, job, Place(tp, 0, 0, pp)) for tp in range(8) for pp in range(2)]
    weights = 2 * (LLAMA31_405B.parameters - 128256 * 16384)
    norms = 2 * 7 * (2 * 126 + 1) * 16384                               # held eight times
    assert sum(read.layers + read.head for read in reads) == weights + norms
    assert sum(read.cache for read in reads) == 516_096 * 4 * 1024
    assert bytes_read(LLAMA2_70B, Layout(tp=16), job, Place(0, 0, 0, 0)).cache == 327_680 / 8 * 4 * 1024  # copied heads


def test_latency_bounds_small_models_and_bandwidth_big_ones():
    rows = scaling(LLAMA2_7B, ONE, boxes(8))
    assert [row.tp for row in rows] == [1, 2, 4, 8]
    assert rows[0].efficiency == 1
    assert [row.efficiency for row in rows] == sorted((row.efficiency for row in rows), reverse=True)
    assert rows[-1].time.latency_s > rows[-1].time.moving_s             # 8 KiB messages
    slow = token(LLAMA2_7B, Layout(tp=8), ONE, boxes(8, inner=ETHERNET))
    assert slow.bound == "network"
    assert token(GPT3, Layout(tp=8), ONE, boxes(8)).bound == "memory"


def test_big_batches_compute_and_small_ones_read():
    """The crossover of planner.md, section 8: 312e12 / 2.039e12 · bytes of a weight."""
    def time(batch):
        return token(LLAMA2_7B, Layout(), replace(ONE, batch=batch), boxes(1))
    full = replace(A100, bandwidth_reached=1.0, flops_reached=1.0)
    crossover = full.peak("bf16") / full.bandwidth
    assert time(1).bound == "memory"
    assert time(int(4 * crossover)).compute_s > time(int(4 * crossover)).memory_s
    assert time(64).tokens_per_s > 40 * time(1).tokens_per_s            # weights are read once for all


def test_a_bigger_memory_alone_makes_tokens_slower():
    """C19: a model that fills 1 TB at the bandwidth of an 80 GB card takes 12.5 times as long a token."""
    rate = A100.bandwidth * A100.bandwidth_reached
    small, big = (token(llama(layers, 8192, 64, 8, 28672, 32000), Layout(), ONE, boxes(1)) for layers in (40, 500))
    assert big.seconds / small.seconds == pytest.approx(12.5, rel=0.02)
    assert big.seconds == pytest.approx(big.bytes_read / rate, rel=1e-3)


def test_experts_touched_grow_with_the_batch():
    mixtral = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2)
    reads = [bytes_read(mixtral, Layout(), replace(ONE, batch=batch), Place(0, 0, 0, 0)).layers
             for batch in (1, 2, 8, 64)]
    expert = 2 * 32 * 3 * 4096 * 14336
    dense = reads[0] - 2 * expert
    assert [round((read - dense) / expert, 2) for read in reads] == [
        round(flops.touched(8, 2, batch), 2) for batch in (1, 2, 8, 64)]
    assert reads[-1] == pytest.approx(dense + 8 * expert, rel=1e-6)
    spread = token(mixtral, Layout(dp=8, ep=8), replace(ONE, batch=64), boxes(8))
    assert any("experts" in row.term for row in spread.rows)


@pytest.mark.parametrize("batch", [1, 16])
def test_a_simulated_token_reads_the_experts_that_the_batch_visits(batch):
    mixtral, layout = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2), Layout(tp=8)
    one, two = (simulated(mixtral, layout, Inference(batch, 512, new), boxes(8)).seconds for new in (1, 2))
    added_up = token(mixtral, layout, Inference(batch, 512, 2), boxes(8), context=513).seconds
    assert two - one == pytest.approx(added_up, rel=0.01)


@pytest.mark.parametrize("cp", [2, 8])
def test_every_piece_of_a_context_does_a_new_tokens_products(cp):
    """They don't divide; scores and the cache do. A prompt's tokens are dealt."""
    job, prompt = Inference(batch=1024, prompt=16, new=2), Inference(batch=8, prompt=1024, new=0)
    whole, cut = (token(LLAMA2_7B, Layout(cp=pieces), job, boxes(8)) for pieces in (1, cp))
    assert cut.compute_s == pytest.approx(whole.compute_s)
    assert cut.memory_s == pytest.approx(whole.memory_s / cp)
    whole, cut = (prefill(LLAMA2_7B, Layout(cp=pieces), prompt, boxes(8)) for pieces in (1, cp))
    assert cut.compute_s == pytest.approx(whole.compute_s / cp, rel=0.01)
    experts = llama(4, 512, 8, 8, 1024, 100, experts=8, active=2)
    together = [bytes_read(experts, Layout(cp=cp, ep=ep), replace(job, batch=1), Place(0, 0, 0, 0)) for ep in (1, cp)]
    mlp = 4 * 8 * 3 * 512 * 1024 * 2
    assert together[0].layers - together[1].layers == pytest.approx(mlp * 2 / 8 * (1 - 1 / cp))  # the same one token


def test_a_prompt_computes_and_a_pipeline_takes_its_sequences_in_turn():
    job = Inference(batch=1, prompt=2048, new=1)
    one = prefill(LLAMA31_70B, Layout(tp=8), job, boxes(8))
    assert one.bound == "compute"
    assert one.seconds > 2 * LLAMA31_70B.parameters * 2048 / (8 * 312e12 * 0.57)
    deep = prefill(LLAMA31_70B, Layout(tp=8, pp=4), job, boxes(32))
    assert deep.seconds > one.seconds                                   # one sequence: one stage at a time
    four, sixteen = (prefill(LLAMA31_70B, Layout(tp=8, pp=4), replace(job, batch=n), boxes(32)) for n in (4, 16))
    assert sixteen.seconds / four.seconds == pytest.approx((16 + 3) / (4 + 3), rel=0.03)


def test_a_cut_cache_is_read_in_parts_and_merged():
    """C06: each rank attends to its part of the context; what it costs is one all-reduce a layer more."""
    job = Inference(prompt=128_000, new=1000)
    whole, cut = (token(LLAMA31_8B, Layout(tp=2, cp=cp), job, boxes(8)) for cp in (1, 4))
    cache = {time: next(row.seconds for row in time.rows if "KV cache" in row.term) for time in (whole, cut)}
    assert cache[cut] == pytest.approx(cache[whole] / 4)
    assert any("merge" in row.term for row in cut.rows) and cut.latency_s > whole.latency_s
    assert cut.seconds < whole.seconds


def test_groups_keep_a_pipelines_stages_busy():
    job, layout = Inference(batch=8, prompt=100, new=28), Layout(tp=8, pp=4)
    one, four = (token(LLAMA31_405B, layout, job, boxes(32), groups=groups) for groups in (1, 4))
    assert four.sequences == 8
    assert 1.0 < four.tokens_per_s / one.tokens_per_s < 1.2              # weights are read as often, the cache less
    many = replace(job, batch=4096)
    one, four = (token(LLAMA31_70B, layout, many, boxes(32), groups=groups) for groups in (1, 4))
    assert four.tokens_per_s > 3 * one.tokens_per_s                      # where it computes, idle stages are lost
    with pytest.raises(ConfigError, match="5 groups"):
        token(LLAMA31_405B, layout, job, boxes(32), groups=5)


def test_plain_form_has_everything():
    plain = token(LLAMA2_7B, Layout(tp=2), ONE, boxes(2)).to_plain()
    assert plain["sync points"] == 66
    assert sum(row["seconds"] for row in plain["rows"]) == pytest.approx(plain["seconds"])
    assert plain["seconds"] == pytest.approx(sum(plain[part] for part in ("memory s", "compute s", "latency s",
                                                                          "moving s")))


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=8, pp=2), Layout(tp=16), Layout(tp=2, pp=3, dp=2)])
def test_what_is_read_is_what_is_held(layout):
    """All but the table's other rows: the same numbers as the memory's rows."""
    job = Inference(batch=6, prompt=100, new=28)
    for stage in (0, layout.pp - 1):
        place = Place(0, 0, 0, stage)
        read, held = bytes_read(LLAMA31_70B, layout, job, place), by_kind(memory.rows(LLAMA31_70B, layout, job, place))
        assert read.layers + read.head + read.table == held["weights"]
        assert read.cache == held["kv cache"]
