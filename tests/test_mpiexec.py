"""Finding and driving mpiexec, without starting a job: commands, environment, output, verdicts, refusals."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minitp import environment
from minitp.errors import LaunchError
from minitp.launcher import mpiexec, scripts
from minitp.launcher.mpiexec import Mpiexec, find_mpiexec, kind_of
from minitp.launcher.output import Demultiplexer, JobOutput, Notices
from minitp.launcher.scripts import relaunch, run_script
from minitp.launcher.telling import name_ranks, positions
from minitp.launcher.verdict import verdict

ROOT = Path(__file__).parents[1]
LAUNCHERS = [{"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"},
             {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
             {"PMIX_RANK": "2", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2"}]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in [name for variables in LAUNCHERS for name in variables] + list(environment.THREAD_VARIABLES):
        monkeypatch.delenv(name, raising=False)


def python(code, **variables):
    """Run `code` in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)} | variables)


# --- before anything heavy is imported ----------------------------------------------------------------------------

def test_the_launcher_imports_neither_numpy_nor_mpi():
    run = python("import sys, minitp.launcher, minitp.launcher.processes, minitp.environment\n"
                 "print([name for name in ('numpy', 'mpi4py', 'threadpoolctl', 'rich') if name in sys.modules])")
    assert run.stdout == "[]\n", run.stderr


WITHOUT_MPI4PY = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "mpi4py":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "mpi4py" else find_spec(name, *rest)
import minitp, minitp.launcher
from minitp.errors import LaunchError
"""


def test_without_mpi4py_threads_work_and_mpi_says_what_to_install():
    run = python(WITHOUT_MPI4PY + """
print(minitp.launch(lambda group: group.size, ranks=2))
print(minitp.launcher.relaunch(["x", "--ranks", "3"], 3))
for start in (lambda: minitp.launcher.relaunch(["x"], 3, "mpi"), lambda: minitp.launch(print, world="mpi")):
    try:
        start()
    except LaunchError as error:
        print(error)
