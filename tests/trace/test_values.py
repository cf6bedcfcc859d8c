"""The arrays that a trace keeps: together over the ranks they are one rank's, and they compute what was recorded."""
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.arrays import NUMPY
from minitp.generate import Generation, Request
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.trace import Trace, collect, run_info
from minitp.trace.kept import KeptArray, is_kept
from minitp.trace.values import BEST, Copy, Scores, as_plain, best_of, copy_of, matrix
from minitp.weights import load_weights
from tests.families import FAMILIES, FullSource, source_of
from tests.mpi_world import run_threads

PROMPTS = ((1, 4, 2), (0, 2, 4, 4, 1, 3, 0))                            # the first is padded to the second


def recorded(comm, family="llama", embedding="vocab", load="slice", prompts=PROMPTS, values=True, **request):
    """(tokens, trace on rank 0) of a prompt and two tokens."""
    config = FAMILIES[family]
    comm.recorder.keep_values = values
    placement = Placement(config, comm.size, embedding)
    weights = load_weights(source_of(family) if load == "slice" or comm.rank == 0 else None, placement, comm, mode=load,
                           dtype=np.float64)
    generation = Generation(Transformer(config, placement, comm), weights, Request(prompts, 3, **request), dtype="f8")
    for _ in generation:
        pass
    info = run_info(comm, argv=[], prompts=[list(prompt) for prompt in prompts])
    return generation.tokens, collect(comm, comm.recorder, info)


def trace_of(ranks: int, **options) -> Trace:
    return run_threads(recorded, ranks, **options)[0][1]


def cells(kept: KeptArray | None) -> np.ndarray:
    assert kept is not None and kept.whole
    return kept.cells


CONCATENATED = {"gate", "up", "h", "columns"}                          # along their only axis; else by heads


@pytest.mark.parametrize("family", ["llama", "llama-tied", "gpt2", "parallel"])
@pytest.mark.parametrize("embedding, ranks", [("vocab", 2), ("hidden", 7)])
def test_what_the_ranks_hold_is_together_what_one_rank_holds(family, embedding, ranks):
    """7 ranks: some hold no head; kv heads are held twice, so those are compared one by one."""
    alone, split = (trace_of(n, family=family, embedding=embedding) for n in (1, ranks))
    config, placement = FAMILIES[family], Placement(FAMILIES[family], ranks, embedding)
    keys = {(of.phase, of.step, of.site, of.name) for of in inner_rows(alone)}
    assert keys == {(of.phase, of.step, of.site, of.name) for of in inner_rows(split)}
    assert {step for _, step, *_ in keys} == {0, 1, 2} and len(keys) > 20 * config.layers
    for key in keys:
        whole, name = cells(alone.array(0, *key)), key[-1]
        of_ranks = [split.array(rank, *key) for rank in range(ranks)]
        if name in ("best_ids", "best_logits"):
            continue                                                   # each rank has its own: see below
        if name in ("key", "value"):
            for rank, kept in enumerate(of_ranks):
                held = placement.kv_heads(rank)
                assert kept.shape == (len(held), config.head_size)
                assert not held or cells(kept) == pytest.approx(whole[held.start:held.stop], abs=2e-6)
        elif name in ("x", "id"):
            assert all(cells(kept) == pytest.approx(whole, abs=2e-6) for kept in of_ranks)
        else:
            axis = 1 if name in CONCATENATED else 0
            parts = np.concatenate([cells(kept) for kept in of_ranks if kept.cells.size], axis=axis)
            assert parts == pytest.approx(whole, abs=1e-4 if name == "scores" else 2e-6)


def inner_rows(trace: Trace):
    from minitp.trace.columns import row_columns
    from minitp.trace.schema import Inner
    return list(map(Inner._make, zip(*row_columns(trace.arrays.columns, trace.strings, []), strict=True)))


PASSES = [("prefill", 0), ("decode", 1), ("decode", 2)]


def of_site(trace: Trace, rank: int, phase: str, step: int, site: str):
    return trace.value(int(np.flatnonzero(trace.where(rank=rank, phase=phase, step=step, site=site))[0]))


@pytest.fixture(scope="module")
def three_ranks():
    return trace_of(3)


@pytest.mark.parametrize("phase, step", PASSES)
def test_the_arrays_compute_what_the_collectives_moved(three_ranks, phase, step):
    """x Wᵀ is the newest token's value, act(gate) · up is h, and heads and h times their weights are the partials."""
    def own(site, name):
        return cells(three_ranks.array(rank, phase, step, site, name))

    for rank, at in ((rank, f"layers.{layer}") for rank in range(3) for layer in range(2)):
        weight = {part: cells(three_ranks.weight(rank, f"{at}.{part}.weight"))
                  for part in ("attention.v", "attention.o", "mlp.down")}
        assert own(f"{at}.attention", "value").reshape(-1) == pytest.approx(
            weight["attention.v"] @ own(f"{at}.attention.qkv", "x")[0], abs=1e-4)
        scores = own(f"{at}.attention", "scores")
        assert scores.shape == (3, 3 + step) and scores.sum(1) == pytest.approx(1, abs=5e-4)
        gate, up, h = (own(f"{at}.mlp", name)[0] for name in ("gate", "up", "h"))
        assert h == pytest.approx(gate / (1 + np.exp(-gate)) * up, abs=1e-4)
        for part, x in (("attention.o", own(f"{at}.attention", "heads").reshape(-1)), ("mlp.down", h)):
            before, _ = of_site(three_ranks, rank, phase, step, f"{at}.{part}")
            assert before.token == pytest.approx(weight[part] @ x, abs=1e-3) and before.first == tuple(before.token[:4])


