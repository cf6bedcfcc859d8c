"""The scripts beside the notebooks on other numbers of ranks, as threads and as processes; and read by who leaves."""
import subprocess
import sys

import pytest

from minitp.launcher import run_script
from tests.lessons.notebooks import LESSONS, scripts
from tests.lessons.test_mpi_scripts import mpirun

SCRIPTS = [pytest.param(script, id=script.stem) for script in scripts()]
FIRST = LESSONS / "01_states_and_collectives.py"


def on_threads(script, ranks):
    command = [sys.executable, "-m", "minitp", "run", "-n", str(ranks), "--world", "threads", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ranks", [1, 5])
def test_the_first_lesson_runs_on_any_number_of_threads(ranks, capsys):
    assert run_script(str(FIRST), ranks=ranks, world="threads") == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_twin_runs_on_another_number_of_threads(script):
    on_threads(script, 5)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 5])
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_twin_runs_on_any_number_of_processes(script, ranks):
    done = mpirun(ranks, script)
    assert done.returncode == 0, done.stderr


def test_a_twin_whose_reader_leaves_ends_silently():
    with subprocess.Popen([sys.executable, str(FIRST)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode < 0                                   # by the signal, as `cat` would
