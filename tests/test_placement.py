"""Who holds what: nothing is lost, nothing is held twice but what must be, and nothing is counted by hand."""
from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.config import TINY, ModelConfig
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.placement import Placement

SMOLLM2_135M = ModelConfig(hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, ffn=1536, vocab=49152,
                           positions=8192, tied=True)
LLAMA_1B = ModelConfig(hidden=2048, layers=16, heads=32, kv_heads=8, head_size=64, ffn=8192, vocab=128256,
                       positions=131072, tied=True)
LLAMA_405B = ModelConfig(hidden=16384, layers=126, heads=128, kv_heads=8, head_size=128, ffn=53248, vocab=128256,
                         positions=131072)
GPT2 = ModelConfig(hidden=768, layers=12, heads=12, kv_heads=12, head_size=64, ffn=3072, vocab=50257, positions=1024,
                   norm="layer", activation="gelu_tanh", gated=False, rotary=None, tied=True, qkv_bias=True,
                   attention_bias=True, mlp_bias=True)


def heads(query: int, kv: int, **sizes) -> ModelConfig:
    """A small model of so many heads."""
    return replace(TINY, heads=query, kv_heads=kv, **sizes)


# --- cuts ------------------------------------------------------------------------------------------------------------

sizes, ranks, units = st.integers(0, 300), st.integers(1, 40), st.integers(1, 17)


@given(sizes, ranks, units)
def test_a_cut_is_disjoint_complete_and_in_order(size, ranks, unit):
    cut = Cut(size, ranks, unit)
    assert [i for rank in range(ranks) for i in cut.of(rank)] == list(range(size))
    assert cut.sizes == tuple(len(cut.of(rank)) for rank in range(ranks))


@given(sizes, ranks, units)
def test_a_cut_is_in_whole_units_as_even_as_they_allow_larger_first(size, ranks, unit):
    cut = Cut(size, ranks, unit)
    assert all(cut.of(rank).start % unit == 0 for rank in range(ranks) if cut.of(rank))
    held = [-(-n // unit) for n in cut.sizes]                                # in units; the last may be a part of one
    assert max(held) - min(held) <= 1
    assert held == sorted(held, reverse=True) and list(cut.sizes) == sorted(cut.sizes, reverse=True)


@given(sizes, ranks, units, st.integers(1, 9))
def test_a_cut_counted_in_smaller_things_is_the_same_cut(size, ranks, unit, factor):
    small = Cut(size, ranks, unit).times(factor)
    for rank in range(ranks):
        held = Cut(size, ranks, unit).of(rank)
        assert small.of(rank) == range(held.start * factor, held.stop * factor)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 5))
def test_a_cut_by_given_ends(shares, factor):
    ends = tuple(np.cumsum(shares).tolist())
    cut = Cut(ends[-1], len(shares), ends=ends)
    assert list(cut.sizes) == shares and list(cut.times(factor).sizes) == [n * factor for n in shares]
    assert [i for rank in range(cut.ranks) for i in cut.of(rank)] == list(range(ends[-1]))


@pytest.mark.parametrize("size, ranks, expected", [
    (52, 8, (7, 7, 7, 7, 6, 6, 6, 6)),                                       # A01, A05
    (25, 4, (7, 6, 6, 6)),                                                   # A04
    (9, 2, (5, 4)), (9, 4, (3, 2, 2, 2)), (9, 5, (2, 2, 2, 2, 1)), (9, 7, (2, 2, 1, 1, 1, 1, 1)),
    (50257, 3, (16753, 16752, 16752)),
    (3, 2, (2, 1)),                                                          # A27
    (3, 4, (1, 1, 1, 0)), (0, 2, (0, 0)),
])
def test_sizes_by_name(size, ranks, expected):
    assert Cut(size, ranks).sizes == expected


@pytest.mark.parametrize("arguments", [
    {"size": -1, "ranks": 2}, {"size": 4, "ranks": 0}, {"size": 4, "ranks": -1}, {"size": 4, "ranks": 2, "unit": 0},
    {"size": 4, "ranks": 2, "ends": (2,)}, {"size": 4, "ranks": 2, "ends": (2, 3)},
    {"size": 4, "ranks": 2, "ends": (5, 4)}, {"size": 4, "ranks": 2, "ends": (-1, 4)},
])
def test_a_cut_that_can_not_be_is_refused(arguments):
    with pytest.raises(ConfigError, match=r"can't cut|no cut of 4 over 2 ranks"):
        Cut(**arguments)


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_none_holds_nothing_but_an_error(rank):
    with pytest.raises(ConfigError, match=r"rank -?\d is not one of 0…2"):
        Cut(7, 3).of(rank)


