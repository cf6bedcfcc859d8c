"""Per-rank checkpoints: any number of ranks to any other, bit for bit; what isn't whole is refused."""
import json
import shutil
import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import safetensors.numpy
from checkpoint_files import GPT2, LLAMA, QWEN2, hf_gpt2_tensors, hf_llama_tensors, read_all, same, weights_of, write_hf

from minitp.checkpoint import open_checkpoint
from minitp.checkpoint.reshard import reshard, to_hf, write_rank
from minitp.config import RotaryConfig
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement

NINE_HEADS = replace(LLAMA, hidden=36, heads=9, kv_heads=3, ffn=50, vocab=65)


def save(folder, config, ranks, weights, **options):
    placement = Placement(config, ranks, **options)
    for rank in reversed(range(ranks)):                                        # in whichever order they come
        write_rank(folder, placement, rank, {p.name: weights[p.name][placement.slices(p, rank)]
                                             for p in placement.parameters})
    return folder


def fails(path, *words, error=FileFormatError):
    with pytest.raises(error) as caught:
        read_all(open_checkpoint(path))
    for word in words:
        assert word in str(caught.value), str(caught.value)


QUICK = [(2, "hidden", "float64"), (5, "balanced", "float32"), (7, "", "float32")]
EVERY = [(before, options, dtype) for before in (1, 2, 5, 7) for options in ("", "hidden", "balanced")
         for dtype in ("float32", "float64")]


@pytest.mark.parametrize("before, options, dtype", [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow) for case in EVERY])
def test_a22_every_pair_of_rank_counts_is_equal_bit_for_bit(tmp_path, before, options, dtype):
    """9 heads in 3 groups: on 2, 5 and 7 ranks a kv head is held twice, on 7 of them by uneven neighbors."""
    weights = {name: w.astype(dtype) + np.dtype(dtype).type(1e-9) for name, w in weights_of(NINE_HEADS).items()}
    placed = {"hidden": {"embedding": "hidden"}, "balanced": {"cut": "balanced"}}.get(options, {})
    folder = save(tmp_path / "before", NINE_HEADS, before, weights, **placed)
    same(read_all(open_checkpoint(folder), dtype), weights)
    for after in (1, 3, 4, 10):
        reshard(folder, tmp_path / f"{after}", after)
        checkpoint = open_checkpoint(tmp_path / f"{after}")
        assert checkpoint.config == NINE_HEADS
        assert checkpoint.placement == Placement(NINE_HEADS, after)
        same(read_all(checkpoint, dtype), weights)


def test_each_rank_of_another_count_reads_its_slices(tmp_path):
    weights = weights_of(NINE_HEADS)
    checkpoint = open_checkpoint(save(tmp_path / "m", NINE_HEADS, 5, weights, embedding="hidden"))
    placement = Placement(NINE_HEADS, 4)
    for rank in range(4):
        for p in placement.parameters:
            mine = placement.slices(p, rank)
            np.testing.assert_array_equal(checkpoint.read(p, mine), weights[p.name][mine])


@pytest.mark.parametrize("config", [
    LLAMA, QWEN2, GPT2, replace(LLAMA, qkv_bias=True, attention_bias=True, mlp_bias=True),
    replace(LLAMA, rotary=RotaryConfig(5e5, "llama3", 8.0, 1.0, 4.0, 4096)),
    replace(LLAMA, bos=None, end_tokens=(3, 4))])
def test_ranks_to_hf_and_back(tmp_path, config):
    weights = weights_of(config)
    folder = save(tmp_path / "ranks", config, 3, weights)
    to_hf(folder, tmp_path / "hf")
    checkpoint = open_checkpoint(tmp_path / "hf")
    assert checkpoint.config == replace(config, name="hf")
    same(read_all(checkpoint), weights)
    reshard(checkpoint, tmp_path / "two", 2)
    same(read_all(open_checkpoint(tmp_path / "two")), weights)


