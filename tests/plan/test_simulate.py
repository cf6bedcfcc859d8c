"""Simulated runs: those that run today have the real trace's events; the others what the planner counts."""
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.plan import catalogue, schedule
from minitp.plan.job import FLOAT32, MIXED, PURE_BF16, Inference, Job, Training
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate import replay, simulated
from minitp.plan.simulate.asked import first_tokens, replicas, usual_batch
from minitp.plan.simulate.classes import Straggler, lanes_of
from minitp.plan.simulate.program import Noise, Run
from minitp.plan.simulate.result import Share
from minitp.plan.simulate.script import of_passes
from minitp.plan.speed import traffic
from minitp.plan.speed.decode import prefill, token
from minitp.plan.speed.step import training_step
from minitp.trace import Timeline, Trace, collect, compare, run_info
from minitp.trace.check import recorded_by_rank
from minitp.trace.predict import plan_from_run, predict
from minitp.trace.predict_pass import Pass
from minitp.trace.summary import total
from minitp.view.passes import Passes
from minitp.weights import load_weights
from tests.app.real_runs import tiny_run
from tests.families import FAMILIES, source_of
from tests.trace.trace_runs import on_threads
from tests.train.training_runs import traced

DEVICE = Device("test", "gpu", 80 * 10**9, 80 * 10**9, "HBM", 1e12, {"float32": 1e13, "bf16": 1e14}, "made up")
INSIDE, BETWEEN = Link("inside", 2e-6, 1e11, "made up"), Link("between", 1e-5, 1e10, "made up")
MACHINE = Machine("boxes", DEVICE, (Level("box", 8, INSIDE), Level("cluster", 128, BETWEEN)))
FREE = Machine("free", DEVICE, (Level("box", 1024, Link("free", 0.0, 1e30, "made up", kind="nvlink")),))
ALONE = replace(MACHINE, levels=(Level("box", 1, INSIDE), Level("cluster", 1024, BETWEEN)))
MODEL = PlannedModel(replace(TINY, layers=4))


def same_events(real: Trace, made: Trace) -> None:
    """Order, site, op, states, shapes, type and payload, on every rank; and the marks' names."""
    assert recorded_by_rank(made) == recorded_by_rank(real)
    marks = [sorted(trace.mark_rows(), key=lambda mark: (mark.rank, mark.enter)) for trace in (made, real)]
    names = [[mark[:4] for mark in some if mark.phase not in ("load", "clock")] for some in marks]
    assert names[0] == list(dict.fromkeys(names[1]))              # choosing a token has a mark of its own
    assert compare(made, predict(plan_from_run(made.run))) == []
    assert recorded_by_rank(Trace.parse(made.to_bytes(zipped=True))) == recorded_by_rank(real)


@pytest.mark.parametrize(("ranks", "family", "recompute", "embedding"), [
    (2, "llama", "none", "vocab"), (3, "gpt2", "full", "hidden"), (5, "llama", "selective", "vocab")])
def test_a_training_step_has_the_events_of_a_real_one(ranks, family, recompute, embedding):
    real = on_threads(ranks, lambda comm: traced(comm, family=family, recompute=recompute, dtype="float32",
                                                 embedding=embedding, micro_batches=((2, 6), (2, 6))))[0]
    made = simulated(PlannedModel(FAMILIES[family]), Layout(tp=ranks, embedding=embedding),
                     Training(4, 6, 2, recompute, FLOAT32), MACHINE, show="all")
    same_events(real, made.trace)


@pytest.mark.parametrize(("ranks", "family"), [(2, "gpt2"), (3, "parallel"), (5, "llama")])
def test_a_generation_has_the_events_of_a_real_one(ranks, family):
    def work(comm):
        placement = Placement(FAMILIES[family], comm.size)
        weights = load_weights(source_of(family), placement, comm, mode="slice", dtype="float32")
        run(Generation(Transformer(placement.config, placement, comm), weights, Request(((1, 2, 3), (4, 5, 6)), 4)))
        return collect(comm, comm.recorder, run_info(comm, argv=[]))
    made = simulated(PlannedModel(FAMILIES[family]), Layout(tp=ranks), Inference(2, 3, 4, *["float32"] * 3), MACHINE,
                     show="all")
    same_events(on_threads(ranks, work)[0], made.trace)


