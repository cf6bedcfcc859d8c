"""GGUF: hostile headers, damaged files, every quantization. Files come from llama.cpp's own writer, or byte by byte."""
import struct
import time
import tracemalloc
from dataclasses import replace

import gguf
import numpy as np
import pytest
from checkpoint_files import LLAMA, gguf_tensors, weights_of, write_gguf

from minitp.checkpoint import open_checkpoint
from minitp.checkpoint.gguf import read_manifest
from minitp.config import RotaryConfig
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement

Q = gguf.GGMLQuantizationType


# --- files byte by byte -----------------------------------------------------------------------------------------------

def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def text(s):
    return u64(len(s.encode())) + s.encode()


def pair(key, kind, value):
    return text(key) + u32(kind) + value


def llama_pairs(**sizes):
    """The metadata of a Llama, nothing optional."""
    return [pair("general.architecture", 8, text("llama")),
            pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
            *[pair("llama." + key.replace("__", "."), 4, u32(n)) for key, n in sizes.items()]]


def tensor(name, axes, kind=0, offset=0):
    return text(name) + u32(len(axes)) + b"".join(u64(n) for n in axes) + u32(kind) + u64(offset)


def write_raw(path, pairs=(), tensors=(), data=b"", version=3, counts=None, alignment=32):
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    header = b"GGUF" + u32(version) + u64(n_tensors) + u64(n_pairs) + b"".join(pairs) + b"".join(tensors)
    path.write_bytes(header + bytes(-len(header) % alignment) + data)
    return path


def fails(path, *words, error=FileFormatError, opener=read_manifest):
    with pytest.raises(error) as caught:
        opener(path)
    for word in (path.name, *words):
        assert word in str(caught.value), str(caught.value)