def test_to_hf_writes_the_names_and_layouts_of_the_reference(tmp_path):
    for config, layout in ((GPT2, partial(hf_gpt2_tensors, GPT2)), (LLAMA, hf_llama_tensors)):
        expected = layout(weights_of(config))
        ranks, out = tmp_path / f"ranks{config.vocab}", tmp_path / f"hf{config.vocab}"
        to_hf(save(ranks, config, 2, weights_of(config)), out)
        found = safetensors.numpy.load_file(out / "model.safetensors")
        assert found.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_copies_that_went_apart_are_refused(tmp_path):
    for name in ("layers.0.attention.k.weight", "norm.weight"):
        folder = save(tmp_path / name, NINE_HEADS, 2, weights_of(NINE_HEADS))
        path = folder / "rank-1-of-2.safetensors"
        tensors = safetensors.numpy.load_file(path)
        tensors[name][0] += 1
        safetensors.numpy.save_file(tensors, path)
        fails(folder, name, "differs", "rank-1-of-2")


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    good = save(tmp_path / "good", LLAMA, 3, weights_of(LLAMA))

    def damaged(name, edit=None, **changes):
        folder = tmp_path / name
        shutil.copytree(good, folder)
        values = json.loads((folder / "placement.json").read_text()) | changes
        (folder / "placement.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
        if edit:
            edit(folder)
        return folder

    fails(damaged("gone", lambda f: (f / "rank-1-of-3.safetensors").unlink()), "lacks rank-1-of-3.safetensors")
    fails(damaged("swapped", lambda f: (f / "rank-2-of-3.safetensors").replace(f / "rank-0-of-3.safetensors")), "rank")
    fails(damaged("cut", lambda f: (f / "rank-2-of-3.safetensors").write_bytes(b"123")), "too few")
    fails(damaged("version", version=2), "version 2")
    fails(damaged("format", format="other"), "'other'")
    fails(damaged("dtype", dtype="F64"), "rank 0 holds")
    fails(damaged("field", embedding=None), "embedding")
    fails(damaged("wide", config=replace(LLAMA, ffn=49).to_dict()), "mlp", "rank 0 holds")
    fails(damaged("ranks", ranks=10 ** 15), "rank-0-of-1000000000000000")
    fails(damaged("deep", config=replace(LLAMA, layers=10 ** 12).to_dict()), "layers")
    fails(damaged("unknown", config={"depth": 3}), "depth", error=ConfigError)


def test_a_wrong_write_is_refused_and_a_second_one_too(tmp_path):
    weights, placement = weights_of(LLAMA), Placement(LLAMA, 1)
    with pytest.raises(ConfigError, match=r"missing norm\.weight"):
        write_rank(tmp_path / "m", placement, 0, {n: w for n, w in weights.items() if n != "norm.weight"})
    with pytest.raises(ConfigError, match="fused arrays"):
        write_rank(tmp_path / "m", placement, 0, weights | {"layers.0.attention.qkv.weight": np.ones(3)})
    with pytest.raises(ConfigError, match="all be float32 or all float64"):
        write_rank(tmp_path / "m", placement, 0, weights | {"norm.weight": np.ones(32, np.float64)})
    with pytest.raises(ConfigError, match="declared"):
        write_rank(tmp_path / "m", placement, 0, weights | {"norm.weight": np.ones(3, np.float32)})
    assert not list((tmp_path / "m").iterdir())
    save(tmp_path / "m", LLAMA, 1, weights)
    with pytest.raises(ConfigError, match="new folder"):
        write_rank(tmp_path / "m", placement, 0, weights)


def test_resharding_holds_one_tensor_at_a_time(tmp_path):
    config = replace(LLAMA, hidden=256, layers=8, ffn=512, vocab=512)
    weights = weights_of(config)
    total = sum(w.nbytes for w in weights.values())
    largest = max(w.nbytes for w in weights.values())
    folder = write_hf(tmp_path / "hf", config, hf_llama_tensors(weights))
    del weights
    tracemalloc.start()
    reshard(folder, tmp_path / "ranks", 2)
    to_hf(tmp_path / "ranks", tmp_path / "back")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * largest + 1_500_000 < total / 4             # (the checks of the tests themselves take some, too)
