"""Passes are numbered by their first event: in training, with samples between the steps, with several in flight."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from minitp.trace import Event, Mark, Timeline, Trace
from minitp.trace.passes import PassNumbers
from minitp.trace.summary import summarize, total
from minitp.view.passes import Passes, pass_name
from minitp.view.steps import Steps

RUN = {"ranks": 2, "world": "threads"}


def event(rank, sequence, key, enter, *, plane="data", group=0):
    return Event(rank, "tp", group, sequence, plane, "all_reduce", None, None, None, "site", "why", *key, None,
                 "partial", "whole", (4,), "float32", 16, enter, enter + 5, None, None, None, None, False, "")


def run_of(keys, *, plane=lambda key: "data", late=3):
    """Two ranks, one sync per key, 10 ns apart; rank 1 arrives `late` ns after rank 0. One mark per sync and rank."""
    events = [event(rank, n, key, 10 * n + late * rank + 2, plane=plane(key))
              for rank in (0, 1) for n, key in enumerate(keys)]
    marks = [Mark(one.rank, one.phase, one.step, one.micro_batch, one.enter - 2, one.leave + 1) for one in events]
    return Timeline.of(Trace.of(events, marks, run=RUN))


def names(timeline):
    numbers, strings = PassNumbers.of(timeline), timeline.trace.strings
    return [(strings[phase], step, micro_batch) for phase, step, micro_batch in
            zip(*(column.tolist() for column in (numbers.phase, numbers.step, numbers.micro_batch)), strict=True)]


def step_of(step, micro_batches=2):
    """The syncs of a training step: two of each forward and backward, one of the optimizer."""
    phases = ("forward", "forward", "backward", "backward")
    return [*((phase, step, m) for m in range(micro_batches) for phase in phases), ("optimizer", step, None)]


SAMPLE = [("prefill", 0, None), ("prefill", 0, None), ("decode", 1, None)]
TRAINING = [*step_of(0), *SAMPLE, *step_of(1), ("evaluate", 1, 0), ("evaluate", 1, 1), ("checkpoint", 1, None), *SAMPLE]


def control_checkpoints(key):
    return "control" if key[0] == "checkpoint" else "data"


def test_training_with_samples_and_evaluation_between():
    timeline = run_of(TRAINING, plane=control_checkpoints)
    a_step = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("optimizer", -1)]
    wanted = [*((phase, 0, m) for phase, m in a_step), ("prefill", 0, -1), ("decode", 1, -1),
              *((phase, 1, m) for phase, m in a_step), ("evaluate", 1, 0), ("evaluate", 1, 1), ("prefill", 0, -1),
              ("decode", 1, -1)]
    assert names(timeline) == wanted
    rows, steps = Passes(timeline).rows, Steps.of(timeline)
    assert len(rows) == len(steps.passes) == len(wanted)
    assert steps.passes.micro_batch.tolist() == [m for *_, m in wanted]
    assert [row.micro_batch for row in rows[:5]] == [0, 0, 1, 1, None]
    assert [row.begin for row in rows] == steps.passes.begin.tolist()
    assert [row.end for row in rows] == steps.passes.end.tolist()
    assert total(timeline).passes == len(wanted)
    assert {row.key: row.passes for row in summarize(timeline)}["prefill"] == 2          # the sample is made twice


def test_names_count_from_one_and_leave_out_a_lone_micro_batch():
    assert pass_name("backward", 1, 0) == "step 2, backward of micro-batch 1"
    assert [row.name for row in Passes(run_of(step_of(0))).rows][2:] == [
        "step 1, forward of micro-batch 2", "step 1, backward of micro-batch 2", "step 1, optimizer"]
    assert [row.name for row in Passes(run_of(step_of(0, 1))).rows] == [
        "step 1, forward", "step 1, backward", "step 1, optimizer"]


def test_micro_batches_in_flight_are_passes_of_their_own():
    """Forward 0, forward 1, backward 0, …: a pass that goes on after another one of its step is still the same."""
    keys = [("forward", 3, 0), ("forward", 3, 1), ("forward", 3, 0), ("backward", 3, 0), ("forward", 3, 1)]
    steps = Steps.of(run_of(keys))
    assert names(steps.timeline) == [("forward", 3, 0), ("forward", 3, 1), ("backward", 3, 0)]
    assert steps.passes.count.tolist() == [2, 2, 1] and steps.pass_of.tolist() == [0, 0, 1, 1, 2]
    assert steps.trace.events["sequence"][steps.event].tolist() == [0, 2, 1, 4, 3]


def test_groups_that_are_not_at_the_same_step_do_not_tear_a_pass():
    """Rank 1, in a group of its own, is a step ahead of rank 0."""
    events = [event(0, n, ("forward", n // 2, 0), 10 * n, group=0) for n in range(4)]
    events += [event(1, n, ("forward", n // 2, 0), 4 * n, group=1) for n in range(4)]
    timeline = Timeline.of(Trace.of(events, run=RUN))
    assert names(timeline) == [("forward", 0, 0), ("forward", 1, 0)]
    assert PassNumbers.of(timeline).of_event.tolist() == [0, 0, 1, 1] * 2


def test_all_ranks_of_a_sync_are_in_one_pass_whatever_they_say():
    events = [event(0, 0, ("forward", 0, 0), 5), event(1, 0, ("backward", 7, None), 1)]
    timeline = Timeline.of(Trace.of(events, run=RUN))
    assert names(timeline) == [("forward", 0, 0)] and PassNumbers.of(timeline).of_event.tolist() == [0, 0]


keys = st.tuples(st.sampled_from(["forward", "decode", ""]), st.sampled_from([None, 0, 1, 2]),
                 st.sampled_from([None, 0, 1]))


@given(st.lists(keys, max_size=12), st.integers(0, 12))
def test_pages_and_player_number_alike(some, late):
    timeline = run_of(some, late=late)
    passes, steps = Passes(timeline), Steps.of(timeline)
    assert [row.number for row in passes.rows] == list(range(len(steps.passes)))
    assert (passes.of_event[steps.event] == steps.pass_of).all() and (np.diff(steps.pass_of) >= 0).all()
    assert steps.passes.count.sum() == len(steps) and (steps.passes.count > 0).all()
    assert [row.sync_points for row in passes.rows] == steps.passes.count.tolist()
    begins = [row.begin for row in passes.rows]
    assert begins == sorted(begins) and (passes.spans.in_pass >= 0).all()
