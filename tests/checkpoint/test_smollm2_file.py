"""The real SmolLM2-135M-Instruct, 98 MB in Q4_1: its numbers, and how long they take."""
import time

import gguf
import numpy as np
import pytest

from minitp.checkpoint import open_checkpoint
from minitp.placement import Placement

pytestmark = pytest.mark.smollm2


@pytest.fixture(scope="module")
def checkpoint(smollm2_path):
    return open_checkpoint(smollm2_path)


def test_its_header_opens_fast_and_says_what_it_is(smollm2_path, checkpoint):
    began = time.process_time()
    config = open_checkpoint(smollm2_path).config
    assert time.process_time() - began < 5                    # 0.09 s without type checks; the gguf package's takes 6
    assert (config.hidden, config.layers, config.heads, config.kv_heads, config.vocab) == (576, 30, 9, 3, 49152)
    assert config.tied and config.norm_eps == 1e-5 and config.rotary.theta == 100_000
    assert sum(p.size for p in checkpoint.parameters) == 134_515_008
    assert checkpoint.tokenizer_source.metadata["tokenizer.ggml.pre"] == "smollm"


def test_every_number_equals_the_gguf_packages(smollm2_path, checkpoint):
    raw = checkpoint.manifest.tensors
    data = np.memmap(smollm2_path, np.uint8, "r")
    for p in checkpoint.parameters:
        entry = raw[checkpoint.names.locate(p, checkpoint.config).tensor]
        stored = data[entry.offset:entry.offset + entry.nbytes].reshape(entry.shape[0], -1)
        expected = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[entry.dtype]).reshape(p.shape)
        if p.name.endswith((".q.weight", ".k.weight")):
            expected = expected.reshape(-1, 32, 2, 576).swapaxes(1, 2).reshape(p.shape)
        found = checkpoint.read(p, tuple(slice(0, n) for n in p.shape))
        np.testing.assert_array_equal(found, expected, err_msg=p.name)


@pytest.mark.parametrize("ranks", [2, 7])
def test_ranks_together_hold_the_model_and_the_copy_too(checkpoint, smollm2_path, ranks, tmp_path_factory):
    placement = Placement(checkpoint.config, ranks)
    cached = open_checkpoint(smollm2_path, cache=tmp_path_factory.getbasetemp() / "smollm2")
    for rank in range(ranks):
        for p in placement.parameters[1:10]:
            mine = placement.slices(p, rank)
            whole = cached.read(p, tuple(slice(0, n) for n in p.shape))
            np.testing.assert_array_equal(checkpoint.read(p, mine), whole[mine], err_msg=p.name)
            np.testing.assert_array_equal(cached.read(p, mine), whole[mine], err_msg=p.name)
