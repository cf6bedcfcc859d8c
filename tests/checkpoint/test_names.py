"""Fused tensors: three orders of q, k, v that shapes don't tell apart; gate and up. It is declared, never guessed."""
from dataclasses import replace

import numpy as np
import pytest
from checkpoint_files import LLAMA, MHA, hf_llama_tensors, read_all, same, weights_of, write_hf

from minitp.checkpoint import open_checkpoint
from minitp.checkpoint.names import GGUF_GPT2, GGUF_LLAMA, HF_GPT2, HF_LLAMA, Stored
from minitp.config import TINY
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement

QKV, GATE_UP = "layers.{}.self_attn.qkv_proj", "layers.{}.mlp.gate_up_proj"


def fuse(config, weights, order, end="weight"):
    """The rows of q, k, v in the order, one head after the other."""
    e, n = config.head_size, config.heads_per_kv
    q, k, v = (weights[f"{part}.{end}"] for part in "qkv")
    if order == "blocks":
        return np.concatenate([q, k, v])
    rows = []
    for head in range(config.kv_heads):                                    # with a kv head per head: q1 k1 v1 q2 …
        rows += [q[head * n * e:(head + 1) * n * e], k[head * e:(head + 1) * e], v[head * e:(head + 1) * e]]
    return np.concatenate(rows)


def fused_folder(folder, config, weights, order):
    tensors = hf_llama_tensors(weights)
    for i in range(config.layers):
        at = f"model.layers.{i}"
        stem = f"layers.{i}.attention."
        mine = {key.removeprefix(stem): w for key, w in weights.items() if key.startswith(stem)}
        for end in ("weight", "bias") if config.qkv_bias else ("weight",):
            tensors[f"{at}.self_attn.qkv_proj.{end}"] = fuse(config, mine, order, end)
            for part in "qkv":
                del tensors[f"{at}.self_attn.{part}_proj.{end}"]
        tensors[f"{at}.mlp.gate_up_proj.weight"] = np.concatenate(
            [tensors.pop(f"{at}.mlp.{part}_proj.weight") for part in ("gate", "up")])
    return write_hf(folder, config, tensors)


def names(order):
    return HF_LLAMA.fused("qkv", QKV, order).fused("gate_up", GATE_UP, "blocks")


@pytest.mark.parametrize(("config", "order"), [(LLAMA, "blocks"), (LLAMA, "groups"), (MHA, "blocks"), (MHA, "heads"),
                                               (MHA, "groups"), (replace(LLAMA, qkv_bias=True, tied=True), "groups"),
                                               (replace(LLAMA, ffn=3), "blocks")])
def test_a23_a24_a26_a27_a28_every_order_gives_the_unfused_model(tmp_path, config, order):
    """Element by element, whole and by the slices of 1, 2, 3 and 4 ranks; also the odd f=3 on 2 ranks (A27)."""
    weights = weights_of(config)
    checkpoint = open_checkpoint(fused_folder(tmp_path / "m", config, weights, order), names=names(order))
    same(read_all(checkpoint), weights)
    for ranks in (1, 2, 3, 4):
        placement = Placement(config, ranks)
        for rank in range(ranks):
            for p in placement.parameters:
                mine = placement.slices(p, rank)
                np.testing.assert_array_equal(checkpoint.read(p, mine), weights[p.name][mine], err_msg=p.name)


def test_a26_each_rank_holds_gate_and_up_of_the_same_neurons(tmp_path):
    config = replace(LLAMA, ffn=8, layers=1)
    weights = weights_of(config)
    weights["layers.0.mlp.gate.weight"][:] = 1
    weights["layers.0.mlp.up.weight"][:] = np.arange(8)[:, None]
    checkpoint = open_checkpoint(fused_folder(tmp_path / "m", config, weights, "groups"), names=names("groups"))
    placement = Placement(config, 2)
    for rank in range(2):
        gate, up = (checkpoint.read(p, placement.slices(p, rank)) for p in map(
            placement.parameter, ("layers.0.mlp.gate.weight", "layers.0.mlp.up.weight")))
        assert (gate == 1).all()
        np.testing.assert_array_equal(up[:, 0], np.arange(4 * rank, 4 * rank + 4))


def test_a23_a_wrong_order_is_wrong_so_none_is_guessed(tmp_path):
    weights = weights_of(MHA)
    folder = fused_folder(tmp_path / "m", MHA, weights, "heads")
    with pytest.raises(FileFormatError, match="declare"):
        open_checkpoint(folder)
    wrong = read_all(open_checkpoint(folder, names=names("blocks")))
    assert not np.array_equal(wrong["layers.0.attention.q.weight"], weights["layers.0.attention.q.weight"])


def test_unknown_and_impossible_orders_are_refused():
    with pytest.raises(ConfigError, match="'zigzag' of fused rows is not known"):
        HF_LLAMA.fused("qkv", QKV, "zigzag")
    with pytest.raises(ConfigError, match="gate and up"):
        HF_LLAMA.fused("gate_up", GATE_UP, "heads")
    q = Placement(LLAMA, 1).parameter("layers.0.attention.q.weight")
    with pytest.raises(ConfigError, match="a kv head per query head"):
        HF_LLAMA.fused("qkv", QKV, "heads").locate(q, LLAMA)
    with pytest.raises(ConfigError, match="no place for"):
        HF_LLAMA.locate(Placement(replace(LLAMA, rotary=None), 1).parameter("positions.weight"), LLAMA)


@pytest.mark.parametrize("names", [HF_LLAMA, HF_GPT2, GGUF_LLAMA, GGUF_GPT2, names("groups"), names("blocks"),
                                   replace(HF_LLAMA, stored=names("groups").stored | {
                                       "layers.{}.attention.k": Stored(QKV, False, True, part="k", order="groups")})],
                         ids=lambda names: names.name)
def test_place_undoes_read(names):
    """What `place` writes into a tensor `read` finds there, and no two parameters share a number."""
    config = replace(TINY, rotary=None, gated=False) if "gpt2" in names.name.lower().replace("-", "") else TINY
    tensors, weights = {}, weights_of(config)
    for p in Placement(config, 1).parameters:
        location = names.locate(p, config)
        tensor = tensors.setdefault(location.tensor, np.full(location.shape, np.nan, np.float32))
        location.place(weights[p.name], tensor)
    assert not any(np.isnan(tensor).any() for tensor in tensors.values())
    for p in Placement(config, 1).parameters:
        location, out = names.locate(p, config), np.zeros(p.shape, np.float32)

        def read_into(slices, target, tensor=tensors[location.tensor]):
            target[...] = tensor[slices]

        location.read(read_into, tuple(slice(0, n) for n in p.shape), out)
        np.testing.assert_array_equal(out, weights[p.name])