@pytest.mark.parametrize("phase, step", PASSES)
def test_the_partials_and_the_stream_add_up_to_the_next_stream(three_ranks, phase, step):
    norms = ["layers.0.attention_norm", "layers.0.mlp_norm", "layers.1.attention_norm", "layers.1.mlp_norm", "norm"]
    streams = [cells(three_ranks.array(0, phase, step, site, "x"))[0] for site in norms]
    sites = ["layers.0.attention.o", "layers.0.mlp.down", "layers.1.attention.o", "layers.1.mlp.down"]
    for (stream, following), site in zip(pairwise(streams), sites, strict=True):
        befores, afters = zip(*(of_site(three_ranks, rank, phase, step, site) for rank in range(3)), strict=True)
        assert sum(before.token for before in befores) == pytest.approx(afters[0].token, abs=1e-4)
        assert all(np.array_equal(after.cells, afters[0].cells) for after in afters)
        assert stream + afters[0].token == pytest.approx(following, abs=1e-4)


@pytest.mark.parametrize("family, embedding", [("llama", "vocab"), ("llama-tied", "hidden")])
@pytest.mark.parametrize("gathered", [True, False])
def test_the_best_of_every_rank_hold_the_chosen_token(family, embedding, gathered):
    (tokens, trace), *_ = run_threads(recorded, 3, family=family, embedding=embedding, gathered=gathered)
    vocab = Placement(FAMILIES[family], 3).vocab
    summed = embedding == "hidden" and gathered                        # the only one where a rank has all logits
    for step, token in enumerate(tokens[0]):
        key = ("decode" if step else "prefill", step, "head")
        ids, logits = ([cells(trace.array(rank, *key, f"best_{what}"))[0] for rank in range(3)]
                       for what in ("ids", "logits"))
        for rank in range(3):
            assert list(logits[rank]) == sorted(logits[rank], reverse=True)
            assert len(ids[rank]) == min(BEST, vocab.size if summed else len(vocab.of(rank)))
            assert summed or set(map(int, ids[rank])) <= set(vocab.of(rank))
        best = max(range(3), key=lambda rank: logits[rank][0])
        assert ids[best][0] == token


def test_a_prompt_in_a_padded_batch_keeps_what_it_keeps_alone():
    alone, batch = trace_of(2, prompts=PROMPTS[:1]), trace_of(2)
    for of in inner_rows(alone):
        one, other = (trace.array(of.rank, of.phase, of.step, of.site, of.name) for trace in (alone, batch))
        assert other.cells == pytest.approx(one.cells, abs=2e-4)
    for event, wanted in zip(np.flatnonzero(batch.where(rank=1, plane="data")),
                             np.flatnonzero(alone.where(rank=1, plane="data")), strict=True):
        for one, other in zip(alone.value(int(wanted)), batch.value(int(event)), strict=True):
            assert other.token == pytest.approx(one.token, abs=1e-5)


@pytest.mark.parametrize("request_", [{}, {"keep_logits": True}, {"gathered": False}])
@pytest.mark.parametrize("load", ["slice", "scatter"])
def test_recording_changes_nothing(request_, load):
    with_values, without = (run_threads(recorded, 3, load=load, values=values, **request_) for values in (True, False))
    assert [tokens for tokens, _ in with_values] == [tokens for tokens, _ in without]
    kept, bare = with_values[0][1], without[0][1]
    assert [e[:20] for e in kept] == [e[:20] for e in bare]            # all but times
    assert len(kept.arrays) and len(kept.weights) and kept.values
    assert not len(bare.arrays) and not len(bare.weights) and not bare.values
    assert not {"values", "arrays", "weights"} & set(bare.to_plain())


def test_weights_are_there_once_whichever_way_they_came():
    slice_, scatter = trace_of(3, load="slice"), trace_of(3, load="scatter")
    placement, source = Placement(FAMILIES["llama"], 3), source_of("llama")
    for parameter in placement.parameters:
        for rank in range(3):
            found = scatter.weight(rank, parameter.name)
            if len(parameter.shape) < 2:
                assert found is None
            else:
                own = source.read(parameter, placement.slices(parameter, rank))
                assert cells(found) == pytest.approx(own, rel=1e-5) and found.shape == own.shape
                assert found.first == tuple(found.cells[0, :4])
    assert scatter.weights.kept == slice_.weights.kept
    loading = set(np.flatnonzero(scatter.where(phase="load")).tolist())
    assert loading and not loading & {value["event"] for value in scatter.values}


