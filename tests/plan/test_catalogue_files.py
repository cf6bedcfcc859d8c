"""Files of machines and models: strict, told by row, written so that they read back; nothing is counted blindly."""
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from minitp.checkpoint.hf_config import config_to_hf
from minitp.cli import app
from minitp.errors import ConfigError, SaveError
from minitp.plan import catalogue
from minitp.plan.catalogue.machine_files import read_machines
from minitp.plan.machine import Level
from minitp.trace.wording import plain

MINE = """
[[link]]
name = "string"
latency = "1 ms"
rate = "9600 b/s"
source = "measured"

[[machine]]
name = "cans"
device = "raspberry-pi-5"
source = "my desk"
host_memory = "1 GiB"
[[machine.level]]
size = 2
link = "string"
[[machine.level.table]]
op = "all_reduce"
ranks = 2
source = "measured"
times = [[4, "2 ms"], ["1 KiB", 1.5]]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of a user's machines."""
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path / "machines"))
    (tmp_path / "machines").mkdir()
    return tmp_path / "machines"


def test_a_users_machine_is_found_by_name_and_by_path(own):
    (own / "Cans.toml").write_text(MINE)
    machine = catalogue.machine("cans")
    assert machine == catalogue.machine(own / "Cans.toml") == catalogue.machine(str(own / "Cans.toml"))
    assert (machine.levels[0].link.bytes_per_s, machine.levels[0].name, machine.host_memory) == (1200, "string", 2**30)
    assert machine.levels[0].tables == {("all_reduce", 2): ((4, 2e-3), (1024, 1.5))}
    assert "Cans" in catalogue.machines() and "8xa100-80" in catalogue.machines()


def test_this_machine_asks_for_a_calibration_until_there_is_one(own):
    with pytest.raises(ConfigError, match="`minitp plan calibrate` measures this machine"):
        catalogue.machine("this")
    catalogue.write_machine(replace(catalogue.machine("laptop"), name="this"), own / "this.toml")
    assert catalogue.machine("this").device == catalogue.device("laptop-cpu")
    assert catalogue.machines()["this"].name == "this"


@pytest.mark.parametrize(("was", "now", "says"), [
    ('source = "my desk"', "", "mine.toml: [[machine]] number 1, 'cans': source is missing"),
    ('source = "my desk"', 'source = " "', "source is empty"),
    ('host_memory', 'host_memroy', "unknown key 'host_memroy', did you mean 'host_memory'?"),
    ('"raspberry-pi-5"', '"raspberry-pie-5"', "'cans': device: no device 'raspberry-pie-5', did you mean"),
    ('link = "string"', 'link = "wire"', "[[machine.level]] number 1: link: no link 'wire'"),
    ('size = 2', 'size = 0', "size: must be a whole number of at least 1, not 0"),
    ('size = 2', 'size = true', "size: must be a whole number"),
    ('"1 GiB"', '"1 Gib"', "host_memory: '1 Gib' is no size in bytes: a small b is a bit"),
    ('"9600 b/s"', '0', "'string': rate or data_sheet must be given, above 0"),
    ('[[4, "2 ms"], ["1 KiB", 1.5]]', '[[4, 1], [4, 2]]', "times: payloads must rise"),
    ('[[4, "2 ms"], ["1 KiB", 1.5]]', '[[4], 7]', "number 1: times:"),
    ('[[4, "2 ms"], ["1 KiB", 1.5]]', '[]', "times: must be a list of pairs"),
    ('[[machine]]', '[machine]', "machine must be an array of tables, [[machine]]"),
    ('[[link]]', '[[wire]]', "unknown table 'wire'; there are [[machine]]"),
    ('"cans"', '"cans', "is no TOML file"),
    ('[[machine]]\nname = "cans"', '[[machine]]', "name is missing")])
def test_a_wrong_row_is_named(tmp_path, was, now, says):
    path = tmp_path / "mine.toml"
    assert was in MINE
    path.write_text(MINE.replace(was, now, 1))
    with pytest.raises(ConfigError) as caught:
        catalogue.machine(path)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_no_descriptions(tmp_path):
    bad = tmp_path / "bad.toml"
    for content in (b"\xff\xfe", b"[" * 5000, b"a = " + b"[" * 5000, b"x" * (1 << 21), b""):
        bad.write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.toml"):
            catalogue.machine(bad)
    with pytest.raises(ConfigError, match="can't be read"):
        catalogue.machine(tmp_path / "none.toml")
    bad.write_text(MINE + '[[machine]]\nname = "cans"\n')
    with pytest.raises(ConfigError, match="the name is given twice"):
        catalogue.machine(bad)


@pytest.mark.parametrize("name", ["8xa100-80", "p4d", "16x8xh200", "raspberry-pi-cluster", "tpu-v4-pods", "2x4x4090"])
def test_a_machine_that_was_written_reads_back_the_same(tmp_path, name):
    machine = catalogue.machine(name)
    catalogue.write_machine(machine, tmp_path / "new" / "m.toml")
    assert catalogue.machine(tmp_path / "new" / "m.toml") == machine


