"""Simulated runs: those that run today have the real trace's events; and what the times must satisfy."""
import numpy as np
import pytest

from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.plan.collectives import seconds
from minitp.plan.job import FLOAT32, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate import Straggler, replay, simulated
from minitp.plan.simulate_result import Share
from minitp.trace import Trace, collect, compare, run_info
from minitp.trace.check import recorded_by_rank
from minitp.trace.predict import plan_from_run, predict
from minitp.weights import load_weights
from tests.families import FAMILIES, source_of
from tests.trace.trace_runs import on_threads
from tests.train.training_runs import traced

DEVICE = Device("test", "gpu", 80 * 10**9, 80 * 10**9, "HBM", 1e12, {"float32": 1e13, "bf16": 1e14}, "made up")
INSIDE, BETWEEN = Link("inside", 2e-6, 1e11, "made up"), Link("between", 1e-5, 1e10, "made up")
MACHINE = Machine("boxes", DEVICE, (Level("box", 8, INSIDE), Level("cluster", 128, BETWEEN)))
BIG = PlannedModel(FAMILIES["llama"])


def same_events(real: Trace, made: Trace) -> None:
    """Order, site, op, states, shapes, type and payload, on every rank; and the marks' names."""
    assert recorded_by_rank(made) == recorded_by_rank(real)
    names = [[(m.rank, m.phase, m.step, m.micro_batch) for m in sorted(trace.mark_rows(), key=lambda m: (m.rank, m.enter))
              if m.phase not in ("load", "clock")] for trace in (made, real)]
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


@pytest.mark.parametrize(("ranks", "family"), [(2, "gpt2"), (3, "llama"), (5, "llama")])
def test_a_generation_has_the_events_of_a_real_one(ranks, family):
    def work(comm):
        placement = Placement(FAMILIES[family], comm.size)
        weights = load_weights(source_of(family), placement, comm, mode="slice", dtype="float32")
        run(Generation(Transformer(placement.config, placement, comm), weights, Request(((1, 2, 3), (4, 5, 6)), 4)))
        return collect(comm, comm.recorder, run_info(comm, argv=[]))
    made = simulated(PlannedModel(FAMILIES[family]), Layout(tp=ranks), Inference(2, 3, 4, *["float32"] * 3), MACHINE,
                     show="all")
    same_events(on_threads(ranks, work)[0], made.trace)
