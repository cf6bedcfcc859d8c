"""Runs whose memory is planned: each rank counts what it holds, and plans it."""
from dataclasses import replace

import numpy as np

from minitp.config import ModelConfig
from minitp.generate import Generation, Request, run
from minitp.gradients import Gradients
from minitp.layers import VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.plan.memory import own
from minitp.train.memory import Held
from minitp.train.optimizer import AdamW
from minitp.train.step import MicroBatch, Passes, split_batch, train_step
from minitp.weights import RandomSource, load_weights
from tests.families import FAMILIES

CONFIGS = FAMILIES | {
    "wide": replace(FAMILIES["llama"], vocab=200),
    "wide-tied": replace(FAMILIES["llama-tied"], vocab=200),
    "narrow": replace(FAMILIES["parallel"], heads=2, kv_heads=1, ffn=2, vocab=9),
    "long": replace(FAMILIES["llama"], layers=1, positions=1100, heads=3, kv_heads=1)}


def opened(comm, config: ModelConfig, embedding="vocab", cut="even", dtype="float32"):
    placement = Placement(config, comm.size, embedding, cut)
    weights = load_weights(RandomSource(config), placement, comm, dtype=own.DTYPES[dtype])
    return Transformer(config, placement, comm), weights


def trained(comm, config="llama", sizes=(), batch=0, tokens=0, micro_batches=1, dtype="float32", recompute="none",
            dropout=0.0, **cut):
    """One step. Returns what is held and what was planned, by kind. `sizes`: micro-batches with windows of their own;
    else `batch` windows in `micro_batches` parts, as `minitp train` has them."""
    config = CONFIGS[config] if isinstance(config, str) else config
    model, weights = opened(comm, config, dtype=dtype, **cut)
    draw = np.random.default_rng(0).integers
    if sizes:
        windows = [draw(config.vocab, size=(b, t + 1)) for b, t in sizes]
        parts = [MicroBatch(w[:, :-1], w[:, 1:], tuple(range(len(w)))) for w in windows]
        rows = own.training_on(model.placement, comm.rank, tuple(map(tuple, sizes)), dtype=dtype, recompute=recompute,
                               dropout=dropout)
    else:
        parts = split_batch(draw(config.vocab, size=(batch, tokens + 1)), micro_batches)
        rows = own.training(model.placement, comm.rank, batch, tokens, micro_batches, dtype=dtype,
                            recompute=recompute, dropout=dropout)
    gradients, optimizer = Gradients(weights), AdamW(weights, bf16=dtype == "bf16")
    loss = VocabParallelCrossEntropy(comm, model.placement.vocab)
    result = train_step(model, loss, weights, gradients, optimizer, parts, 0.01, step=0,
                        passes=Passes(own.DTYPES[dtype], recompute, dropout))
    return Held.of(weights, gradients, optimizer, result.activations).to_row(), own.held(rows)


def generated(comm, config="llama", prompts=((1, 2, 3), (4,)), max_tokens=3, dtype="float32", gathered=True,
              keep_logits=False, **cut):
    """A generation to its end. Returns what is held and what was planned, by kind."""
    config = CONFIGS[config]
    model, weights = opened(comm, config, dtype=dtype, **cut)
    prompts = tuple(map(tuple, prompts))
    generation = Generation(model, weights, Request(prompts, max_tokens, gathered=gathered, keep_logits=keep_logits),
                            dtype=dtype)
    run(generation)
    longest = max(map(len, prompts))
    kept = longest + max(len(generation.passes) - 1, 1) if keep_logits else 0
    rows = own.generation(model.placement, comm.rank, len(prompts), own.slots(longest, max_tokens, config.positions),
                          dtype=dtype, gathered=gathered, kept_logits=kept)
    return generation.held(), own.held(rows)


def check(ranks: list) -> None:
    for rank, (held, planned) in enumerate(ranks):
        assert planned == held, f"rank {rank}"


def on_mpi(comm) -> list:
    """One start, many runs."""
    return [trained(comm, "llama", batch=5, tokens=7, micro_batches=2, dtype="bf16", recompute="full", dropout=0.2),
            trained(comm, "wide-tied", embedding="hidden", sizes=[[2, 5], [1, 9]], dtype="float64"),
            trained(comm, "gpt2", batch=3, tokens=6, micro_batches=3, recompute="selective"),
            trained(comm, "parallel", batch=2, tokens=6),
            generated(comm, "llama", dtype="float64"), generated(comm, "gpt2", gathered=False),
            generated(comm, "llama-tied", embedding="hidden", keep_logits=True)]
