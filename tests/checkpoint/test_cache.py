"""The float32 copy of a GGUF file: same numbers, made once, by one of several ranks, whole or not at all."""
import os
import threading
import time
from collections import namedtuple

import gguf
import numpy as np
import pytest
from checkpoint_files import LLAMA, gguf_tensors, read_all, same, weights_of, write_gguf

from minitp.checkpoint import cache, open_checkpoint
from minitp.checkpoint.cache import CachedCheckpoint
from minitp.errors import FileFormatError


@pytest.fixture
def model(tmp_path):
    return quantized(tmp_path / "model.gguf")


def quantized(path, seed=0):
    tensors = gguf_tensors(LLAMA, weights_of(LLAMA, seed))
    types = {name: gguf.GGMLQuantizationType.Q8_0 for name, w in tensors.items() if w.ndim == 2 and not w.shape[1] % 32}
    return write_gguf(path, LLAMA, tensors, types=types)


def copies(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_copy_has_the_same_numbers_config_and_tokenizer(model, tmp_path):
    plain, done = open_checkpoint(model), []
    first = open_checkpoint(model, cache=tmp_path / "c", progress=lambda *n: done.append(n))
    again = open_checkpoint(model, cache=tmp_path / "c", progress=lambda *n: pytest.fail("made twice"))
    assert isinstance(first, CachedCheckpoint) and isinstance(again, CachedCheckpoint)
    assert again.config == plain.config
    assert again.tokenizer_source.metadata == plain.tokenizer_source.metadata
    same(read_all(again), read_all(plain))
    p = plain.parameters[3]
    some = np.s_[3:15, 5:9]
    np.testing.assert_array_equal(again.read(p, some, np.float64), plain.read(p, some, np.float64))
    assert len(copies(tmp_path / "c")) == 1
    assert done[-1][0] == done[-1][1] == 4 * sum(p.size for p in plain.parameters)
    assert done == sorted(done)


def test_a_file_that_changed_gets_a_new_copy(model, tmp_path):
    open_checkpoint(model, cache=tmp_path / "c")
    os.utime(model, ns=(1, 1))
    open_checkpoint(model, cache=tmp_path / "c")
    quantized(model, seed=1)
    same(read_all(open_checkpoint(model, cache=tmp_path / "c")), read_all(open_checkpoint(model)))
    assert len(copies(tmp_path / "c")) == 3


def test_nothing_quantized_means_no_copy(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", LLAMA, gguf_tensors(LLAMA, weights_of(LLAMA)))
    assert not isinstance(open_checkpoint(path, cache=tmp_path / "c"), CachedCheckpoint)
    assert not (tmp_path / "c").exists()


def test_a_damaged_copy_is_made_anew(model, tmp_path):
    open_checkpoint(model, cache=tmp_path / "c")
    copy = next((tmp_path / "c").iterdir())
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-100])
    assert isinstance(open_checkpoint(model, cache=tmp_path / "c"), CachedCheckpoint)
    assert copy.read_bytes() == whole


def test_a_disk_without_room_means_slices_and_a_note(model, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    need = 4 * sum(p.size for p in open_checkpoint(model).parameters)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: usage(0, 0, 2 * need - 1))
    checkpoint = open_checkpoint(model, cache=tmp_path / "c")
    assert "no float32 copy" in checkpoint.notes[0]
    same(read_all(checkpoint), read_all(open_checkpoint(model)))
    assert copies(tmp_path / "c") == []


def test_a_write_that_fails_means_slices_and_a_note(model, tmp_path, monkeypatch):
    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    checkpoint = open_checkpoint(model, cache=tmp_path / "c")
    assert "No space left" in checkpoint.notes[0]
    assert copies(tmp_path / "c") == []
    (tmp_path / "file").touch()
    assert open_checkpoint(model, cache=tmp_path / "file").notes
    same(read_all(checkpoint), read_all(open_checkpoint(model)))


def test_an_interrupted_write_leaves_nothing(model, tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_checkpoint(model, cache=tmp_path / "c", progress=interrupt)
    assert copies(tmp_path / "c") == []


def test_what_a_killed_maker_left_is_taken_over_when_it_is_old(model, tmp_path):
    folder = tmp_path / "c"
    folder.mkdir()
    name = f"model-{cache.fingerprint(model)}"
    lock, partial = folder / f"{name}.lock", folder / f".{name}.safetensors.abc.partial"
    lock.touch()
    partial.touch()
    assert not isinstance(open_checkpoint(model, cache=folder), CachedCheckpoint)          # it may still be at work
    for path in (lock, partial):
        os.utime(path, (time.time() - 100,) * 2)
    assert isinstance(open_checkpoint(model, cache=folder), CachedCheckpoint)
    assert copies(folder) == [f"{name}.safetensors"]


def test_ranks_that_come_at_once_make_one_copy(model, tmp_path):
    made, found, start = [], [], threading.Barrier(6)

    def rank():
        start.wait()
        checkpoint = open_checkpoint(model, cache=tmp_path / "c", progress=lambda *n: made.append(n[0] == n[1]))
        found.append(read_all(checkpoint))

    ranks = [threading.Thread(target=rank) for _ in range(6)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert sum(made) == 1
    assert len(copies(tmp_path / "c")) == 1
    expected = read_all(open_checkpoint(model))
    assert len(found) == 6
    for weights in found:
        same(weights, expected)


def test_a_file_that_is_no_copy_is_refused(model, tmp_path):
    import safetensors.numpy
    safetensors.numpy.save_file({"w": np.ones(3)}, tmp_path / "w.safetensors")
    with pytest.raises(FileFormatError, match="no config"):
        CachedCheckpoint(model, tmp_path / "w.safetensors")
    safetensors.numpy.save_file({"w": np.ones(3)}, tmp_path / "w.safetensors", {"config": '{"hidden": 3}'})
    with pytest.raises(FileFormatError, match="no config"):
        CachedCheckpoint(model, tmp_path / "w.safetensors")
