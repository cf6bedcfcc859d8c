"""The replay: the model's times in place of the measured ones, and nothing else changed."""
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.links import LINKS, Link
from minitp.plan.network.collectives import best
from minitp.trace import Timeline, Trace
from minitp.trace.schema import Mark
from minitp.view.passes import Passes
from minitp.view.replay import Script, can_replay, cutting, cutting_lines, replay
from minitp.view.timeline import modeled_detail, modeled_groups
from tests.app.real_runs import tiny_run
from tests.view.timed_traces import RUN, all_reduces, event

SLOW, FAIR = Link("slow", 1e-3, 1e6, "made up"), Link("fair", 8e-4, 1e8, "made up")


def replayed(trace: Trace, link: Link):
    return replay(Script.of(Passes(Timeline.of(trace))), link)


works = st.integers(1, 4).flatmap(lambda ranks: st.lists(
    st.lists(st.integers(0, 10_000), min_size=ranks, max_size=ranks), min_size=1, max_size=12))


@settings(max_examples=50)
@given(works, st.integers(0, 10**6), st.sampled_from([*LINKS, SLOW]))
def test_a_run_that_was_as_the_model_says_is_replayed_as_it_was(own, measured, link):
    """Times from the model on any link, whatever the measured ones were: arrivals depend on own work alone."""
    ranks = len(own[0])
    price = best("all_reduce", ranks, 4000, link)[1] * 1e9
    made = replayed(all_reduces(own, [measured] * len(own), per_pass=5), link)
    at, now = np.argsort(made.event, kind="stable"), 0.0
    enter, ready, leave = (column[at].reshape(len(own), ranks) for column in (made.enter, made.ready, made.leave))
    for number, work in enumerate(own):
        assert enter[number] == pytest.approx([now + w for w in work])
        assert ready[number] == pytest.approx([now + max(work)] * ranks)
        now += max(work) + price
        assert leave[number] == pytest.approx([now] * ranks)


@pytest.fixture(scope="module")
def real() -> Passes:
    """Threads in checked mode, loaded by scatter: control messages and loading are there to be left out."""
    return Passes(Timeline.of(tiny_run("--load", "scatter", ranks=3)))


def test_computing_is_kept_and_moving_is_the_model(real):
    link = LINKS[2]
    made = replay(Script.of(real), link)
    events = real.trace.events
    for index, row in enumerate(made.passes):
        assert row.computing == real.work[index].computing
        syncs = np.flatnonzero((real.of_event == row.number) & (real.trace.words("plane") != "control")
                               & (events["rank"] == 0))
        price = sum(best(real.trace.event(i).op, 3, real.trace.event(i).payload, link)[1] for i in syncs.tolist())
        assert row.moving == pytest.approx(price * 1e9)
    assert (made.enter <= made.ready).all() and (made.ready <= made.leave).all()
    assert (np.diff(made.end) > 0).all()
    assert [group.moving for group in modeled_groups(made)] == made.moving.tolist()


def test_a_slower_link_never_ends_earlier(real):
    script = Script.of(real)
    for quick, slow in pairwise(replay(script, link) for link in LINKS):
        assert (quick.end <= slow.end).all() and (quick.moving < slow.moving).all()


def test_a_token_in_lanes_adds_up(real):
    made = replay(Script.of(real), LINKS[1])
    bars = modeled_detail(real, made, 1)
    for kind, part in ((1, made.waiting), (2, made.moving)):
        assert bars.length[bars.kind == kind].sum() == pytest.approx(part[1] * 3)
    assert bars.lanes == [0, 1, 2] and bars.start.min() == 0


def test_one_rank_needs_no_link():
    made = replayed(all_reduces([[100]] * 4, [50] * 4), SLOW)
    assert made.moving == [0] and made.waiting == [0] and made.end == [400]


def test_a_broadcast_waits_for_its_root_alone():
    rows = [event(0, 0, 700, 900, op="broadcast", root=0), event(1, 0, 100, 900, op="broadcast", root=0),
            event(2, 0, 800, 900, op="broadcast", root=0)]
    made = replayed(Trace.of(rows, [Mark(one.rank, "decode", 1, None, 100, 900) for one in rows], run=RUN), SLOW)
    price = best("broadcast", 3, 4000, SLOW)[1] * 1e9
    start = 100                                                    # when the pass begins
    assert made.ready.tolist() == pytest.approx([700 - start, 700 - start, 800 - start])
    assert made.leave.tolist() == pytest.approx([t - start + price for t in (700, 700, 800)])


def test_what_the_model_does_not_know_is_said():
    barriers = [event(rank, 0, 5, 9, op="barrier") for rank in (0, 1)]
    passes = Passes(Timeline.of(Trace.of(barriers, run=RUN)))
    assert "barrier" in can_replay(passes) and cutting(passes) is None
    with pytest.raises(ConfigError, match="the model knows what collectives cost"):
        Script.of(passes)
    assert "nothing to replay" in can_replay(Passes(Timeline.of(Trace.of([]))))


def test_ranks_that_call_in_different_orders_are_refused():
    rows = [event(0, 0, 0, 5), event(0, 1, 6, 9), event(1, 1, 0, 5), event(1, 0, 6, 9)]
    with pytest.raises(ConfigError, match="different orders"):
        replayed(Trace.of(rows, run=RUN), SLOW)


def test_a_message_waits_for_its_sender():
    rows = [event(0, 0, 700, 900, op="send", peer=1), event(1, 0, 100, 900, op="receive", peer=0)]
    made = replayed(Trace.of(rows, [Mark(one.rank, "decode", 1, None, 100, 900) for one in rows], run=RUN), SLOW)
    took = SLOW.seconds(4000) * 1e9
    assert made.ready.tolist() == pytest.approx([600, 600]) and made.leave.tolist() == pytest.approx([600 + took] * 2)
    assert cutting(Passes(Timeline.of(Trace.of(rows, run=RUN)))) is None


def test_cutting_further_is_computing_shared_out_plus_syncs():
    found = cutting(Passes(Timeline.of(all_reduces([[6_000_000, 4_000_000]] * 10, [5] * 10, per_pass=5))), [FAIR], 16)
    assert found is not None
    assert found.computing == pytest.approx(5 * 0.010) and found.sync_points == 5
    curve, = found.curves
    for p in (1, 2, 7, 16):
        assert curve.seconds[p - 1] == pytest.approx(0.050 / p + 5 * best("all_reduce", p, 4000, FAIR)[1])
    assert curve.seconds[curve.best - 1] == min(curve.seconds) and 1 < curve.best < 16


def test_without_computing_there_is_nothing_to_share_out():
    trace = all_reduces([[6_000_000, 4_000_000]] * 5, [5] * 5)
    plain = trace.to_plain()
    bare = Trace.from_plain(plain | {"marks": {name: [] for name in plain["marks"]}})
    assert cutting(Passes(Timeline.of(bare))) is None


def test_where_it_stops_paying_in_words():
    passes = Passes(Timeline.of(all_reduces([[6_000_000, 4_000_000]] * 5, [5] * 5)))
    never, stops, pays = (cutting_lines(cutting(passes, [link], most))[0] for link, most in (
        (Link("hopeless", 1.0, 1e6, ""), 8), (FAIR, 16), (LINKS[0], 8)))
    assert "it never pays: 1 rank is the quickest, with 50 ms a token" in never
    assert f"it stops paying at {cutting(passes, [FAIR], 16).curves[0].best} ranks" in stops
    assert "on 16 ranks a token would take" in stops
    assert "it pays up to 8 ranks, the most shown" in pays
