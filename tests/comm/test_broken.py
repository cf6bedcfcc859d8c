"""The communicator that skips chosen sums: nothing is sent there, everything else is as ever, and it is on record."""
import numpy as np
import pytest

from minitp.comm import Communicator, Partial
from minitp.comm.broken import BrokenCommunicator
from minitp.errors import StateError
from minitp.trace import Timeline, collect, run_info
from minitp.trace.summary import stragglers, total
from tests.mpi_world import worlds


def body(comm):
    """Two sums at a broken site, one of a view, between two that are not; what each rank got, and rank 0's trace."""
    group = BrokenCommunicator(comm.transport, comm.recorder, checked=comm.checked)
    group.broken = {"b"}
    got, moved, transport_sum = [], [], comm.transport.all_reduce
    comm.transport.all_reduce = lambda array, in_place: moved.append(array.shape) or transport_sum(array, in_place)
    for site in "abca":
        mine = np.full((2, 3), 1.0 + comm.rank)
        got.append(group.all_reduce(Partial(mine, group), site=site, reason="r"))
    whole = Partial(np.full((4, 3), 1.0 + comm.rank), group)
    upper, lower = whole[:2], whole[2:]
    got.append(group.all_reduce(upper, site="b", reason="r"))
    got[-1] += 100.0                                             # a whole of its own: the partial's other half stays
    got.append(group.all_reduce(lower, site="a", reason="r"))
    spent = Partial(np.ones(2), group)
    group.all_reduce(spent, site="b", reason="r")
    with pytest.raises(StateError, match="reduced already"):
        group.all_reduce(spent, site="b", reason="r")
    trace = collect(group, comm.recorder, run_info(group, argv=[]))
    return {"got": [array[0, 0] for array in got], "moved": len(moved), "events": events_of(trace)}


def events_of(trace):
    """Rank 0's events of the sums, and what the summary makes of them."""
    if trace is None:
        return None
    timeline = Timeline.of(trace)
    broken = np.flatnonzero(trace.events["broken"])
    assert len(broken) == 3 * trace.run["ranks"] and not timeline.waiting[broken].any()
    row = total(timeline, phases=[""])
    return {"rows": [[e.site, e.op, e.broken, e.payload, e.sequence, e.before, e.after, list(e.shape)] for e in trace
                     if e.rank == 0 and e.plane == "data"],
            "sync_points": row.sync_points, "broken": row.broken, "payload": row.payload,
            "stragglers": sum(stragglers(timeline).values())}


@pytest.mark.parametrize("world", worlds(threads=(1, 3), mpi=(3,)))
def test_a_broken_site_sums_nothing_and_says_so(world):
    n = world.n
    ranks = world(body)
    for rank, seen in enumerate(ranks):
        own, summed = 1.0 + rank, n * (n + 1) / 2
        assert seen["got"] == [summed, own, summed, summed, own + 100, summed]
        assert seen["moved"] == 4
    seen = ranks[0]["events"]
    sums, skipped = ["all_reduce", False, 48], ["all_reduce", True, 0]
    ends = ["partial", "whole"]
    assert seen["rows"] == [[site, *(skipped if site == "b" else sums), number, *ends, shape] for number, (site, shape)
                            in enumerate([*((s, [2, 3]) for s in "abcaba"), ("b", [2])])]
    assert (seen["sync_points"], seen["broken"], seen["payload"]) == (4, 3, 4 * 48)
    assert seen["stragglers"] == (4 if n > 1 else 0)


def test_an_ordinary_communicator_knows_no_broken_site():
    assert not hasattr(Communicator, "broken") and not BrokenCommunicator.broken
