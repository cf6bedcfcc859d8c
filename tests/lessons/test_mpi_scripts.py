"""The mpirun scripts: on 2, 3 and 4 ranks each ends well, prints what its header says, and can fail."""
import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minitp.launcher import run_script

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "lessons" / "mpi").glob("[1-8]_*.py"))
WITH_MINITP = ROOT / "lessons" / "mpi" / "9_column_then_row_with_minitp.py"
COMMAND = re.compile(r"# mpirun -n (\d) python (?:-m mpi4py )?lessons/mpi/(\S+\.py)")

# One mistake per script that a student might make. Each must end the run on all ranks, through the script's assertion.
MISTAKES = {
    "1_scatter_the_weights": ("counts = np.diff(bounds) * D", "counts = (np.diff(bounds) * D)[::-1].copy()"),
    "2_column_cut_all_gather": ("[y, np.diff(bounds)]", "[y, (np.diff(bounds), bounds[p - 1::-1])]"),
    "3_row_cut_all_reduce": ("MPI.SUM", "MPI.MAX"),
    "4_column_then_row_one_sync": ("comm.Allreduce(y_p, y, MPI.SUM)", "y = y_p"),
    "5_the_wrong_way_two_syncs": ("comm.Allreduce(h_p, h, MPI.SUM)", "h = h_p"),
    "6_heads_summed": ("W_o[:, h * E:(h + 1) * E]", "W_o[:, :E]"),
    "7_embedding_cut_both_ways": ("np.ascontiguousarray(piece.T)", "np.ascontiguousarray(piece)"),
    "8_bias_added_p_times": ("right += b", "right += p * b"),
}


def mpirun(ranks, script):
    """Run a script as its header says, with the mpiexec beside this Python: users don't always activate the venv."""
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    assert mpiexec, "no mpiexec beside this Python or on the PATH: pip install mpich"
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPIEXEC_TIMEOUT": "120"}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if ranks > cores:
        env["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"   # else a waiting rank keeps the core from the one it waits for
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", str(script)]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=130)


def header(script):
    """The documented rank count, the file named in the command, and the expected output's lines."""
    command, *lines = script.read_text(encoding="utf-8").splitlines()
    ranks, name = COMMAND.fullmatch(command).groups()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return int(ranks), name, [line.removeprefix("# ") for line in lines[:end]]


def test_there_are_eight():
    assert [script.stem for script in SCRIPTS] == sorted(MISTAKES)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_short_and_self_contained(script):
    text = script.read_text(encoding="utf-8")
    lines, nodes = text.splitlines(), list(ast.walk(ast.parse(text)))
    assert len(lines) <= 35
    assert max(map(len, lines)) <= 110
    assert sum(isinstance(node, ast.Assert) for node in nodes) == 1
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom)} == {"numpy", "mpi4py"}
    ranks, name, expected = header(script)
    assert (ranks, name) == (3, script.name)
    assert expected


@pytest.mark.mpi
@pytest.mark.parametrize("script, ranks", [
    pytest.param(script, ranks, id=f"{script.stem}-{ranks}",
                 marks=[] if ranks == 3 or script.stem[0] in "49" else pytest.mark.slow)
    for script in [*SCRIPTS, WITH_MINITP] for ranks in (2, 3, 4)])
def test_runs(script, ranks):
    run = mpirun(ranks, script)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    documented, _, expected = header(script)
    if ranks == documented:
        assert run.stdout.splitlines() == expected


@pytest.mark.mpi
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_mistake_fails_the_assertion_and_ends_all_ranks(script, tmp_path):
    right, wrong = MISTAKES[script.stem]
    text = script.read_text(encoding="utf-8")
    assert text.count(right) == 1
    broken = tmp_path / script.name
    broken.write_text(text.replace(right, wrong), encoding="utf-8")
    run = mpirun(3, broken)
    assert run.returncode != 0
    assert "AssertionError" in run.stderr
    assert "APPLICATION TIMED OUT" not in run.stdout + run.stderr   # a rank left waiting would end this way


def test_a_layer_of_ones_own_shows_its_trace(capsys):
    assert run_script(str(ROOT / "lessons" / "own_layer.py"), ranks=3, world="threads") == 0
    told = capsys.readouterr().out.splitlines()                     # ranks are threads: in no order
    assert sum(line.startswith("── forward ─") for line in told) == 1
    assert sum("partial ─all_reduce→ whole" in line for line in told) == 1
    assert {f"rank {rank}: |x| = {np.sqrt(385):.4f}" for rank in range(3)} < set(told) and len(told) == 5
