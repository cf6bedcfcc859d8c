"""open_checkpoint: every format gives back the arrays that went in; what isn't whole is refused by name."""
import json
from dataclasses import replace

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from checkpoint_files import (
    GPT2,
    LLAMA,
    QWEN2,
    gguf_tensors,
    hf_gpt2_tensors,
    hf_llama_tensors,
    read_all,
    same,
    weights_of,
    write_gguf,
    write_hf,
)

from minitp.checkpoint import open_checkpoint
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement

Q = gguf.GGMLQuantizationType


def fails(path, *words, error=FileFormatError, **options):
    with pytest.raises(error) as caught:
        open_checkpoint(path, **options)
    for word in words:
        assert word in str(caught.value), str(caught.value)


# --- what is right comes back -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("config", [LLAMA, replace(LLAMA, tied=True), QWEN2, replace(LLAMA, heads=6, hidden=28),
                                    replace(LLAMA, qkv_bias=True, attention_bias=True, mlp_bias=True)],
                         ids=["llama", "tied", "qwen2", "c23", "biases"])
def test_hf_llama(tmp_path, config):
    """C23 is among them: d=28, 6 query and 2 kv heads of 8, so that q is 48 x 28, k 16 x 28, o 28 x 48."""
    weights = weights_of(config)
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", config, hf_llama_tensors(weights)))
    assert checkpoint.config == replace(config, name="m")
    same(read_all(checkpoint), weights)
    same(read_all(checkpoint, np.float64), {n: w.astype(np.float64) for n, w in weights.items()})


@pytest.mark.parametrize("prefix", ["transformer.", ""])
def test_hf_gpt2_with_and_without_the_prefix_and_its_buffers(tmp_path, prefix):
    weights = weights_of(GPT2)
    tensors = hf_gpt2_tensors(GPT2, weights, prefix)
    for i in range(GPT2.layers):
        tensors[f"{prefix}h.{i}.attn.bias"] = np.tri(16, dtype=np.bool_)[None, None]
        tensors[f"{prefix}h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", GPT2, tensors))
    assert checkpoint.config == replace(GPT2, name="m")
    same(read_all(checkpoint), weights)


def test_hf_llama_saved_from_the_bare_model(tmp_path):
    weights = weights_of(QWEN2)
    tensors = {name.removeprefix("model."): w for name, w in hf_llama_tensors(weights).items()}
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    same(read_all(open_checkpoint(write_hf(tmp_path / "m", QWEN2, tensors))), weights)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_hf_narrow_and_wide_types(tmp_path, dtype):
    weights = weights_of(LLAMA)
    tensors = {name: w.astype(dtype) for name, w in hf_llama_tensors(weights).items()}
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", LLAMA, tensors))
    same(read_all(checkpoint), weights)
    assert checkpoint.dtype == (np.float64 if dtype is np.float64 else np.float32)


@pytest.mark.parametrize(("architecture", "config"), [
    ("llama", LLAMA), ("llama", replace(LLAMA, tied=True, kv_heads=8)), ("qwen2", QWEN2), ("gpt2", GPT2),
    ("llama", replace(LLAMA, qkv_bias=True)), ("llama", replace(LLAMA, heads=6, hidden=28))])
def test_gguf(tmp_path, architecture, config):
    """A30: K's rows are un-permuted with the kv heads' number, Q's with the query heads'; biases too."""
    weights = weights_of(config)
    path = write_gguf(tmp_path / "m.gguf", config, gguf_tensors(config, weights, architecture), architecture)
    checkpoint = open_checkpoint(path)
    assert replace(checkpoint.config, name="") == config
    same(read_all(checkpoint), weights)
    assert checkpoint.tokenizer_source.metadata["general.architecture"] == architecture


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("embedding", ["vocab", "hidden"])
def test_every_rank_reads_its_slices_of_every_format(tmp_path, ranks, embedding):
    """A14: the bias of a column cut is cut, that of a row cut is whole. A27, C23: uneven cuts are exact."""
    biased = replace(LLAMA, qkv_bias=True, attention_bias=True, mlp_bias=True)
    for config, write in ((biased, lambda w: write_hf(tmp_path / "h", biased, hf_llama_tensors(w))),
                          (GPT2, lambda w: write_hf(tmp_path / "2", GPT2, hf_gpt2_tensors(GPT2, w))),
                          (LLAMA, lambda w: write_gguf(tmp_path / "g", LLAMA, gguf_tensors(LLAMA, w)))):
        weights = weights_of(config)
        checkpoint, placement = open_checkpoint(write(weights)), Placement(config, ranks, embedding)
        for rank in range(ranks):
            for p in placement.parameters:
                mine = placement.slices(p, rank)
                found = checkpoint.read(p, mine)
                assert found.flags.c_contiguous
                np.testing.assert_array_equal(found, weights[p.name][mine], err_msg=p.name)


