"""The engine: whom a rank waits for, queues for ports, and orders that never end."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.machine import Level
from minitp.plan.simulate import replay, simulated
from minitp.plan.simulate.engine import Program, run
from minitp.plan.simulate.result import Share
from minitp.trace import Trace
from minitp.trace.timeline import LAST, NOBODY, ROOT, SENDER
from tests.plan.test_simulate import INSIDE, MACHINE, WORKING
from tests.view.timed_traces import RUN, event


def program(*events: tuple[int, float, int, int, bool, float], **more) -> Program:
    """Rows of (rank, own, sync, rule, gives, price)."""
    return Program(*(np.array(column) for column in zip(*events, strict=True)), **more)


def test_whom_a_rank_waits_for():
    times = run(program((0, 30.0, 0, LAST, False, 5.0), (0, 10.0, 1, ROOT, True, 2.0), (0, 1.0, 2, NOBODY, True, 4.0),
                        (1, 20.0, 0, LAST, False, 5.0), (1, 4.0, 1, ROOT, False, 2.0), (1, 0.0, 2, SENDER, False, 4.0),
                        (2, 99.0, 1, ROOT, False, 2.0)))
    assert times.enter.tolist() == [30, 45, 48, 20, 39, 47, 99]
    assert times.ready.tolist() == [30, 45, 48, 30, 45, 48, 99]
    assert times.leave.tolist() == [35, 47, 52, 35, 47, 52, 101]


def test_a_message_that_is_there_already_is_not_waited_for():
    times = run(program((0, 1.0, 0, NOBODY, True, 4.0), (1, 3.0, 0, SENDER, False, 4.0), (2, 0.0, 1, NOBODY, True, 4.0),
                        (3, 50.0, 1, SENDER, False, 4.0)))
    assert times.leave.tolist() == [5, 5, 4, 50] and times.ready.tolist() == [1, 3, 0, 50]


def test_a_class_is_there_when_its_last_is():
    times = run(program((0, 10.0, 0, LAST, False, 5.0), (1, 12.0, 0, LAST, False, 5.0), late=np.array([7.0, 0.0])))
    assert times.enter.tolist() == [10, 12] and times.ready.tolist() == [17, 17] and times.leave.tolist() == [22, 22]


def test_ports_are_had_in_turn():
    rows = [(rank, 1.0 + rank, rank, LAST, False, 10.0) for rank in range(4)]
    held = {sync: [(0, 1)] for sync in range(4)}
    assert run(program(*rows, ports=held, free={0: 1})).leave.tolist() == [11, 21, 31, 41]
    assert run(program(*rows, ports=held, free={0: 2})).leave.tolist() == [11, 12, 21, 22]
    assert run(program(*rows, ports=held, free={0: 9})).leave.tolist() == [11, 12, 13, 14]


def test_an_order_that_never_ends_is_said():
    with pytest.raises(ConfigError, match="2 of 2 ranks wait for one another for ever"):
        run(program((0, 0.0, 0, LAST, False, 1.0), (0, 0.0, 1, LAST, False, 1.0), (1, 0.0, 1, LAST, False, 1.0),
                    (1, 0.0, 0, LAST, False, 1.0)))


@settings(max_examples=20)
@given(st.lists(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), min_size=1, max_size=8), st.floats(0, 1e6))
def test_a_collective_is_left_when_the_last_is_there_and_it_has_moved(own, price):
    rows = [(rank, own[sync][rank], sync, LAST, False, price) for rank in range(3) for sync in range(len(own))]
    leave = run(program(*rows)).leave.reshape(3, -1)
    now = 0.0
    for sync, works in enumerate(own):
        now += max(works) + price
        assert leave[:, sync] == pytest.approx([now] * 3)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), *[st.floats(0, 1e6)] * 3), min_size=1, max_size=12))
def test_what_a_rank_does_alone_takes_what_its_parts_take(steps):
    """Against one pass in order: at the last sync the ranks meet, at the others each is alone."""
    rows, late, want, clock = [], [], [], dict.fromkeys(range(3), 0.0)
    for rank in range(3):
        mine = [one for one in steps if one[0] == rank]
        for n, (_, own, price, behind) in enumerate(mine):
            rows.append((rank, own, 100 + 20 * rank + n, LAST, False, price))
            late.append(behind)
            clock[rank] += own
            want.append((clock[rank], clock[rank] + behind, clock[rank] + behind + price))
            clock[rank] += behind + price
        rows.append((rank, 5.0, 0, LAST, False, 7.0))
        late.append(0.0)
    met = max(clock.values()) + 5
    _, sync = np.unique([row[2] for row in rows], return_inverse=True)
    rows = [(*row[:2], int(number), *row[3:]) for row, number in zip(rows, sync, strict=True)]
    times = run(program(*rows, late=np.array(late)))
    alone = sync > 0
    assert np.stack(times, 1)[alone].ravel().tolist() == pytest.approx(np.array(want).ravel().tolist(),
                                                                           abs=1e-6)      # ns: sums are rounded
    assert times.leave[sync == 0].tolist() == pytest.approx([met + 7] * 3)


def test_progress_is_told_now_and_then():
    told = []
    rows = [(rank, 1.0, n, LAST, False, 1.0) for rank in range(2) for n in range(4500)]
    run(program(*rows), lambda done, total: told.append((done, total)))
    assert told == [(4096, 9000), (8192, 9000)]


@pytest.mark.parametrize("ports", [0, 1, 2, 8])
def test_few_ports_make_queues(ports):
    """Two stages of a pipeline in a box, whose messages meet at its ports."""
    slow = Link("slow", 1e-5, 1e8, "made up")
    machine = replace(MACHINE, levels=(Level("box", 8, INSIDE), Level("cluster", 128, slow, ports)))
    layout, job = Layout(tp=2, pp=8, dp=2), Training(16, 64)
    shared, queued, alone = (simulated(WORKING, layout, job, where, queue=queue) for where, queue in (
        (machine, False), (machine, True), (replace(machine, levels=(machine.levels[0], replace(
            machine.levels[1], ports=0))), True)))
    if ports in (0, 8):
        assert queued.seconds == pytest.approx(alone.seconds) == pytest.approx(shared.seconds)
    else:
        assert queued.seconds > alone.seconds and shared.seconds > alone.seconds
    assert sum(queued.shares.values()) == pytest.approx(queued.seconds)


def test_messages_of_a_recorded_run_queue_too():
    rows = [event(rank, 0, 0, 10, op="send" if rank < 8 else "receive", peer=(rank + 8) % 16) for rank in range(16)]
    trace = Trace.of(rows, run=RUN)
    one = replace(MACHINE, levels=(MACHINE.levels[0], replace(MACHINE.levels[1], ports=1)))
    took = [replay(trace, machine, queue=True).seconds for machine in (MACHINE, one)]
    assert took[1] == pytest.approx(8 * took[0])                 # one after the other, through one port
    assert replay(trace, one).shares.get(Share("moving", "tp"), 0) > 0
