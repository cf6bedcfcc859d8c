"""The other questions' main numbers, what every question keeps to, and what `minitp plan ask` prints."""
import ast
import json
import re
from math import ceil
from pathlib import Path

import pytest
from rich.console import Console

import minitp.plan.questions as questions
from minitp.commands.plan.ask import answer, everything, piece, pieces, plain
from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.job import MIXED, Inference
from minitp.plan.layout import Layout
from minitp.plan.questions import QUESTIONS, claims
from minitp.plan.questions.base import WhatIf, named
from minitp.plan.questions.states import _stalls
from minitp.plan.questions.symbols import explained
from minitp.plan.speed import decode
from minitp.plan.speed.traffic import step as moved
from tests.plan.asking import asked, numbers

CLAIMS = {"C02": "sync-points", "C05": "what-moves", "C06": "embedding-or-time", "C09": "precision",
          "C10": "ten-to-twenty", "C13": "parameters-times-batch", "C14": "inside-a-machine", "C16": "precision",
          "C17": "switch", "C20": "bloom"}
"""Statements of the source discussion that lessons meet, and that are answered here as well."""
LLAMA_70B, LLAMA_7B, GPT3 = 68_976_648_192, 6_738_415_616, 174_604_259_328
OTHER = {"model": "llama-2-13b", "machine": "2x8xh200", "devices": 16, "memory": 512 * 10**9, "link": "ethernet-100g",
         "between": "ethernet-1g", "tokens": 5e11, "seq": 1024, "batch": 3, "weights": "int8"}
"""A value for each what-if that is no question's own."""


# --- each question --------------------------------------------------------------------------------------------------


def test_sync_points_of_a_pass():
    found = numbers("sync-points")
    assert found["llama-2-70b token"] == found["llama-2-70b prompt"] == found["llama-2-70b batch"] == 2 * 80 + 2
    assert found["smollm2-135m token"] == 62 and found["gpt-neox-20b token"] == 44 + 2
    slow = numbers("sync-points", link="ethernet-1g")
    assert slow["network s"] > 10 * found["network s"]


def test_what_moves():
    found = numbers("what-moves")
    numbers_summed = (2 * 80 + 1) * 8192 + 32000                                # 161 of the hidden size, and the logits
    assert found["token payload"] == 2 * numbers_summed
    assert found["weights moved"] == pytest.approx(2 * LLAMA_70B * 7 / 8)
    assert found["ZeRO-3 sent"] == pytest.approx(3 * 2 * LLAMA_70B * 7 / 8)                           # one micro-batch
    assert found["tensor parallel sent"] == pytest.approx(found["with sequence parallelism sent"], rel=0.001)
    assert numbers("what-moves", batch=64)["tensor parallel sent"] > found["ZeRO-3 sent"]


def test_a_cache_can_be_cut_along_time():
    found = numbers("embedding-or-time")
    whole = 2 * 80 * 8 * 128 * 2 * 131_072
    assert found["cp 1 cache"] == found["cp 8 cache"] == whole / 8
    assert found["cp 8 weights"] > 7.9 * found["cp 1 weights"]
    assert found["cp 8 s"] > 2 * found["cp 1 s"]
    copies = numbers("embedding-or-time", devices=16, model="llama-2-70b")
    assert copies["cp 1 cache"] > copies["cp 2 cache"]                                             # 8 kv heads on 16


def test_types_and_float32_sums():
    found = numbers("precision")
    assert found["stalls at"] == 256 and _stalls(11) == 2048                                      # bf16, fp16
    assert found["more bytes"] == 2 * GPT3 and found["micro-batches"] == 2048 / 8 / 2
    assert found["speedup"] == pytest.approx(312 / 19.5)
    assert found["days bf16"] == pytest.approx(6 * GPT3 * 300e9 / (1000 * 312e12 * 0.57) / 86400)


def test_ten_to_twenty():
    found = numbers("ten-to-twenty")
    assert (found["states"], found["states fp32 gradients"], found["states zero-2"]) == (16, 18, 20)
    assert found["activations full"] == pytest.approx(2 * 2048 * 12288 * 96, rel=0.2)              # and one layer's
    assert found["activations none, scores stored"] - found["activations none"] == pytest.approx(
        2 * 96 * 2048**2 * 96, rel=0.01)                                      # 2as²b a layer, the softmax's output
    assert numbers("ten-to-twenty", batch=2)["activations none"] == pytest.approx(2 * found["activations none"])


def test_a_sum_of_three_kinds_of_terms():
    found = numbers("parameters-times-batch")
    assert found["with parameters"] == pytest.approx(MIXED.states * LLAMA_7B, rel=1e-6)
    total = found["total as asked"]
    assert total == sum(found[kind] for kind in ("with parameters", "with batch", "with both", "with neither"))
    assert found["total both"] < 4 * total                                       # parameters × batch would be almost 8
    assert found["total twice the sequences"] == pytest.approx(total + found["with both"] + found["with batch"])


