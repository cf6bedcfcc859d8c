"""The questions that `claims.md` names: their main numbers worked out again here, from what the papers print."""
from math import ceil

import pytest

from minitp.plan.questions import QUESTIONS, claims
from tests.plan.asking import asked, numbers, text_of

A100, A100_REAL, BANDWIDTH, PEAK = 80e9, 81920 * 2**20, 2039e9, 312e12
REACHED, COMPUTED = 0.68, 0.57                 # shares of bandwidth and peak: devices.toml
LLAMA_405B, LLAMA_65B, GPT3 = 405_853_388_800, 65_285_660_672, 174_604_259_328

CLAIMS = {"C07": "biggest-llama", "C08": "one-machine", "C11": "train-on-one-machine", "C12": "thousand-gpus",
          "C15": "two-machines", "C18": "gpt-3", "C19": "terabyte-gpu", "C21": "memory-kind", "C22": "wafer"}
"""Statements of the source discussion that are to be met here."""


def test_every_claim_has_its_question():
    met = claims()
    assert {claim: met[claim][0] for claim in CLAIMS} == CLAIMS
    assert all(claim in met[claim] or met[claim] for claim in met) and list(met) == sorted(met)
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)


def test_cards_of_the_biggest_llama():
    found = numbers("biggest-llama")
    assert found["llama-3.1-405b bf16 bytes"] == 2 * LLAMA_405B
    assert found["llama-3.1-405b bf16 cards by bytes"] == ceil(2 * LLAMA_405B / A100) == 11
    assert found["llama-3.1-405b bf16 cards by real bytes"] == ceil(2 * LLAMA_405B / A100_REAL) == 10
    assert found["llama-3.1-405b bf16 cards as machines"] == 16
    assert found["llama-3.1-405b fp8 cards as machines"] == 8
    assert 11 <= found["llama-3.1-405b bf16 cards with a layout"] <= 12
    assert found["llama-3.1-405b int4 cards by bytes"] == ceil(LLAMA_405B / 2 / A100) == 3
    assert found["llama-65b bf16 cards by bytes"] == ceil(2 * LLAMA_65B / A100) == 2
    assert found["training cards"] == ceil(16 * LLAMA_405B / A100) == 82
    assert found["training cards fp32 gradients"] == ceil(18 * LLAMA_405B / A100) == 92
    assert "82 at 16 bytes a parameter, 92 at 18" in asked("biggest-llama").short
    assert "cut for 8 ranks" in text_of("biggest-llama")
    big = numbers("biggest-llama", memory=10**12)
    assert big["llama-3.1-405b bf16 cards by bytes"] == big["llama-3.1-405b bf16 cards with a layout"] == 1


def test_what_one_machine_carries():
    found = numbers("one-machine")
    assert found["bytes"] == 8 * A100
    for model, parameters in (("llama-3.1-405b", LLAMA_405B), ("gpt-3-175b", GPT3), ("llama-65b", LLAMA_65B)):
        assert found[f"{model} runs"] == (2 * parameters < 0.9 * 8 * A100_REAL)
        assert found[f"{model} trains"] == (16 * parameters < 0.9 * 8 * A100_REAL)
    assert found["gpt-3-175b days"] == pytest.approx(6 * GPT3 * 300e9 / (8 * PEAK * COMPUTED) / 86400)
    assert numbers("one-machine", model="llama-3.1-405b", memory=10**12)["llama-3.1-405b trains"]


def test_tokens_are_those_that_were_published():
    found = numbers("one-machine")
    for model, parameters, tokens in (("llama-33b", 32_528_943_616, 1.4e12), ("llama-2-7b", 6_738_415_616, 2e12),
                                      ("llama-2-70b", 68_976_648_192, 2e12)):
        assert found[f"{model} days"] == pytest.approx(6 * parameters * tokens / (8 * PEAK * COMPUTED) / 86400)
    assert found["llama-33b days"] / 365.25 == pytest.approx(6.1, abs=0.05)
    assert "1.4 T tokens" in asked("one-machine").short
    tokens = {row[0]: row[3] for row in asked("one-machine").tables[1].rows}
    assert tokens["mixtral-8x7b"].endswith("*") and not tokens["llama-2-70b"].endswith("*")   # by a rule, and told
    assert "* not published: 20 a parameter (Hoffmann" in text_of("one-machine")