""")
    assert run.stderr == ("minitp: mpi4py is not installed, so the 3 ranks are threads of this process; "
                          "pip install 'minitp[mpi]' for processes\n")
    sizes, onward, *refusals = run.stdout.splitlines()
    assert (sizes, onward, len(refusals)) == ("[2, 2]", "None", 2)
    assert all("pip install 'minitp[mpi]'" in refusal and "--world threads" in refusal for refusal in refusals)


@pytest.mark.parametrize("variables", LAUNCHERS)
def test_what_a_launcher_announces(variables, monkeypatch):
    assert environment.launcher_environment() is None and environment.is_first_rank()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.launcher_environment() == (2, 4, 2) and not environment.is_first_rank()


def test_blas_threads_are_capped_unless_the_user_set_them(monkeypatch):
    monkeypatch.setattr(environment, "cores", lambda: 8)
    fresh: dict[str, str] = {}
    assert environment.set_for_ranks(4, fresh) == "4 ranks on 8 cores: 2 BLAS threads each"
    assert set(fresh.values()) == {"2"} and set(fresh) == set(environment.THREAD_VARIABLES)
    crowded: dict[str, str] = {}
    assert "waiting ranks yield" in environment.set_for_ranks(9, crowded)
    assert crowded["OPENBLAS_NUM_THREADS"] == crowded["MPIR_CVAR_ENABLE_HEAVY_YIELD"] == "1"
    chosen = {"OMP_NUM_THREADS": "4"}
    assert "OMP_NUM_THREADS=4 is kept as you set it" in environment.set_for_ranks(4, chosen)
    assert chosen == {"OMP_NUM_THREADS": "4"}
    assert environment.set_for_ranks(1, {}) == ""


@pytest.mark.parametrize("numpy_first", [False, True])
def test_under_a_launcher_the_threads_are_settled_and_said_once(numpy_first):
    code = ("import numpy\n" * numpy_first + "from minitp.environment import settle_blas_threads as settle\n"
            "settle(); settle()\nimport numpy, threadpoolctl\n"
            "print([pool['num_threads'] for pool in threadpoolctl.threadpool_info()])")
    first = python(code, PMI_RANK="0", PMI_SIZE="64", MPI_LOCALNRANKS="64")
    assert first.stdout == "[1]\n" and first.stderr.count("64 ranks on ") == 1
    assert python(code, PMI_RANK="1", PMI_SIZE="64", MPI_LOCALNRANKS="64").stderr == ""


# --- the command --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("kind", "root", "flags"), [
    ("openmpi", True, ["--oversubscribe", "--allow-run-as-root"]), ("openmpi", False, ["--oversubscribe"]),
    ("mpich", True, ["-print-all-exitcodes", "-prepend-pattern", "<%r>"]), ("intel", True, []), ("unknown", True, [])])
def test_the_flags_that_each_mpi_needs(kind, root, flags):
    command = Mpiexec("/bin/mpiexec", kind).command(4, ["python", "x.py"], "<%r>", root)
    assert command == ["/bin/mpiexec", *flags, "-n", "4", "python", "x.py"]


@pytest.mark.parametrize(("printed", "kind"), [
    ("HYDRA build details:\n    Version: 5.0.2", "mpich"), ("mpiexec (Open MPI) 5.0.11", "openmpi"),
    ("mpirun (OpenRTE) 2.1.1", "openmpi"), ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "intel"),
    ("MPICH Version:      5.0.2", "mpich"), ("srun 23", "unknown")])
def test_whose_mpiexec_it_is(printed, kind):
    assert kind_of(printed) == kind


def fake_mpiexec(folder, version):
    folder.mkdir()
    path = folder / "mpiexec"
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    return path


def test_an_mpiexec_from_the_path_must_fit_the_library(tmp_path, monkeypatch):
    path = fake_mpiexec(tmp_path / "bin", "mpiexec (Open MPI) 5.0.11")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    monkeypatch.setattr(mpiexec, "beside_python", lambda: None)
    monkeypatch.setattr(mpiexec, "find_spec", lambda name: name)
    monkeypatch.setattr(mpiexec, "_library", lambda: "mpich")
    with pytest.raises(LaunchError, match=r"is openmpi's, but mpi4py here uses mpich.*rank 0 of 1"):
        find_mpiexec()
    monkeypatch.setattr(mpiexec, "_library", lambda: "openmpi")
    assert find_mpiexec() == Mpiexec(str(path), "openmpi")


def test_no_mpiexec(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mpiexec, "beside_python", lambda: None)
    monkeypatch.setattr(mpiexec, "find_spec", lambda name: name)
    with pytest.raises(LaunchError, match="no mpiexec, neither beside this Python nor on the PATH"):
        find_mpiexec()
    assert relaunch(["generate"], 3) is None
    assert "so the 3 ranks are threads" in capsys.readouterr().err


# --- relaunching --------------------------------------------------------------------------------------------------

def test_relaunch_starts_processes_or_lets_threads_go_on(monkeypatch):
    started = []
    monkeypatch.setattr(scripts, "no_mpi", lambda: None)
    monkeypatch.setattr(scripts, "run_job", lambda program, ranks, **options: started.append((program, ranks)) or 7)
    assert relaunch(["generate", "--ranks", "3", "x"], 3, timeout=60) == 7
    assert started == [(["-m", "minitp", "generate", "--ranks", "3", "x"], 3)]
    assert relaunch(["generate", "--ranks", "1"], 1, "mpi") == 7
    for ranks, world in ((3, "threads"), (None, "auto"), (1, "auto")):
        assert relaunch(["generate"], ranks, world) is None


def test_a_rank_whose_launcher_announces_nothing_starts_no_job_of_its_own(monkeypatch):
    """It would be the first of ever more processes."""
    monkeypatch.setattr(scripts, "no_mpi", lambda: None)
    monkeypatch.setattr(scripts, "run_job", lambda *_, **__: pytest.fail("a job was started"))
    monkeypatch.setenv("MINITP_JOB", "1234")
    with pytest.raises(LaunchError, match="doesn't announce rank and size"):
        relaunch(["generate", "-n", "3"], 3)


def test_relaunch_under_a_launcher(monkeypatch):
    for name, value in LAUNCHERS[0].items():
        monkeypatch.setenv(name, value)
    assert relaunch(["generate"], None) is relaunch(["generate"], 4) is None
    with pytest.raises(LaunchError, match=r"--ranks 3 was asked for.*started 4 processes.*mpirun -n 3"):
        relaunch(["generate"], 3)
    with pytest.raises(LaunchError, match="each of its 4 processes would run all ranks"):
        relaunch(["generate"], 4, "threads")
    with pytest.raises(LaunchError, match="has started it already"):
        run_script(__file__, ranks=2)


@pytest.mark.parametrize(("path", "ranks", "why"), [
    ("/no/such.py", 2, "there is no script"), ("--trace", 2, "no option --trace"), (__file__, 0, "at least 1 rank")])
def test_scripts_that_can_not_be_run(path, ranks, why):
    with pytest.raises(LaunchError, match=why):
        run_script(path, ranks=ranks)


# --- the output ---------------------------------------------------------------------------------------------------

def demultiplexed(*pieces, tag="<%r>"):
    """What is passed on after each piece, and the job's notes."""
    written, job = [], JobOutput()
    stream = Demultiplexer(written.append, job, tag)
    after = []
    for piece in pieces:
        stream.feed(piece)
        after.append(b"".join(written).decode())
    stream.close()
    return [*after, b"".join(written).decode()], job


