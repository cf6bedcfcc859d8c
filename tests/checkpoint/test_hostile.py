"""Files damaged at random: a clear refusal or a correct load, never another error, never much memory."""
import json
import os
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from checkpoint_files import (
    GPT2,
    LLAMA,
    gguf_tensors,
    hf_gpt2_tensors,
    hf_llama_tensors,
    weights_of,
    write_gguf,
    write_hf,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.checkpoint import open_checkpoint
from minitp.checkpoint.reshard import reshard
from minitp.errors import ConfigError, FileFormatError

EXAMPLES = int(os.environ.get("MINITP_FUZZ", "15"))
"""Per file; `MINITP_FUZZ=3000 pytest tests/checkpoint/test_hostile.py` looks longer."""


@st.composite
def damage(draw):
    """A function from a file's bytes to a damaged file's: cuts, flips, and whole numbers written over."""
    steps = draw(st.lists(st.tuples(
        st.sampled_from(["cut", "flip", "number", "insert", "delete"]), st.floats(0, 1), st.booleans(),
        st.integers(0, 7), st.sampled_from([0, 1, 9, 31, 255, 2 ** 16, 2 ** 31, 2 ** 40, 2 ** 62, 2 ** 63])),
        min_size=1, max_size=4))

    def apply(data, header):
        data = bytearray(data)
        for kind, where, in_header, bit, number in steps:
            at = int(where * (min(header, len(data)) if in_header else len(data)))
            if kind == "cut" or not data:
                del data[at:]
            elif kind == "flip" and at < len(data):
                data[at] ^= 1 << bit
            elif kind == "number":
                data[at:at + 8] = number.to_bytes(8, "little")
            elif kind == "insert":
                data[at:at] = bytes([number % 256])
            elif kind == "delete":
                del data[at:at + bit + 1]
        return bytes(data)
    return apply


def opens_or_refuses(path, size):
    """Opening, and reading everything if it opens, raises no error but ours and stays small."""
    tracemalloc.start()
    try:
        checkpoint = open_checkpoint(path)
        for p in checkpoint.parameters:
            found = checkpoint.read(p, tuple(slice(0, n) for n in p.shape))
            assert found.shape == p.shape and found.dtype == np.float32
        return checkpoint
    except (FileFormatError, ConfigError) as error:
        assert str(error)
        return None
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * size + 4_000_000


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One small model per format: (folder or file to open, the file to damage, its bytes, its header's length)."""
    folder = tmp_path_factory.mktemp("models")
    weights, tensors = weights_of(LLAMA), gguf_tensors(LLAMA, weights_of(LLAMA))
    types = {name: gguf.GGMLQuantizationType.Q4_0 for name, w in tensors.items() if w.ndim == 2 and not w.shape[1] % 32}
    model = write_gguf(folder / "m.gguf", LLAMA, tensors, types=types,
                       metadata={"tokenizer.ggml.tokens": [f"t{i}" for i in range(64)], "x.list": [1, 2, 3]})
    llama = write_hf(folder / "llama", LLAMA, hf_llama_tensors(weights))
    gpt2 = write_hf(folder / "gpt2", GPT2, hf_gpt2_tensors(GPT2, weights_of(GPT2)))
    names = list(hf_llama_tensors(weights))
    shards = write_hf(folder / "shards", LLAMA, hf_llama_tensors(weights), {"a.safetensors": names[:9],
                                                                            "b.safetensors": names[9:]})
    reshard(llama, folder / "ranks", 3)
    whole = {"gguf": (model, model), "llama": (llama, llama / "model.safetensors"),
             "gpt2": (gpt2, gpt2 / "model.safetensors"), "config": (llama, llama / "config.json"),
             "gpt2 config": (gpt2, gpt2 / "config.json"), "index": (shards, shards / "model.safetensors.index.json"),
             "ranks": (folder / "ranks", folder / "ranks" / "rank-1-of-3.safetensors"),
             "placement": (folder / "ranks", folder / "ranks" / "placement.json")}
    for path, _ in whole.values():
        open_checkpoint(path)                                       # so that what is imported late isn't counted
    return Models({name: (path, file, file.read_bytes(), header_length(file)) for name, (path, file) in whole.items()})


class Models(dict):
    def __repr__(self):                                             # hypothesis prints its arguments
        return "models"


def header_length(file: Path):
    data = file.read_bytes()
    if file.suffix == ".gguf":
        return gguf.GGUFReader(file).data_offset
    return int.from_bytes(data[:8], "little") + 8 if file.suffix == ".safetensors" else len(data)


@pytest.mark.parametrize("name", ["gguf", "llama", "gpt2", "config", "gpt2 config", "index", "ranks", "placement"])
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(apply=damage())
def test_a_damaged_file_is_refused_or_read(models, name, apply):
    path, file, whole, header = models[name]
    try:
        file.write_bytes(apply(whole, header))
        opens_or_refuses(path, max(sum(f.stat().st_size for f in path.iterdir()) if path.is_dir() else 0, len(whole)))
    finally:
        file.write_bytes(whole)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2), max_leaves=3)


@pytest.mark.parametrize("name", ["config", "gpt2 config", "placement"])
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_field_of_any_kind_is_refused_or_read(models, name, data):
    """Any value in any field of config.json and placement.json, also in those of rotary positions."""
    path, file, whole, _ = models[name]
    values = json.loads(whole)
    fields = sorted(values.keys() | ({"rope_scaling", "rope_parameters", "layer_types", "sliding_window", "auto_map"}
                                     if "config" in name else set()))
    field = data.draw(st.sampled_from(fields))
    if field == "rope_scaling" and data.draw(st.booleans()):
        values[field] = {"rope_type": "llama3", "factor": data.draw(json_values), "high_freq_factor": 4.0,
                         "low_freq_factor": data.draw(json_values),
                         "original_max_position_embeddings": data.draw(json_values)}
    elif field == "config":
        values[field][data.draw(st.sampled_from(sorted(values[field])))] = data.draw(json_values)
    else:
        values[field] = data.draw(json_values)
    try:
        file.write_text(json.dumps(values))
        opens_or_refuses(path, len(whole))
    finally:
        file.write_bytes(whole)