def test_slices_that_no_placement_asks_for(tmp_path):
    """Rows within a head, where the file's rows are interleaved; a few columns of blocks of 32."""
    weights = weights_of(LLAMA)
    tensors = gguf_tensors(LLAMA, weights)
    types = {name: Q.Q8_0 for name, w in tensors.items() if w.ndim == 2 and w.shape[1] % 32 == 0}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", LLAMA, tensors, types=types))
    whole = read_all(checkpoint)
    for p in checkpoint.parameters:
        for rows in (slice(3, 13), slice(0, 1), slice(5, 6), slice(8, 16), slice(4, 4)):
            for columns in ([slice(0, 32)], [slice(1, 30)], [slice(31, 32)])[:3 if len(p.shape) == 2 else 1]:
                mine = (rows, *columns)[:len(p.shape)]
                np.testing.assert_array_equal(checkpoint.read(p, mine), whole[p.name][mine], err_msg=p.name)


def test_read_refuses_what_is_no_slice_and_no_float(tmp_path):
    checkpoint = open_checkpoint(write_hf(tmp_path / "m", LLAMA, hf_llama_tensors(weights_of(LLAMA))))
    p = checkpoint.parameters[0]
    for slices, dtype in ((np.s_[0:65, 0:32], np.float32), (np.s_[0:64:2, 0:32], np.float32),
                          (np.s_[0:64,], np.float32), (np.s_[0:64, 0:32], np.float16), (np.s_[0:64, 0:32], np.int32)):
        with pytest.raises(ConfigError):
            checkpoint.read(p, slices, dtype)


# --- tied heads -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("names", ["llama", "gpt2"])
def test_c02_a_tied_model_with_a_head_in_its_file(tmp_path, names):
    config = replace(LLAMA, tied=True) if names == "llama" else GPT2
    weights = weights_of(config)
    tensors = hf_llama_tensors(weights) if names == "llama" else hf_gpt2_tensors(config, weights)
    same(read_all(open_checkpoint(write_hf(tmp_path / "equal", config, tensors | {
        "lm_head.weight": weights["embedding.weight"].astype(np.float64)}))), weights)
    other = weights["embedding.weight"].copy()
    other[-1, -1] += 1
    fails(write_hf(tmp_path / "differs", config, tensors | {"lm_head.weight": other}), "ties the head", "lm_head")
    fails(write_hf(tmp_path / "shape", config, tensors | {"lm_head.weight": other[1:]}), "ties the head")


def test_c01_a_gguf_without_output_is_tied(tmp_path):
    weights = weights_of(LLAMA)
    del weights["head.weight"]
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", LLAMA, gguf_tensors(LLAMA, weights)))
    assert checkpoint.config.tied
    same(read_all(checkpoint), weights)


# --- what is not whole ------------------------------------------------------------------------------------------------

