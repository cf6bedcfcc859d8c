"""The settings of a run: what is refused and in which words; a file and back; options over a file."""
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.commands.train import setting
from minitp.errors import ConfigError
from minitp.train.config import TrainConfig, merged, read_toml
from minitp.train.run_folder import create, resumed


@pytest.mark.parametrize("settings, words", [
    ({"trian": {}}, "no section [trian]"),
    ({"train": 3}, "[train] must be a section"),
    ({"train": {"stepps": 3}}, "'stepps', did you mean steps?"),
    ({"train": {"steps": 0}}, "[train] steps must be a whole number of at least 1, not 0"),
    ({"train": {"steps": True}}, "not True"),
    ({"train": {"batch": 2.0}}, "not 2.0"),
    ({"train": {"dtype": "f16"}}, "float32, float64 or bf16"),
    ({"train": {"dropout": 1}}, "at least 0 and below 1"),
    ({"train": {"batch": 2, "micro_batches": 3}}, "micro_batches 3 are more than batch 2"),
    ({"train": {"tokens": 257}}, "256 positions"),
    ({"optimizer": {"rate": float("nan")}}, "a number above 0"),
    ({"optimizer": {"rate": 10 ** 400}}, "a number above 0"),
    ({"optimizer": {"eps": 1e-60}}, "eps must be a number of at least 1e-30"),
    ({"run": {"folder": "\udcff"}}, "[run] folder must be a folder"),
    ({"model": {"layers": 2 ** 53}}, "at most 10,000"),
    ({"model": {"from": "a"}, "data": {"tokenizer": "bpe", "vocab": 300}}, "leave tokenizer and vocab out"),
    ({"optimizer": {"rate": 1e-3, "min_rate": 1e-2}}, "min_rate 0.01 lies above rate 0.001"),
    ({"train": {"steps": 5}, "optimizer": {"warmup": 6}}, "warmup 6 is longer than the run of 5 steps"),
    ({"data": {"tokenizer": "bpe"}}, "needs vocab"),
    ({"data": {"vocab": 300}}, "vocab is of tokenizer = 'bpe'"),
    ({"data": {"tokenizer": "model"}}, "[model] from"),
    ({"model": {"name": "tiny", "family": "gpt2"}}, "one of name, family and from"),
    ({"model": {"from": "a", "layers": 2}}, "leave out layers"),
    ({"model": {"family": "llama", "layers": 2}}, "needs hidden, heads too"),
    ({"model": {"family": "llama", "hidden": 30, "layers": 2, "heads": 4}}, "set head_size too"),
    ({"model": {"heads": 6}}, "6 query heads can't share 4 kv heads evenly"),
    ({"model": {"parallel_block": True}}, "save_every = 0 trains without checkpoints"),
    ({"model": {"family": "gpt2", "hidden": 8, "layers": 1, "heads": 2, "rotary_theta": 1e4}}, "llama family"),
])
def test_what_cannot_be_is_refused_by_name(settings, words):
    with pytest.raises(ConfigError) as error:
        TrainConfig.from_dict(settings)
    assert words in str(error.value)


def test_with_nothing_given_there_is_a_run():
    config = TrainConfig.from_dict({})
    assert config == TrainConfig()
    assert (config.name, config.tokenizer, config.warmup) == ("tiny", "bytes", 20)
    assert config.model.config(256, 64).hidden == 32


@given(st.integers(1, 10_000), st.floats(1e-9, 1e3), st.text(min_size=1).filter(lambda t: "\0" not in t),
       st.booleans(), st.integers(257, 5000))
def test_a_file_and_back_is_the_same_run(steps, rate, prompt, tied, vocab):
    config = TrainConfig.from_dict({
        "model": {"tied": tied}, "train": {"steps": steps}, "optimizer": {"rate": rate},
        "run": {"sample_prompt": prompt}, "data": {"tokenizer": "bpe", "vocab": vocab}})
    assert TrainConfig.from_dict(tomllib.loads(config.to_toml())) == config


def test_sizes_follow_from_what_is_given():
    gpt = TrainConfig.from_dict({"model": {"family": "gpt2", "hidden": 32, "layers": 2, "heads": 4}})
    made = gpt.model.config(300, 64)
    assert (made.kv_heads, made.head_size, made.ffn, made.positions, made.vocab) == (4, 8, 128, 64, 300)
    assert made.tied and made.qkv_bias and made.rotary is None and made.norm == "layer"
    llama = TrainConfig.from_dict({"model": {"family": "llama", "hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2}})
    assert llama.model.config(300, 64).ffn == 88 and llama.model.config(300, 64).kv_heads == 2
    deeper = TrainConfig.from_dict({"model": {"name": "tiny", "layers": 5}})
    assert deeper.model.config(256, 64).layers == 5 and deeper.model.config(256, 64).hidden == 32


def test_later_settings_win_key_by_key():
    file = {"train": {"steps": 3, "batch": 2}, "run": {"folder": "a"}}
    assert merged(file, {"train": {"steps": 5}}, {}) == {"train": {"steps": 5, "batch": 2}, "run": {"folder": "a"}}
    with pytest.raises(ConfigError, match=r"\[run\] must be a section"):
        TrainConfig.from_dict(merged({"run": 3}, {"run": {"keep": 2}}))


@pytest.mark.parametrize("text, value", [("3", 3), ("0.5", 0.5), ("true", True), ('"a b"', "a b"), ("a b", "a b")])
def test_a_setting_of_the_command_line(text, value):
    assert setting(f"model.layers={text}") == {"model": {"layers": value}}


@pytest.mark.parametrize("text", ["", "steps=3", "train.steps", "train.=3", ".steps=3"])
def test_a_setting_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"SECTION\.KEY=VALUE"):
        setting(text)


@pytest.mark.parametrize("data", [b"[train\n", b"\xff\xfe", b"a = " + b"[" * 10_000, b"#" * (1 << 21)])
def test_a_file_that_is_no_toml_is_refused(tmp_path, data):
    (tmp_path / "x.toml").write_bytes(data)
    with pytest.raises(ConfigError, match=r"--config .*x\.toml"):
        read_toml(tmp_path / "x.toml")


def test_a_run_goes_on_as_itself_only(tmp_path):
    create(tmp_path, TrainConfig.from_dict({"train": {"steps": 8}}), resume=False)
    more = TrainConfig.from_dict(resumed(tmp_path, {"train": {"steps": 12, "micro_batches": 2}}))
    assert (more.train.steps, more.train.micro_batches, more.run.folder) == (12, 2, str(tmp_path))
    for asked in ({"optimizer": {"rate": 1.0}}, {"train": {"seed": 1}}, {"model": {"layers": 3}},
                  {"data": {"validation": 0.1}}):
        with pytest.raises(ConfigError, match="would no longer be that run"):
            resumed(tmp_path, asked)
    with pytest.raises(ConfigError, match="holds no run"):
        resumed(tmp_path / "other", {})
    with pytest.raises(ConfigError, match="already holds a run"):
        create(tmp_path, TrainConfig(), resume=False)


def test_to_ask_by_name_for_what_a_run_has_by_default_is_no_change(tmp_path):
    create(tmp_path, TrainConfig(), resume=False)
    assert resumed(tmp_path, {"model": {"name": "tiny"}, "data": {"tokenizer": "bytes"}})
    with pytest.raises(ConfigError, match="tokenizer = 'bytes', not 'bpe'"):
        resumed(tmp_path, {"data": {"tokenizer": "bpe", "vocab": 300}})
