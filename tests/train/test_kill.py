"""A few of the kill points; `python -m tests.train.kill_points` makes as many as wanted."""
import sys

import pytest

from tests.train.kill_points import Kills

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds a run's processes in /proc")


def kill(folder, world, ranks, points, seed):
    rows = [row for made in Kills(folder, seed, (world,), {world: ranks}).points(points) for row in made]
    assert sum(row["killed"] != "none" for row in rows) == points
    return rows


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_losses(tmp_path):
    rows = kill(tmp_path, "threads", (2,), 2, seed=13)           # while a checkpoint is written, and after a step
    assert any(row["in_checkpoint"] for row in rows)


@pytest.mark.slow
def test_on_other_ranks_too(tmp_path):
    kill(tmp_path, "threads", (1, 2, 3, 4), 12, seed=2)


@pytest.mark.mpi
@pytest.mark.slow
def test_processes_of_which_one_is_killed(tmp_path):
    kill(tmp_path, "mpi", (2, 3), 8, seed=3)