def test_missing_doubled_and_unexpected_tensors_are_named(tmp_path):
    tensors = hf_llama_tensors(weights_of(LLAMA))
    one = dict(list(tensors.items())[:-1])
    fails(write_hf(tmp_path / "missing", LLAMA, one), "missing", "lm_head.weight")
    more = {"model.extra.weight": np.ones(1, np.float32)}
    fails(write_hf(tmp_path / "more", LLAMA, tensors | more), "unexpected", "extra")
    bias = {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    fails(write_hf(tmp_path / "bias", LLAMA, tensors | bias), "unexpected", "q_proj.bias", "no bias")
    twin = {"norm.weight": np.ones(32, np.float32)}
    fails(write_hf(tmp_path / "twice", LLAMA, tensors | twin), "twice", "model.norm")
    gap = {name.replace("layers.1", "layers.2"): w for name, w in tensors.items()}
    fails(write_hf(tmp_path / "gap", LLAMA, gap), "missing", "layers.1")
    ids = tensors | {"model.norm.weight": np.ones(32, np.int32)}
    fails(write_hf(tmp_path / "ids", LLAMA, ids), "model.norm.weight", "I32")


@pytest.mark.parametrize(("field", "key", "wrong", "implied"), [
    ("kv_heads", "num_key_value_heads", 1, 2), ("heads", "num_attention_heads", 4, 8),
    ("ffn", "intermediate_size", 47, 48), ("vocab", "vocab_size", 65, 64), ("hidden", "hidden_size", 40, 32),
    ("layers", "num_hidden_layers", 3, 2)])
def test_c24_a_config_that_disagrees_with_the_tensors(tmp_path, field, key, wrong, implied):
    """The message names the config's field, its value, and the value that the file implies, in every format."""
    weights, config = weights_of(LLAMA), replace(LLAMA, **{field: wrong})
    fails(write_hf(tmp_path / "m", config, hf_llama_tensors(weights)), f"{key} is {wrong}", f"{implied}")
    llama_key = {"num_key_value_heads": "attention.head_count_kv", "num_attention_heads": "attention.head_count",
                 "intermediate_size": "feed_forward_length", "vocab_size": "vocab_size",
                 "hidden_size": "embedding_length", "num_hidden_layers": "block_count"}[key]
    path = write_gguf(tmp_path / "m.gguf", config, gguf_tensors(LLAMA, weights))
    fails(path, f"llama.{llama_key} is {wrong}", f"{implied}")


@pytest.mark.parametrize(("field", "key", "wrong"), [("vocab", "vocab_size", 62), ("positions", "n_positions", 17),
                                                     ("ffn", "n_inner", 95), ("layers", "n_layer", 1)])
def test_c24_gpt2(tmp_path, field, key, wrong):
    tensors = hf_gpt2_tensors(GPT2, weights_of(GPT2))
    folder = write_hf(tmp_path / "m", replace(GPT2, **{field: wrong}), tensors)
    fails(folder, f"{key} is {wrong}", str(getattr(GPT2, field)))


# --- shards -----------------------------------------------------------------------------------------------------------

def sharded(folder):
    weights = weights_of(LLAMA)
    tensors = hf_llama_tensors(weights)
    names = list(tensors)
    return weights, write_hf(folder, LLAMA, tensors, {"model-00001-of-00002.safetensors": names[:7],
                                                      "model-00002-of-00002.safetensors": names[7:]})


def test_shards(tmp_path):
    weights, folder = sharded(tmp_path / "m")
    same(read_all(open_checkpoint(folder)), weights)


def edit_index(folder, **changes):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] |= changes
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if file}
    path.write_text(json.dumps(index))


def test_c21_an_index_that_disagrees_with_its_shards(tmp_path):
    second = "model-00002-of-00002.safetensors"
    _, folder = sharded(tmp_path / "a")
    edit_index(folder, **{"lm_head.weight": None})
    fails(folder, "not in the index: lm_head.weight in model-00002")
    _, folder = sharded(tmp_path / "b")
    edit_index(folder, **{"ghost.weight": second})
    fails(folder, "not in its shard: ghost.weight")
    _, folder = sharded(tmp_path / "c")
    edit_index(folder, **{"lm_head.weight": "model-00001-of-00002.safetensors"})
    fails(folder, "not in its shard", "not in the index")


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "sub/x.st", "sub\\x.st", "..", "."])
def test_a_shard_is_a_plain_name_in_the_folder(tmp_path, name):
    _, folder = sharded(tmp_path / "m")
    edit_index(folder, ghost=name)
    fails(folder, "plain name")


def test_a_shard_that_is_missing_or_a_tensor_in_two(tmp_path):
    _, folder = sharded(tmp_path / "m")
    first, second = sorted(folder.glob("model-*.safetensors"))
    held = safetensors.numpy.load_file(second)
    safetensors.numpy.save_file(held | {"model.embed_tokens.weight": np.ones((64, 32), np.float32)}, second)
    fails(folder, "not in the index", "embed_tokens")
    first.unlink()
    fails(folder, "model-00001-of-00002.safetensors is missing")


def test_folders_that_are_no_checkpoint(tmp_path):
    fails(tmp_path / "nowhere", "no such file")
    fails(tmp_path, "config.json")
    folder = write_hf(tmp_path / "m", LLAMA, hf_llama_tensors(weights_of(LLAMA)))
    fails(folder / "model.safetensors", "a folder with config.json")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    fails(folder, "pytorch_model.bin", "never read")
    (folder / "model.safetensors").touch()
    (folder / "model.safetensors.index.json").touch()
    fails(folder, "both")
    (folder / "config.json").write_text('{"model_type": "llama", "model_type": "gpt2"}')
    fails(folder, "twice")
    (folder / "config.json").write_text("[1]")
    fails(folder, "object")


def test_generation_config_names_further_end_tokens(tmp_path):
    folder = write_hf(tmp_path / "m", LLAMA, hf_llama_tensors(weights_of(LLAMA)))
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 2, 999]}')
    (folder / "tokenizer.json").write_text("{}")
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.end_tokens == (2, 5)
    assert checkpoint.tokenizer_source.path == folder
