"""Schedules as data: every pass once, an order that ends, what waits in between, and the idle time it leaves."""
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.schedule import Instruction, bubble, held, instructions, of_stage, play

SMALL = st.integers(1, 6)


@settings(max_examples=40)
@given(st.sampled_from(["1f1b", "gpipe", "interleaved"]), SMALL, SMALL, SMALL)
def test_every_pass_once_and_the_order_ends(schedule, stages, groups, chunks):
    if schedule != "interleaved":
        chunks, micro_batches = 1, groups
    else:
        micro_batches = groups * stages
    orders = instructions(schedule, stages, micro_batches, chunks)
    spans = play(orders, chunks)
    for stage, order in enumerate(orders):
        passes = [(kind, m, c) for m in range(micro_batches) for c in range(chunks) for kind in ("forward", "backward")]
        assert Counter(order) == Counter(passes)
        for m in range(micro_batches):
            for c in range(chunks):
                assert order.index(Instruction("forward", m, c)) < order.index(Instruction("backward", m, c))
        times = [time for span in spans[stage] for time in (span.begin, span.end)]
        assert times == sorted(times)


@settings(max_examples=40)
@given(st.sampled_from(["1f1b", "gpipe", "interleaved"]), SMALL, SMALL, st.integers(2, 5))
def test_the_bubble_is_what_the_orders_leave_idle(schedule, stages, groups, chunks):
    if schedule != "interleaved":
        chunks, micro_batches = 1, groups
    else:
        micro_batches = groups * stages
    ends = [spans[-1].end for spans in play(instructions(schedule, stages, micro_batches, chunks), chunks)]
    ideal = 3 * micro_batches * chunks
    assert max(ends) / ideal - 1 == pytest.approx(bubble(schedule, stages, micro_batches, chunks))


@given(SMALL, st.integers(1, 20))
def test_held_of_one_chunk(stages, micro_batches):
    for stage in range(stages):
        assert held("1f1b", stages, micro_batches, 1, stage) == (min(stages - stage, micro_batches),)
        assert held("gpipe", stages, micro_batches, 1, stage) == (micro_batches,)


@given(st.integers(2, 8), st.integers(2, 5), st.integers(2, 4))
def test_interleaving_holds_more(stages, chunks, groups):
    """1 + (p - 1)/(p · v) of the layers on the first stage, from two groups on; and a stage holds no more later."""
    most = sum(held("interleaved", stages, groups * stages, chunks, 0))
    assert most / (stages * chunks) == pytest.approx(1 + (stages - 1) / (stages * chunks))
    for stage in range(stages):
        counted, most = 0, 0
        for step in of_stage("interleaved", stages, groups * stages, chunks, stage):
            counted += 1 if step.kind == "forward" else -1
            most = max(most, counted)
        assert most == sum(held("interleaved", stages, groups * stages, chunks, stage))


def test_held_by_chunk_is_weighed_by_layers():
    alike = held("interleaved", 2, 4, 2, 0, (1, 1))
    assert alike == held("interleaved", 2, 4, 2, 0) and sum(alike) == 5
    heavy = held("interleaved", 2, 4, 2, 0, (0, 1))
    assert heavy[1] == max(held("interleaved", 2, 4, 2, 0, (1, w))[1] for w in range(9))


def test_interleaving_one_chunk_is_1f1b():
    assert instructions("interleaved", 4, 6, 1) == instructions("1f1b", 4, 6)


@pytest.mark.parametrize(("wrong", "says"), [
    (("interleaved", 4, 6, 2), "4 or 8 would work"), (("interleaved", 4, 2, 2), "4 would work"),
    (("1f1b", 4, 6, 2), "interleaved"), (("1f1b", 0, 6, 1), "at least 1"), (("zigzag", 2, 2, 1), "1f1b"),
])
def test_what_a_schedule_cannot_take(wrong, says):
    schedule, stages, micro_batches, chunks = wrong
    with pytest.raises(Exception, match=says) as error:
        instructions(schedule, stages, micro_batches, chunks)
    assert isinstance(error.value, ConfigError) or schedule == "zigzag"


def test_a_deadlock_is_found():
    first, last = (list(order) for order in instructions("1f1b", 2, 2))
    backward = first.pop(first.index(Instruction("backward", 0)))
    with pytest.raises(ConfigError, match="never ends"):
        play([[backward, *first], last])