@settings(max_examples=8)
@given(st.text(st.characters(codec="utf-8"), max_size=30), st.floats(1e-9, 1e3), st.floats(1, 1e15))
def test_any_text_and_numbers_survive_a_file(tmp_path_factory, text, latency, rate):
    usual = catalogue.machine("laptop")
    link = replace(usual.levels[0].link, latency_s=latency, bytes_per_s=rate)
    machine = replace(usual, note=plain(text), levels=(Level("one", 3, link),))
    path = tmp_path_factory.getbasetemp() / "any.toml"
    catalogue.write_machine(machine, path)
    assert read_machines(path)[0]["laptop"] == machine


def test_a_folder_that_cant_be_written_to_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="could not be written"):
        catalogue.write_machine(catalogue.machine("laptop"), tmp_path / "file" / "m.toml")


# --- config.json ---

def config(tmp_path, **changed):
    """A config.json, Llama's where nothing is changed; None takes a field away."""
    values = {**config_to_hf(catalogue.model("llama-3.1-8b").config), **changed}
    path = tmp_path / "somebody" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({key: value for key, value in values.items() if value != "gone"}))
    return path


def test_a_config_file_is_the_model_that_it_describes(tmp_path):
    path = config(tmp_path)
    for way in (path, str(path), path.parent):
        model = catalogue.model(way)
        assert model.parameters == catalogue.model("llama-3.1-8b").parameters
        assert (model.name, model.source) == ("somebody", str(path))


def test_a_head_size_that_is_stated_is_taken(tmp_path):
    model = catalogue.model(config(tmp_path, hidden_size=5120, num_attention_heads=32, head_dim=128))
    assert model.config.head_size == 128 and model.held("layer", 1, 0).total < 5120**2 * 32


def test_experts_are_planned_though_they_do_not_run(tmp_path):
    path = config(tmp_path, model_type="mixtral", vocab_size=32000, num_local_experts=8, num_experts_per_tok=2,
                  sliding_window=None, attention_bias="gone", mlp_bias="gone", router_aux_loss_coef=0.02)
    assert catalogue.model(path).parameters == catalogue.model("mixtral-8x7b").parameters
    assert catalogue.model(path).active == 2


@pytest.mark.parametrize(("field", "value"), [
    ("sliding_window", 4096), ("kv_lora_rank", 512), ("q_lora_rank", 1536), ("mamba_d_state", 16),
    ("ssm_cfg", {"a": 1}), ("attn_layer_period", 8), ("num_local_experts", 8),
    ("moe_intermediate_size", 768), ("n_shared_experts", 1),
    ("linear_num_key_heads", 16), ("vision_config", {"hidden_size": 1}), ("num_nextn_predict_layers", 1),
    ("model_type", "mamba"), ("layer_types", ["sliding_attention"]), ("quantization_config", {"bits": 4})])
def test_what_is_not_modeled_is_refused_by_name(tmp_path, field, value):
    mistral = {"model_type": "mistral", "attention_bias": "gone", "mlp_bias": "gone"}
    changed = mistral if field == "sliding_window" else {}
    with pytest.raises(ConfigError, match=field):
        catalogue.model(config(tmp_path, **changed, **{field: value}))


def test_a_window_in_a_mixture_of_experts_is_refused_too(tmp_path):
    with pytest.raises(ConfigError, match="sliding_window"):
        catalogue.model(config(tmp_path, model_type="mixtral", num_local_experts=8, sliding_window=4096))
    with pytest.raises(ConfigError, match="num_local_experts must be a whole number"):
        catalogue.model(config(tmp_path, model_type="mixtral", num_local_experts="8"))
    with pytest.raises(ConfigError, match="100,000,000 layers; plans are made up to 10,000"):
        catalogue.model(config(tmp_path, num_hidden_layers=10**8))


# --- the verb ---

def test_the_verb_prints_every_part_with_its_sources(own):
    (own / "broken.toml").write_text("[[machine]]")
    shown = " ".join(CliRunner().invoke(app, ["plan", "catalogue"]).output.split())
    for part in ("llama-3.1-405b", "HBM3e", "16.0 GB", "ib-hdr", "TP4 × PP12 × DP8", "recalled, not checked",
                 "left out: broken.toml"):
        assert part in shown
    rows = json.loads(CliRunner().invoke(app, ["plan", "catalogue", "devices", "H100", "--json"]).output)
    assert [row["name"] for row in rows["devices"]] == ["h100-80", "h100-80-pcie"]
    assert rows["devices"][0]["memory"] == 80 * 10**9
    failed = CliRunner().invoke(app, ["plan", "catalogue", "links", "pigeon"])
    assert isinstance(failed.exception, ConfigError) and "'pigeon'" in str(failed.exception)