# --- heads and the kv heads they need --------------------------------------------------------------------------------

grouped = st.builds(lambda kv, group: (kv * group, kv), st.integers(1, 12), st.integers(1, 12))


@given(grouped, st.integers(1, 40))
def test_kv_heads_are_what_the_query_heads_need(shape, ranks):
    (query, kv), group = shape, shape[0] // shape[1]
    placement = Placement(heads(query, kv), ranks)
    for rank in range(ranks):
        needed = {head // group for head in placement.heads.of(rank)}
        assert set(placement.kv_heads(rank)) == needed
    holders = Counter(head for rank in range(ranks) for head in placement.kv_heads(rank))
    assert set(holders) == set(range(kv))
    assert placement.kv_copied == any(n > 1 for n in holders.values())


@pytest.mark.parametrize("query, kv, ranks, expected", [
    (9, 3, 2, ["01", "12"]),                                                 # 5 and 4 query heads: head 1 on both
    (9, 3, 4, ["0", "1", "12", "2"]),
    (9, 3, 5, ["0", "01", "1", "2", "2"]),
    (9, 3, 7, ["0", "01", "1", "1", "2", "2", "2"]),
    (28, 4, 8, ["0", "01", "1", "12", "2", "23", "3", "3"]),                 # A03: 4, 4, 4, 4, 3, 3, 3, 3
    (28, 4, 7, ["0", "01", "1", "12", "2", "23", "3"]),
    (32, 4, 8, ["0", "0", "1", "1", "2", "2", "3", "3"]),                    # A06: never half a kv head
    (8, 1, 4, ["0"] * 4),                                                    # A07: multi-query
    (64, 2, 8, ["0"] * 4 + ["1"] * 4),                                       # A09: 2 // 8 is 0, and no one's share
    (4, 2, 6, ["0", "0", "1", "1", "", ""]),                                 # two ranks own nothing
])
def test_kv_heads_by_name(query, kv, ranks, expected):
    placement = Placement(heads(query, kv), ranks)
    assert ["".join(map(str, placement.kv_heads(rank))) for rank in range(ranks)] == expected


@pytest.mark.parametrize("query, kv, ranks, gradient", [
    (9, 3, 3, "shard"), (9, 3, 2, "partial"), (8, 1, 4, "partial"), (8, 1, 1, "shard"), (8, 8, 3, "shard"),
    (8, 4, 4, "shard"), (8, 4, 2, "shard"), (8, 4, 8, "partial"),
])
def test_only_copied_kv_heads_owe_a_sum(query, kv, ranks, gradient):
    placement = Placement(replace(heads(query, kv), qkv_bias=True), ranks)
    for part, state in (("k", gradient), ("v", gradient), ("q", "shard")):
        for kind in ("weight", "bias"):
            assert placement.parameter(f"layers.0.attention.{part}.{kind}").gradient == state
    assert placement.parameter("layers.0.attention_norm.weight").gradient == "whole"
    assert placement.parameter("layers.0.mlp.down.weight").gradient == "shard"


# --- parameters ------------------------------------------------------------------------------------------------------

models = st.fixed_dictionaries({
    "shape": grouped, "head_size": st.integers(1, 5), "gated": st.booleans(), "biased": st.booleans(),
    "tied": st.booleans(), "norm": st.sampled_from(["rms", "layer"]), "parallel_block": st.booleans(),
    "ffn": st.integers(1, 40), "vocab": st.integers(1, 40), "hidden": st.integers(1, 20)})
choices = st.fixed_dictionaries({"ranks": st.integers(1, 9), "embedding": st.sampled_from(["vocab", "hidden"]),
                                 "cut": st.sampled_from(["even", "balanced"])})


def model(shape, biased, **switches) -> ModelConfig:
    """Positions are learned, so that a head may be of any size."""
    return ModelConfig(layers=1, positions=3, rotary=None, heads=shape[0], kv_heads=shape[1], qkv_bias=biased,
                       attention_bias=biased, mlp_bias=biased, **switches)


def times_held(placement: Placement, parameter) -> np.ndarray:
    """How many ranks hold each element."""
    held = np.zeros(parameter.shape, int)
    for rank in range(placement.ranks):
        assert held[placement.slices(parameter, rank)].shape == placement.shape(parameter, rank)
        held[placement.slices(parameter, rank)] += 1
    return held


@settings(max_examples=60)
@given(models, choices)
def test_slices_tile_each_parameter(sizes, choice):
    """A cut parameter is held once; a whole one by all; kv heads by each rank that needs them."""
    placement = Placement(model(**sizes), **choice)
    for parameter in placement.parameters:
        held = times_held(placement, parameter)
        if parameter.cut_axis is None:
            assert parameter.state == "whole" and parameter.gradient == "whole" and (held == placement.ranks).all()
        elif parameter.gradient == "partial":
            assert parameter.axes[parameter.cut_axis] == "kv_head" and held.min() >= 1 and held.max() > 1
        else:
            assert parameter.state == f"shard({parameter.cut_axis})" and (held == 1).all()
        assert placement.copies(parameter) == pytest.approx(held.mean())
    assert sum(map(placement.elements, range(placement.ranks))) == sum(
        int(times_held(placement, parameter).sum()) for parameter in placement.parameters)


@settings(max_examples=60)
@given(models, choices)
def test_physical_arrays_hold_each_parameter_once(sizes, choice):
    """q, k, v and gate, up are stacked in this order; everything else is an array of its own; nothing twice."""
    placement = Placement(model(**sizes), **choice)
    parts = [part for array in placement.physical for part in array.parts]
    assert Counter(part.name for part in parts) == Counter(p.name for p in placement.parameters)
    assert len({array.name for array in placement.physical}) == len(placement.physical)
    for array in placement.physical:
        last = [part.name.rsplit(".", 2)[-2] for part in array.parts]
        assert last in (["q", "k", "v"], ["gate", "up"]) or len(last) == 1
        kinds = {part.name.rsplit(".", 1)[1] for part in array.parts}
        assert kinds == {array.name.rsplit(".", 1)[1]}
        for rank in range(placement.ranks):
            held = sum(prod(placement.shape(part, rank)) for part in array.parts)
            assert prod(placement.physical_shape(array, rank)) == held
    for rank in range(placement.ranks):
        assert placement.elements(rank) == sum(prod(placement.physical_shape(a, rank)) for a in placement.physical)


def test_physical_names():
    names = [array.name for array in Placement(replace(TINY, layers=1, qkv_bias=True), 2).physical]
    assert names == ["embedding.weight", "layers.0.attention_norm.weight", "layers.0.attention.qkv.weight",
                     "layers.0.attention.qkv.bias", "layers.0.attention.o.weight", "layers.0.mlp_norm.weight",
                     "layers.0.mlp.gate_up.weight", "layers.0.mlp.down.weight", "norm.weight", "head.weight"]


@pytest.mark.parametrize("config, total", [
    (SMOLLM2_135M, 134_515_008), (LLAMA_1B, 1_235_814_400), (LLAMA_405B, 405_853_388_800), (GPT2, 124_439_808),
], ids=["SmolLM2-135M", "Llama-3.2-1B", "Llama-3.1-405B", "GPT-2"])
def test_totals_as_published(config, total):
    assert sum(p.size for p in Placement(config, 1).parameters) == total
    assert Placement(config, 1).elements(0) == total


@pytest.mark.parametrize("embedding, state, shape", [
    ("vocab", "shard(0)", (16753, 768)), ("hidden", "shard(1)", (50257, 256))])
def test_a_vocabulary_of_50257_on_3_ranks(embedding, state, shape):
    placement = Placement(GPT2, 3, embedding=embedding)
    table = placement.parameter("embedding.weight")
    assert table.state == state and placement.shape(table, 0) == shape


# --- evened out by bytes ---------------------------------------------------------------------------------------------

def layer_elements(placement: Placement, rank: int) -> int:
    """What a rank holds of the matrices of one layer: what balancing evens out."""
    return sum(prod(placement.shape(p, rank)) for p in placement.parameters
               if p.name.startswith("layers.0.") and len(p.shape) == 2)


def spread(placement: Placement) -> int:
    held = [layer_elements(placement, rank) for rank in range(placement.ranks)]
    return max(held) - min(held)


@settings(max_examples=100)
@given(models, st.integers(1, 12))
def test_balanced_is_as_even_as_whole_rows_allow(sizes, ranks):
    """Each row to the rank that holds least so far: no other way ends with a lower highest or a higher lowest."""
    config = model(**sizes)
    even, balanced = Placement(config, ranks), Placement(config, ranks, cut="balanced")
    assert balanced.heads == even.heads and sum(balanced.ffn.sizes) == config.ffn
    row = (3 if config.gated else 2) * config.hidden
    levels = [layer_elements(even, rank) - len(even.ffn.of(rank)) * row for rank in range(ranks)]
    for _ in range(config.ffn):
        levels[levels.index(min(levels))] += row
    assert sorted(levels) == sorted(layer_elements(balanced, rank) for rank in range(ranks))
    assert spread(balanced) <= spread(even)


@pytest.mark.parametrize("ranks", [2, 4, 5, 7, 16])
def test_balanced_evens_out_what_nine_heads_leave_uneven(ranks):
    even, balanced = (Placement(SMOLLM2_135M, ranks, cut=cut) for cut in ("even", "balanced"))
    a_row = 3 * SMOLLM2_135M.hidden
    assert spread(balanced) <= a_row < spread(even)


# --- asked, not built ------------------------------------------------------------------------------------------------

@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Every rank that some cut is asked for."""
    ranks, of = [], Cut.of
    monkeypatch.setattr(Cut, "of", lambda self, rank: ranks.append(rank) or of(self, rank))
    return ranks


def test_405b_on_16384_ranks_is_answered_without_going_through_them(asked):
    placement = Placement(LLAMA_405B, 16_384)
    for rank in (127, 16_383):
        assert [prod(placement.shape(p, rank)) for p in placement.parameters if p.name.startswith("layers.125.")]
    assert [placement.physical_shape(array, 128) for array in placement.physical]
    assert len(placement.heads.of(127)) == 1 and len(placement.heads.of(128)) == 0 == len(placement.kv_heads(128))
    assert len(placement.ffn.of(0)) == 4 and len(placement.ffn.of(16_383)) == 3
    assert set(asked) <= {0, 1, 127, 128, 16_383}, "some answer went through all ranks"


def test_balancing_405b_on_16384_ranks_looks_at_each_rank_a_few_times(asked):
    ffn = Placement(LLAMA_405B, 16_384, cut="balanced").ffn
    assert ffn.ends[-1] == 53_248 and list(ffn.ends) == sorted(ffn.ends)
    assert len(ffn.of(0)) < len(ffn.of(16_383))                              # rank 0 has a head to hold
    assert len(asked) < 10 * 16_384


# --- refused from the config alone -----------------------------------------------------------------------------------

@pytest.mark.parametrize("ranks", [0, -1, True, False, 2.0, "2", None])
def test_a_number_of_ranks_that_can_not_be(ranks):
    with pytest.raises(ConfigError, match="at least 1 rank"):
        Placement(TINY, ranks)


@pytest.mark.parametrize("choice", [{"embedding": "rows"}, {"cut": "fair"}])
def test_a_choice_that_is_none(choice):
    with pytest.raises(ConfigError, match=r"not '(rows|fair)'"):
        Placement(TINY, 2, **choice)


def test_a_parameter_that_is_not_there():
    with pytest.raises(ConfigError, match=r"layers\.9\.mlp\.up"):
        Placement(TINY, 2).parameter("layers.9.mlp.up")


@pytest.mark.parametrize("query, kv, ranks", [
    (52, 52, 4), (52, 52, 8), (52, 52, 13), *((28, 4, p) for p in (1, 2, 4, 7, 8, 14, 28)), (25, 25, 4), (32, 4, 8),
    (8, 1, 4), (64, 2, 8), (8, 4, 16),
])
def test_the_hard_cases_are_exact_not_refused(query, kv, ranks):
    """A01, A03, A04, A05, A06, A07, A09: rows of heads, by whole heads, each once (kv: at least once)."""
    config = heads(query, kv, head_size=8, layers=1)
    placement = Placement(config, ranks)
    for name in ("q", "k", "v"):
        held = times_held(placement, placement.parameter(f"layers.0.attention.{name}.weight"))[:, 0]
        assert held.min() >= 1 and (name != "q" or held.max() == 1)
        assert (held.reshape(-1, 8) == held[::8, None]).all(), "a head was cut"
    q, k = (placement.parameter(f"layers.0.attention.{name}.weight") for name in "qk")
    for rank in range(ranks):
        assert bool(prod(placement.shape(q, rank))) == bool(prod(placement.shape(k, rank))), "half a head's work"
