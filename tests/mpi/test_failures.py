"""However a job of MPI processes fails: it ends at once, tells the cause once, exits with another code than 0.

The hard cases of group B: B01 one rank raises, B02 what only the root does, B03 `plain` (mpirun python, no runner), B04
another MPI's mpirun, B05 another number of ranks, B23 signals, B24 whole lines. Elsewhere: B07, B09, B13 in
tests/comm/test_collectives.py, B12 and B26 in test_checked.py, B21 and B25 in tests/test_mpiexec.py, B17 in tests/gpu.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from minitp.trace.file import Trace

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.mpi

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("failing.py")
SOON = 60                                        # seconds; what hangs instead is ended by mpiexec, much later
ENV = os.environ | {"PYTHONPATH": str(ROOT), "MPIEXEC_TIMEOUT": "120"}
RUN = ("import sys; from minitp.launcher import reported, run_script\n"
       "with reported(): sys.exit(run_script(sys.argv[2], sys.argv[3:], int(sys.argv[1]), 'mpi'))")
CLOCKS = 2                             # broadcasts in which the ranks are told how far clocks differ, where traced
CROWDED = re.compile(r"minitp: \d+ ranks on \d+ cores?: ")
NOISE = ("BAD TERMINATION", "MPI_Abort", "Abort(", "assert (")


def command(ranks, script, *args, plain=False):
    """`minitp run -n …`, or plain `mpirun -n … python script.py`."""
    if plain:
        mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
        return [mpiexec, "-n", str(ranks), sys.executable, str(script), *args]
    return [sys.executable, "-c", RUN, str(ranks), str(script), *args]


def left(mark):
    """The processes whose command line holds `mark`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if mark.encode() in words:
            found.append(words)
    return found


def nothing_left(mark):
    end = time.monotonic() + SOON
    while left(mark) and time.monotonic() < end:
        time.sleep(0.02)
    return left(mark) == []


class Ended:
    """A job that has failed: exit code, output, and the assurance that nothing of it is left."""

    def __init__(self, way, *args, ranks=3, plain=False):
        mark, began = uuid4().hex, time.monotonic()
        run = subprocess.run(command(ranks, SCRIPT, way, mark, *args, plain=plain), env=ENV, capture_output=True,
                             text=True, timeout=180, check=False)
        assert time.monotonic() - began < SOON
        assert nothing_left(mark)
        self.code, self.out = run.returncode, run.stdout
        lines = run.stderr.splitlines()
        assert not [line for line in lines if any(noise in line for noise in NOISE)]
        assert not any(noise in run.stdout for noise in NOISE)
        assert [line for line in lines[:1] if "BLAS thread" in line or "yield" in line] or os.cpu_count() > ranks
        self.lines = [line for line in lines if not CROWDED.match(line)]
        self.told = "\n".join(self.lines)


def rescued(ended, file):
    """The trace of a job that has failed, as its last line says; that line is taken away."""
    assert ended.lines.pop().endswith(f"minitp: the trace up to there is in {file}")
    trace = Trace.read(file)
    first = [event for event in trace if event.plane == "data"]
    assert [(event.rank, event.site) for event in first] == [(rank, "layers.0.mlp.down") for rank in range(3)]
    assert trace.run["world"] == "mpi" and trace.run["cores"] and len(trace.clock["offset_ns"]) == 3
    return trace


@pytest.mark.parametrize("plain", [False, True])
def test_one_rank_raises_while_others_wait(tmp_path, plain):
    file = tmp_path / "up to there.json"
    ended = Ended("one_raises", *([] if plain else [str(file)]), plain=plain)
    assert ended.code == 1
    if not plain:
        trace = rescued(ended, file)
        assert trace.run["failed"].startswith("ZeroDivisionError: boo; after all_reduce(3 float64) at")
        assert [(call.rank, call.op, call.site) for call in trace.unfinished_rows()] == [
            (rank, "all_reduce", "layers.0.mlp.down") for rank in (0, 2)]
        assert ended.lines[-1].endswith(f"call {CLOCKS}")
        ended.lines[-1] = ended.lines[-1].replace(f"call {CLOCKS}", "call 0")
        ended.told = "\n".join(ended.lines)
    assert ended.told.count("Traceback") == 1 and ended.told.count("ZeroDivisionError: boo") == 1
    assert all(line.startswith("rank 1: ") for line in ended.lines)
    assert ended.lines[-1] == "rank 1: after all_reduce(3 float64) at layers.0.mlp.down, call 0"


