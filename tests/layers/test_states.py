"""The table of states, layer by layer: what goes in, what comes out, what it costs, and what a partial sum refuses.

| layer                       | takes        | gives                          | sends                            |
|-----------------------------|--------------|--------------------------------|----------------------------------|
| ParallelEmbedding           | ids          | whole                          | all-gather                       |
| VocabParallelEmbedding      | ids          | partial (product), whole       | all-reduce                       |
| RMSNorm, LayerNorm          | whole        | whole                          | nothing                          |
| ColumnParallelLinear        | whole        | shard(-1)                      | nothing                          |
| RowParallelLinear           | shard(-1)    | partial (product), whole       | all-reduce                       |
| Attention, MLP              | whole        | partial (product)              | nothing                          |
| TensorBoundary              | whole, partial | whole (enter), whole (leave) | nothing (enter), all-reduce (leave) |
| VocabParallelHead           | whole        | whole, or shard(-1)            | all-gather, or nothing           |
| HiddenParallelHead          | whole        | partial (product), whole, or shard(-1) | all-reduce, or reduce-scatter |
"""
from contextlib import ExitStack
from dataclasses import replace
from inspect import isclass, unwrap
from unittest.mock import patch

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from minitp import layers
from minitp.comm import Partial
from minitp.config import ModelConfig
from minitp.context import KVCache, plan_pass
from minitp.errors import StateError
from minitp.layers import Logits
from minitp.layers.attention import rotate, softmax
from minitp.layers.mlp import activate
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import load_weights
from tests.families import BIASED, FullSource
from tests.layers import Kept, syncs
from tests.mpi_world import run_threads, worlds

CONFIG = ModelConfig(hidden=6, layers=2, heads=3, kv_heads=1, head_size=4, ffn=5, vocab=7, positions=8, tied=True,
                     **BIASED)
PLAIN = replace(CONFIG, qkv_bias=False, attention_bias=False, mlp_bias=False)
IDS = np.array([[1, 6, 0]])


def parts(comm, embedding="hidden", config=CONFIG):
    placement = Placement(config, comm.size, embedding)
    model = Transformer(config, placement, comm)
    weights = load_weights(FullSource(config), placement, comm, dtype=np.float64)
    return model, weights, plan_pass(config, np.arange(3)[None], dtype=np.float64)


def state_of(result) -> str:
    if isinstance(result, Logits):
        return "whole logits" if result.cut is None else "shard of logits"
    return "partial" if isinstance(result, Partial) else "array"


def table(comm):
    """Every layer called once: (state of its result, the collectives it made)."""
    seen = {}

    def call(name, method, *arguments):
        before = len(syncs(comm))
        result = method(*arguments)
        seen[name] = (state_of(result), [event.split()[0] for event in syncs(comm)[before:]])
        return result

    for embedding in ("hidden", "vocab"):
        model, weights, ctx = parts(comm, embedding)
        x = call(f"{embedding} embedding", model.embedding.forward, IDS, weights, ctx)
        for gathered in (True, False):
            call(f"{embedding} head, {gathered}", model.head.forward, x, weights, ctx, gathered)
    call("vocab embedding product", model.embedding.product, IDS, weights, ctx)
    call("hidden head product", parts(comm)[0].head.product, x, parts(comm)[1], ctx)
    block = model.blocks[0]
    call("norm", block.attention_norm.forward, x, weights, ctx)
    call("column", block.mlp.up.forward, x, weights, ctx)
    call("attention product", block.attention.product, x, weights, ctx)
    term = call("mlp product", block.mlp.product, x, weights, ctx)
    call("boundary enter", block.boundary.enter, x)
    call("boundary leave", block.boundary.leave, term, "site", "reason")
    shard = np.ones((1, 3, block.mlp.down.inputs))
    call("row product", block.mlp.down.product, shard, weights, ctx)
    call("row", block.mlp.down.forward, shard, weights, ctx)
    call("block", block.forward, x, weights, ctx)
    return seen


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_table_of_states(n):
    """One rank changes states, and records, as many as several do."""
    for seen in run_threads(table, n):
        assert seen == {
            "hidden embedding": ["array", ["all_gather"]],
            "hidden head, True": ["whole logits", ["all_reduce"]],
            "hidden head, False": ["shard of logits", ["reduce_scatter"]],
            "vocab embedding": ["array", ["all_reduce"]],
            "vocab head, True": ["whole logits", ["all_gather"]],
            "vocab head, False": ["shard of logits", []],
            "vocab embedding product": ["partial", []],
            "hidden head product": ["partial", []],
            "norm": ["array", []],
            "column": ["array", []],
            "attention product": ["partial", []],
            "mlp product": ["partial", []],
            "boundary enter": ["array", []],
            "boundary leave": ["array", ["all_reduce"]],
            "row product": ["partial", []],
            "row": ["array", ["all_reduce"]],
            "block": ["array", ["all_reduce", "all_reduce"]],
        }


def refused(comm, biased):
    """A partial sum at every door of a layer: refused by the annotation in tests, by the type itself for a user."""
    model, weights, ctx = parts(comm, config=CONFIG if biased else PLAIN)
    block, outcomes = model.blocks[0], {}
    doors = {"norm": block.attention_norm.forward, "row": block.mlp.down.product, "attention": block.attention.product,
             "mlp": block.mlp.product, "block": block.forward, "head": model.head.forward, "rotary": rotate}
    if biased:            # without a bias a column's product is one that commutes, and what reads it refuses it
        doors["column"] = block.mlp.up.forward
    for name, method in doors.items():
        def term(width=5 if name == "row" else 6):
            return Partial(np.ones((1, 3, width)), comm)

        arguments = {"rotary": (ctx,), "head": (weights, ctx, True)}.get(name, (weights, ctx))
        with pytest.raises(TypeCheckError):
            method(term(), *arguments)
        bound = () if method is rotate else (method.__self__,)
        with pytest.raises(StateError) as caught:
            bare(method, *bound, term(), *arguments)
        outcomes[name] = str(caught.value)
    return outcomes


