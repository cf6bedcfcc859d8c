"""The test suite's own worlds: results come back whole, a failure on one rank ends all and shows, nothing hangs."""
import numpy as np
import pytest

from tests.mpi_world import RanksFailedError, World, run_threads, worlds


def told(comm, words):
    """Nested data and arrays of several kinds, different on each rank."""
    return {"rank": comm.rank, "size": comm.size, "world": comm.transport.world, "words": (words, None, 1.5),
            "arrays": [np.arange(comm.rank), np.full((2, 0), 1j), np.array(comm.rank, np.float32)]}


def fails_on_one(comm):
    if comm.rank == 1:
        raise ValueError("the second rank fails")
    comm.barrier(site="end", reason="wait for a rank that won't come")


def waits_for_ever(comm):
    if comm.rank == 0:
        comm.barrier(site="lonely", reason="the others never come")


@pytest.mark.parametrize("world", worlds(threads=(1, 3), mpi=(3,)))
def test_results_come_back_by_rank(world):
    results = world(told, words="yes")
    assert [r["rank"] for r in results] == list(range(world.n))
    for rank, result in enumerate(results):
        assert result["size"] == world.n and result["world"] == world.kind and result["words"] == ["yes", None, 1.5]
        empty, none, scalar = result["arrays"]
        assert empty.tolist() == list(range(rank)) and none.shape == (2, 0) and none.dtype == np.complex128
        assert scalar.shape == () and scalar.dtype == np.float32 and scalar == rank


def test_a_thread_that_fails_ends_all():
    with pytest.raises(ValueError, match="the second rank fails") as caught:
        run_threads(fails_on_one, 3)
    assert caught.value.__notes__ == ["on rank 1 of 3"]


@pytest.mark.mpi
def test_a_process_that_fails_ends_all(mpi):
    with pytest.raises(RanksFailedError, match=r"(?s)rank 1 of 3:\nTraceback.*the second rank fails"):
        mpi(3, "tests.test_mpi_world:fails_on_one")


@pytest.mark.mpi
def test_processes_that_hang_show_where():
    with pytest.raises(RanksFailedError, match=r"(?s)rank 0 when half the time was up:.*in waits_for_ever"):
        World("mpi", 2)(waits_for_ever, seconds=1)


def test_shapes_are_checked_in_the_whole_suite():
    """Otherwise every annotation in minitp is prose here, and a wrong one stays unseen."""
    from minitp.cut import Cut
    from minitp.layers.norm import _mean
    with pytest.raises(TypeError, match="violates type hint"):
        Cut(4, 2).of("first")
    with pytest.raises(TypeError, match="violates type hint"):
        Cut("four", 2)
    with pytest.raises(TypeError, match="Type-check error"):
        _mean(np.ones((2, 3)))