def test_one_rank_meets_a_users_error():
    ended = Ended("one_user_error")
    assert ended.code == 2
    assert ended.lines == ["minitp: error: rank 1 can't",
                           "  after all_reduce(3 float64) at layers.0.mlp.down, call 0", "  on rank 1"]


@pytest.mark.parametrize("plain", [False, True])
def test_all_ranks_meet_the_same_error(plain):
    ended = Ended("all_raise", ranks=4, plain=plain)
    assert ended.code == 2
    assert ended.lines == ["minitp: error: 52 heads can't be cut over 8"]


def test_different_errors_are_told_once_each():
    ended = Ended("each_its_own", ranks=4)
    assert ended.code == 1
    for first, half in ((0, 0), (2, 1)):
        assert ended.lines.count(f"rank {first}: ValueError: half {half}") == 1
        assert ended.lines.count(f"rank {first}: (the same error on ranks {first} and {first + 1})") == 1
    assert ended.told.count("Traceback") == 2


def test_what_only_the_root_does_fails_on_all():
    ended = Ended("root_only")
    assert ended.code == 1 and ended.told.count("Traceback") == 1
    assert "rank 0: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'" in ended.lines
    assert ended.lines[-1] == "rank 0: (the same error on ranks 0-2)"


def test_a_rank_killed():
    ended = Ended("killed")
    assert ended.code == 137 and len(ended.lines) == 1
    assert "was killed by signal 9 (SIGKILL)" in ended.told and "1" in ended.told.split("was")[0]


def test_a_rank_that_leaves_without_a_word():
    ended = Ended("leaves")
    assert (ended.code, ended.lines) == (7, ["minitp: error: rank 1 ended with exit code 7"])


def test_sys_exit_on_one_rank():
    ended = Ended("sys_exit")
    assert (ended.code, ended.lines) == (5, [])


@pytest.mark.parametrize(("way", "where", "plain"), [
    ("never_comes", "computing; its last call was all_reduce(3 float64) at layers.0.mlp.down, call 0", True),
    ("returns_early", "has returned", False)])
def test_deadline_of_a_collective(tmp_path, way, where, plain):
    file = tmp_path / "trace.json"
    ended = Ended(way, str(file), plain=plain)
    number = 1 + CLOCKS
    waiting = f"all_reduce(3 float64) at layers.0.mlp.down, call {number}"
    where = where.replace("call 0", f"call {number - 1}")
    trace = rescued(ended, file)
    calls = trace.unfinished_rows()
    assert [(call.rank, call.sequence) for call in calls] == [(0, number), (2, number)]
    assert all(call.leave - call.enter > 1e9 for call in calls)
    assert trace.run["failed"].startswith("not every rank came within 1 s")
    assert ended.code == 2
    assert ended.lines == [f"minitp: error: not every rank came within 1 s to {waiting}",
                           f"  ranks 0 and 2: waiting in {waiting}", f"  rank 1: {where}"]


def test_a_rank_that_has_returned_does_not_answer_a_barrier():
    ended = Ended("returns_before_a_barrier")
    assert ended.code == 2 and "not every rank came within 1 s to barrier" in ended.lines[0]
    assert "  rank 1: has returned" in ended.lines


def test_deadline_of_the_run():
    ended = Ended("goes_on", "run_deadline", plain=True)
    assert ended.code == 124
    assert ended.lines[0] == "minitp: error: the run has taken longer than its 1 s"
    assert "rank 0" in ended.told or "ranks 0" in ended.told


