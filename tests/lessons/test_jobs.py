"""A lesson's jobs: real processes with their output and exit code, and none from inside an MPI job."""
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from minitp.launcher.mpiexec import Mpiexec
from minitp.lesson import jobs
from tests.until import until

TRACEBACK = """{rank}Traceback (most recent call last):
{rank}  File "trouble.py", line 14, in <module>
{rank}    main()
{rank}  File "/somewhere/minitp/launcher/world.py", line 118, in launch
{rank}    return run_in_mpi(fn)
{rank}           ^^^^^^^^^^^^^^
{rank}  File "<frozen runpy>", line 1, in run
{rank}  File "trouble.py", line 10, in main
{rank}    raise ValueError("no")
{rank}ValueError: no
"""


@pytest.mark.parametrize("rank", ["", "rank 1: "])
def test_of_a_traceback_the_reader_s_own_frames_are_kept(rank):
    shown = jobs.own_frames(TRACEBACK.format(rank=rank)).splitlines()
    kept = [0, 1, 2, 7, 8, 9]
    assert shown == [TRACEBACK.format(rank=rank).splitlines()[n] for n in kept]


def test_a_job_has_its_output_and_exit_code_and_no_launcher_s_variables(monkeypatch, capsys):
    monkeypatch.setenv("HYDI_CONTROL_FD", "3")
    script = ("import os, sys, minitp\nprint(sys.argv[1], os.environ['MINE'], 'HYDI_CONTROL_FD' in os.environ)\n"
              "print('ä', file=sys.stderr)\nsys.exit(7)\n")
    job = jobs.start(script, "python", "trouble.py", "word", environment={"MINE": "5"})
    assert job.ended() == jobs.Ended(7, "word 5 False\n", "ä\n")
    job.tell()
    assert capsys.readouterr().out == "$ MINE=5 python trouble.py word\nword 5 False\nä\n[exit code 7]\n"


def test_a_job_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(jobs, "SECONDS", 0.1)
    ended = jobs.start("import time; time.sleep(60)", "python", "trouble.py").ended()
    assert ended is not None and ended.code != 0


def test_what_does_not_hear_is_killed_with_its_children(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "SECONDS", 0.1)
    monkeypatch.setattr(jobs, "GRACE", 0.1)
    script = ("import pathlib, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "subprocess.Popen(['sleep', '300'])\nprint('deaf', flush=True)\npathlib.Path(sys.argv[1]).touch()\n"
              "time.sleep(300)\n")
    began, deaf = time.monotonic(), tmp_path / "deaf"
    job = jobs.start(script, "python", "trouble.py", str(deaf))
    until(deaf.exists)
    assert job.ended() == jobs.Ended(-signal.SIGKILL, "deaf\n", "")
    assert time.monotonic() - began < 200


def test_under_mpirun_nothing_is_started(monkeypatch, capsys):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setattr(jobs.subprocess, "Popen", None)
    job = jobs.start("", "minitp", "run", "trouble.py")
    assert job.ended() is None
    job.tell()
    assert "left out: mpirun" in capsys.readouterr().out


def test_a_job_that_needs_mpi_is_left_out_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setattr(jobs, "no_mpi", lambda: "mpi4py is not installed")
    job = jobs.start("print(1)", "python", "trouble.py", needs_mpi=True)
    job.tell()
    assert job.ended() is None and "(left out: mpi4py is not installed; pip install" in capsys.readouterr().out
    assert jobs.start("print(1)", "python", "trouble.py").ended().out == "1\n"


def test_a_notebook_starts_the_script_beside_it_and_shows_its_first_lines(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "in_notebook", lambda: True)
    monkeypatch.setattr(jobs, "no_mpi", lambda: None)
    (tmp_path / "one.py").write_text("print(1)\nprint(2)\nprint(3)\n")
    (tmp_path / "trouble.py").write_text("1 / 0")                         # what else is there stays there
    job = jobs.start_twin("one.py", "python", "one.py")
    job.tell(first=1)
    job.tell(first=3)
    assert capsys.readouterr().out == ("$ python one.py\n1\n… and 2 more lines\n[exit code 0]\n"
                                       "$ python one.py\n1\n2\n3\n[exit code 0]\n")


@pytest.mark.parametrize("why, notebook, mpi", [
    ("one.py itself", False, None), ("no one.py beside this notebook", True, None), ("no mpi4py", True, "no mpi4py")])
def test_where_there_is_nothing_to_start_a_notebook_s_script_is_left_out(monkeypatch, tmp_path, why, notebook, mpi):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "in_notebook", lambda: notebook)
    monkeypatch.setattr(jobs, "no_mpi", lambda: mpi)
    if mpi:
        (tmp_path / "one.py").write_text("print(1)")
    job = jobs.start_twin("one.py", "python", "one.py")
    assert job.ended() is None and why in job.left_out


@pytest.mark.parametrize("codes", [(0, 2), (1, 0)])
def test_lesson_01_goes_on_where_its_processes_failed(monkeypatch, codes):
    """As with an mpi4py that finds no MPI library."""
    ended = iter([jobs.Ended(code, "line\n" * (not code), "") for code in codes])

    def started(*_):
        here = next(ended)
        return SimpleNamespace(tell=lambda first: None, ended=lambda: here)

    monkeypatch.setattr(jobs, "start_twin", started)
    script = Path(__file__).parents[2] / "lessons" / "01_states_and_collectives.py"
    (cell,) = [cell for cell in script.read_text("utf-8").split("# %%") if "start_twin" in cell]
    exec(cell, {"guess": None})


@pytest.mark.parametrize("kind, name", [("mpich", "OMPI_COMM_WORLD_SIZE"), ("intel", "OMPI_COMM_WORLD_SIZE"),
                                        ("openmpi", "PMI_SIZE")])
def test_a_foreign_launcher_is_another_s(monkeypatch, kind, name):
    monkeypatch.setattr(jobs, "find_mpiexec", lambda: Mpiexec(sys.executable, kind))
    assert jobs.foreign_launcher(1, 3)[name] == "3" and "1" in jobs.foreign_launcher(1, 3).values()