def test_stages_of_zero():
    found, p, d = numbers("zero"), LLAMA_7B, 64
    for stage, bytes_each in enumerate((16, 4 + 12 / d, 2 + 14 / d, 16 / d)):
        assert found[f"stage {stage} states"] == pytest.approx(bytes_each * p, rel=1e-4)
    assert found["stage 1 sent"] == pytest.approx(2 * 2 * p * (d - 1) / d)
    assert found["stage 3 sent"] == pytest.approx(3 * 2 * p * (d - 1) / d)
    assert not found["stage 0 fits"] and found["stage 1 fits"]


def test_bloom():
    found = numbers("bloom")
    assert found["replica"] == 48 and found["micro-batches"] == 128
    assert found["step s"] == pytest.approx(105, rel=0.05) and found["TFLOP/s"] == pytest.approx(150, rel=0.05)
    assert found["without ZeRO"] > 0.9 * 81920 * 2**20 > found["held"]
    assert numbers("bloom", between="ethernet-1g")["step s"] > found["step s"]


def test_all_reduces_of_a_token_on_each_link():
    found = numbers("inside-a-machine")
    assert found["all-reduces"] == 160 and found["payload"] == 16 * 1024
    for link, alpha, rate in (("RDMA, InfiniBand HDR", 5e-6, 25e9), ("10 GbE", 30e-6, 1.25e9)):
        assert found[f"{link} doubling"] == pytest.approx(160 * 3 * (alpha + 16384 / rate))
        assert found[f"{link} ring"] == pytest.approx(160 * (14 * alpha + 14 / 8 * 16384 / rate))
    assert found["TP16 between"] > 100 * found["TP8 × PP2 between"]
    assert found["TP16 step s"] > found["TP8 × PP2 step s"]


def test_a_sync_has_the_price_that_a_plan_of_a_token_has():
    token = decode.token(catalogue.model("llama-2-70b"), Layout(tp=8), Inference(), catalogue.machine("8xa100-80"))
    inside, cost = numbers("inside-a-machine"), numbers("sync-cost")
    assert inside["inside s"] == cost["library token s"] == numbers("sync-points")["network s"] == token.network_s
    assert inside["inside s"] > 2 * inside["nvlink3 (inside) doubling"]                 # a bare link is no library
    slow = inside["1 GbE library"] / inside["inside s"]
    short = asked("inside-a-machine").short
    assert f"{token.network_s * 1e3:.3g} ms" in short and f"{slow:.3g} times as long" in short
    assert cost["1 GbE library"] > cost["10 GbE library"] > cost["library s"] > cost["NVLink 8 doubling"]
    for name in ("sync-cost", "inside-a-machine", "switch"):
        titles = [table.title for table in asked(name).tables]
        assert "as a machine's library does it" in titles[0] and any("a bare link" in title for title in titles)


def test_a_switch_is_no_toast():
    found = numbers("switch")
    assert found["bare hop s"] == pytest.approx(162 * 3 * 0.2e-6)               # InfiniBand's own kind of switch
    assert found["bare plain s"] == pytest.approx(162 * 3 * (5e-6 + 16384 / 25e9))
    assert found["bare tcp on the same wire s"] > 4 * (found["bare plain s"] + found["bare hop s"])
    assert 162 * 0.2e-6 < found["hop s"] < found["plain s"] / 20
    assert found["plain s"] == pytest.approx(numbers("sync-cost")["RDMA, InfiniBand HDR library"] * 162)
    assert found["tcp on the same wire s"] > 1.5 * found["with a switch s"]


def test_a_switch_is_priced_by_its_latency():
    slow, slower = (numbers("switch", link=f"{latency}us,25GB/s") for latency in (20, 40))
    assert slower["plain s"] > slow["plain s"] + 162 * 20e-6
    assert numbers("switch", link="5us,1GB/s")["plain s"] < slow["plain s"]


def test_sync_cost():
    found = numbers("sync-cost")
    assert found["NVLink 8 doubling"] == pytest.approx(3 * (1.5e-6 + 16384 / 235e9))
    assert found["1 GbE 8 ring"] == pytest.approx(14 * 60e-6 + 14 / 8 * 16384 / 0.118e9)
    assert numbers("sync-cost", batch=8)["payload"] == 8 * found["payload"]


