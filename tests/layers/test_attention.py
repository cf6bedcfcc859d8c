"""Attention cut by heads, with and without a cache, and a softmax that stays finite."""
from dataclasses import replace

import numpy as np
import pytest

from minitp.comm import Partial
from minitp.config import ModelConfig
from minitp.context import Context, KVCache, plan_pass
from minitp.layers import Attention, ColumnParallelLinear, RowParallelLinear
from minitp.layers.attention import softmax
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import load_weights
from tests.families import BIASED, FullSource, plain_attention, plain_weights
from tests.layers import RANKS, Kept, syncs
from tests.mpi_world import run_threads

GQA = ModelConfig(hidden=6, layers=1, heads=6, kv_heads=2, head_size=4, ffn=3, vocab=3, positions=16, **BIASED)
CASES = {"gqa": GQA, "mqa": replace(GQA, heads=3, kv_heads=1), "mha": replace(GQA, heads=2, kv_heads=2, rotary=None)}
X = np.random.default_rng(9).standard_normal((2, 7, 6))


def attended(comm, case):
    config = CASES[case]
    placement = Placement(config, comm.size)
    attention = Transformer(config, placement, comm).blocks[0].attention
    weights = load_weights(FullSource(config), placement, comm, dtype=np.float64)
    positions = np.broadcast_to(np.arange(7), (2, 7))

    def reduced(x, ctx):
        term = attention.product(x, weights, ctx)
        assert isinstance(term, Partial) and term.shape == x.shape
        return attention.o.add_bias(comm.all_reduce(term, site="o", reason="add up"), weights)

    cache, kept = KVCache(2, 9, np.float64), Kept()
    whole = reduced(X, plan_pass(config, positions, dtype=np.float64, observer=kept))
    assert kept.arrays[attention.site, "query"].shape == (2, len(attention.heads), 7, 4)
    assert kept.arrays[attention.site, "key"].shape == (2, len(attention.kv_heads), 7, 4)
    steps = [reduced(X[:, part], plan_pass(config, positions[:, part], dtype=np.float64, cache=cache))
             for part in (slice(0, 4), slice(4, 5), slice(5, 7))]
    assert cache.nbytes == 2 * 2 * len(attention.kv_heads) * 9 * 4 * 8    # keys and values of B, K_p, S, E in float64
    return whole, np.concatenate(steps, axis=1), len(attention.heads), syncs(comm)


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("n", RANKS)
def test_heads_summed_are_the_plain_attention(n, case):
    config = CASES[case]
    weights = plain_weights(FullSource(config))
    truth = np.array([plain_attention(config, weights, "layers.0.attention", x) for x in X])
    ranks = run_threads(attended, n, case=case)
    assert sum(rank[2] for rank in ranks) == config.heads and (n <= config.heads or ranks[-1][2] == 0)
    for whole, steps, _, events in ranks:
        np.testing.assert_allclose(whole, truth, rtol=0, atol=1e-12)
        np.testing.assert_allclose(steps, truth, rtol=0, atol=1e-12)
        assert events == ["all_reduce o: partial → whole"] * 4            # attention itself sends nothing


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_long_prompt_attends_some_queries_at_a_time(n, monkeypatch):
    """The same numbers, also where the last piece is short and where a cache holds earlier tokens."""
    truth = run_threads(attended, n, case="gqa")
    monkeypatch.setattr("minitp.layers.attention.QUERIES", 3)
    for before, after in zip(truth, run_threads(attended, n, case="gqa"), strict=True):
        np.testing.assert_allclose(after[0], before[0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(after[1], before[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize(("ranks", "rank", "groups"), [
    (1, 0, [((0, 2), (0, 6), 3)]),                                        # whole groups: one batch
    (2, 1, [((0, 1), (0, 3), 3)]),
    (4, 1, [((0, 2), (0, 2), 1)]),                                        # the last of one group, the first of the next
    (5, 0, [((0, 1), (0, 2), 2)]),
    (7, 6, []),                                                           # no head at all
])
def test_kv_heads_with_equally_many_query_heads_are_one_batch(ranks, rank, groups):
    def groups_of(comm):
        [block] = Transformer(GQA, Placement(GQA, comm.size), comm).blocks
        return [[(kv.start, kv.stop), (heads.start, heads.stop), g] for kv, heads, g in block.attention.groups]

    assert run_threads(groups_of, ranks)[rank] == [[list(kv), list(heads), g] for kv, heads, g in groups]


def test_the_cache_is_causal_and_starts_as_zeros():
    """A slot not yet written is hidden, and 0 where it is not: neither may touch a result."""
    ctx = plan_pass(GQA, np.array([[0, 1], [4, 5]]), dtype=np.float64, cache=KVCache(2, 8, np.float64))
    assert ctx.seen == 6
    assert ctx.mask[0, 0].tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert ctx.mask[1, 0].tolist() == [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]
    keys, values = ctx.cache.extend("a", np.ones((2, 2, 1, 4)), np.ones((2, 2, 1, 4)), ctx)
    for held in (keys, values):
        assert held.shape == (2, 1, 6, 4) and held[0, 0, :, 0].tolist() == [1, 1, 0, 0, 0, 0]
        assert held[1, 0, :, 0].tolist() == [0, 0, 0, 0, 1, 1]
    step = plan_pass(GQA, np.array([[3], [3]]), dtype=np.float64, cache=KVCache(2, 8, np.float64))
    assert step.mask is None                                              # all rows may look everywhere


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 7e18), (np.float64, 5e153)])
def test_queries_are_scaled_before_the_product(dtype, size):
    """D02: q·k over 16 numbers overflows, q·k / √16 does not; scaling afterwards would come too late."""
    def attend(comm):
        empty = ColumnParallelLinear("qkv", comm, 48)
        attention = Attention("a", empty, RowParallelLinear("o", comm, 16, "add"), range(1), range(1), 1, 16)
        query = np.full((1, 1, 1, 16), size, dtype)
        key = np.stack([np.full(16, size, dtype), np.full(16, -size, dtype)])[None, None]
        value = np.stack([np.full(16, 3, dtype), np.full(16, 5, dtype)])[None, None]
        with np.errstate(over="ignore"):        # the two scores lie farther apart than the largest number
            assert np.isinf(query[0, 0, 0] @ key[0, 0, 0]), "this case proves nothing"
            return attention.attend(query, key, value, Context(np.zeros((1, 1), int), 2, dtype))

    assert run_threads(attend, 1)[0].tolist() == [[[3.0] * 16]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_is_finite_and_sums_to_one(dtype):
    """D03: the largest is subtracted first."""
    x = np.array([[1e4, -1e4, 89, 1000], [-1e4] * 4, [88.8, 89, 89.2, -np.inf], [1e38, -1e38, 0, 1]], dtype)
    with np.errstate(all="raise", under="ignore"):
        y = softmax(x, np)
    assert np.isfinite(y).all() and y.dtype == dtype
    np.testing.assert_allclose(y.sum(-1), 1, rtol=4 * np.finfo(dtype).eps)
    assert y[0].tolist() == [1, 0, 0, 0] and y[1].tolist() == [0.25] * 4 and y[2, 3] == 0
    z = np.exp(np.array([-0.4, -0.2, 0.0]))
    np.testing.assert_allclose(y[2, :3], z / z.sum(), rtol=1e-5 if dtype == np.float32 else 1e-13)