degrees = st.fixed_dictionaries({"tp": st.integers(1, 3), "pp": st.integers(1, 3), "dp": st.integers(1, 3)})
kinds = st.fixed_dictionaries({"sequence": st.booleans(), "zero": st.sampled_from([0, 1, 2, 3]),
                               "schedule": st.sampled_from(["1f1b", "gpipe"])})
INTERLEAVED = {"tp": 2, "pp": 2, "dp": 2}, {"schedule": "interleaved", "chunks": 2}


def assert_counted(layout: Layout, job: Job) -> None:
    """What is refused by its size is counted, not made."""
    one = Run(MODEL, layout, job, MACHINE, lanes_of(MODEL, layout, show="pipeline"), Noise())
    assert one.count(one.lanes) == sum(map(len, one.steps))


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("new", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("pp", [1, 3])
def test_events_of_a_generation_are_counted(batch, new, pp):
    assert_counted(Layout(tp=2, pp=pp), Inference(batch, 5, new))


@settings(max_examples=12, deadline=None)
@given(degrees, kinds, st.sampled_from(["none", "full"]))
@example(*INTERLEAVED, "none")
def test_all_stages_together_have_the_closed_form_and_what_the_planner_counts(degrees, kinds, recompute):
    layout, micro_batches = Layout(**degrees, **kinds), 2
    job = Training(layout.dp * micro_batches, 12, 1, recompute)
    made = simulated(MODEL, layout, job, MACHINE, show="pipeline").trace
    assert_counted(layout, job)
    events = recorded_by_rank(made)
    axis = {rank: made.words("axis")[made.where(rank=rank)].tolist() for rank in events}
    if not layout.sequence:
        one = Pass(MODEL.placement(layout.tp), "float32", 1, 12, "forward", 0, 1)
        sites = [(event.op, event.site) for event in [*one.forward(gathered=False), *one.loss()]]
        there = [(event.op, event.site) for rank in events for event, on in zip(events[rank], axis[rank], strict=True)
                 if on == "tp" and (event.phase, event.micro_batch) == ("forward", 1) and "pipeline" not in event.site]
        assert sorted(there) == sorted(sites) and (layout.chunks > 1 or there == sites)
    for stage in range(layout.pp):
        counted: dict[tuple[str, str], float] = {}
        for row in traffic.step(MODEL, layout, job, MACHINE, stage):
            key = {"sp": "tp"}.get(row.axis, row.axis), row.op
            counted[key] = counted.get(key, 0) + row.count * row.payload
        moved: dict[tuple[str, str], float] = {}
        for event, on in zip(events[stage], axis[stage], strict=True):
            if event.op != "receive" and event.site != "gradients.norm" and getattr(layout, on) > 1:
                key = on, event.op
                moved[key] = moved.get(key, 0) + event.payload
        assert moved == pytest.approx(counted), (layout, stage)


# --- times ------------------------------------------------------------------------------------------------------------

WORKING = PlannedModel(replace(TINY, layers=12, hidden=1024, heads=8, head_size=128, ffn=4096, vocab=8))


@pytest.mark.parametrize(("kind", "chunks"), [("1f1b", 1), ("gpipe", 1), ("interleaved", 3)])
def test_where_messages_are_free_the_pipeline_takes_what_its_schedule_takes(kind, chunks):
    """Instructions of equal length, backward twice forward (Narayanan et al. 2021, figures 3 and 4)."""
    layout = Layout(pp=4, schedule=kind, chunks=chunks)
    made = simulated(WORKING, layout, Training(8, 512), FREE)
    one = simulated(WORKING, Layout(), Training(1, 512), FREE)
    whole = one.trace.mark_rows()[0]
    forward = (whole.leave - whole.enter) / 1e9 / (4 * chunks)
    spans = schedule.play(schedule.instructions(kind, 4, 8, chunks), chunks, forward=forward, backward=2 * forward)
    ends = [mark.leave / 1e9 for mark in made.trace.mark_rows() if mark.phase == "backward"]
    assert max(ends) == pytest.approx(max(stage[-1].end for stage in spans), rel=0.02)


@settings(max_examples=6, deadline=None)
@given(degrees, kinds, st.lists(st.tuples(st.integers(0, 26), st.sampled_from([0.5, 1.5, 4.0])), max_size=2))
def test_classes_take_the_time_that_all_ranks_one_by_one_take(degrees, kinds, slow):
    layout = Layout(**degrees, **kinds)
    slow = tuple(Straggler(device % layout.devices, factor) for device, factor in slow)
    job = Training(layout.dp * 2, 12, precision=FLOAT32)
    classes, each = (simulated(MODEL, layout, job, ALONE, stragglers=slow, show=show) for show in ("classes", "all"))
    assert each.simulated == layout.devices >= classes.simulated
    assert sum(one["stands_for"] for one in classes.trace.run["simulated"]["ranks"]) == layout.devices
    assert classes.seconds == pytest.approx(each.seconds)
    for share, seconds in each.shares.items():
        assert classes.shares.get(share, 0) == pytest.approx(seconds, abs=1e-9), share
    assert sum(each.shares.values()) == pytest.approx(each.seconds)
    classes, each = (simulated(MODEL, layout, job, MACHINE, stragglers=slow, show=show) for show in ("classes", "all"))
    assert classes.seconds >= each.seconds * (1 - 1e-9)           # groups lie differently on boxes: the slowest counts


def test_replicas_that_have_nothing_to_do_with_a_straggler_share():
    layout, job = Layout(tp=4, pp=2, dp=16), Training(32, 64)
    even = simulated(WORKING, layout, job, MACHINE)
    slow = simulated(WORKING, layout, job, MACHINE, stragglers=[Straggler(5, 2.0)])
    assert (even.simulated, slow.simulated) == (2, 8)              # 2 stages; × the rank and its mates × its replica
    assert slow.seconds > even.seconds
    assert slow.shares[Share("waiting", "tp")] > 0 and slow.shares[Share("waiting", "dp")] > 0
    assert Share("waiting", "tp") not in even.shares
    assert simulated(WORKING, layout, job, MACHINE, stragglers=[Straggler(5, 1.0)]).seconds == even.seconds
    with pytest.raises(ConfigError, match="no device of 0…127"):
        simulated(WORKING, layout, job, MACHINE, stragglers=[Straggler(128, 2.0)])


def test_jitter_is_drawn_by_device_and_classes_have_its_distribution():
    layout, job = Layout(tp=8), Training(8, 256)
    each, again = (simulated(WORKING, layout, job, MACHINE, jitter=0.2, seed=3, show="all") for _ in range(2))
    classes = simulated(WORKING, layout, job, MACHINE, jitter=0.2, seed=4)
    still = simulated(WORKING, layout, job, MACHINE)
    assert each.seconds == again.seconds != classes.seconds and classes.simulated == 1
    assert classes.seconds == pytest.approx(each.seconds, rel=0.05)
    assert classes.shares[Share("waiting", "tp")] == pytest.approx(each.shares[Share("waiting", "tp")], rel=0.15)
    assert each.shares[Share("computing", "")] == pytest.approx(still.shares[Share("computing", "")], rel=0.05)
    assert simulated(WORKING, Layout(dp=100), Training(100, 8), MACHINE, jitter=0.1).simulated == 8


EXPERTS = PlannedModel(replace(TINY, layers=8, hidden=2048, heads=16, kv_heads=8, head_size=128, ffn=4096, vocab=32000),
                       experts=8, active=2)


@pytest.mark.parametrize(("layout", "recompute"), [
    (Layout(tp=8, pp=4, dp=128), "none"), (Layout(tp=8, pp=4, dp=8, sequence=True, zero=1), "full"),
    (Layout(tp=4, pp=4, dp=8, schedule="interleaved", chunks=2, zero=2), "selective"),
    (Layout(tp=8, dp=8, zero=3), "none"), (Layout(tp=2, dp=16, zero=1), "none"), (Layout(pp=8), "full")])
def test_a_step_takes_what_the_planner_adds_up(layout, recompute):
    """Two ways to one number: event by event, and by the formulas of plan.step, which know the slowest stage alone, and
    of it not that one of its chunks has the head and, with ZeRO-2, its gradients to sum."""
    job, large = Training(layout.dp * 8, 8192, 1, recompute), catalogue.model("llama-3.1-8b")
    machine = catalogue.machine("8xh100-80", devices=layout.devices)
    added_up = training_step(large, layout, job, machine, overlap=False).seconds
    made = simulated(large, layout, job, machine)
    assert made.seconds == pytest.approx(added_up, rel=0.015)
    beside = training_step(large, layout, job, machine)
    assert made.planned[:2] == (beside.seconds, pytest.approx(added_up - beside.seconds))
    assert ("run beside the passes" in made.planned.text) == (layout.dp > 1)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("degrees", [{"tp": 8, "dp": 4}, {"tp": 2, "pp": 2, "dp": 4}])
def test_a_step_with_experts_takes_what_the_planner_adds_up(degrees, zero):
    """The optimizer works once, though weights and experts are gathered apart."""
    layout, precision = Layout(**degrees, zero=zero), PURE_BF16 if zero == 1 else MIXED
    job, machine = Training(layout.dp * 4, 2048, precision=precision), catalogue.machine("8xh100-80", devices=32)
    added_up = training_step(EXPERTS, layout, job, machine, overlap=False)
    made = simulated(EXPERTS, layout, job, machine)
    assert made.seconds == pytest.approx(added_up.seconds, rel=0.01)
    free = simulated(EXPERTS, layout, job, FREE)                  # where nothing but computing takes time
    last = next(mark for mark in free.trace.mark_rows() if mark.phase == "optimizer")
    alone = training_step(EXPERTS, layout, job, FREE).rows[-1]
    took = (last.leave - last.enter) / 1e9                        # with what a library takes for a few collectives
    assert alone.term == "optimizer" and took == pytest.approx(alone.seconds, abs=5e-5)


@pytest.mark.parametrize("layout", [Layout(tp=8, pp=2), Layout(tp=16)])
def test_a_generation_takes_what_the_planner_adds_up(layout):
    job, large = Inference(2, 1000, 2), catalogue.model("llama-3.1-405b")
    machine = catalogue.machine("8xh100-80", devices=16)
    first, second = prefill(large, layout, job, machine), token(large, layout, job, machine, context=1001)
    assert simulated(large, layout, job, machine).seconds == pytest.approx(first.seconds + second.seconds, rel=0.01)


def test_a_step_of_405b_on_16384_devices_takes_seconds():
    layout, begin = Layout(tp=8, pp=16, dp=128), time.thread_time()
    made = simulated(catalogue.model("llama-3.1-405b"), layout, Training(2048, 8192),
                     catalogue.machine("8xh100-80", devices=16384))
    made.trace.to_bytes(zipped=True)
    assert time.thread_time() - begin < 5
    assert made.simulated == 16 and made.trace.run["ranks"] == 16
    assert made.shares[Share("waiting", "pp")] / made.shares[Share("computing", "")] == pytest.approx(15 / 16, rel=0.15)


@pytest.mark.slow
def test_jitter_on_16384_devices_takes_seconds():
    begin = time.thread_time()
    made = simulated(catalogue.model("llama-3.1-405b"), Layout(tp=8, pp=16, dp=128), Training(16384, 8192),
                     catalogue.machine("8xh100-80", devices=16384), jitter=0.1, to_write=False)
    assert time.thread_time() - begin < 60 and made.events > 600_000
    with pytest.raises(ConfigError, match="that a trace is written with"):
        _ = made.trace


def test_what_is_too_large_to_be_written_is_simulated(monkeypatch):
    monkeypatch.setattr("minitp.plan.simulate.write.MOST_EVENTS", 10)
    what = WORKING, Layout(tp=2, pp=2), Training(4, 64), MACHINE
    with pytest.raises(ConfigError, match="that a trace is written with"):
        simulated(*what)
    made = simulated(*what, to_write=False)
    assert sum(made.shares.values()) == pytest.approx(made.seconds) and made.run["ranks"] == 2


# --- replays ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Trace:
    """In checked mode, loaded by scatter, with values."""
    return tiny_run("--load", "scatter", ranks=3)


def test_a_replay_has_the_events_of_the_run_and_its_own_work(real):
    made = replay(real, MACHINE)
    passes = {rank: [one for one in events if one.phase != "load"] for rank, events in recorded_by_rank(real).items()}
    assert recorded_by_rank(made.trace) == passes != recorded_by_rank(real)
    assert compare(made.trace, predict(plan_from_run(made.trace.run))) == []
    read = Trace.parse(made.trace.to_bytes(zipped=True))
    was, now = (total(Timeline.of(trace), rank, ["decode"]).computing for rank in (0, 1) for trace in (real, read)
                if rank == 1)
    assert now == pytest.approx(was, rel=1e-3, abs=200)
    data = of_passes(real).tolist()
    for number in (0, 7, len(data) - 1):
        kept, new = real.value(data[number])[1], read.value(number)[1]
        assert (kept is None) == (new is None) and (kept is None or np.array_equal(kept.cells, new.cells))
    assert sum(made.shares.values()) == pytest.approx(made.seconds)


def test_start_up_and_gaps_between_passes_are_nobodys_work(real):
    """What a replay computes is what every page counts as computing of the passes."""
    measured = sum(row.computing for row in Passes(Timeline.of(real)).work)
    assert replay(real, MACHINE).shares[Share("computing", "")] * 1e9 == pytest.approx(measured, rel=1e-6)
    late, load = Trace.parse(real.to_bytes(zipped=False)), real.strings.index("load")
    for table in (late.events, late.marks):                            # a second of nothing before the first pass
        for name in ("enter", "leave"):
            table[name] = table[name] + 10**9 * (table["phase"] != load)
    assert replay(late, MACHINE).seconds == replay(real, MACHINE).seconds


def test_ranks_that_compute_twice_as_fast_and_a_slow_one(real):
    base = replay(real, FREE).shares[Share("computing", "")]
    assert replay(real, FREE, speed=2.0).shares[Share("computing", "")] == pytest.approx(base / 2)
    slow = replay(real, FREE, stragglers=[Straggler(1, 3.0)])
    assert slow.seconds > replay(real, FREE).seconds
    assert slow.trace.run["simulated"]["stragglers"] == [{"device": 1, "factor": 3.0}]
    assert replay(real, FREE, jitter=0.3).seconds != replay(real, FREE, jitter=0.3, seed=1).seconds


def test_a_training_run_is_replayed():
    trace = on_threads(2, traced)[0]
    made = replay(trace, MACHINE)
    assert recorded_by_rank(made.trace) == recorded_by_rank(trace)


@pytest.mark.parametrize(("change", "words"), [
    ({"speed": 0.0}, "above 0"), ({"stragglers": [Straggler(0, -1.0)]}, "above 0"), ({"jitter": 3.0}, "from 0 to 2")])
def test_what_a_replay_refuses(real, change, words):
    with pytest.raises(ConfigError, match=words):
        replay(real, MACHINE, **change)


def test_a_small_machine_and_a_simulated_trace_are_refused(real):
    with pytest.raises(ConfigError, match="has 2 devices"):
        replay(real, replace(MACHINE, levels=(Level("box", 2, INSIDE),)))
    with pytest.raises(ConfigError, match="a model's"):
        replay(replay(real, MACHINE).trace, MACHINE)


@given(st.integers(1, 9), st.integers(0, 3), st.integers(0, 40))
def test_groups_that_lie_evenly_meet_as_the_machine_says(members, power, boxes):
    stride = 2 ** power
    """Those that divide a box or fill some; of others the machine tells the worst, and no group's is worse."""
    there = MACHINE.meeting_of([8 * boxes + stride * n for n in range(members)])
    worst = MACHINE.meeting(members, stride)
    assert there[::-1] <= worst[::-1] and (there == worst or members & (members - 1))


@pytest.mark.parametrize(("layout", "job", "show", "words"), [
    (Layout(tp=8, pp=16, dp=128), Training(2048, 8192), "all", "4,096 are the most"),
    (Layout(tp=8, pp=16, dp=8), Training(256, 8192), "all", "that a trace is written with"),
    (Layout(), Inference(1, 10, 10**6), "classes", "are the most that are simulated"),
    (Layout(tp=8, pp=4, dp=1024), Training(1024, 8192), "classes", "has 16,384"),
    (Layout(cp=2), Training(1, 8192), "classes", "cp > 1 is planned but not simulated"),
    (Layout(), Inference(1, 10, 0), "classes", "1 new token or more"),
    (Layout(dp=3), Training(4, 8), "classes", "dealt")])
def test_what_is_too_much_or_not_simulated_is_refused_at_once(layout, job, show, words):
    begin, large = time.thread_time(), catalogue.model("llama-3.1-405b")
    with pytest.raises(ConfigError, match=words):
        simulated(large, layout, job, catalogue.machine("8xh100-80", devices=16384), show=show)
    assert time.thread_time() - begin < 0.5


def test_what_options_leave_open():
    assert (replicas(64, 16, None), replicas(None, 16, None), replicas(None, 16, 3)) == (4, 1, 3)
    for devices, dp, words in ((60, None, "48 would work"), (64, 3, "leave out")):
        with pytest.raises(ConfigError, match=words):
            replicas(devices, 16, dp)
    assert (usual_batch(False, 4, 2, 3), usual_batch(True, 4, 2, 3), usual_batch(True, 4, 2, None)) == (4, 24, 8)
    job = Inference(2, 10, 512, "int8")
    assert first_tokens(job, 512) == (job, "")
    few, told = first_tokens(job, 8)
    assert few == replace(job, new=8) and "first 8 of 512" in told
