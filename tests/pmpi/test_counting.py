"""What is recorded is what happened: MPI's own calls, counted from outside, are the recorded events, one for one."""
from collections import Counter

import numpy as np
import pytest

from minitp.comm import Communicator
from tests.comm.conformance import CHECKS
from tests.comm.findings import Findings
from tests.pmpi.counting import MPI_CALL, calls_of


def every_collective(comm: Communicator) -> list[str]:
    """The whole conformance list; the ops it recorded."""
    for body in CHECKS.values():
        body(comm, Findings())
    return [event.op for event in comm.recorder.events]


def behind_the_recorders_back(comm: Communicator) -> list[str]:
    comm.transport.all_reduce(np.ones(3), in_place=False)
    comm.transport._comm.Allgather(np.ones(2), np.empty(2 * comm.size))
    if comm.rank == 0:
        comm.transport.send(np.ones(3), 1)
    elif comm.rank == 1:
        comm.transport.receive(np.empty(3), 0)
    return [event.op for event in comm.recorder.events]


@pytest.mark.mpi
def test_recorded_is_what_mpi_was_asked_for(mpi_counts):
    recorded, counted = mpi_counts(3, every_collective)
    assert {op for ops in recorded for op in ops} == set(MPI_CALL) - {"send", "receive"}
    for ops, calls in zip(recorded, counted, strict=True):
        assert calls == calls_of(ops)


@pytest.mark.mpi
def test_the_witness_sees_what_is_not_recorded(mpi_counts):
    """Otherwise its silence above would mean nothing."""
    recorded, counted = mpi_counts(2, behind_the_recorders_back)
    assert recorded == [[], []]
    assert counted == [Counter(Allreduce=1, Allgather=1, Send=1), Counter(Allreduce=1, Allgather=1, Recv=1)]
