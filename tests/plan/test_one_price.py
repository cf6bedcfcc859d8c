"""One rule prices a collective wherever it is planned: a token, a step, a chart, a simulation."""
from dataclasses import replace
from itertools import pairwise

import pytest

from minitp.errors import ConfigError
from minitp.plan import catalogue, network
from minitp.plan.job import Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.network import price
from minitp.plan.network.curve import curve, sync_point
from minitp.plan.network.policies import library
from minitp.plan.simulate import simulated
from minitp.plan.simulate.planned import planned
from minitp.plan.simulate.prices import of_sync
from minitp.plan.speed import traffic
from minitp.plan.speed.decode import token
from minitp.plan.speed.step import training_step
from tests.plan.plan_models import LLAMA2_7B, LLAMA2_70B

ONE = Inference(prompt=1, new=0)
STEP = Training(batch=8, seq=2048, micro_batch=1, recompute="none")
GPUS = [name for name, machine in catalogue.machines().items()
        if machine.device.kind == "gpu" and len(machine.levels) > 1]
SIZES = tuple(1 << power for power in range(3, 35, 2))


@pytest.mark.parametrize("name", ["8xa100-80", "8xh100-80", "8xmi300x", "raspberry-pi-cluster"])
def test_a_sync_has_one_price(name):
    """16 KiB over 8 ranks in a chart, a token and a simulation; on the A100 NCCL's 15.3 µs and 8 around."""
    machine, point = catalogue.machine(name, devices=8), sync_point(LLAMA2_70B)
    drawn = curve(machine, "all_reduce", 8, marks=[point], sizes=(2, 16384))
    once = drawn.marks[0].seconds
    assert drawn.seconds[1] == once == price("all_reduce", 16384, machine.meeting(8), machine).seconds
    assert once == of_sync(machine, "all_reduce", 16384, range(8)).seconds
    layers = next(row for row in token(LLAMA2_70B, Layout(tp=8), ONE, machine).rows if "sync points, layer" in row.term)
    assert layers.seconds == pytest.approx(160 * once)
    if name == "8xa100-80":
        assert once * 1e6 == pytest.approx(23.3, abs=0.1)


def test_a_step_prices_its_collectives_as_a_chart_does():
    machine, layout = catalogue.machine("8xa100-80"), Layout(tp=8)
    rows = [row for row in traffic.step(LLAMA2_7B, layout, STEP, machine) if row.axis == "tp"]
    charted = sum(row.count * curve(machine, row.op, 8, sizes=(int(row.payload),)).seconds[0] for row in rows)
    step = training_step(LLAMA2_7B, layout, STEP, machine)
    assert next(row.seconds for row in step.rows if row.term == "tensor parallelism") == pytest.approx(charted)


def test_groups_that_straddle_boxes_make_a_step_as_slow_as_simulated():
    """TP6 on boxes of 8: the first group lies in one box, the second doesn't, and the step waits for it."""
    machine, layout = catalogue.machine("3x8xa100-80"), Layout(tp=6, dp=4, sequence=True)
    assert machine.spread(layout, "tp") == (4, 2) and machine.spread(Layout(tp=6), "tp") == (6, 1)
    planned = training_step(LLAMA2_7B, layout, STEP, machine, overlap=False).seconds
    assert planned == pytest.approx(simulated(LLAMA2_7B, layout, STEP, machine).seconds, rel=0.05)


LLAMA2_13B = catalogue.model("llama-2-13b")
UNEVEN = [(LLAMA2_13B, Layout(tp=3, pp=5)), (LLAMA2_13B, Layout(tp=6, pp=4)), (LLAMA2_13B, Layout(tp=5, pp=3))]


