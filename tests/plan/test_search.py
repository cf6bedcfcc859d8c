"""Which layouts carry a job: what fits is what the memory's rows say, and every failure says why."""
from dataclasses import replace
from time import process_time

import pytest

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.plan import catalogue, memory
from minitp.plan.job import Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.memory.capacity import Capacity
from minitp.plan.model import PlannedModel
from minitp.plan.rows import total
from minitp.plan.search import Candidate, Failure, Limits, fewest, judge, search
from minitp.plan.search_words import enough

MACHINE = catalogue.machine("8xa100-80")
LLAMA_70B, LLAMA_405B = catalogue.model("llama-2-70b"), catalogue.model("llama-3.1-405b")


def test_what_fits_is_what_the_rows_say():
    found = search(LLAMA_70B, MACHINE, Inference(batch=8))
    usable = Capacity.of(MACHINE.device).usable
    for one in found.best:
        rows = memory.worst(LLAMA_70B, one.layout, one.job)[1]
        assert one.held == total(rows) == total(one.rows) <= usable
        assert one.room == usable - one.held and one.layout.devices == 8
    for one in found.failed:
        if one.why == "memory":
            assert total(memory.worst(LLAMA_70B, one.layout, one.job)[1]) - usable == one.missing > 0
    assert [one.seconds for one in found.best] == sorted(one.seconds for one in found.best)
    assert len({(o.layout.tp, o.layout.pp, o.layout.dp) for o in (*found.best, *found.failed)}) == 10


def test_405b_in_bf16_needs_two_boxes_and_in_fp8_one():
    job = Inference()
    assert not search(LLAMA_405B, MACHINE, job).best
    larger, found = fewest(LLAMA_405B, MACHINE, job)
    assert larger.devices == 16 and found.best
    assert search(LLAMA_405B, MACHINE, replace(job, weights="fp8")).best


def test_a_layout_that_was_published_fits_and_one_device_does_not():
    bloom, cluster = catalogue.model("bloom-176b"), MACHINE.with_devices(384)
    job = Training(batch=2048, seq=2048, micro_batch=2, recompute="full")
    assert isinstance(judge(bloom, Layout(tp=4, pp=12, dp=8, zero=1), job, cluster), Candidate)
    alone = judge(bloom, Layout(tp=1, pp=1, dp=384), job, cluster)
    assert isinstance(alone, Failure) and alone.why == "batch"
    alone = judge(bloom, Layout(tp=1, pp=3, dp=128), job, cluster)
    assert isinstance(alone, Failure) and alone.why == "memory" and " of " in alone.text


def test_limits_are_kept():
    job = Training(batch=64, seq=512)
    model = PlannedModel(TINY)
    found = search(model, MACHINE, job, Limits(tp=2, zero=1, recompute="full", micro_batch=2))
    assert found.best and {one.layout.tp for one in found.best} == {2}
    assert {(one.layout.zero, one.job.recompute, one.job.micro_batch) for one in found.best
            if one.layout.dp > 1} == {(1, "full", 2)}
    with pytest.raises(ConfigError, match="tp 3 doesn't divide 8 devices: 1, 2, 4, 8 would"):
        search(model, MACHINE, job, Limits(tp=3))
    assert search(model, MACHINE, replace(job, batch=7)).reasons["batch"] > 0


@pytest.mark.slow
def test_stopping_early_misses_nothing():
    """Against every variant of one mesh: experts, chunks (5: two of them hold the ends alone), ZeRO, recomputation,
    micro-batches, with and without SP."""
    mixtral = catalogue.model("mixtral-8x7b")
    model, job = replace(mixtral, config=replace(mixtral.config, layers=8)), Training(batch=16, seq=4096)
    limits = Limits(tp=2, pp=2, reserve=0.5)
    found = search(model, MACHINE, job, limits).best[0]
    every = [judge(model, Layout(tp=2, pp=2, dp=2, ep=ep, zero=zero, sequence=sequence, chunks=chunks,
                                 schedule="interleaved" if chunks > 1 else "1f1b"),
                   replace(job, recompute=recompute, micro_batch=size), MACHINE, limits)
             for ep in (1, 2) for chunks in (1, 2, 4, 5) for zero in (0, 1, 2, 3) for sequence in (False, True)
             for recompute in ("none", "selective", "full") for size in (1, 2, 4, 8)]
    assert found.seconds == pytest.approx(min(one.seconds for one in every if isinstance(one, Candidate)), rel=1e-9)
    assert any(isinstance(one, Failure) and one.why == "memory" for one in every)
    assert (found.layout.ep, found.layout.chunks > 1) != (1, False)


