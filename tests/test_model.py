"""The whole model on any number of ranks: equal to a plain forward pass, and every sync point as foretold."""
from dataclasses import replace

import numpy as np
import pytest

from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.context import KVCache, plan_pass
from minitp.errors import ConfigError
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import RandomSource, load_weights
from tests.families import FAMILIES, LLAMA, FullSource, plain_forward, plain_weights, source_of
from tests.mpi_world import run_threads

IDS = np.array([[1, 4, 2, 0, 3, 4, 1], [3, 3, 0, 1, 2, 4, 4]])        # in every family's vocabulary
LAST = [6, 2]                                                            # whose logits are asked for, of each row
LAYOUTS = [(name, embedding) for name in FAMILIES for embedding in ("vocab", "hidden")]
RANKS = (2, 3, 4, 5, 7, 8, 11, 16, 1)
SPLITS = sorted({(n, *layout) for i, layout in enumerate(LAYOUTS)
                 for n in (RANKS[i % 9], RANKS[(i + 3) % 9])})                # each layout on two numbers of ranks


def built(comm: Communicator, family: str, embedding: str = "vocab", cut: str = "even", load: str = "slice"):
    """(config, model, weights) of a family in float64."""
    config = FAMILIES[family]
    placement = Placement(config, comm.size, embedding, cut)
    source = source_of(family) if load == "slice" or comm.rank == 0 else None
    return config, Transformer(config, placement, comm), load_weights(source, placement, comm, mode=load,
                                                                      dtype=np.float64)


def positions_of(ids: np.ndarray, start: int = 0) -> np.ndarray:
    return np.broadcast_to(np.arange(start, start + ids.shape[1]), ids.shape)


def forwards(comm: Communicator, **layout: str):
    """Logits in three ways: at once, as shards of the last rows alone, and in steps with a cache."""
    config, model, weights = built(comm, **layout)
    ctx = plan_pass(config, positions_of(IDS), dtype=np.float64)
    whole = model.forward(IDS, weights, ctx)
    ctx = plan_pass(config, positions_of(IDS), dtype=np.float64, last=np.array(LAST))
    shard = model.forward(IDS, weights, ctx, gathered=False)
    cache, steps = KVCache(2, IDS.shape[1], np.float64), []
    for start, stop in ((0, 4), (4, 5), (5, 7)):                      # a prompt, a token, several at once
        part = IDS[:, start:stop]
        ctx = plan_pass(config, positions_of(part, start), dtype=np.float64, cache=cache)
        steps.append(model.forward(part, weights, ctx).array)
    return {"whole": whole.array, "shard": shard.array, "cut": list(shard.cut.sizes) if shard.cut else None,
            "steps": np.concatenate(steps, axis=1),
            "events": [(e.op, e.site, e.before, e.after) for e in comm.recorder.events if e.plane == "data"]}


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    return {name: np.array([plain_forward(c, plain_weights(source_of(name)), row) for row in IDS])
            for name, c in FAMILIES.items()}


@pytest.mark.parametrize(("n", "family", "embedding"), SPLITS)
def test_the_split_model_is_the_plain_one(n, family, embedding, expected):
    ranks = run_threads(forwards, n, family=family, embedding=embedding)
    truth = expected[family]
    for rank in ranks:
        for way in ("whole", "steps"):
            np.testing.assert_allclose(rank[way], truth, rtol=0, atol=1e-10)
        assert np.array_equal(rank["whole"], ranks[0]["whole"]), "the ranks part ways"
        assert rank["events"] == ranks[0]["events"]
        assert rank["cut"] == [len(Placement(FAMILIES[family], n).vocab.of(r)) for r in range(n)]
    together = np.concatenate([rank["shard"] for rank in ranks], axis=-1)
    np.testing.assert_allclose(together[:, 0], truth[[0, 1], LAST], rtol=0, atol=1e-10)


def test_a_bias_or_norm_that_is_not_counted_once_would_show(expected):
    """The other tests prove something only if every parameter moves the logits."""
    config = FAMILIES["llama-tied"]
    for name in plain_weights(FullSource(config)):
        weights = plain_weights(FullSource(config))
        weights[name] = weights[name] * 2
        moved = np.abs(plain_forward(config, weights, IDS[0]) - expected["llama-tied"][0]).max()
        unseen = name.endswith("attention.k.bias")                   # q · b is the same for all keys, but for rotary
        assert moved > (1e-6 if unseen else 1e-3), name


# --- sync points ---------------------------------------------------------------------------------------------------

def counted(comm: Communicator, config: dict, embedding: str, ids: np.ndarray):
    config = ModelConfig.from_dict(config)
    placement = Placement(config, comm.size, embedding)
    model, weights = Transformer(config, placement, comm), load_weights(RandomSource(config), placement, comm)
    counts = []
    for gathered in (True, False):
        before = len(comm.recorder.events)
        model.forward(ids, weights, plan_pass(config, positions_of(ids)), gathered=gathered)
        counts.append(len(comm.recorder.events) - before)
    return counts


