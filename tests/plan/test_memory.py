"""Memory of any layout: rows that compute as they read, sums over ranks, the fullest rank, and named hard cases."""
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan import memory
from minitp.plan.formula import letters
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, Inference, Job, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.memory import UNMODELED, most_bytes, ranks, rows, terms, unmodeled, worst
from minitp.plan.memory.terms import SYMBOLS
from minitp.plan.model import PlannedModel
from minitp.plan.rows import KINDS, by_kind, total
from tests.plan.drawn import degrees, model_sizes, planned
from tests.plan.plan_models import LLAMA31_8B, LLAMA31_405B, gpt, llama

ALONE = Place(0, 0, 0, 0)
AS_PYTHON = str.maketrans({"⌈": "ceil((", "⌉": "))", ",": "", "·": "*", "/": ")/("})


@st.composite
def jobs(draw, dp: int, pp: int) -> dict[str, Any]:
    """What a small Inference (of a batch and a prompt) or a Training (of a micro-batch) takes."""
    if draw(st.booleans()):
        return {"batch": draw(st.integers(1, 9)), "prompt": draw(st.integers(1, 9)), "new": draw(st.integers(0, 5)),
                "weights": draw(st.sampled_from(["bf16", "q40", "int8"])), "every_row": draw(st.booleans()),
                "prefill_tokens": draw(st.integers(1, 60))}
    micro_batch, times = draw(st.integers(1, 3)), draw(st.integers(1, 3)) * pp
    return {"batch": micro_batch * dp * times, "seq": draw(st.integers(1, 17)), "micro_batch": micro_batch,
            "recompute": draw(st.sampled_from(["none", "selective", "full"])), "stored": draw(st.booleans()),
            "dropout": draw(st.booleans()), "precision": draw(st.sampled_from([MIXED, MIXED_FP32_GRADIENTS]))}


def made(data: st.DataObject, sizes: dict[str, Any], axes: dict[str, Any]) -> tuple[PlannedModel, Layout, Job]:
    job = data.draw(jobs(axes["dp"], axes["pp"]))
    return planned(sizes), Layout(**axes), Inference(**job) if "prompt" in job else Training(**job)


@settings(max_examples=60)
@given(st.data(), model_sizes(), degrees())
def test_rows_compute_as_they_read(data, sizes, axes):
    """The numbers of a row are its bytes, and every letter of its formula is explained."""
    model, layout, job = made(data, sizes, axes)
    held = rows(model, layout, job, layout.place(data.draw(st.integers(0, layout.devices - 1))))
    for row in held:
        python = row.numbers.translate(AS_PYTHON)
        assert ceil(eval(python, {"ceil": ceil})) == row.bytes, row
        assert row.bytes > 0 and row.kind in KINDS and row.source
        assert set(letters(row.formula)) <= set(SYMBOLS), row
    used = {letter for row in held for letter in letters(row.formula)}
    assert set(terms.legend(held)) == used
    assert len({(row.kind, row.term) for row in held}) == len(held)


@settings(max_examples=25)
@given(st.data(), model_sizes(), degrees())
def test_worst_is_the_fullest_of_all_ranks(data, sizes, axes):
    model, layout, job = made(data, sizes, axes)
    held = [terms.total(memory.terms_of(model, layout, job, layout.place(rank))) for rank in range(layout.devices)]
    place, most = worst(model, layout, job)
    assert total(most) == max(held) == most_bytes(model, layout, job)
    assert held.index(max(held)) == layout.rank(place)


@settings(max_examples=25)
@given(model_sizes(), degrees())
def test_weights_of_one_replica_are_the_placement_s(sizes, axes):
    """Over tp and pp: what the placement's ranks hold, what is whole counted on each, a tied table's copy."""
    sizes = {**sizes, "experts": 1, "active": 1, "embedding_norm": False}
    model, layout = planned(sizes), Layout(**{**axes, "dp": 1, "cp": 1, "ep": 1})
    held = [by_kind(rows(model, layout, Inference(), layout.place(rank))) for rank in range(layout.devices)]
    placement = model.placement(layout.tp, layout.embedding, layout.cut)
    once = sum(placement.elements(rank) for rank in range(layout.tp))
    again = model.config.vocab * model.config.hidden if model.config.tied and layout.pp > 1 else 0
    assert sum(kinds.get("weights", 0) for kinds in held) == 2 * (once + again)


