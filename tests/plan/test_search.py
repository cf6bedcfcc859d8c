"""Which layouts carry a job: what fits is what the memory's rows say, and every failure says why."""
from dataclasses import replace

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
