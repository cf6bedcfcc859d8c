"""Predicted = recorded: every event of training steps, evaluations and samples, on every rank, at any number of them."""
from dataclasses import replace

import numpy as np
import pytest

from minitp.context import plan_pass
from minitp.generate import Generation, Request, run
from minitp.gradients import Gradients
from minitp.layers import IGNORED, VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.saved import Saved
from minitp.trace.predict import Evaluation, Sample, Steps, TrainingPlan, plan_from_run, predict
from minitp.train.reduce import clip, global_norm, sum_copies
from minitp.weights import load_weights
from tests.families import FAMILIES, source_of
from tests.mpi_world import run_threads
from tests.test_generate import events_of

UNEQUAL = ((2, 5), (1, 3), (3, 1))                      # (sequences, tokens) of a step's micro-batches


def trained(comm, family="llama", embedding="vocab", load="slice", dtype="float64", recompute="none",
            micro_batches=UNEQUAL, steps=2):
    """Training steps, an evaluation, a sample and one step more; the rank itself compares."""
    placement = Placement(FAMILIES[family], comm.size, embedding)
    weights = load_weights(source_of(family), placement, comm, mode=load, dtype=dtype)
    model, gradients = Transformer(placement.config, placement, comm), Gradients(weights)
    micro_batches = tuple(map(tuple, micro_batches))
    for step in range(steps):
        one_step(model, weights, gradients, step, micro_batches, recompute)
    for n, (batch, tokens) in enumerate(micro_batches):
        with comm.recorder.mark("evaluate", steps, n):
            forward(model, weights, batch, tokens, plan(model, weights, batch, tokens))
    generation = Generation(model, weights, Request(((1, 2, 3),), 2, gathered=False), dtype=dtype)
    run(generation)
    one_step(model, weights, gradients, steps, micro_batches, recompute)
    sample = Sample(1, tuple(generation.passes), 2, False, generation.request.sampling.candidates(placement.vocab))
    foretold = TrainingPlan(placement, dtype, (Steps(0, steps, micro_batches), Evaluation(steps, micro_batches), sample,
                                               Steps(steps, 1, micro_batches)), recompute, load)
    recorded, expected = events_of(comm), predict(foretold)
    assert recorded == expected, next(pair for pair in zip(recorded, expected, strict=False) if pair[0] != pair[1])
    assert plan_from_run(foretold.to_run()) == foretold
    return {"ops": [event.op for event in comm.recorder.events if event.plane != "control"],
            "events": [(event.op, event.site, event.phase, event.step, event.micro_batch) for event in recorded]}


def one_step(model, weights, gradients, step, micro_batches, recompute):
    """A training step, but for the update, which sends nothing."""
    recorder, group, placement = model.group.recorder, model.group, model.placement
    gradients.zero()
    for m, (batch, tokens) in enumerate(micro_batches):
        ctx = replace(plan(model, weights, batch, tokens), saved=Saved(), recompute=recompute)
        with recorder.mark("forward", step, m):
            loss = forward(model, weights, batch, tokens, ctx)
        with recorder.mark("backward", step, m):
            model.backward(loss.backward_input(0.1, ctx), weights, ctx, gradients)
    with recorder.mark("optimizer", step):
        sum_copies(gradients, placement, group)
        clip(gradients, global_norm(gradients, placement, group), 1e-3)


def plan(model, weights, batch, tokens):
    positions = np.tile(np.arange(tokens), (batch, 1))
    return plan_pass(model.config, positions, dtype=weights["embedding.weight"].dtype)


def forward(model, weights, batch, tokens, ctx):
    ids = np.random.default_rng([batch, tokens]).integers(model.config.vocab, size=(batch, tokens + 1))
    targets = np.where(ids[:, 1:] == ids[0, 1], IGNORED, ids[:, 1:])
    loss = VocabParallelCrossEntropy(model.group, model.placement.vocab)
    loss.forward(model.forward(ids[:, :-1], weights, ctx, gathered=False), targets, ctx)
    return loss


RUNS = [("llama", "vocab", {"recompute": "full", "load": "scatter"}), ("llama", "hidden", {}),
        ("llama-tied", "vocab", {"recompute": "selective"}), ("llama-tied", "hidden", {"recompute": "full"}),
        ("gpt2", "vocab", {"dtype": "float32"}), ("gpt2", "hidden", {"recompute": "selective"}),
        ("gpt2-gelu", "vocab", {"micro_batches": ((1, 4),)}), ("mqa", "hidden", {"load": "scatter"}),
        ("parallel", "vocab", {"recompute": "full"}), ("parallel", "hidden", {"micro_batches": ((3, 2),)})]


@pytest.mark.parametrize(("family", "embedding", "options"), RUNS)
def test_what_a_training_run_records_was_foretold(family, embedding, options):
    """Each rank compares all of it; one rank meets at the same places as seven, where nothing is owed for copies."""
    runs = {n: run_threads(trained, n, family=family, embedding=embedding, **options) for n in (1, 2, 3, 5, 7)}
    for ranks in runs.values():
        assert all(rank["events"] == ranks[0]["events"] for rank in ranks)
        assert [e for e in ranks[0]["events"] if e[1] != "gradients.copies"] == runs[1][0]["events"]


