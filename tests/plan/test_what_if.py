"""Capacity without bandwidth, and where what bounds a time changes over."""
from dataclasses import replace

import pytest

from minitp.errors import ConfigError
from minitp.plan.job import Inference
from minitp.plan.layout import Layout
from minitp.plan.speed import what_if
from minitp.plan.speed.decode import token
from tests.plan.plan_models import A100, GPT3, LLAMA2_7B, LLAMA31_70B, boxes, llama

SHEET = replace(A100, bandwidth_reached=1.0, flops_reached=1.0)
WAFER = replace(A100, name="wafer", kind="wafer", memory=44 * 10**9, memory_real=44 * 10**9, memory_kind="SRAM",
                bandwidth=21e15)


def test_a_terabyte_at_the_same_bandwidth_takes_half_a_second_a_token():
    big = SHEET.with_memory(10**12)
    assert what_if.reading_all(big) == pytest.approx(1e12 / 2.039e12)
    assert what_if.reading_all(big) / what_if.reading_all(SHEET) == pytest.approx(12.5)
    assert (big.memory, big.memory_real, big.bandwidth) == (10**12, 10**12, SHEET.bandwidth)
    with pytest.raises(ConfigError, match="1 byte"):
        A100.with_memory(0)


def test_batch_that_computes():
    assert what_if.computing_batch(SHEET) == pytest.approx(312e12 / 2.039e12)
    assert what_if.computing_batch(SHEET, weights="int8") == pytest.approx(312e12 / 2.039e12 / 2)
    over, under = (token(LLAMA2_7B, Layout(), Inference(batch=batch, prompt=1, new=0), boxes(1))
                   for batch in (int(what_if.computing_batch(A100) * 1.2), int(what_if.computing_batch(A100) / 1.2)))
    assert over.compute_s > over.memory_s and under.compute_s < under.memory_s


def test_wafers_read_faster_and_hold_less():
    gpu, wafer = what_if.on_each(LLAMA31_70B, Inference(prompt=1, new=0), (A100, WAFER))
    assert (gpu.needed, wafer.needed) == (2, 4)
    assert wafer.reading_s < gpu.reading_s / 10_000
    assert wafer.computing_s > wafer.reading_s and gpu.computing_s < gpu.reading_s
    assert gpu.to_plain()["devices by bytes"] == 2
    mixtral = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2)
    one, many = (what_if.on_each(mixtral, Inference(batch=batch, prompt=1, new=0), (A100,))[0] for batch in (1, 100))
    assert many.reading_s > 3 * one.reading_s


def test_side_by_side_is_the_token_without_its_network():
    job = Inference(prompt=100, new=28)
    alone = token(LLAMA2_7B, Layout(), job, boxes(1))
    assert what_if.on_each(LLAMA2_7B, job, (A100,))[0].seconds == pytest.approx(alone.seconds, rel=1e-3)


def test_an_answer_is_its_prompt_and_its_tokens():
    job = Inference(prompt=1000, new=100)
    made = what_if.generation(GPT3, Layout(tp=8), job, boxes(8))
    assert made.seconds == pytest.approx(made.first.seconds + 99 * made.each.seconds)
    assert made.first.bound == "compute" and made.each.bound == "memory"
