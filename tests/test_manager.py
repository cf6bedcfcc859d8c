"""The run manager: one real run at a time, and nothing left of it, however it ends."""
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from minitp.commands.prompts import PromptSource, read_prompts
from minitp.errors import ConfigError, LaunchError
from minitp.launcher import manager as module
from minitp.launcher.child import ChildJob
from minitp.launcher.manager import LONGEST_PROMPT, Run, RunManager, RunRequest
from minitp.launcher.mpiexec import no_mpi
from minitp.tokenizer import ByteTokenizer
from minitp.trace import Trace
from minitp.trace.summary import broken_sites
from tests.needs import missing
from tests.until import until

ROOT = Path(__file__).parents[1]
THREADS = RunRequest("a river", ranks=2, world="threads", max_tokens=4)
SOON = 60                                                          # seconds: only a failure takes them
LONG = replace(THREADS, ranks=4, max_tokens=240)                   # seconds, most of them for the trace's values


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))                     # the runs are of this source, installed or not
    return tmp_path / "runs"


@pytest.fixture
def manager(runs):
    made = RunManager(lambda: runs)
    yield made
    made.close()


def processes(folder: Path) -> list[int]:
    """The living processes whose command line names this runs folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def nothing_left(folder: Path) -> bool:
    """Once what was ended has ended: the system takes its moment."""
    return until(lambda: not processes(folder))


def test_a_run_leaves_its_trace_and_nothing_else(manager, runs):
    run = manager.start(THREADS, owner="me")
    assert manager.wait(SOON) and run.state == "done" and run.code == 0, run.log
    assert [path.name for path in runs.iterdir()] == [run.trace]
    trace = Trace.read(runs / run.trace)
    assert trace.run["ranks"] == 2 and trace.run["text"] == run.text and trace.values
    assert (run.tokens, run.prompt_tokens) == (4, 7)
    mine = [event for event in trace if event.rank == 0 and event.plane == "data" and event.phase != "load"]
    assert (run.sync_points, run.payload) == (len(mine), sum(event.payload for event in mine))
    assert nothing_left(runs)


def test_start_stop_start(manager, runs):
    first = manager.start(LONG)
    until(lambda: first.tokens > 2)
    with pytest.raises(LaunchError, match="one at a time"):
        manager.start(THREADS)
    manager.stop()
    assert manager.wait(SOON) and first.state == "stopped" and first.code == 143
    assert nothing_left(runs) and list(runs.iterdir()) == []         # no half trace either
    second = manager.start(THREADS)
    assert manager.wait(SOON) and second.state == "done"


def test_a_stop_that_comes_too_late_changes_nothing(manager, runs, monkeypatch):
    def kept(*given):
        manager.stop()                                               # between the end of the child and that of the run
        return keep(*given)
    keep = module._keep
    monkeypatch.setattr(module, "_keep", kept)
    run = manager.start(THREADS)
    assert manager.wait(SOON) and (run.state, run.code) == ("done", 0), run.log
    assert (runs / run.trace).is_file()


@pytest.mark.parametrize("code, stopped, kept, ends", [
    (0, False, "-2.json.gz", ("done", 0)), (124, False, "-2-failed.json.gz", ("failed", 124)),
    (143, True, "-2-stopped.json.gz", ("stopped", 143)),             # its trace was there when the stop came
    (0, False, None, ("failed", 1)), (124, False, None, ("failed", 124))])
def test_how_a_run_ends_is_in_its_traces_name(manager, runs, monkeypatch, code, stopped, kept, ends):
    run, job = Run(THREADS, ""), ChildJob(["true"], {})
    monkeypatch.setattr(job, "wait", lambda: code)
    monkeypatch.setattr(ChildJob, "was_stopped", stopped)
    (runs / "work").mkdir(parents=True)
    (runs / "work" / "trace.json.gz").write_bytes(b"")
    if kept is None:
        monkeypatch.setattr(os, "replace", lambda *given: Path("/nowhere/at/all").read_bytes())
    manager._watch(run, job, runs / "work")
    assert (run.state, run.code) == ends and [path.name for path in runs.iterdir()] == ([run.trace] if kept else [])
    assert run.trace.endswith(kept) if kept else "the trace can't be kept" in run.log


@pytest.mark.mpi
def test_start_stop_start_with_mpi(manager, runs):
    if why := no_mpi():
        missing(why)
    first = manager.start(replace(LONG, world="mpi", ranks=2))
    until(lambda: first.tokens > 2)
    assert len(processes(runs)) >= 3                                 # mpiexec and two ranks
    manager.stop()
    assert manager.wait(SOON) and first.state == "stopped"
    assert nothing_left(runs) and list(runs.iterdir()) == []
    second = manager.start(replace(THREADS, world="mpi"))
    assert manager.wait(SOON) and second.state == "done", second.log
    assert Trace.read(runs / second.trace).run["world"] == "mpi" and nothing_left(runs)


def test_its_time_is_limited(manager, runs):
    run = manager.start(replace(LONG, ranks=8, seconds=1.0))          # a token after 0.2 s, the end after 10
    assert manager.wait(SOON) and run.state == "failed" and "longer than its 1 s" in run.log
    assert run.code == 124 and nothing_left(runs)
    trace = Trace.read(runs / run.trace)                             # what there is of it
    assert "-failed" in run.trace and trace.run["failed"].startswith("the run has taken longer than its 1 s")
    assert trace.run["tokens"] and trace.run["text"].startswith(run.text[:5]) and len(trace) > 20


@pytest.mark.parametrize("prompt", ["--help", "-", ":", "a\nb\n\n", "é→\U0001f600", " ", "$(touch x); `id`", "\ud800"])
def test_a_prompt_is_a_prompt_whatever_it_looks_like(tmp_path, prompt):
    request = replace(THREADS, prompt=prompt)
    (tmp_path / "prompt.txt").write_bytes(request.prompt_text())
    words = request.program(tmp_path / "prompt.txt", tmp_path / "trace.json")
    assert all(word.startswith("--") for word in words[3:]) and prompt not in words
    read = read_prompts(PromptSource(files=(str(tmp_path / "prompt.txt"),)), ByteTokenizer(), ())
    assert bytes(read["ids"][0]) == prompt.encode(errors="replace")


def test_a_dash_is_a_prompt_in_a_real_run(manager, runs):
    run = manager.start(replace(THREADS, prompt="-", max_tokens=1, ranks=1, values=False))
    assert manager.wait(SOON) and run.state == "done", run.log
    assert Trace.read(runs / run.trace).run["prompts"] == [ord("-")]


def test_a_run_that_fails_says_why(manager, runs):
    run = manager.start(replace(THREADS, prompt="a" * LONGEST_PROMPT))
    assert manager.wait(SOON) and run.state == "failed" and run.code == 2
    assert "the model's context holds" in run.log and run.trace is None and list(runs.iterdir()) == []


def test_what_can_not_run_is_refused(tmp_path, manager, runs):
    for wrong in ({"model": "/etc/passwd"}, {"ranks": 0}, {"ranks": 9}, {"max_tokens": 0}, {"prompt": ""},
                  {"seconds": -1}, {"seconds": float("nan")}, {"temperature": float("inf")}, {"seed": -1},
                  {"prompt": "a" * (LONGEST_PROMPT + 1)}):
        with pytest.raises(ConfigError):
            replace(THREADS, **wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(LaunchError, match="can't be written to"):
        RunManager(lambda: tmp_path / "file" / "runs").start(THREADS)
    assert manager.run is None


def test_the_folders_of_dead_processes_go(manager, runs):
    runs.mkdir()
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name in (f".job-{dead.pid}-ab", f".job-{os.getppid()}-cd", ".job-x-y"):
        (runs / name).mkdir()
    manager.start(replace(THREADS, max_tokens=1))
    manager.wait(SOON)
    assert [path.name for path in runs.iterdir() if path.name.startswith(".")] == [f".job-{os.getppid()}-cd"]


SERVER = """
import sys, time
from minitp.launcher.manager import RunRequest, manager
run = manager().start(RunRequest("a river", ranks=4, world=sys.argv[1], max_tokens=240))
while run.going_on and run.tokens < 2: time.sleep(0.02)
assert run.going_on, run.log
print("running", flush=True)
if sys.argv[2] == "leaves": sys.exit()
time.sleep(60)
"""


@pytest.mark.parametrize("world", [pytest.param("threads", marks=pytest.mark.slow),
                                   pytest.param("mpi", marks=pytest.mark.mpi)])
@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_no_run_outlives_its_server(runs, world, end):
    if world == "mpi" and (why := no_mpi()):
        missing(why)
    server = subprocess.Popen([sys.executable, "-c", SERVER, world, end], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"MINITP_RUNS": str(runs), "PYTHONPATH": str(ROOT)})
    try:
        assert server.stdout.readline() == "running\n"
        assert processes(runs) or end == "leaves"
        if end == "is killed":
            server.send_signal(signal.SIGKILL)
        server.wait(SOON)
        assert nothing_left(runs)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def test_a_run_can_be_broken_on_purpose(manager, runs):
    run = manager.start(replace(THREADS, broken="*.mlp.down", values=False))
    assert manager.wait(SOON) and run.state == "done", run.log
    assert broken_sites(Trace.read(runs / run.trace)) == ["layers.0.mlp.down", "layers.1.mlp.down"]
    assert run.sync_points == 4 * (6 - 2)                           # the skipped ones are none


def test_only_one_of_many_starts_at_once(manager, runs):
    refused = []

    def start():
        try:
            manager.start(LONG)
        except LaunchError as error:
            refused.append(error)
    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 4 and manager.run.going_on
