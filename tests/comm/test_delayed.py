"""The communicator on a slower link: it waits once for each collective and message, and changes nothing else."""
import time
from types import SimpleNamespace

import numpy as np
import pytest

from minitp.comm import Communicator, Partial
from minitp.comm.algorithms import ALGORITHMS, BuiltCollectives
from minitp.comm.algorithms.schedules import schedule
from minitp.comm.delayed import DelayedCommunicator
from minitp.errors import ConfigError
from minitp.launcher import launch
from minitp.lesson import run
from minitp.trace import collect, run_info, show
from minitp.trace.emulated import emulated_line
from minitp.trace.merge import joined, pack
from minitp.view.watch import play
from tests.mpi_world import worlds

DELAY = 0.004


def summed(group, times):
    for _ in range(times):
        total = group.all_reduce(Partial(np.array([group.rank + 1.0]), group), site="s", reason="r")
    return total


def body(comm):
    """Three sums and a barrier on a slow link; how long they took, and each data event in seconds."""
    group = DelayedCommunicator(comm.transport, comm.recorder, checked=comm.checked)
    quick = summed(group, 1)
    group.delay = DELAY
    group.barrier(site="s", reason="control messages stay quick")
    begun = time.perf_counter()
    late = summed(group, 3)
    took = time.perf_counter() - begun
    events = [(event.leave - event.enter) / 1e9 for event in comm.recorder.events if event.plane == "data"]
    trace = collect(comm, comm.recorder, run_info(comm, argv=[]))
    return {"same": bool((quick == late).all()), "took": took, "events": events[1:],
            "header": None if trace is None else trace.run["emulated"]}


@pytest.mark.parametrize("world", worlds(threads=(1, 3), mpi=(3,)))
def test_each_collective_takes_the_delay_longer(world):
    for seen in world(body):
        assert seen["same"] and seen["took"] >= 3 * DELAY
        assert seen["header"] in (None, {"delay": [0.0, DELAY]})
        assert len(seen["events"]) == 3 and min(seen["events"]) >= DELAY        # the wait lies inside the event


@pytest.fixture
def waits(monkeypatch):
    """The seconds of every wait, none of which is waited."""
    made: list[float] = []
    monkeypatch.setattr("minitp.comm.delayed.time", SimpleNamespace(sleep=made.append))
    return made


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_what_is_built_of_messages_waits_once_a_round(waits, algorithm, ranks):
    def on_rank(group):
        group.delay = 1.0
        BuiltCollectives(group, algorithm).all_reduce(Partial(np.ones(8), group), site="s", reason="r")

    launch(on_rank, ranks=ranks, world="threads", kind=DelayedCommunicator)
    plans = [schedule("all_reduce", algorithm, rank, ranks) for rank in range(ranks)]
    assert len(waits) == sum(len(plan.hops) for plan in plans)
    assert max(len(plan.hops) for plan in plans) == plans[0].rounds          # some rank is busy in every round


def test_control_messages_and_a_delay_of_none_wait_for_nothing(waits):
    def on_rank(group):
        group.share("x" if group.rank == 0 else None, site="s", reason="r")
        summed(group, 2)
        group.delay = 2.0
        group.barrier(site="s", reason="r")
        summed(group, 1)

    assert run(on_rank, ranks=3, threads=True, kind=DelayedCommunicator).sync_points == 3
    assert waits == [2.0] * 3


@pytest.mark.parametrize("delays, header, words", [
    ((), None, ""), ((0.0,), None, ""), ((2.0,), [2.0, 2.0], "held up by 2 s. "),
    ((0.0, 0.005, 0.002), [0.0, 0.005], "held up by up to 5 ms. ")])
def test_the_trace_and_its_views_say_that_the_link_was_emulated(waits, delays, header, words):
    def on_rank(group):
        for delay in delays:
            group.delay = delay
            summed(group, 1)

    trace = run(on_rank, ranks=2, threads=True, kind=DelayedCommunicator).trace
    assert trace.run.get("emulated") == (None if header is None else {"delay": header})
    line = emulated_line(trace.run)
    assert words in line and bool(words) == line.startswith("Emulated link: each collective and message was held up")
    for told in ([text.plain.strip() for text in show.header(trace)], play(trace)["run"]["notes"]):
        assert sum("Emulated" in one for one in told) == bool(words) and (line in told) == bool(words)


def test_what_is_not_in_the_trace_leaves_no_delay_in_it(waits):
    def on_rank(group):
        group.delay = 2.0
        group.recorder.keep_events = False
        summed(group, 1)
        return pack(group.recorder)

    assert "emulated" not in joined(launch(on_rank, ranks=2, world="threads", kind=DelayedCommunicator), None,
                                    {"ranks": 2}).run


def test_what_is_left_of_a_run_says_it_too(waits):
    def on_rank(group):
        group.delay = 2.0
        summed(group, 1)
        return pack(group.recorder)

    parts = launch(on_rank, ranks=3, world="threads", kind=DelayedCommunicator)
    assert joined([None, *parts[1:]], None, {"ranks": 3}).run["emulated"] == {"delay": [2.0, 2.0]}


@pytest.mark.parametrize("told", [{}, {"delay": 3}, {"delay": ["<b>", 1]}, {"delay": [1, float("nan")]},
                                  {"delay": [-1, 2]}, {"delay": [1, 2, 3]}, {"delay": [True, 10**400]}])
def test_a_header_of_another_make_is_no_trouble(told):
    assert emulated_line({"emulated": told}) == \
        "Emulated link: each collective and message was held up on purpose. These are not the machine's own times."
    assert emulated_line({"emulated": [told]}) == emulated_line({}) == ""


@pytest.mark.parametrize("delay", [-0.001, float("nan"), float("inf"), 11.0])
def test_a_delay_that_is_none_is_refused(delay):
    def on_rank(group):
        group.delay = delay

    with pytest.raises(ConfigError, match="a delay is a time from 0 to 10 s"):
        run(on_rank, ranks=1, threads=True, kind=DelayedCommunicator)


def test_an_ordinary_communicator_has_no_delay():
    assert not hasattr(Communicator, "delay")
