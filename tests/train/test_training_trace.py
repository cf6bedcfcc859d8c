"""Predicted = recorded: every event of training steps, evaluations and samples, on every rank, at any number."""
from dataclasses import replace

import pytest

from minitp.placement import Placement
from minitp.trace.predict import Evaluation, Steps, TrainingPlan, plan_from_run, predict
from tests.families import FAMILIES
from tests.mpi_world import run_threads
from tests.pmpi.counting import calls_of
from tests.test_generate import events_of
from tests.train.training_runs import UNEQUAL, train


def trained(comm, **options):
    """The rank itself compares; what all of them recorded."""
    foretold = train(comm, **options)
    recorded, expected = events_of(comm), predict(foretold)
    assert recorded == expected, next(pair for pair in zip(recorded, expected, strict=False) if pair[0] != pair[1])
    assert plan_from_run(foretold.to_run()) == foretold
    assert len(foretold.segments) == (4 if options.get("between") else 1)
    return {"ops": [event.op for event in recorded],
            "events": [(event.op, event.site, event.phase, event.step, event.micro_batch) for event in recorded]}


ONE = ((1, 3),)
RUNS = [("llama", "vocab", (1, 5), {"recompute": "full", "load": "scatter", "between": True}),
        ("llama", "hidden", (2, 3), {"dtype": "float32"}),
        ("llama", "hidden", (7,), {"micro_batches": ONE, "recompute": "selective"}),
        ("llama-tied", "vocab", (1, 7), {"recompute": "selective", "micro_batches": ONE}),
        ("llama-tied", "hidden", (1, 3), {"recompute": "full", "between": True}),
        ("gpt2", "vocab", (1, 3), {"dtype": "float32"}),
        ("gpt2", "hidden", (5,), {"recompute": "selective", "micro_batches": ONE, "dropout": 0.3}),
        ("gpt2-gelu", "vocab", (2,), {"recompute": "full"}),
        ("mqa", "hidden", (1, 7), {"load": "scatter", "micro_batches": ONE}),
        ("parallel", "vocab", (1, 5), {"recompute": "full", "micro_batches": ONE}),
        ("parallel", "hidden", (3,), {})]


@pytest.mark.parametrize(("family", "embedding", "ranks", "options"), RUNS)
def test_what_a_training_run_records_was_foretold(family, embedding, ranks, options):
    """Each rank compares all of it; one rank meets at the same places as many, but for what is owed for copies."""
    runs = [run_threads(trained, n, family=family, embedding=embedding, **options) for n in ranks]
    for run_ in runs:
        assert all(rank["events"] == run_[0]["events"] for rank in run_)
        assert [e for e in run_[0]["events"] if e[1] != "gradients.copies"] == [
            e for e in runs[0][0]["events"] if e[1] != "gradients.copies"]


@pytest.mark.parametrize(("embedding", "change"), [
    ("vocab", {"recompute": "full"}), ("vocab", {"load": "scatter"}), ("vocab", {"dtype": "float32"}),
    ("vocab", {"segments": (Steps(0, 2, UNEQUAL),)}), ("vocab", {"segments": (Steps(1, 1, UNEQUAL),)}),
    ("vocab", {"segments": (Steps(0, 1, UNEQUAL[::-1]),)}),
    ("vocab", {"segments": (Steps(0, 1, ((2, 6), *UNEQUAL[1:])),)}),
    ("vocab", {"segments": (Evaluation(0, UNEQUAL),)}), ("hidden", {})])
def test_another_run_is_foretold_otherwise(embedding, change):
    """The comparison above would see a wrong count, order, shape, type or micro-batch."""
    one = TrainingPlan(Placement(FAMILIES["llama-tied"], 3), "float64", (Steps(0, 1, UNEQUAL),))
    other = replace(one, placement=Placement(FAMILIES["llama-tied"], 3, embedding), **change)
    assert predict(other) != predict(one)


@pytest.mark.mpi
def test_on_mpi_ranks_and_every_call_that_mpi_saw(mpi_counts):
    ranks, counted = mpi_counts(3, trained, family="llama-tied", embedding="hidden", recompute="full", between=True)
    for rank, calls in zip(ranks, counted, strict=True):
        assert calls == calls_of(rank["ops"]) and rank["ops"].count("all_reduce_max") == 6


@pytest.mark.mpi
@pytest.mark.slow
def test_copies_of_kv_heads_on_mpi_ranks(mpi):
    ranks = mpi(4, trained, recompute="full", load="scatter")
    assert all(rank == ranks[0] for rank in ranks)
    assert "gradients.copies" in {event[1] for event in ranks[0]["events"]}