DEEP = b"".join(u32(9) + u64(1) for _ in range(1000)) + u32(4) + u64(0)
HOSTILE = {
    # C09
    "a million axes": ({"tensors": [text("w") + u32(1_000_000) + bytes(40)]}, "axes"),
    "product wraps to 0": ({"tensors": [tensor("w", [4194304, 4194304, 1048576, 1])]}, "needs"),
    "2^32 squared": ({"tensors": [tensor("w", [2 ** 32, 2 ** 32])]}, "needs"),
    "2^63": ({"tensors": [tensor("w", [2 ** 63, 2])]}, "needs"),
    # C10
    "string of 2^30": ({"pairs": [text("k") + u32(8) + u64(2 ** 30)]}, "1,073,741,824"),
    "key of 2^63": ({"pairs": [u64(2 ** 63) + bytes(40)]}, "left"),
    "array of 2^40": ({"pairs": [pair("k", 9, u32(4) + u64(2 ** 40))]}, "left"),
    "strings, 2^40": ({"pairs": [pair("k", 9, u32(8) + u64(2 ** 40))]}, "left"),
    "array wraps": ({"pairs": [pair("k", 9, u32(10) + u64(2 ** 61))]}, "left"),
    "2^40 tensors": ({"counts": (2 ** 40, 0)}, "number of tensors"),
    "2^40 pairs": ({"counts": (0, 2 ** 40)}, "number of metadata pairs"),
    "nested 1000 deep": ({"pairs": [pair("k", 9, DEEP)]}, "deep"),
    **{f"alignment {n}": ({"pairs": [pair("general.alignment", 4, u32(n))]}, "alignment") for n in (0, 3, 2 ** 30)},
    "alignment a string": ({"pairs": [pair("general.alignment", 8, text("32"))]}, "alignment"),
    # C12
    "overlap": ({"tensors": [tensor("a", [8], 0, 0), tensor("b", [8], 0, 16)], "data": bytes(64)}, "overlap"),
    "same place": ({"tensors": [tensor("a", [8]), tensor("b", [8])], "data": bytes(64)}, "overlap"),
    "overlap, out of order": ({"tensors": [tensor("a", [8], 0, 32), tensor("b", [16])], "data": bytes(64)}, "'a'"),
    # and
    "offset 2^63": ({"tensors": [tensor("w", [8], 0, 2 ** 63)], "data": bytes(32)}, "cut short"),
    "big-endian": ({"version": 3 << 24}, "big-endian"),
    "version 1": ({"version": 1}, "version 1"),
    "version 4": ({"version": 4}, "version 4"),
    "tensor twice": ({"tensors": [tensor("a", [8]), tensor("a", [8], 0, 32)], "data": bytes(64)}, "twice"),
    "key twice": ({"pairs": [pair("k", 4, u32(1)), pair("k", 4, u32(1))]}, "twice"),
    "key not utf-8": ({"pairs": [u64(1) + b"\xff" + u32(4) + u32(1)]}, "UTF-8"),
    "unknown value type": ({"pairs": [pair("k", 13, bytes(8))]}, "unknown type 13"),
    "unknown array type": ({"pairs": [pair("k", 9, u32(77) + u64(1) + bytes(16))]}, "unknown type 77"),
    "ragged blocks": ({"tensors": [tensor("w", [33], 8)], "data": bytes(64)}, "blocks"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_c09_c10_c12_hostile_headers_are_refused_fast_and_allocate_nothing(tmp_path, case):
    options, word = HOSTILE[case]
    path = write_raw(tmp_path / "hostile.gguf", **options)
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    began = time.thread_time()
    fails(path, word)
    assert time.thread_time() - began < 2               # of this thread's own: others may be at work
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_every_type_of_value_and_both_versions(tmp_path):
    pairs = [pair(name, kind, struct.pack("<" + code, value)) for name, kind, code, value in [
        ("u8", 0, "B", 255), ("i8", 1, "b", -1), ("u16", 2, "H", 65535), ("i16", 3, "h", -1),
        ("u32", 4, "I", 2 ** 32 - 1), ("i32", 5, "i", -1), ("f32", 6, "f", 0.5), ("bool", 7, "?", True),
        ("u64", 10, "Q", 2 ** 64 - 1),
        ("i64", 11, "q", -1), ("f64", 12, "d", 0.1)]]
    pairs += [pair("s", 8, text("né")), pair("strings", 9, u32(8) + u64(2) + text("a") + text("")),
              pair("numbers", 9, u32(5) + u64(3) + struct.pack("<3i", 1, -2, 3)), pair("none", 9, u32(4) + u64(0)),
              pair("nested", 9, u32(9) + u64(2) + (u32(0) + u64(1) + b"\x07") * 2)]
    for version in (2, 3):
        metadata = read_manifest(write_raw(tmp_path / "m.gguf", pairs, version=version)).metadata
        assert list(metadata.values())[:12] == [
            255, -1, 65535, -1, 2 ** 32 - 1, -1, 0.5, True, 2 ** 64 - 1, -1, 0.1, "né"]
        assert metadata["bool"] is True
        assert metadata["strings"] == ["a", ""]
        assert metadata["numbers"].tolist() == [1, -2, 3]
        assert len(metadata["none"]) == 0
        assert [n.tolist() for n in metadata["nested"]] == [[7], [7]]


@pytest.mark.parametrize(("content", "word"), [(b"", "empty"), (b"GGU", "begins with"),
                                               (b"ggjt" + bytes(40), "begins with"),
                                               (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS")])
def test_files_that_are_no_gguf(tmp_path, content, word):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    fails(path, word, opener=open_checkpoint)


# --- damaged and odd files --------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def model(tmp_path_factory):
    weights = weights_of(LLAMA)
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", LLAMA, gguf_tensors(LLAMA, weights),
                      metadata={"tokenizer.ggml.tokens": [f"t{i}" for i in range(64)]})


def test_c11_a_file_cut_anywhere_is_refused(model, tmp_path):
    manifest = read_manifest(model)
    last = max(manifest.tensors.values(), key=lambda e: e.offset)
    first = min(e.offset for e in manifest.tensors.values())
    whole = model.read_bytes()
    for cut in np.random.default_rng(0).integers(0, last.offset + last.nbytes, 50).tolist():
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:cut])
        if cut < 4:
            fails(path, "begins with")
        elif cut < first:
            fails(path, "left (cut short")
        else:
            short = [e for e in manifest.tensors.values() if e.offset + e.nbytes > cut]
            named = min(short, key=lambda e: e.offset)
            fails(path, repr(named.name), f"needs {named.nbytes:,} bytes",
                  f"has {max(0, cut - named.offset):,};", "cut short")


def test_c15_unaligned_tensors_and_trailing_bytes_load_by_offset(tmp_path):
    data = bytes(4) + np.arange(3, dtype=np.float32).tobytes() + np.arange(5, dtype=np.float32).tobytes()
    path = write_raw(tmp_path / "odd.gguf", tensors=[tensor("b", [5], 0, 16), tensor("a", [3], 0, 4)], data=data)
    manifest = read_manifest(path)
    for name, count in (("a", 3), ("b", 5)):
        out = np.zeros(count)
        manifest.read_into(name, (slice(0, count),), out)
        assert out.tolist() == list(range(count))
    assert manifest.notes == ()
    path.write_bytes(path.read_bytes() + bytes(28) + b"trailing")
    assert read_manifest(path).notes == ("8 bytes follow the last tensor; they are not read",)


def test_c13_one_part_of_a_split_file_is_told_so(tmp_path, model):
    part = tmp_path / "big-00001-of-00003.gguf"
    part.write_bytes(model.read_bytes())
    (tmp_path / "big-00002-of-00003.gguf").touch()
    fails(part, "part 1 of 3", "missing here: big-00003-of-00003.gguf", "llama-gguf-split", opener=open_checkpoint)
    part = tmp_path / "model.gguf.part1of2"
    part.write_bytes(model.read_bytes()[:5000])
    fails(part, "part 1 of 2", "missing here: model.gguf.part2of2", "cat", opener=open_checkpoint)
    (tmp_path / "model.gguf.part2of2").touch()
    fails(part, "all are here", opener=open_checkpoint)
    path = write_gguf(tmp_path / "renamed.gguf", LLAMA, {}, metadata={"split.count": 3})
    fails(path, "one of 3 parts", opener=open_checkpoint)


def test_c14_an_unknown_architecture_is_named_and_never_called_damage(tmp_path):
    path = write_gguf(tmp_path / "moe.gguf", LLAMA, {"blk.0.ffn_gate_exps.weight": np.ones((4, 8, 32), np.float32)},
                      architecture="qwen3moe", metadata={"qwen3moe.expert_count": 4})
    with pytest.raises(ConfigError, match=r"unsupported architecture: .* is 'qwen3moe'"):
        open_checkpoint(path)
    future = write_raw(tmp_path / "new.gguf", [pair("general.architecture", 8, text("qwen9moe"))],
                       [tensor("w", [32], 99)], bytes(8))
    with pytest.raises(ConfigError, match="qwen9moe"):
        open_checkpoint(future)


SMALL = {"embedding_length": 32, "attention__head_count": 4, "context_length": 8, "block_count": 1,
         "feed_forward_length": 32, "vocab_size": 8}


def test_c16_types_are_read_per_tensor_and_unsupported_ones_counted(tmp_path):
    weights = weights_of(replace(LLAMA, ffn=256))
    config = replace(LLAMA, ffn=256)
    tensors = gguf_tensors(config, weights)
    types = {name: kind for name in tensors for end, kind in (
        ("ffn_up.weight", Q.Q4_1), ("attn_q.weight", Q.Q5_0), ("ffn_gate.weight", Q.F16), ("attn_v.weight", Q.BF16),
        ("attn_k.weight", Q.Q8_0)) if name.endswith(end)}
    path = write_gguf(tmp_path / "model-Q4_0.gguf", config, tensors, types=types)
    manifest = read_manifest(path)
    assert {e.dtype for e in manifest.tensors.values()} == {"F32", "F16", "BF16", "Q4_1", "Q5_0", "Q8_0"}
    compare_with_the_library(path, manifest)
    bad = write_raw(tmp_path / "bad-Q4_0.gguf", llama_pairs(**SMALL),
                    [tensor("a", [32], 9), tensor("b", [32], 9, 64), tensor("c", [32], 99, 128)], bytes(192))
    fails(bad, "2 of Q8_1", "1 of type 99 (unknown)", opener=open_checkpoint)


# --- numbers ----------------------------------------------------------------------------------------------------------

def compare_with_the_library(path, manifest):
    for theirs in gguf.GGUFReader(path).tensors:
        ours = manifest.tensors[theirs.name]
        assert ours.shape == tuple(int(n) for n in reversed(theirs.shape))
        out = np.zeros(ours.shape, np.float32)
        manifest.read_into(theirs.name, tuple(slice(0, n) for n in ours.shape), out)
        np.testing.assert_array_equal(out, gguf.quants.dequantize(theirs.data, theirs.tensor_type), err_msg=theirs.name)


@pytest.mark.parametrize("kind", [kind for kind, (block, _) in gguf.GGML_QUANT_SIZES.items() if block > 1],
                         ids=lambda kind: kind.name)
def test_every_quantization_and_any_columns(tmp_path, kind):
    """Blocks of random bits, by rows, by whole blocks and across them: equal to the library's of the whole."""
    block, nbytes = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(1).integers(0, 256, (70, 3 * nbytes), np.uint8)
    path = write_raw(tmp_path / "q.gguf", tensors=[tensor("w", [3 * block, 70], int(kind))], data=raw.tobytes())
    manifest = read_manifest(path)
    try:
        with np.errstate(all="ignore"):
            whole = gguf.quants.dequantize(raw, kind)
    except NotImplementedError:
        assert manifest.unsupported() == {kind.name: 1}
        with pytest.raises(FileFormatError, match=kind.name):
            manifest.read_into("w", np.s_[0:70, 0:block], np.zeros((70, block), np.float32))
        return
    assert manifest.unsupported() == {}
    for slices in (np.s_[0:70, 0:3 * block], np.s_[5:40, 0:3 * block], np.s_[0:70, block:2 * block],
                   np.s_[3:4, block - 1:block + 1], np.s_[0:70, 7:3 * block - 5], np.s_[9:9, 0:3], np.s_[0:70, 4:4]):
        out = np.full(whole[slices].shape, 9, np.float32)
        manifest.read_into("w", slices, out)
        np.testing.assert_array_equal(out, whole[slices])


def test_one_dimensional_quantized_tensors(tmp_path):
    raw = np.random.default_rng(1).integers(0, 100, 34 * 4, np.uint8)
    manifest = read_manifest(write_raw(tmp_path / "q.gguf", tensors=[tensor("w", [128], 8)], data=raw.tobytes()))
    out = np.zeros(60)
    manifest.read_into("w", (slice(31, 91),), out)
    np.testing.assert_array_equal(out, gguf.quants.dequantize(raw[None], Q.Q8_0)[0, 31:91])


# --- config -----------------------------------------------------------------------------------------------------------

def config_of(tmp_path, config=LLAMA, architecture="llama", extra=None, **metadata):
    weights = gguf_tensors(config, weights_of(config), architecture) | (extra or {})
    values = {f"{architecture}.{key.replace('__', '.')}": value for key, value in metadata.items()}
    return open_checkpoint(write_gguf(tmp_path / "c.gguf", config, weights, architecture, metadata=values)).config


def divisors(factor, theta, head_size, low=1, high=4, original=8192):
    """The factors that llama.cpp's converter writes for Llama 3, one frequency at a time."""
    found = []
    for i in range(0, head_size, 2):
        wave = 2 * np.pi * theta ** (i / head_size)
        if wave < original / high:
            found.append(1.0)
        elif wave > original / low:
            found.append(factor)
        else:
            smooth = (original / wave - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_rope_freqs_of_llama3(tmp_path, factor):
    config = replace(LLAMA, rotary=RotaryConfig(theta=500_000.0), head_size=64)
    found = config_of(tmp_path, config, extra={"rope_freqs.weight": divisors(factor, 500_000.0, 64)})
    assert found.rotary == RotaryConfig(500_000.0, "llama3", factor, 1.0, 4.0, 8192)


def test_rope_scaling_that_is_none_or_linear_or_neither(tmp_path):
    def rotary(extra=None, **metadata):
        return config_of(tmp_path, extra=extra, **metadata).rotary

    assert rotary() == LLAMA.rotary
    assert rotary(extra={"rope_freqs.weight": np.ones(4, np.float32)}) == LLAMA.rotary
    assert rotary(rope__scaling__type="none", rope__scaling__factor=4.0) == LLAMA.rotary
    assert rotary(rope__scaling__type="linear", rope__scaling__factor=4.0) == RotaryConfig(50_000.0, "linear", 4.0)
    for word, options in {"'yarn'": {"rope__scaling__type": "yarn"},
                          "'longrope'": {"extra": {"rope_factors_long.weight": np.ones(4, np.float32)}},
                          "rope_freqs": {"extra": {"rope_freqs.weight": np.array([1, 2, 3, 4], np.float32)}},
                          "of them": {"extra": {"rope_freqs.weight": np.ones(3, np.float32)}},
                          "dimension_count": {"rope__dimension_count": 4}}.items():
        with pytest.raises(ConfigError, match=word):
            rotary(**options)


@pytest.mark.parametrize(("key", "value"), [
    ("expert_count", 8), ("attention__sliding_window", 64), ("attn_logit_softcapping", 30.0), ("logit_scale", 0.5),
    ("attention__scale", 0.1),
    ("embedding_scale", 12.0)])
def test_other_mathematics_is_refused_by_name(tmp_path, key, value):
    config = replace(LLAMA, kv_heads=2)
    with pytest.raises(ConfigError, match=key.replace("__", ".")):
        config_of(tmp_path, config, **{key: value})
    assert config_of(tmp_path, config, **{"attention__sliding_window": 128}) == replace(config, name="c")


def test_sizes_that_are_missing_or_differ_from_layer_to_layer(tmp_path):
    for key in SMALL.keys() - {"vocab_size"}:
        path = write_raw(tmp_path / "c.gguf", llama_pairs(**{k: n for k, n in SMALL.items() if k != key}))
        with pytest.raises(ConfigError, match=rf"llama.{key.replace('__', '.')} is missing"):
            open_checkpoint(path)
    per_layer = pair("llama.attention.head_count_kv", 9, u32(4) + u64(2) + u32(2) + u32(1))
    with pytest.raises(ConfigError, match="head_count_kv differs from layer to layer"):
        open_checkpoint(write_raw(tmp_path / "c.gguf", [*llama_pairs(**SMALL), per_layer]))


def test_c01_the_shape_of_llama_3_2_1b(tmp_path):
    """Tied, with and without rope_freqs: 1,235,814,400 parameters. The file is sparse: its header alone is stored."""
    shapes = {"rope_freqs.weight": (32,), "token_embd.weight": (2048, 128_256), "output_norm.weight": (2048,)}
    for i in range(16):
        shapes |= {f"blk.{i}.{name}.weight": axes for name, axes in {
            "attn_norm": (2048,), "attn_q": (2048, 2048), "attn_k": (2048, 512), "attn_v": (2048, 512),
            "attn_output": (2048, 2048), "ffn_norm": (2048,), "ffn_gate": (2048, 8192), "ffn_up": (2048, 8192),
            "ffn_down": (8192, 2048)}.items()}
    pairs = llama_pairs(embedding_length=2048, block_count=16, feed_forward_length=8192, vocab_size=128_256,
                        context_length=131_072, attention__head_count=32, attention__head_count_kv=8)
    pairs.append(pair("llama.rope.freq_base", 6, struct.pack("<f", 500_000.0)))
    for scaling in ("llama3", "default"):
        table, size = [], 0
        for name, axes in shapes.items():
            table.append(tensor(name, axes, 0, size))
            size += int(np.prod(axes)) * 4
        path = write_raw(tmp_path / "llama.gguf", pairs, table, divisors(32.0, 500_000.0, 64).tobytes())
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size + size)
        found = open_checkpoint(path).config
        assert found.tied
        assert found.rotary.scaling == scaling
        assert Placement(found, 1).elements(0) == 1_235_814_400
        shapes.pop("rope_freqs.weight", None)