def test_four_pis_beat_eight_in_a_star():
    found = numbers("raspberry-pis")
    assert found["measured 4"] < found["measured 8"]                                              # in the README
    assert "8 tokens cached (a model)" in asked("raspberry-pis").tables[1].title
    assert found["star 1"] == pytest.approx(found["measured 1"], rel=0.03)                      # at a like context
    assert found["moved 8"] == pytest.approx((4760 + 918.75) * 1024 * 34 / 34, rel=0.1)
    assert found["doubling 8"] < found["doubling 4"] < found["doubling 2"]
    assert found["star 8"] > found["ring 8"] > found["doubling 8"]
    assert "measured 4" not in numbers("raspberry-pis", weights="int8")
    assert len(asked("raspberry-pis", weights="int8").tables) == 1                              # nothing was measured


def test_longest_context():
    found = numbers("longest-context")
    each = 2 * 80 * 8 * 128 * 2
    assert found["bytes a token"] == each and found["without groups"] == 8 * each
    left = 0.9 * 8 * 81920 * 2**20 - 2 * LLAMA_70B
    assert found["longest"] < left / each and found["sequences"] <= left / each / 4096
    assert found["sequences"] > 0.95 * left / each / 4096 and found["longest at once"] < found["longest"]
    assert "doesn't fit" in asked("longest-context", devices=1).short


def test_experts():
    found = numbers("experts")
    assert found["parameters"] == 46_702_792_704 and found["share"] == pytest.approx(12.9 / 46.7, rel=0.01)
    assert found["read 256"] > 3 * found["read 1"]


def test_one_card():
    found = numbers("one-card")
    assert found["llama-3.1-8b bf16"] == pytest.approx(1008e9 * 0.7 / 15e9, rel=0.05)
    assert not found["llama-3.1-70b q4_0"] and found["llama-33b q4_0"]
    assert numbers("one-card", memory=80 * 10**9)["llama-3.1-70b q4_0"]


def test_training_the_biggest():
    found = numbers("train-biggest")
    assert found["floor"] == ceil(18 * 405_853_388_800 / 80e9) == 92
    assert 24 > found["1024 days"] / found["16384 days"] > 12
    assert found["8192 days"] == pytest.approx(157, rel=0.3)                       # its device hours, of all its phases
    assert found["16384 days"] == pytest.approx(78, rel=0.1) and found["16384 mfu"] == pytest.approx(0.404, rel=0.08)
    answer = asked("train-biggest")
    assert "92 cards by the bytes of its states, 18 a parameter with gradients in float32 (82 at 16)" in answer.short
    assert answer.tables[0].rows[-1][1].endswith("8 chunks *")                     # as published
    told = " ".join((answer.short, *answer.paragraphs, *answer.reasoning))
    assert "as plain 1F1B" in told and "which plain 1F1B here doesn't" not in told


# --- all of them ----------------------------------------------------------------------------------------------------


def test_claims_of_lessons_are_answered_too():
    met = claims()
    assert all(name in met[claim] for claim, name in CLAIMS.items())
    assert {claim: set(names) for claim, names in met.items()} == {
        claim: {question.name for question in QUESTIONS if claim in question.claims} for claim in met}
    assert met["C07"] == ("biggest-llama", "train-biggest") and len(met) == 19 and len(QUESTIONS) >= 22


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_an_answer_has_all_its_parts(question):
    found = asked(question.name)
    assert found.short and found.paragraphs and found.tables and found.reasoning and found.sources
    assert any(sign.isdigit() for sign in found.short) or question.name == "embedding-or-time"
    assert all(value == value and abs(value) != float("inf") for value in found.numbers.values())
    json.loads(json.dumps(plain(question, found), allow_nan=False))


NAMES = ("device", "numbers")                                # a name may hold a size, a formula one in its own unit


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_table_can_be_read(question):
    """Both units where bytes are shown; nothing measured or published in a column of what is planned; times said to be
    a model."""
    for table in asked(question.name).tables:
        for head, cells in zip(table.heads, zip(*table.rows, strict=True), strict=True):
            sizes = [cell for cell in cells if re.search(r"\d [kMGTP]B\b(?!/s)", cell) and head not in NAMES]
            assert all(re.search(r"\d [kMGTP]iB\)", cell) for cell in sizes), (head, sizes)
            bare = any(re.fullmatch(r"[\d,.]+ \([\d,.]+\)", cell) for cell in cells)
            assert not bare or "GB (GiB)" in head or "TB (TiB)" in head, head
            assert not ("planned" in head and "published" in head), head
        words = " ".join((table.title, *table.heads))
        timed = any(re.search(r"\d (ns|µs|ms|s|min|hours|days|years)$", cell) for row in table.rows for cell in row)
        assert not timed or "model" in words or "measured" in words, table.title