@pytest.mark.parametrize("shape", [(1, 1), (1, 100), (8, 3)], ids=["a token", "a prompt of 100", "a batch of 8"])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("layers", [3])
def test_sync_points_whatever_a_pass_carries(layers, n, shape):
    """2L + 2 with gathered logits, 2L + 1 with shards; a parallel block has one sync point: L + 2."""
    llama = replace(LLAMA, layers=layers, positions=100)
    ids = np.zeros(shape, int)
    for config, embedding, whole, shards in (
            (llama, "vocab", 2 * layers + 2, 2 * layers + 1),
            (llama, "hidden", 2 * layers + 2, 2 * layers + 1),
            (replace(llama, tied=True), "hidden", 2 * layers + 2, 2 * layers + 2),        # reduce-scatter of partials
            (replace(llama, parallel_block=True), "vocab", layers + 2, layers + 1)):
        for counts in run_threads(counted, n, config=config.to_dict(), embedding=embedding, ids=ids):
            assert counts == [whole, shards]


# --- loading -------------------------------------------------------------------------------------------------------

def loaded(comm: Communicator, family: str, embedding: str, cut: str):
    """What each rank holds, loaded either way; and the placement's word for each slice."""
    config, _, sliced = built(comm, family, embedding, cut)
    _, _, scattered = built(comm, family, embedding, cut, load="scatter")
    placement = Placement(config, comm.size, embedding, cut)
    source = source_of(family)
    for array in placement.physical:
        parts = [source.whole(p)[placement.slices(p, comm.rank)] for p in array.parts]
        assert np.array_equal(sliced[array.name], np.concatenate(parts)), array.name
        assert sliced[array.name].tobytes() == scattered[array.name].tobytes(), array.name
        assert sliced[array.name].shape == scattered[array.name].shape
    assert list(sliced) == list(scattered) == [array.name for array in placement.physical]
    return sliced


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize(("family", "embedding", "cut"), [
    ("llama", "vocab", "even"), ("llama-tied", "hidden", "balanced"), ("mqa", "hidden", "even"),
    ("gpt2", "vocab", "balanced"), ("parallel", "hidden", "even")])
def test_scattered_weights_are_the_slices_bit_for_bit(family, embedding, cut, n):
    ranks = run_threads(loaded, n, family=family, embedding=embedding, cut=cut)
    held = sum(array.size for rank in ranks for array in rank.values())
    config = FAMILIES[family]
    assert held == sum(Placement(config, n, embedding, cut).elements(rank) for rank in range(n))
    assert ("head.weight" in ranks[0]) is not config.tied, "a tied table is one object"


def test_gate_and_up_of_the_same_row_are_on_the_same_rank():
    """A26, A27: the fused width 2F divides where F does not; the cut is of F."""
    config = replace(LLAMA, ffn=3)
    placement = Placement(config, 2)
    fused = next(array for array in placement.physical if array.name == "layers.0.mlp.gate_up.weight")
    assert [[placement.slices(part, rank)[0] for part in fused.parts] for rank in range(2)] == [
        [slice(0, 2)] * 2, [slice(2, 3)] * 2]
    assert [placement.physical_shape(fused, rank)[0] for rank in range(2)] == [4, 2]


def test_random_weights_do_not_depend_on_the_ranks():
    """A46: put together, the slices are the same bits at any number of ranks."""
    def drawn(comm):
        placement = Placement(LLAMA, comm.size)
        source = RandomSource(LLAMA, seed=3)
        return [source.read(p, placement.slices(p, comm.rank), np.float64) for p in placement.parameters]

    whole = run_threads(drawn, 1)[0]
    for n in (2, 3, 4):
        ranks = run_threads(drawn, n)
        for i, parameter in enumerate(Placement(LLAMA, n).parameters):
            if parameter.cut_axis is None:
                assert all(np.array_equal(rank[i], whole[i]) for rank in ranks)
            elif "kv_head" not in parameter.axes:
                assert np.array_equal(np.concatenate([rank[i] for rank in ranks], parameter.cut_axis), whole[i])
    assert not np.array_equal(RandomSource(LLAMA, 4).read(parameter, (slice(None),) * 2), whole[-1])


def test_loading_without_files_is_refused():
    def scattered(comm):
        load_weights(None, Placement(LLAMA, comm.size), comm, mode="scatter")

    def sliced(comm):
        load_weights(None, Placement(LLAMA, comm.size), comm)

    with pytest.raises(ConfigError, match="on rank 0"):
        run_threads(scattered, 2)
    with pytest.raises(ConfigError, match="--load scatter"):
        run_threads(sliced, 2)


# --- the hard cases on heads ----------------------------------------------------------------------------------------