def test_what_is_whole_is_kept_once(three_ranks):
    trace = three_ranks
    ranks = {(of.site, of.rank) for of in inner_rows(trace) if of.name == "x"}
    assert {rank for _, rank in ranks} == {0}
    afters = [value for value in trace.values if value.get("after")]
    assert len(afters) == len(trace.values) / 3
    again = Trace.from_plain(trace.to_plain())
    for event in (0, 5, len(trace) - 1):
        for one, other in zip(trace.value(event), again.value(event), strict=True):
            assert np.array_equal(one.cells, other.cells)


def test_a_long_prompt_and_wide_layers_are_kept_as_maxima_of_one_token():
    config = replace(FAMILIES["llama"], hidden=600, ffn=130, vocab=600, positions=80, heads=4, kv_heads=2, head_size=50)

    def body(comm):
        comm.recorder.keep_values = True
        placement = Placement(config, comm.size)
        weights = load_weights(FullSource(config), placement, comm, dtype=np.float64)
        prompt = tuple(range(60))
        generation = Generation(Transformer(config, placement, comm), weights, Request((prompt,), 2), dtype="f8")
        list(generation)
        return collect(comm, comm.recorder, run_info(comm, argv=[], prompts=[list(prompt)]))

    trace = run_threads(body, 2)[0]
    event = int(np.flatnonzero(trace.where(rank=1, site="layers.1.mlp.down", step=0))[0])
    before, after = trace.value(event)
    assert (before.shape, before.row, before.block, len(before.token)) == ((600,), 59, (1, 38), 16)
    others = [trace.value(e)[0].first for e in np.flatnonzero(trace.where(site="layers.1.mlp.down", step=0)).tolist()]
    assert len(others[0]) == 4 and np.sum(others, axis=0) == pytest.approx(after.first, rel=1e-4, abs=1e-5)
    scores = trace.array(1, "decode", 1, "layers.0.attention", "scores")
    assert (scores.shape, scores.block, scores.cells.shape) == ((2, 61), (1, 2), (2, 31))
    query, h = (trace.array(1, "prefill", 0, f"layers.0.{part}", name) for part, name in
                (("attention", "query"), ("mlp", "h")))
    assert (query.shape, query.cells.shape, query.whole) == ((2, 50), (2, 8), False)
    assert (h.shape, h.cells.shape, h.first) == ((65,), (1, 13), ())
    gate = trace.weight(1, "layers.1.mlp.gate.weight")
    assert (gate.shape, gate.cells.shape, gate.block) == ((65, 600), (11, 12), (6, 50))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=3).filter(lambda s: np.prod(s) < 4000), st.integers(-1, 45),
       st.booleans(), st.integers(0, 2**32))
def test_any_array_is_kept_in_the_format_and_no_number_exceeds_its_block(shape, row, inner, seed):
    array = np.random.default_rng(seed).standard_normal(shape)
    plain = as_plain(Copy(array, inner=True) if inner else copy_of(array, row))
    assert is_kept(plain)
    kept = KeptArray.of(plain, row)
    if kept.row is None:
        assert kept.shape == tuple(shape)
    if not array.size:
        assert kept.cells.shape == (0, 0) and kept.first == ()
        return
    seen = array if kept.row is None else array[(0,) * (len(shape) - 2)][kept.row]
    seen = seen.reshape(-1, seen.shape[-1])
    if kept.whole:
        assert kept.cells == pytest.approx(seen, rel=1e-5)
        first = array[(0,) * (len(shape) - 2)] if len(shape) > 1 and kept.row is None else seen
        shown = first[row] if 0 <= row < len(first) else first[-1]
        assert kept.token == pytest.approx(shown, rel=1e-5) and kept.first == tuple(kept.token[:4])
    else:
        wide = np.repeat(kept.cells, kept.block[1], axis=1)[:, :seen.shape[1]]
        assert (np.abs(seen) <= wide * 1.01).all() and kept.cells.max() == pytest.approx(np.abs(seen).max(), rel=0.01)


def test_kept_matrices_scores_and_best():
    array = np.arange(-6000.0, 0).reshape(60, 100)
    kept = KeptArray.of(as_plain(matrix(array)), row=0)
    assert (kept.block, kept.cells.shape, kept.first) == ((5, 9), (12, 12), (-6000, -5999, -5998, -5997))
    assert kept.cells[1, 1] == pytest.approx(abs(array[5, 9]), rel=0.01)
    assert kept.cells[11, 11] == pytest.approx(401, rel=0.01)
    assert as_plain(Scores(np.array([[1 / 3, 2 / 3]]))) == {"shape": [1, 2], "data": [0.3333, 0.6667]}
    ids, logits = best_of(np.array([1.0, 3.0, 3.0, *[0.0] * 20, 9.0]), 100)
    assert ids.tolist() == [123, 101, 102, 100, *range(103, 107)] and logits[:4].tolist() == [9, 3, 3, 1]
    assert KeptArray.of({"shape": [], "data": [None]}).cells.shape == (1, 1)
    assert KeptArray.of({"shape": [2**40, 0, 2**50], "data": []}).cells.shape == (0, 0)
    assert NUMPY.to_host(kept.cells) is kept.cells