def test_ranks_names_each_kind_of_rank_once():
    model = llama(5, 48, 6, 2, 64, 100)
    kinds = ranks(model, Layout(tp=4, pp=2), Inference())
    assert [place.pp for place in kinds] == [0] * (len(kinds) // 2) + [1] * (len(kinds) // 2)
    assert {place.tp for place in kinds} == {0, 1, 2}                   # 2, 2, 1, 1 heads need 1, 2, 1, 1 kv heads
    experts = ranks(replace(model, experts=3, active=1), Layout(dp=2, ep=2), Inference())
    assert [place.dp for place in experts] == [0, 1]                    # 2 and 1 of 3 experts


def test_g01_kv_cache_is_grouped():
    cache = by_kind(rows(LLAMA31_8B, Layout(), Inference(prompt=131072, new=0, cache="fp16"), ALONE))["kv cache"]
    assert cache == 131072 * 131072 == 16 * 2**30


def test_g02_head_size_as_stated_and_a_workspace():
    model = llama(40, 5120, 32, 8, 14336, 131072)
    model = replace(model, config=replace(model.config, head_size=128))              # 5120/32 would be 160
    planned = rows(model, Layout(), Inference(prompt=1000, new=0), ALONE)
    assert by_kind(planned)["kv cache"] == 2 * 2 * 40 * 8 * 128 * 1000
    assert any(row.term.startswith("workspace") and row.kind == "buffers" and row.bytes for row in planned)


def test_g07_the_published_kv_table_with_numbers_put_in():
    (row,) = (row for row in rows(LLAMA31_8B, Layout(), Inference(prompt=1024, new=0), ALONE) if row.kind == "kv cache")
    assert (row.bytes, row.gib) == (134_217_728, 0.125)
    assert row.formula == "2 · 2 · L · k · e · b · T" and row.numbers == "2 · 2 · 32 · 8 · 128 · 1 · 1,024"


def test_g12_logits_to_the_byte():
    job = Inference(batch=4, prompt=2048, every_row=True)
    assert by_kind(rows(LLAMA31_8B, Layout(), job, ALONE))["logits"] == 4_202_692_608
    assert by_kind(rows(LLAMA31_8B, Layout(), replace(job, every_row=False), ALONE))["logits"] == 2_052_096


@pytest.mark.parametrize(("tp", "kv_heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (3, 4), (5, 3)])
def test_kv_heads_are_shared_by_the_placement(tp, kv_heads):
    """Divided by min(t, kv heads) where heads divide; of 128 heads on 3 or 5 ranks some need parts of more."""
    layout, job = Layout(tp=tp), Inference(prompt=100, new=0)
    cache = [by_kind(rows(LLAMA31_405B, layout, job, Place(rank, 0, 0, 0)))["kv cache"] for rank in range(tp)]
    assert max(cache) == 2 * 2 * 126 * kv_heads * 128 * 100
    assert sum(cache) >= 2 * 2 * 126 * 8 * 128 * 100


def test_g11_what_doubling_does():
    """Activations grow with T, B and d; stored scores with T²."""
    job = Training(seq=512, micro_batch=1, stored=True, batch=64)
    model = llama(4, 256, 4, 4, 1024, 1000)

    def held(model: PlannedModel, job: Training) -> dict[str, int]:
        return {row.term: row.bytes for row in rows(model, Layout(), job, ALONE) if row.kind == "activations"}

    once, longer = held(model, job), held(model, replace(job, seq=1024))
    assert {term: longer[term] / once[term] for term in once} == {
        term: 4 if term == "softmax of scores" else 2 for term in once}
    assert held(model, replace(job, micro_batch=2)) == {term: 2 * size for term, size in once.items()}
    wide = held(llama(4, 512, 8, 8, 2048, 1000), job)
    assert wide == {term: 2 * size for term, size in once.items()}


def test_context_parallelism_cuts_the_sequence():
    """Everything by cp but the scores' other side, which is the whole sequence; the ring's blocks come on top."""
    job = Training(seq=1001, stored=True, batch=6, dropout=True)
    alone = {row.term: row.bytes for row in rows(LLAMA31_8B, Layout(), replace(job, seq=501), ALONE)}
    cut = {row.term: row.bytes for row in rows(LLAMA31_8B, Layout(cp=2), job, ALONE)}
    assert cut.pop("k and v passing round the ring") == 4 * 2 * 501 * 8 * 128
    for term, size in cut.items():
        assert size == (alone[term] * 1001 // 501 if "scores" in term else alone[term]), term


def test_generation_in_a_pipeline_with_the_context_cut():
    layout, job = Layout(pp=2, cp=2), Inference(batch=3, prompt=1001, new=9)
    held = {row.term: row.bytes for row in rows(LLAMA31_8B, layout, job, ALONE)}
    assert held["k and v passing round the ring"] == 4 * 2 * 3 * 501 * 8 * 128
    assert held["messages to and from other stages"] == 2 * 3 * 501 * 4096
    assert held["k and v of all tokens"] == 2 * 2 * 16 * 8 * 128 * 3 * 505


def test_prompts_go_through_in_pieces():
    """64 prompts of 8,192 tokens take the work of one piece, not of all; few tokens are one piece; a new token of each
    sequence is a pass as well."""
    layout, job = Layout(tp=8, pp=2), Inference(batch=64, prompt=8192, new=512)

    def work(job: Inference, layout: Layout = layout) -> int:
        held = by_kind(rows(LLAMA31_405B, layout, job, ALONE))
        return held["activations"] + held["buffers"]

    assert work(job) == work(replace(job, batch=1)) == work(replace(job, batch=16, prompt=512)) < 2e9
    assert work(replace(job, prefill_tokens=2 * 8192)) == 2 * work(job) == work(replace(job, prefill_tokens=4096)) * 4
    assert work(replace(job, batch=16, prompt=256)) == work(job) // 2
    assert work(replace(job, batch=4, prompt=1)) == work(replace(job, batch=4, prompt=1, prefill_tokens=1))
    assert work(job, replace(layout, cp=2)) < work(job)


def test_a_tied_head_is_held_twice_in_a_pipeline():
    model = gpt(4, 64, 4, vocab=100)
    last = rows(model, Layout(pp=2, tp=2), Training(batch=2), Place(0, 0, 0, 1))
    (head,) = (row for row in last if row.term == "head")
    assert head.bytes == 2 * 50 * 64 and "summed" in head.note
    assert not any(row.term == "head" for row in rows(model, Layout(), Training(), ALONE))


def test_experts_are_spread_and_their_states_cut_over_their_replicas():
    mixtral = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2)
    layout = Layout(tp=2, dp=8, ep=4, zero=1)
    planned = {row.term: row for row in rows(mixtral, layout, Training(batch=8), ALONE)}
    held = 2 * 3 * 4096 * 7168 * 32
    assert planned["layers, experts"].bytes == 2 * held
    assert planned["master weights, experts"].bytes == 4 * held // 2
    assert planned["experts' gate, up and their product"].bytes == 3 * 2 * (2048 * 2) * 7168 * 32


def test_a_layer_s_buffers_of_zero_3():
    planned = {row.term: row.bytes for row in rows(LLAMA31_8B, Layout(dp=8, zero=3), Training(batch=8), ALONE)}
    largest = 128256 * 4096
    assert planned["one layer's weights, gathered"] == planned["one layer's gradients, whole"] == 2 * largest
    assert planned["head"] == 2 * largest // 8


@pytest.mark.parametrize(("layout", "experts", "others"), [
    (Layout(dp=8, ep=8, zero=3), 0, True), (Layout(dp=8, ep=4, zero=3), 2, True), (Layout(dp=8, zero=2), 8, True),
    (Layout(cp=2, zero=3), 8, False), (Layout(cp=2, ep=2, zero=3), 0, False), (Layout(zero=3), 0, False)])
def test_only_what_zero_cuts_is_gathered(layout, experts, others):
    """Experts over the replicas of an expert, all else over dp: what one rank holds whole is there already."""
    mixtral = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2)
    planned = {row.term: row.bytes for row in rows(mixtral, layout, Training(batch=8), ALONE)}
    dense = 4096 * (4096 + 2 * 1024 + 4096) + 2 * 4096 + 8 * 4096
    layer = dense * others + experts * 3 * 4096 * 14336
    largest = 2 * max(layer, 32000 * 4096 * others)
    assert planned.get("one layer's gradients, whole", 0) == largest
    assert planned.get("one layer's weights, gathered", 0) == (largest if layout.zero == 3 else 0)


def test_what_is_refused():
    with pytest.raises(ConfigError, match="outside"):
        rows(LLAMA31_8B, Layout(tp=2), Inference(), Place(2, 0, 0, 0))
    with pytest.raises(ConfigError, match="dealt"):
        worst(LLAMA31_8B, Layout(dp=3), Training(batch=4))
    with pytest.raises(ConfigError, match="stages must divide"):
        worst(LLAMA31_8B, Layout(pp=4, chunks=2, schedule="interleaved"), Training(batch=6))


def test_what_is_not_modeled_is_named():
    named = " ".join(one.what for one in UNMODELED)
    assert all(word in named for word in ("context", "fragmentation", "communication", "buckets"))
    assert all(one.size and one.source for one in UNMODELED)
    serving, training = unmodeled(LLAMA31_8B, Inference()), unmodeled(LLAMA31_8B, Training())
    assert [one for one in training if one not in serving] == [one for one in UNMODELED if one.met == "training"]
    assert len(unmodeled(llama(2, 64, 4, 2, 128, 100, experts=4, active=1), Training())) == len(UNMODELED)
