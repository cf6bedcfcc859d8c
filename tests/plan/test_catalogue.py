"""The catalogue's rows: sources everywhere, parameters counted as published, machines by name and by grammar."""
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.catalogue.listing import KINDS, listing
from minitp.plan.layout import Layout
from minitp.plan.links import LINKS
from minitp.view.known_models import known_config

ROUNDED = {"gpt-22b": 0.02, "sc21-1.7b": 0.03, "gpt-3-2.7b": 0.02}
"""Names that round the published count away by more than 1.3 %."""


@pytest.mark.parametrize("model", catalogue.models().values(), ids=lambda model: model.name)
def test_the_parameters_counted_are_those_published(model):
    if not model.published:
        assert model.name == "tiny" and model.parameters == 34_976
        return
    exact = model.published % 10**6 != 0
    apart = 1e-6 if exact else ROUNDED.get(model.name, 0.013)
    assert model.parameters == pytest.approx(model.published, rel=0 if exact else apart, abs=0)


def test_kinds_of_models_are_told_apart():
    mixtral, palm = catalogue.model("mixtral-8x7b"), catalogue.model("PaLM-540B")
    assert (mixtral.experts, mixtral.active) == (8, 2) and mixtral.active_parameters < 0.3 * mixtral.parameters
    assert palm.config.parallel_block and (palm.config.kv_heads, palm.config.head_size) == (1, 256)
    assert catalogue.model("bloom").alibi and catalogue.model("mistral-7b").config.rotary
    assert {size: catalogue.model(f"llama-{size}").model_parallel for size in ("7b", "13b", "33b", "65b")} == {
        "7b": 1, "13b": 2, "33b": 4, "65b": 8}


def test_models_know_the_tokens_that_they_were_trained_on():
    trained = {name: catalogue.model(name).trained_on / 1e9 for name in ("llama-7b", "llama-33b", "405b", "tiny")}
    assert trained == {"llama-7b": 1000, "llama-33b": 1400, "405b": 15_600, "tiny": 0}
    told = [run for run in catalogue.runs().values() if run.training.tokens and run.model.trained_on]
    assert len(told) > 8 and all(run.training.tokens == run.model.trained_on for run in told)


def test_rows_of_models_that_are_here_are_the_models():
    tiny, here = catalogue.model("tiny").config, known_config("tiny")
    assert tiny.to_dict() == TINY.to_dict() and tiny.to_dict() | {"name": ""} == here.to_dict() | {"name": ""}


@pytest.mark.smollm2
def test_the_row_of_smollm2_is_the_file():
    row, here = catalogue.model("smollm2-135m").config, known_config("smollm2-135m")
    for size in ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab", "positions", "tied"):
        assert getattr(row, size) == getattr(here, size)


def test_aliases_and_capitals():
    big = catalogue.model("llama-3.1-405b")
    assert all(catalogue.model(name) is big for name in ("405B", "Llama-3.1-405B", "llama 3.1 405b", "LLAMA_3.1_405B"))
    assert catalogue.device("H100") is catalogue.device("h100-80") and catalogue.link("10GbE").name == "ethernet-10g"
    assert catalogue.run("BLOOM").name == "bloom-176b"


@pytest.mark.parametrize(("look", "name", "says"), [
    (catalogue.model, "llama-3.1-450b", "did you mean 'llama-3.1-405b'"), (catalogue.model, "70b", "no model '70b'"),
    (catalogue.device, "h10O", "'h100"), (catalogue.link, "ib-hrd", "did you mean 'ib-hdr'"),
    (catalogue.machine, "8xa100-08", "did you mean '8xa100-80'"), (catalogue.machine, "8x\x1b[2Jx", "no machine"),
    (catalogue.machine, "0xh100", "0 is no number of devices"), (catalogue.machine, "2x2x8xh100", "no machine"),
    (catalogue.machine, "2x2xdgx-h100", "no machine"), (catalogue.run, "blom", "bloom-176b"),
    (catalogue.model, "no/such/config.json", "there is no file"), (catalogue.model, "", "no model")])
def test_an_unknown_name_is_told_near_ones(look, name, says):
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        look(name)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_says_who_says_so(kind):
    rows = listing(kind)
    assert len(rows) > 15 and all(len(row["source"]) > 10 for row in rows)
    assert len({row["name"] for row in rows}) == len(rows)


def test_memory_by_name_and_in_bytes():
    cards = catalogue.devices()
    assert (cards["a100-80"].memory, cards["a100-80"].memory_real) == (80 * 10**9, 80 * 2**30)
    assert [cards[name].memory_kind for name in ("a100-80", "h100-80", "h200")] == ["HBM2e", "HBM3", "HBM3e"]
    assert all(card.memory <= card.memory_real <= 1.08 * card.memory for card in cards.values())
    assert all(card.bandwidth > 0 and card.peak("bf16") > 0 for card in cards.values() if card.kind == "gpu")


def sizes(machine):
    return [level.size for level in machine.levels]