def test_what_is_left_open_is_tried_and_what_is_set_is_kept():
    mixtral, job = catalogue.model("mixtral-8x7b"), Inference(batch=8)
    assert {one.layout.ep for one in search(mixtral, MACHINE, job, Limits(tp=1, pp=1)).best} & {2, 4, 8}
    assert {one.layout.ep for one in search(mixtral, MACHINE, job, Limits(ep=2)).best} == {2}
    assert not any(one.layout.ep > 1 for one in search(LLAMA_70B, MACHINE, job).best)
    with pytest.raises(ConfigError, match="ep = 3"):
        search(mixtral, MACHINE, job, Limits(ep=3))
    small = catalogue.model("gpt-22b")
    large = search(small, MACHINE, Training(batch=128, seq=512), Limits(pp=1, zero=3)).best
    assert any(one.job.micro_batch > 8 for one in large)


@pytest.mark.slow
def test_a_search_is_quick():
    """405B on 16,384 devices, every mesh; it was made for 5 s without the checks of shapes that tests switch on."""
    cluster, job = catalogue.machine("8xh100-80", devices=16_384), Training(batch=2048, seq=8192)
    began = process_time()
    assert search(LLAMA_405B, cluster, job).best
    assert process_time() - began < 20


def test_words_tell_how_far_the_search_went():
    assert "up to 4,096 devices" in enough(None) and "up to 64 devices" in enough(None, 64)
    assert not enough(None, devices=16_384)                               # more than were tried
    assert enough(fewest(LLAMA_405B, MACHINE, Inference())).startswith("2 such machines, 16 devices, do: TP16, ")


@pytest.mark.parametrize(("layout", "job", "said"), [
    (Layout(pp=4, dp=2), Inference(batch=2), "2 layers can't fill 4"), (Layout(tp=8), Inference(), "heads"),
    (Layout(dp=8), Inference(batch=3), "8 replicas"), (Layout(dp=8), Training(batch=12), "can't be dealt"),
    (Layout(dp=2, ep=2), Inference(batch=2), "dense")])
def test_every_failure_says_why(layout, job, said):
    model = PlannedModel(replace(TINY, heads=4, kv_heads=4))
    failure = judge(model, layout, job, MACHINE)
    assert isinstance(failure, Failure) and said in failure.text


def test_a_reserve_takes_its_share():
    job = Inference(batch=8)
    full, kept = (search(LLAMA_70B, MACHINE, job, Limits(reserve=share)).best[0] for share in (0.0, 0.5))
    assert full.room - kept.room == pytest.approx(MACHINE.device.memory_real / 2, abs=1)
    assert search(LLAMA_70B, MACHINE, job, Limits(nominal=True)).best[0].room < full.room


def test_of_layouts_that_take_equally_long_the_one_that_moves_least_is_best():
    """ZeRO-3 gathers each layer twice a micro-batch and hides it: where ZeRO-1 fits, nothing speaks for it."""
    job = Training(batch=1024, seq=4096)
    small = catalogue.model("llama-2-7b")
    best = search(small, MACHINE, job, Limits(tp=1, pp=1)).best[0]
    third = judge(small, replace(best.layout, zero=3), best.job, MACHINE)
    assert third.seconds == pytest.approx(best.seconds, rel=1e-6) and third.time.moved > 2 * best.time.moved
    assert best.layout.zero == 1
