"""Simulated runs: those that run today have the real trace's events; the others what the planner counts."""
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.plan import catalogue, schedule, traffic
from minitp.plan.job import FLOAT32, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate import replay, simulated
from minitp.plan.simulate_classes import Straggler
from minitp.plan.simulate_prices import meeting_of
from minitp.plan.simulate_result import Share
from minitp.trace import Timeline, Trace, collect, compare, run_info
from minitp.trace.check import recorded_by_rank
from minitp.trace.predict import plan_from_run, predict
from minitp.trace.predict_pass import Pass
from minitp.trace.summary import total
from minitp.weights import load_weights
from tests.app.real_runs import tiny_run, tiny_training
from tests.families import FAMILIES, source_of
from tests.trace.trace_runs import on_threads
from tests.train.training_runs import traced

DEVICE = Device("test", "gpu", 80 * 10**9, 80 * 10**9, "HBM", 1e12, {"float32": 1e13, "bf16": 1e14}, "made up")
INSIDE, BETWEEN = Link("inside", 2e-6, 1e11, "made up"), Link("between", 1e-5, 1e10, "made up")
MACHINE = Machine("boxes", DEVICE, (Level("box", 8, INSIDE), Level("cluster", 128, BETWEEN)))
FREE = Machine("free", DEVICE, (Level("box", 1024, Link("free", 0.0, 1e30, "made up")),))
MODEL = PlannedModel(replace(TINY, layers=4))


def same_events(real: Trace, made: Trace) -> None:
    """Order, site, op, states, shapes, type and payload, on every rank; and the marks' names."""
    assert recorded_by_rank(made) == recorded_by_rank(real)
    names = [[(mark.rank, mark.phase, mark.step, mark.micro_batch) for mark in
              sorted(trace.mark_rows(), key=lambda mark: (mark.rank, mark.enter)) if mark.phase not in ("load", "clock")]
             for trace in (made, real)]
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


layouts = st.builds(Layout, tp=st.integers(1, 3), pp=st.integers(1, 3), dp=st.integers(1, 3), sequence=st.booleans(),
                    zero=st.sampled_from([0, 1, 2, 3]), schedule=st.sampled_from(["1f1b", "gpipe"]))
INTERLEAVED = Layout(tp=2, pp=2, dp=2, schedule="interleaved", chunks=2)


@settings(max_examples=12, deadline=None)
@given(layouts, st.sampled_from(["none", "full"]))
def test_all_stages_together_have_the_closed_form_and_what_the_planner_counts(layout, recompute):
    micro_batches = 2
    job = Training(layout.dp * micro_batches, 12, 1, recompute)
    made = simulated(MODEL, layout, job, MACHINE, show="pipeline").trace
    events = recorded_by_rank(made)
    axis = {rank: made.words("axis")[made.where(rank=rank)].tolist() for rank in events}
    if not layout.sequence:
        one = Pass(MODEL.placement(layout.tp), "float32", 1, 12, "forward", 0, 1)
        sites = [(event.op, event.site) for event in [*one.forward(gathered=False), *one.loss()]]
        there = [(event.op, event.site) for rank in events for event, on in zip(events[rank], axis[rank], strict=True)
                 if on == "tp" and (event.phase, event.micro_batch) == ("forward", 1) and "pipeline" not in event.site]
        assert there == sites
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