@given(boxes=st.integers(1, 3000), inside=st.integers(1, 16), device=st.sampled_from(["a100-80", "h200", "v100-32"]))
def test_boxes_of_devices_are_what_they_say(boxes, inside, device):
    machine = catalogue.machine(f"{boxes}x{inside}x{device}")
    assert (sizes(machine), machine.device.name, machine.per_machine) == ([inside, boxes], device, inside)


@given(devices=st.integers(1, 20_000), device=st.sampled_from(["a100-80", "rtx-4090", "wse-3", "raspberry-pi-4b"]))
def test_devices_fill_as_many_boxes_as_they_need(devices, device):
    machine = catalogue.machine(f"{devices}x{device}")
    assert devices <= machine.devices < devices + machine.per_machine


def test_names_of_machines():
    assert sizes(catalogue.machine("16x8xa100-80")) == [8, 16] and sizes(catalogue.machine("2xdgx-h100")) == [8, 2]
    assert sizes(catalogue.machine("2048xa100")) == [8, 256] and sizes(catalogue.machine("4xh100")) == [4, 1]
    assert catalogue.machine("48xjean-zay").devices == 384
    assert catalogue.machine("p4d").levels[1].ports == 4 and catalogue.machine("dgx-h100").levels[1].ports == 8
    assert sizes(catalogue.machine("8xraspberry-pi-4b")) == [8]
    everywhere = catalogue.machine("16x8xa100-80").spread(Layout(tp=8, dp=16), "dp")
    assert everywhere == (1, 16)


def test_what_if():
    usual = catalogue.machine("8xa100-80")
    big = catalogue.machine("8xa100-80", memory="1TB", bandwidth="4 TB/s")
    assert big.device.memory == big.device.memory_real == 10**12 and big.device.bandwidth == 4e12
    assert big.device.name == "a100-80 with 1.00 TB (0.91 TiB), 4 TB/s"
    named = catalogue.machine("8xa100-80", memory="80GB")
    assert named.device.memory_real == named.device.memory == usual.device.memory < usual.device.memory_real
    assert "where the a100-80 has 80.0 GB (74.5 GiB) by its name and 85.9 GB (80.0 GiB) in fact" in named.note
    assert usual.device.memory == 80 * 10**9
    slow = catalogue.machine("8xa100-80", link="ethernet-100g", between="ib-ndr", devices=32)
    assert [level.link.name for level in slow.levels] == ["ethernet-100g", "ib-ndr"] and sizes(slow) == [8, 4]
    assert slow.name == "8xa100-80 with ethernet-100g inside, ib-ndr between, 32 devices"
    assert catalogue.machine("8xa100-80", devices=8).name == usual.name
    assert usual.levels[0].tables and not slow.levels[0].tables and slow.levels[1].ports == 8
    own = catalogue.machine("8xa100-80", link="2us,100GB/s").levels[0].link
    assert (own.latency_s, own.bytes_per_s) == (2e-6, 1e11)
    assert sizes(catalogue.machine("raspberry-pi-cluster", devices=16)) == [16]
    assert sizes(catalogue.machine("raspberry-pi-cluster", between="ethernet-10g", devices=16)) == [8, 2]
    for wrong in ({"memory": "0GB"}, {"memory": "80Gb"}, {"bandwidth": 0}, {"link": "string"}, {"devices": 0},
                  {"link": "1us,0GB/s"}):
        with pytest.raises(ConfigError):
            catalogue.machine("8xa100-80", **wrong)


def test_measured_tables_are_those_that_were_published():
    inner, _ = catalogue.machine("8xa100-80").levels
    table = inner.tables["all_reduce", 8]
    assert (table[0], table[-1]) == ((32_768, 43.83e-6), (2**34, 127_997e-6)) and len(table) == 20
    h200 = dict(catalogue.machine("8xh200").levels[0].tables["all_reduce", 8])
    assert 1.75 * 2**34 / h200[2**34] == pytest.approx(480.70e9, rel=1e-4)


@pytest.mark.parametrize("run", catalogue.runs().values(), ids=lambda run: run.name)
def test_a_published_run_can_be_laid_out(run):
    assert run.published and run.training.tokens < 1e14
    if run.layout:
        assert run.layout.devices == run.machine.devices
        assert run.training.micro_batches(run.layout.dp) >= 1
        held = sum(part.total for stage in range(run.layout.pp) for part in run.model.on_stage(
            run.layout, run.layout.place(stage * run.layout.strides["pp"])).values())
        assert held >= run.model.parameters // run.layout.tp


def test_the_links_that_pages_compare_keep_their_words():
    assert [link.name for link in LINKS] == ["NVLink", "RDMA, InfiniBand HDR", "10 GbE", "1 GbE"]
    assert LINKS[0].bytes_per_s == catalogue.link("nvlink3").bytes_per_s == 235e9
    assert 0 < catalogue.switches()["infiniband-switch"].latency_s < 1e-6