def head_case(comm: Communicator, config: dict):
    config = ModelConfig.from_dict(config)
    placement, ids = Placement(config, comm.size), IDS % config.vocab
    model = Transformer(config, placement, comm)
    weights = load_weights(FullSource(config), placement, comm, dtype=np.float64)
    logits = model.forward(ids, weights, plan_pass(config, positions_of(ids), dtype=np.float64)).array
    attention = model.blocks[0].attention
    rows = weights["layers.0.attention.qkv.weight"].shape[0]
    assert rows == (len(attention.heads) + 2 * len(attention.kv_heads)) * config.head_size
    return {"logits": logits, "heads": len(attention.heads), "kv": list(attention.kv_heads)}


def sizes(heads: int, kv_heads: int, head_size: int, hidden: int) -> ModelConfig:
    return ModelConfig(hidden=hidden, layers=1, heads=heads, kv_heads=kv_heads, head_size=head_size, ffn=5, vocab=11,
                       positions=8)


@pytest.mark.parametrize(("config", "n", "heads", "kv"), [
    pytest.param(sizes(52, 52, 8, 416), 8, [7, 7, 7, 7, 6, 6, 6, 6], None, id="A01, A05: 52 heads on 8"),
    pytest.param(sizes(52, 52, 8, 416), 4, [13] * 4, None, id="A01: on 4"),
    pytest.param(sizes(52, 52, 8, 416), 13, [4] * 13, None, id="A01: on 13"),
    pytest.param(sizes(28, 4, 16, 12), 2, [14] * 2, [[0, 1], [2, 3]], id="A03: 28 heads, 4 kv heads on 2"),
    pytest.param(sizes(28, 4, 16, 12), 4, [7] * 4, [[0], [1], [2], [3]], id="A03: on 4"),
    pytest.param(sizes(28, 4, 16, 12), 7, [4] * 7, [[0], [0, 1], [1], [1, 2], [2], [2, 3], [3]], id="A03: on 7"),
    pytest.param(sizes(28, 4, 16, 12), 8, [4] * 4 + [3] * 4, [[0], [0, 1], [1], [1, 2], [2], [2, 3], [3], [3]],
                 id="A03: on 8"),
    pytest.param(sizes(28, 4, 16, 12), 14, [2] * 14, None, id="A03: on 14"),
    pytest.param(sizes(28, 4, 16, 12), 28, [1] * 28, [[head // 7] for head in range(28)], id="A03: on 28"),
    pytest.param(sizes(25, 25, 8, 10), 4, [7, 6, 6, 6], None, id="A04: 25 heads on 4"),
    pytest.param(sizes(32, 4, 16, 16), 8, [4] * 8, [[r // 2] for r in range(8)], id="A06: 4 kv heads on 8"),
    pytest.param(sizes(8, 1, 16, 10), 4, [2] * 4, [[0]] * 4, id="A07: one kv head on 4"),
    pytest.param(sizes(64, 2, 2, 10), 8, [8] * 8, [[r // 4] for r in range(8)], id="A09: 2 kv heads on 8"),
    pytest.param(sizes(2, 2, 4, 6), 5, [1, 1, 0, 0, 0], [[0], [1], [], [], []], id="A09: a rank without heads"),
])
def test_heads_that_do_not_divide(config, n, heads, kv):
    ranks = run_threads(head_case, n, config=config.to_dict())
    weights = plain_weights(FullSource(config))
    truth = np.array([plain_forward(config, weights, row % config.vocab) for row in IDS])
    assert [rank["heads"] for rank in ranks] == heads
    if kv is not None:
        assert [rank["kv"] for rank in ranks] == kv
    for rank in ranks:
        np.testing.assert_allclose(rank["logits"], truth, rtol=0, atol=1e-10)


@pytest.mark.parametrize("ranks", [0, -1, 1.5, True])
def test_no_ranks_are_refused_from_the_config_alone(ranks):
    with pytest.raises((ConfigError, TypeError), match=r"at least 1 rank|type"):
        Placement(LLAMA, ranks)


def test_a_placement_for_other_ranks_is_refused():
    def wrong(comm):
        Transformer(LLAMA, Placement(LLAMA, comm.size + 1), comm)

    with pytest.raises(ConfigError, match="for 3 ranks and the group has 2"):
        run_threads(wrong, 2)


def test_rotary_logits_know_only_distances():
    """Moved far along the axis, all tokens together, a pass without a cache gives the same logits: the mask is causal
    by order, not by comparing positions with slot numbers."""
    def moved(comm, start):
        config, model, weights = built(comm, "llama")
        ctx = plan_pass(config, positions_of(IDS, start), dtype=np.float64)
        return model.forward(IDS, weights, ctx).array

    for here, there in zip(run_threads(moved, 2, start=0), run_threads(moved, 2, start=1000), strict=True):
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-10)
