"""Waiting and moving: hand-made events with known answers, one per rule; sums that hold for any times."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.comm.states import TRANSITIONS
from minitp.trace import Event, Mark, Timeline, Trace
from minitp.trace.schema import CHECK


def event(rank, op, enter, leave, sequence=0, *, root=None, peer=None, group=0, axis="tp", site="s", reason="r",
          plane="data", phase="decode", step=None):
    return Event(rank, axis, group, sequence, plane, op, root, peer, None, site, reason, phase, step, None, None,
                 "partial", "whole", (4,), "float32", 16, enter, leave, None, None, None, None, False, "")


def waits(*events):
    timeline = Timeline.of(Trace.of(events))
    assert (timeline.waiting + timeline.moving).tolist() == [e.leave - e.enter for e in events]
    return timeline.waiting.tolist()


@pytest.mark.parametrize("op, expected", [
    ("all_reduce", [20, 0, 10]), ("all_reduce_max", [20, 0, 10]), ("all_gather", [20, 0, 10]),
    ("reduce_scatter", [20, 0, 10]), ("all_to_all", [20, 0, 10]), ("barrier", [20, 0, 10])])
def test_until_the_last_rank_arrives(op, expected):
    assert waits(event(0, op, 10, 40), event(1, op, 30, 45), event(2, op, 20, 50)) == expected


@pytest.mark.parametrize("op", ["scatter", "broadcast"])
@pytest.mark.parametrize("root, expected", [(0, [0, 0, 0]), (1, [20, 0, 10]), (2, [10, 0, 0])])
def test_until_the_root_arrives(op, root, expected):
    assert waits(*(event(r, op, t, t + 25, root=root) for r, t in enumerate((10, 30, 20)))) == expected


@pytest.mark.parametrize("op", ["gather", "reduce"])
@pytest.mark.parametrize("root, expected", [(0, [20, 0, 0]), (1, [0, 0, 0]), (2, [0, 0, 10])])
def test_only_the_root_waits_for_the_last(op, root, expected):
    assert waits(*(event(r, op, t, t + 25, root=root) for r, t in enumerate((10, 30, 20)))) == expected


def test_a_receive_waits_until_the_sender_arrives_and_a_send_never():
    assert waits(event(0, "send", 30, 90, peer=1), event(1, "receive", 10, 95, peer=0)) == [0, 20]
    assert waits(event(0, "send", 5, 90, peer=1), event(1, "receive", 10, 95, peer=0)) == [0, 0]


def test_messages_meet_by_direction_and_number():
    there = [event(0, "send", 10, 12, n, peer=1) for n in range(2)]
    back = [event(1, "send", 50 + n, 60, n, peer=0) for n in range(2)]
    heard = [event(0, "receive", 20, 70, n, peer=1) for n in range(2)]
    assert waits(*there, *back, *heard)[-2:] == [30, 31]
    assert waits(*heard, *there, *back)[:2] == [30, 31]


def test_never_more_than_the_event_where_clocks_differ():
    assert waits(event(0, "all_reduce", 10, 20), event(1, "all_reduce", 30, 40)) == [10, 0]


def test_groups_are_apart_and_root_and_peer_are_ranks_of_the_group():
    one = [event(r, "broadcast", 10 * r, 100, root=1, group=r // 2 * 2) for r in range(4)]
    assert waits(*one) == [10, 0, 10, 0]
    other_axis = [event(r, "all_reduce", 10 * r, 100, group=r % 2, axis="dp") for r in range(4)]
    assert waits(*other_axis) == [20, 20, 0, 0]
    messages = [event(2, "send", 30, 40, peer=1, group=2), event(3, "receive", 10, 50, peer=0, group=2)]
    assert waits(*messages) == [0, 20]


def test_the_message_of_checked_mode_is_a_sync_of_its_own():
    check = [event(r, "all_gather", 10 + 5 * r, 20, plane="control", reason=CHECK) for r in range(2)]
    real = [event(r, "all_gather", 20, 30 + r) for r in range(2)]
    assert waits(*check, *real) == [5, 0, 0, 0]


def test_a_single_rank_never_waits():
    events = [event(0, op, 10 * n, 10 * n + 5, n, root=0) for n, op in enumerate(TRANSITIONS)]
    assert waits(*events) == [0] * len(events)


def test_an_unknown_op_does_not_wait():
    assert waits(event(0, "later_op", 0, 9), event(1, "later_op", 5, 9)) == [0, 0]


def test_no_events():
    timeline = Timeline.of(Trace.of([]))
    assert timeline.syncs == [] and timeline.spans == []


def test_the_straggler():
    timeline = Timeline.of(Trace.of([event(0, "all_reduce", 10, 40), event(1, "all_reduce", 30, 40),
                                     event(0, "all_reduce", 60, 80, 1), event(1, "all_reduce", 50, 80, 1)]))
    assert [(sync.last_rank, sync.first_arrival, sync.last_arrival) for sync in timeline.syncs] == [(1, 10, 30),
                                                                                                    (0, 50, 60)]
    assert timeline.sync_of(3).events.tolist() == [2, 3]


def test_compute_spans_are_the_gaps_inside_the_innermost_mark():
    events = [event(0, "all_reduce", 10, 20, 0, site="a"), event(0, "all_reduce", 25, 30, 1, site="b"),
              event(0, "all_reduce", 55, 60, 2, site="c")]
    marks = [Mark(0, "decode", 0, None, 5, 40), Mark(0, "train", None, None, 2, 70), Mark(1, "decode", 0, 3, 0, 9)]
    timeline = Timeline.of(Trace.of(events, marks))
    seen = [(span.rank, timeline.name_of(span), span.enter, span.leave) for span in timeline.spans]
    assert seen == [(0, "begin of train → end of train", 2, 5), (0, "begin of decode → a", 5, 10), (0, "a → b", 20, 25),
                    (0, "b → end of decode", 30, 40), (0, "begin of train → c", 40, 55),
                    (0, "c → end of train", 60, 70), (1, "begin of decode → end of decode", 0, 9)]
    assert timeline.spans[-1].micro_batch == 3 and timeline.spans[0].step is None


times = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(times, min_size=1, max_size=4), st.sampled_from(sorted(TRANSITIONS)), st.integers(0, 3))
def test_the_parts_add_up_to_each_ranks_marks(gaps, op, root):
    """Ranks with any gaps and lengths: parts are never negative, and compute + wait + move fill the mark."""
    length = min(map(len, gaps))
    events, marks = [], []
    for rank, steps in enumerate(gaps):
        now = 0
        for sequence, (gap, lasts) in enumerate(steps[:length]):
            events.append(event(rank, op, now + gap, now + gap + lasts, sequence, root=min(root, len(gaps) - 1)))
            now += gap + lasts
        marks.append(Mark(rank, "decode", None, None, 0, now + 1))
    timeline = Timeline.of(Trace.of(events, marks))
    assert (timeline.waiting >= 0).all() and (timeline.moving >= 0).all()
    ranks = timeline.trace.events["rank"]
    for rank, mark in enumerate(marks):
        computing = sum(span.leave - span.enter for span in timeline.spans if span.rank == rank)
        parts = computing + timeline.waiting[ranks == rank].sum() + timeline.moving[ranks == rank].sum()
        assert parts == mark.leave
    for sync in timeline.syncs:
        assert len(sync.events) == len(gaps)
        last = np.flatnonzero(timeline.trace.events["enter"][sync.events] == sync.last_arrival)
        assert (timeline.waiting[sync.events[last]] == 0).all()          # the straggler waits for nobody


def test_marks_are_sorted_by_rank_once_however_many_ranks(monkeypatch):
    reads, rows = [], Trace.mark_rows
    monkeypatch.setattr(Trace, "mark_rows", lambda trace: reads.append(1) or rows(trace))
    trace = Trace.of([event(rank, "all_reduce", 10, 20) for rank in range(50)],
                     [Mark(rank, "decode", None, None, 5, 20 + rank % 2) for rank in (*range(50), 60)])
    spans = Timeline.of(trace).spans
    assert len(reads) == 1
    assert [span.rank for span in spans if span.enter == 5] == [*range(50), 60]
    assert [(span.after, span.rank) for span in spans if span.enter == 20] == [(r, r) for r in range(50) if r % 2]