def test_short_forms_are_explained():
    told = explained(asked("thousand-gpus"))
    for short in ("TP8:", "PP:", "DP:", "SP:", "ZeRO-1", "8 chunks", "1F1B:"):
        assert short in told
    assert "CP:" not in told and "1F1B" not in explained(asked("wafer"))


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_every_option_changes_the_answer(question):
    usual = asked(question.name)
    for option in question.options:
        other = question.ask(WhatIf(**{option: OTHER[option]}))
        assert other != usual and (other.short, other.paragraphs, other.tables) != (
            usual.short, usual.paragraphs, usual.tables), f"--{option} changes nothing"


def test_what_is_only_known_says_so():
    """Statements on devices that the catalogue has no number for."""
    for name, said in (("wafer", "takes far more area a bit"), ("wafer", "beside the chip, whose edge"),
                       ("memory-kind", "the fifth by name"), ("memory-kind", "stacked beside the chip")):
        text = next(one for one in asked(name).paragraphs if said in one)
        assert "(general knowledge, not computed)" in text[text.index(said):text.index(said) + 180]


def test_no_big_number_is_typed_in():
    """Numbers of the world are in data files. Here stand only units, the discussion's own figures and sizes to try."""
    allowed = {1000, 1024, 2048, 4096, 8192, 16384, 10**12, 1e6, 1e9, 1e12, 400, 256, 300, 365}
    for path in Path(questions.__file__).parent.glob("*.py"):
        constants = {node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                     if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value > 130}
        assert constants <= allowed, path.name


# --- asked in odd ways ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "what", "said"), [
    ("gpt-3", {"machine": "8xh100"}, "doesn't depend on machine; what can be changed in it: model, devices, tokens"),
    ("biggest-llama", {"model": "llama-9"}, "llama"), ("biggest-llama", {"machine": "8xz9"}, "8xz9"),
    ("biggest-llama", {"weights": "bf15"}, "bf15"), ("terabyte-gpu", {"memory": 0}, "0"),
    ("biggest-llama", {"memory": 1}, "1 byte of memory"), ("zero", {"devices": 1}, "2 or more"),
    ("switch", {"devices": 1}, "2 or more"), ("embedding-or-time", {"devices": 1}, "2 or more"),
    ("precision", {"machine": "laptop"}, "no units for half precision"),
    ("switch", {"link": "carrier pigeon"}, "link"), ("biggest-lama", {}, "biggest-llama"),
    ("biggest-llama", {"model": "/no/such/config.json"}, "config.json"),
])
def test_what_cannot_be_asked(name, what, said):
    with pytest.raises(ConfigError, match=said):
        named(QUESTIONS, name).ask(WhatIf(**what))


def test_tiny_and_huge_devices():
    assert "no number" in asked("biggest-llama", memory=10**7, model="gpt-3-175b").short
    assert numbers("two-machines", memory=10**6)["machines that do"] == 0
    assert numbers("biggest-llama", memory=10**15)["llama-3.1-405b bf16 cards with a layout"] == 1


def test_a_config_of_ones_own(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 320, "max_position_embeddings": 256,
              "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
    path = tmp_path / "mine" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config))
    parameters = catalogue.model(path).parameters
    found = numbers("sync-points", model=str(path))
    assert found["mine token"] == 2 * 3 + 2
    assert numbers("biggest-llama", model=str(path))["mine bf16 bytes"] == 2 * parameters


def test_printed_and_as_json(capsys):
    answer(["gpt-3"], WhatIf(devices=500), False)
    assert "500 A100" in capsys.readouterr().out
    answer(["gpt-3", "switch"], WhatIf(devices=4), True)
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["gpt-3", "switch"]
    answer([], WhatIf(), True)
    assert len(json.loads(capsys.readouterr().out)) == len(QUESTIONS)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_word_of_a_table_is_broken(width):
    for question in QUESTIONS:
        for one in asked(question.name).tables:
            shown, console = [], Console(width=width)
            for columns in pieces(one, width):
                with console.capture() as printed:
                    console.print(piece(one, columns, width))
                shown += printed.get().split()
            assert max(map(len, shown)) <= width
            for text in (*one.heads, *(cell for row in one.rows for cell in row)):
                assert set(text.split()) <= set(shown), (question.name, one.title, text)
            assert sorted({n for columns in pieces(one, width) for n in columns}) == list(range(len(one.heads)))


def test_all_are_those_that_an_option_has_a_part_in():
    assert everything(WhatIf()) == list(QUESTIONS)
    assert {question.name for question in everything(WhatIf(tokens=1e12, batch=8))} == {"train-biggest"}
    with pytest.raises(ConfigError, match="no question depends on all of"):
        everything(WhatIf(tokens=1e12, link="ib-hdr", weights="int8", between="ib-hdr"))


def test_bytes_of_a_step_are_the_planners():
    run = catalogue.run("bloom-176b")
    assert run.layout is not None
    assert moved(run.model, run.layout, run.training, run.machine)