def test_bytes_and_days_of_training_on_one_machine():
    found = numbers("train-on-one-machine")
    assert found["llama-65b bytes"] == 16 * LLAMA_65B > 8 * A100_REAL
    assert found["gpt-3-175b days"] == pytest.approx(6 * GPT3 * 300e9 / (8 * PEAK * COMPUTED) / 86400)
    assert found["gpt-3-175b days"] / 365 == pytest.approx(7, abs=0.1)
    half = numbers("train-on-one-machine", tokens=150e9)
    assert half["gpt-3-175b days"] == pytest.approx(found["gpt-3-175b days"] / 2)


def test_published_layouts_add_up():
    found = numbers("thousand-gpus")
    assert found["bytes"] == 1000 * A100
    for run, devices in (("bloom-176b", 384), ("llama-65b", 2048), ("llama-3.1-405b-16384", 16384)):
        assert found[f"{run} devices"] == devices and found[f"{run} fits"]
    assert found["bloom-176b step s"] == pytest.approx(105, rel=0.05)                     # published
    assert found["bloom-176b TFLOP/s"] == pytest.approx(150, rel=0.05)
    assert found["llama-65b days"] == pytest.approx(21, rel=0.2)
    assert found["opt-175b days"] == pytest.approx(33, rel=0.1)
    assert not numbers("thousand-gpus", memory=40 * 10**9)["bloom-176b fits"]


def test_seven_hundred_gigabytes_are_not_enough():
    found = numbers("two-machines")
    assert found["bytes said"] == 4 * GPT3 and 1 < found["machines said"] < 2
    assert (found["cards 16"], found["cards 18"]) == (ceil(16 * GPT3 / A100), ceil(18 * GPT3 / A100)) == (35, 40)
    assert (found["cards 16 real"], found["cards 18 real"]) == (33, 37)
    assert not found["two do"] and found["machines that do"] == 5
    left = 0.9 * 8 * A100_REAL - 2 * GPT3
    assert 0.9 * left < found["sequences beside"] * 2 * 2 * 96 * 12288 * 2048 <= left
    assert numbers("two-machines", memory=10**12)["two do"]


def test_gpt3_on_four_hundred():
    found = numbers("gpt-3")
    work = 6 * GPT3 * 300e9
    assert found["A100 days by 6PT"] == pytest.approx(work / (400 * 140e12) / 86400)
    assert found["A100 days"] == pytest.approx(found["A100 days by 6PT"] * 8 / 6)           # that rate counts 8PT
    assert (round(found["A100 days by 6PT"]), round(found["A100 days"])) == (65, 87)
    assert found["V100 days"] == pytest.approx(work / (400 * 24.6e12) / 86400) and round(found["V100 days"]) == 370
    assert found["machines of 8"] == 50
    assert (found["A100 floor"], found["V100 floor"]) == (35, ceil(16 * GPT3 / 32e9))
    assert found["planned days on 384"] == pytest.approx(84, rel=0.1)
    assert numbers("gpt-3", devices=1024)["A100 days"] == pytest.approx(34, rel=0.02)                      # published
    short = asked("gpt-3").short
    assert "86.6 days with full recomputation" in short and "65 days by 6PT" in short


def test_a_terabyte_is_read_slowly():
    found = numbers("terabyte-gpu")
    assert found["reading all s"] == pytest.approx(1e12 / (BANDWIDTH * REACHED))
    assert found["model s"] == pytest.approx(2 * LLAMA_405B / (BANDWIDTH * REACHED), rel=0.01)
    assert found["bandwidth wanted"] == pytest.approx(BANDWIDTH * 1e12 / A100)
    assert found["many s"] < found["model s"] / 10 and found["many"] == 16
    assert found["computing batch"] == pytest.approx(PEAK * COMPUTED / (BANDWIDTH * REACHED))
    assert numbers("terabyte-gpu", memory=512 * 10**9)["reading all s"] == pytest.approx(found["reading all s"] * 0.512)


def test_memory_of_cards():
    found = numbers("memory-kind")
    assert found["h200 bandwidth"] == 4.8e12 and found["h200 memory"] == 141e9
    assert found["a100-80 reading all s"] == pytest.approx(A100 / (BANDWIDTH * REACHED))
    assert found["a100-80 devices"] == 2 and found["h200 devices"] == 1
    told = text_of("memory-kind")
    assert "HBM2e on the A100" in told and "HBM3 on the H100" in told and "HBM3e on the H200" in told


def test_wafers():
    found = numbers("wafer")
    assert found["wse-3 memory"] < found["a100-80 memory"]
    assert found["wse-3 reading s"] < found["wse-3 computing s"] and found["a100-80 reading s"] > 50 * found[
        "a100-80 computing s"]
    assert found["bandwidth ratio"] == pytest.approx(21e15 / BANDWIDTH)