def test_rank_0_streams_and_others_come_in_whole_lines():
    seen, _ = demultiplexed(b"<0>to ", b"<1>li", b"<0>be<1>ne 1\n", b"<0> or\n<0>not", b"<1>end")
    grown = "to be or\n[rank 1] line 1\nnot"
    assert seen == ["to ", "to ", "to be", grown, grown, grown + "\n[rank 1] end\n"]


def test_a_tag_cut_in_two_and_text_that_looks_like_one():
    seen, _ = demultiplexed(b"<0>a <b\n<", b"1>x\n", b"<1", b"2>y\n")
    assert seen[0] == "a <b\n" and seen[-1] == "a <b\n[rank 1] x\n[rank 12] y\n"


def test_what_mpiexec_says_is_kept_back_and_marks_are_read():
    text = (b"<1>\x1eminitp pid 1 77\x1f\n<1>\x1eminitp speaks\x1f\n<1>rank 1: boo\n<1>\x1eminitp told 2\x1f\n"
            b"<1>after\n\n====\n=   BAD TERMINATION\n")
    for size in (1, 7, len(text)):
        seen, job = demultiplexed(*[text[at:at + size] for at in range(0, len(text), size)])
        assert seen[-1] == "rank 1: boo\n[rank 1] after\n"
        assert (job.told, job.pids, job.launcher) == (2, {1: 77}, ["", "====", "=   BAD TERMINATION"])


def test_the_statuses_of_ranks_come_into_the_middle_of_a_line():
    """As a text that grows token by token has one at any time."""
    statuses = b"[mpiexec@vm] Exit codes: [vm] 0,1792\n"
    for pieces in ([b"<0>The capi", statuses], [b"<0>The capi" + statuses]):
        seen, job = demultiplexed(*pieces)
        assert seen[-1] == "The capi" and verdict(7, job.launcher) == (
            7, "minitp: error: rank 1 ended with exit code 7")


def test_without_tags_everything_passes():
    seen, job = demultiplexed(b"a", b"b\n\x1eminitp told 1\x1f\nc", tag="")
    assert seen[0] == "a" and seen[-1] == "ab\nc" and job.told == 1


def test_notices_of_open_mpi_are_kept_back_and_a_scripts_own_rules_are_not():
    written, job, rule = [], JobOutput(), b"-" * 74 + b"\n"
    notices = Notices(written.append, job)
    notice, own = rule + b"prterun noticed that\nsignal 9\n" + rule, rule + b"a table\n" + rule
    for piece in (b"before\n" + notice[:90], notice[90:], own, rule + b"end"):
        notices(piece)
    notices.close()
    assert b"".join(written) == b"before\n" + own + rule + b"end"
    assert job.launcher[1:3] == ["prterun noticed that", "signal 9"]


# --- the verdict --------------------------------------------------------------------------------------------------

KILLED = ["YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"]


@pytest.mark.parametrize(("code", "launcher", "verdict_code", "words"), [
    (9, ["[mpiexec@vm] Exit codes: [vm] 0,9,1792,9", *KILLED], 7, "rank 2 ended with exit code 7"),
    (9, ["[mpiexec@vm] Exit codes: [vm] 0,0,9", *KILLED], 137, "rank 2 was killed by signal 9 (SIGKILL)"),
    (9, ["[mpiexec@vm] Exit codes: [vm] 9,0,9", *KILLED], 137, "one of ranks 0 and 2 was killed by signal 9"),
    (9, KILLED, 137, "a rank was killed by signal 9"),
    (11, ["[mpiexec@vm] Exit codes: [vm] 9,11", *KILLED], 139, "rank 1 was killed by signal 11 (SIGSEGV): a crash"),
    (137, ["process rank 2 with PID 131 on node vm exited on", "signal 9 (Killed)."], 137, "rank 2 was killed"),
    (7, ["   Process name: [prterun-vm-112@1,2]", "   Exit code:    7"], 7, "rank 2 ended with exit code 7"),
    (-9, [], 137, "mpiexec was killed by signal 9 (SIGKILL)"),
    (255, ["", "mpiexec: no such host"], 255, "mpiexec: no such host\nminitp: error: the job ended with exit code")])
def test_verdicts(code, launcher, verdict_code, words):
    got, told = verdict(code, launcher)
    assert got == verdict_code and words in told and "minitp: error: " in told


def test_ranks_and_positions_in_words():
    assert [name_ranks(ranks) for ranks in ([2], [0, 3], [0, 1, 2], [0, 1, 3])] == [
        "rank 2", "ranks 0 and 3", "ranks 0-2", "ranks 0, 1 and 3"]
    assert positions({1: "a", 0: "b", 2: "a"}) == "  rank 0: b\n  ranks 1 and 2: a"