def misused(comm):
    """What a reader might try with one."""
    model, weights, _ = parts(comm)
    down, x = model.blocks[0].mlp.down, np.ones((1, 3, 6))
    outcomes = {}
    for name, use in (
            ("residual", lambda term: x + term),
            ("bias", lambda term: term + weights["layers.0.mlp.down.bias"]),
            ("activation", lambda term: activate(term, "silu", np)),
            ("softmax", lambda term: softmax(term, np)),
            ("add_bias", lambda term: bare(down.add_bias, down, term, weights))):
        with pytest.raises(StateError) as caught:
            use(Partial(np.ones((1, 3, 6)), comm))
        outcomes[name] = str(caught.value)
    return outcomes


def bare(method, *arguments):
    """As a user runs it: without the tests' shape checks, in all layers."""
    with ExitStack() as stack:
        for layer in filter(isclass, (getattr(layers, name) for name in layers.__all__)):
            checked = {name: unwrap(made) for name, made in vars(layer).items() if hasattr(made, "__wrapped__")}
            if checked:
                stack.enter_context(patch.multiple(layer, **checked))
        return unwrap(getattr(method, "__func__", method))(*arguments)


@pytest.mark.parametrize("biased", [True, False])
def test_a_partial_sum_is_refused_at_every_door(biased):
    for name, message in run_threads(refused, 1, biased=biased)[0].items():
        assert "reduce" in message.lower(), (name, message)               # each says what to do instead


def test_what_does_not_commute_with_the_sum_is_refused():
    outcomes = run_threads(misused, 1)[0]
    for name in ("residual", "bias", "add_bias"):
        assert "several times. Reduce the partial first" in outcomes[name]
    for name in ("activation", "softmax"):
        assert "educe" in outcomes[name]


# --- what layers leave for an observer ------------------------------------------------------------------------------

def observed(comm):
    return [observed_pass(comm, embedding) for embedding in ("vocab", "hidden")]


def observed_pass(comm, embedding):
    """A pass with a cache that keeps every array the layers leave; then a second one, to see who writes into them."""
    model, weights, _ = parts(comm, embedding)
    kept, cache = Kept(), KVCache(1, 8, np.float64)
    ctx = plan_pass(CONFIG, np.arange(3)[None], dtype=np.float64, cache=cache, observer=kept)
    logits = model.forward(IDS, weights, ctx).array
    unobserved = model.forward(IDS, weights, plan_pass(CONFIG, np.arange(3)[None], dtype=np.float64)).array
    assert np.array_equal(logits, unobserved)
    model.forward(IDS[:, :1], weights, plan_pass(CONFIG, np.array([[3]]), dtype=np.float64, cache=cache))
    changed = [key for key, array in kept.arrays.items() if not np.array_equal(array, kept.copies[key])]
    shapes = {f"{site} {name}": list(np.shape(array)) for (site, name), array in kept.arrays.items()}
    return {"changed": changed, "shapes": shapes, "h": kept.arrays["layers.1.mlp", "h"],
            "x": kept.arrays["layers.1.mlp.down", "x"], "last": kept.arrays["norm", "x"]}


@pytest.mark.parametrize("world", worlds(threads=(1, 2, 5), mpi=(3,)))
def test_an_observer_sees_the_layers_arrays_and_they_stay(world):
    """Nothing that a layer leaves is overwritten by a sum made in place, or by a later pass."""
    for embedding, ranks in zip(("vocab", "hidden"), zip(*world(observed), strict=True), strict=True):
        placement = Placement(CONFIG, world.n, embedding)
        for rank, seen in enumerate(ranks):
            assert seen["changed"] == []
            h, k, f = len(placement.heads.of(rank)), len(placement.kv_heads(rank)), len(placement.ffn.of(rank))
            scores = seen["shapes"].pop("layers.1.attention scores", None)
            assert scores == ([1, 1, 3 * h, 3] if h else None)       # of the one kv head: its query heads × tokens
            assert {name: shape for name, shape in seen["shapes"].items() if name.startswith("layers.1.")} == {
                "layers.1.attention_norm x": [1, 3, 6], "layers.1.attention_norm inverse": [1, 3, 1],
                "layers.1.attention.qkv x": [1, 3, 6], "layers.1.attention query": [1, h, 3, 4],
                "layers.1.attention key": [1, k, 3, 4], "layers.1.attention value": [1, k, 3, 4],
                "layers.1.attention y": [1, 3, h, 4], "layers.1.attention.o x": [1, 3, 4 * h],
                "layers.1.mlp_norm x": [1, 3, 6], "layers.1.mlp_norm inverse": [1, 3, 1],
                "layers.1.mlp.gate_up x": [1, 3, 6], "layers.1.mlp gate": [1, 3, f], "layers.1.mlp up": [1, 3, f],
                "layers.1.mlp h": [1, 3, f], "layers.1.mlp.down x": [1, 3, f]}
            assert {"norm x", "head logits"} | ({"embedding ids", "head x"} if embedding == "vocab" else
                                                {"embedding ids", "head columns"}) <= set(seen["shapes"])
            assert np.array_equal(seen["h"], seen["x"]) and np.array_equal(seen["last"], ranks[0]["last"])