@pytest.mark.parametrize(("model", "layout"), UNEVEN)
def test_each_stage_waits_for_its_own_groups(model, layout):
    """TP3 × PP5 on two boxes of 8: only the third stage's group straddles their wall, and only it pays for that."""
    machine = catalogue.machine("2x8xa100-80").with_devices(8 * -(-layout.devices // 8))
    answer = Inference(4, 512, 8)
    assert planned(model, layout, answer, machine).seconds == pytest.approx(
        simulated(model, layout, answer, machine).seconds, rel=0.02)
    work = Training(16, 2048, 1, recompute="full")
    step = training_step(model, layout, work, machine, overlap=False)
    assert step.seconds == pytest.approx(simulated(model, layout, work, machine).seconds, rel=0.025)
    worst = max(range(layout.pp), key=lambda stage: machine.spread(layout, "tp", stage)[::-1])
    assert machine.spread(layout, "tp", step.stage) == machine.spread(layout, "tp", worst) == machine.spread(
        layout, "tp")


def test_stages_lie_on_boxes_as_their_devices_do():
    machine = catalogue.machine("2x8xa100-80")
    assert [machine.spread(Layout(tp=3, pp=5), "tp", stage) for stage in range(5)] == [
        (3, 1), (3, 1), (2, 2), (3, 1), (3, 1)]
    many = catalogue.machine("3x8xa100-80").with_devices(48)
    for layout in (Layout(tp=3, pp=4, dp=4), Layout(tp=5, cp=2, pp=4), Layout(tp=2, cp=3, dp=2, pp=4),
                   Layout(dp=6, pp=8)):
        for axis in ("tp", "cp", "dp"):
            for stage in range(layout.pp):
                ranks = range(stage * layout.strides["pp"], (stage + 1) * layout.strides["pp"])
                met = max((many.meeting_of(layout.group(axis, rank)) for rank in ranks), key=lambda one: one[::-1])
                assert many.spread(layout, axis, stage) == met, (layout, axis, stage)


@pytest.mark.parametrize("name", GPUS)
def test_more_boxes_are_never_cheaper_and_an_all_reduce_is_no_dearer_than_its_halves(name):
    machine = catalogue.machine(name)
    each = machine.per_machine
    two = machine.with_devices(2 * each)
    for size in SIZES:
        inside, across = (price("all_reduce", size, (each, boxes), two, keep=False).seconds for boxes in (1, 2))
        assert across >= inside * (1 - 1e-9), size
        for meeting, whole in (((each, 1), inside), ((each, 2), across)):
            halves = sum(price(op, size, meeting, two, keep=False).seconds for op in ("reduce_scatter", "all_gather"))
            assert 0.95 * whole < halves < (1.5 if size >= 2**28 else 2.5) * whole, (size, meeting)


def test_a_token_takes_longer_the_longer_a_link_does():
    """500 µs is a hundred times 5, and TCP has its 30 µs at every hop, inside a box and between."""
    for change, machine, tp in (("link", "8xa100-80", 8), ("between", "2x8xa100-80", 16)):
        times = [token(LLAMA2_70B, Layout(tp=tp), ONE, catalogue.machine(machine, **{change: f"{us}us,25GB/s"}))
                 for us in (1, 5, 50, 500)]
        assert all(one.seconds < other.seconds for one, other in pairwise(times))
        assert times[3].network_s > 20 * times[1].network_s
    tcp = token(LLAMA2_70B, Layout(tp=8), ONE, catalogue.machine("8xa100-80", link="ethernet-100g"), ends="copied")
    assert tcp.latency_s >= 160 * 6 * 30e-6                                # NCCL's tree of 8 cards: up and down 3 hops


@pytest.mark.parametrize("members, share", [(2, 1 / 7), (4, 3 / 7), (8, 1)])
def test_cards_without_a_switch_have_the_wires_to_one_another(members, share):
    """MI300X: 44.7 GB/s between two, of 313 among eight; 48 are published."""
    machine = catalogue.machine("8xmi300x", devices=members)
    size = 2**34
    reached = 2 * (members - 1) / members * size / price("all_reduce", size, (members, 1), machine).seconds
    assert reached == pytest.approx(313e9 * share, rel=0.01)


def test_only_boundaries_that_cross_go_over_the_network():
    """16 stages in two boxes: one boundary of 15 crosses, and the pipeline's pace is that of its message."""
    machine, layout = catalogue.machine("2x8xa100-80"), Layout(pp=16)
    job = Training(batch=16, seq=2048, micro_batch=1)
    inside, between = (next(row for row in traffic.step(LLAMA2_7B, layout, job, machine, stage=stage)
                            if row.axis == "pp" and row.phase == "forward") for stage in (3, 7))
    assert set(inside.wire) == {"NVSwitch"} and set(between.wire) == {"InfiniBand"}
    assert inside.meeting == between.meeting == (1, 2)
    assert inside.per_link["InfiniBand"] == pytest.approx(inside.payload * inside.count / 15)
    sent = token(LLAMA2_7B, layout, ONE, machine)
    assert [row.numbers[:2] for row in sent.rows if row.term == "to the next stage"] == ["14", "1 "]


def test_a_machine_does_not_change_under_its_prices():
    """Prices are remembered by machine: its tables and rates can't be written to, nor by whoever made it."""
    machine, rates = catalogue.machine("8xa100-80"), {"bf16": 1e15}
    with pytest.raises(TypeError):
        machine.levels[0].tables["all_reduce", 8] = ((1, 1.0),)
    with pytest.raises(TypeError):
        machine.measured["world"] = "mpi"
    device = replace(machine.device, flops=rates)
    rates["bf16"] = 0.0
    assert device.peak("bf16") == 1e15


def test_a_chart_leaves_remembered_prices_alone():
    network._kept.cache_clear()
    curve(catalogue.machine("8xa100-80"), "all_reduce", 8)
    assert network._kept.cache_info().currsize == 0


def test_a_files_link_keeps_what_prices_go_by(tmp_path):
    machine = catalogue.machine("8xmi300x")
    catalogue.write_machine(machine, tmp_path / "mine.toml")
    inner, outer = (level.link for level in catalogue.machine(tmp_path / "mine.toml").levels)
    assert (inner.peers, inner.kind, outer.peers, outer.kind) == (7, "xgmi", 0, "rdma")
    (tmp_path / "bad.toml").write_text((tmp_path / "mine.toml").read_text().replace('"rdma"', '"radio"'))
    with pytest.raises(ConfigError, match="nvlink, pcie, xgmi, rdma"):
        catalogue.machine(tmp_path / "bad.toml")


def test_the_library_of_a_machine():
    known = {"8xa100-80": "nccl", "tpu-v4-pods": "best", "raspberry-pi-cluster": "best"}
    assert {name: library(catalogue.machine(name)) for name in known} == known