@pytest.mark.parametrize("plain", [False, True])
def test_another_number_of_ranks(plain):
    ended = Ended("goes_on", "four", plain=plain)
    assert ended.code == 2
    assert ended.lines[0].startswith("minitp: error: this run needs 4 ranks, got 3. Start it as `minitp run -n 4 ")
    assert len(ended.lines) == 1


@pytest.mark.parametrize(("rank", "told"), [(0, 1), (2, 0)])
@pytest.mark.parametrize(("names", "said"), [
    (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "belongs to openmpi"),    # before MPI starts: it would abort
    (("PMI_RANK", "PMI_SIZE"), "rank 0 of 1")])                                  # after: nothing shows it before
def test_an_mpirun_of_another_mpi_is_refused(rank, told, names, said):
    run = subprocess.run([sys.executable, str(SCRIPT), "goes_on", "-"], capture_output=True, text=True, timeout=60,
                         check=False, env=ENV | {names[0]: str(rank), names[1]: "4"})
    assert run.returncode == 2
    refusals = [line for line in run.stderr.splitlines() if line.startswith("minitp: error: ")]
    assert len(refusals) == told and "Traceback" not in run.stderr and "Warning" not in run.stderr
    assert all("the launcher started 4 processes" in line and said in line for line in refusals)


@pytest.mark.parametrize(("signals", "code", "told", "plain"), [
    ([signal.SIGINT], 130, ["minitp: stopped by Ctrl-C"], False),
    ([signal.SIGINT, signal.SIGINT], 130, ["minitp: stopped by Ctrl-C"], False),
    ([signal.SIGTERM], 143, ["minitp: stopped by SIGTERM"], False),
    ([signal.SIGKILL], -9, [], False),
    ([signal.SIGINT], None, None, True)])
def test_signals_to_the_launcher(signals, code, told, plain):
    mark = uuid4().hex
    process = subprocess.Popen(command(3, SCRIPT, "goes_on", mark, plain=plain), env=ENV, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "working\n"
    assert len(left(mark)) >= 4                  # the search finds what it looks for
    began = time.monotonic()
    for number in signals:
        process.send_signal(number)
    _, errors = process.communicate(timeout=SOON)
    assert nothing_left(mark) and time.monotonic() - began < SOON
    if plain:
        assert process.returncode != 0
    else:
        assert process.returncode == code
        assert [line for line in errors.splitlines() if not CROWDED.match(line)] == told


def test_a_script_of_plain_mpi4py(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text("from mpi4py import MPI\ncomm = MPI.COMM_WORLD\nassert comm.rank != 1, 'rank one'\n"
                      "comm.Barrier()\n")
    run = subprocess.run(command(3, script), env=ENV, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in run.stderr.splitlines() if not CROWDED.match(line)]
    assert run.returncode == 1 and lines[-1] == "rank 1: AssertionError: rank one"
    assert lines[1] == f'rank 1:   File "{script}", line 3, in <module>'            # nothing of minitp's own frames


def test_lines_of_several_ranks_stay_whole_and_rank_0_streams(tmp_path):
    script, seen_it = tmp_path / "talk.py", tmp_path / "seen"
    script.write_text("import pathlib, sys, time\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
                      "for i in range(100): print(str(rank) * 9000)\n"
                      "MPI.COMM_WORLD.Barrier()\n"
                      "if rank == 0:\n"
                      "    print('to be', end='', flush=True)\n"
                      "    while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
                      "    print(' or')\n")
    process = subprocess.Popen(command(4, script, str(seen_it)), env=ENV, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    seen = b""
    while b"to be" not in seen:                   # the line has begun and doesn't end yet
        piece = os.read(process.stdout.fileno(), 1 << 16)
        assert piece
        seen += piece
    assert b" or" not in seen
    seen_it.touch()
    seen += process.communicate(timeout=SOON)[0]
    assert process.returncode == 0
    expected = [b"0" * 9000] * 100 + [b"[rank %d] " % r + b"%d" % r * 9000 for r in (1, 2, 3) for _ in range(100)]
    assert sorted(seen.split(b"\n")[:-1]) == sorted([*expected, b"to be or"])
