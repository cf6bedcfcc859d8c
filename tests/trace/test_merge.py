"""From recordings to one trace: on threads, on MPI, and with clocks that differ by a known amount."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trace_runs import LAYERS, body, on_threads

from minitp.errors import CollectiveError
from minitp.trace import Timeline, Trace, align_clocks, collect, run_info
from minitp.trace.check import compare
from minitp.trace.info import complete_info
from minitp.trace.merge import offset_of
from minitp.trace.recorder import Clock
from minitp.trace.summary import stragglers, summarize

ROOT = Path(__file__).parents[2]


def check_the_run(trace, ranks):
    """What holds of `body` on any world: the counts, the times, and who was waited for."""
    assert trace.run["ranks"] == ranks and trace.ranks == list(range(ranks))
    assert trace.run["hosts"] == 1 and trace.run["mesh"] == {"tp": ranks}
    assert trace.run["cores"] == len(os.sched_getaffinity(0))
    assert trace.run["coordinates"] == [{"tp": rank} for rank in range(ranks)]
    assert trace.clock["offset_ns"] == [0] * ranks
    assert min(trace.events["enter"].min(), trace.marks["enter"].min()) == 0
    assert compare(trace, [event for event in trace if event.rank == 0]) == []
    assert not any("collect" in site for site in trace.words("site"))
    assert all("/" not in caller.replace("tests/trace/", "").replace("minitp/trace/", "")
               for caller in trace.words("caller"))
    timeline = Timeline.of(trace)
    rows = {row.key: row for row in summarize(timeline)}
    assert rows["decode"].sync_points == 3 * (2 * LAYERS + 2) and rows["decode"].passes == 3
    assert rows["prefill"].payload == 5 * (2 * LAYERS + 1) * 16 * 4 + 50 * 4
    if ranks > 1:
        assert max(stragglers(timeline), key=stragglers(timeline).get) == 1
        waited = [timeline.waiting[trace.where(rank=rank, phase="decode")].sum() for rank in range(ranks)]
        assert waited[1] == min(waited)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_threads(ranks):
    results = on_threads(ranks, body)
    assert results[1:] == [None] * (ranks - 1)
    check_the_run(results[0], ranks)
    assert results[0].run["world"] == "threads" and results[0].clock["error_ns"] == [0] * ranks


@pytest.mark.mpi
@pytest.mark.parametrize("ranks, options", [(1, []), (3, ["--checked"])])
def test_mpi(ranks, options, tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPIEXEC_TIMEOUT": "120", "PYTHONPATH": str(ROOT)}
    if ranks > len(os.sched_getaffinity(0)):
        env["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", str(Path(__file__).parent / "trace_runs.py"),
               str(tmp_path / "run.json.gz"), *options]
    run = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=130)
    assert run.returncode == 0, run.stderr
    trace = Trace.read(tmp_path / "run.json.gz")
    check_the_run(trace, ranks)
    assert trace.run["world"] == "mpi" and trace.run["versions"]["mpi"]
    assert all(error > 0 for error in trace.clock["error_ns"][1:])


def test_the_quickest_round_trip_counts():
    trips = [(1000, 5500, 1800), (2000, 6100, 2101), (3000, 9000, 5000)]
    assert offset_of(trips) == (6100 - 2050, 51)
    assert offset_of([(1000, 1049, 1100)]) == (0, 50)             # within the error: one clock
    assert offset_of([(1000, 1101, 1100)]) == (51, 50)
    assert offset_of([(1000, 900, 1100)]) == (-150, 50)


def test_offsets_are_taken_off_and_the_earliest_time_is_zero():
    """Ranks on threads share a clock; pretend that rank 1's is 10 s ahead and its recording true to it."""
    ahead = 10**10

    def work(comm):
        info = run_info(comm, argv=[])
        with comm.recorder.mark("decode", step=0):
            comm.barrier(site="here", reason="meet")
        if comm.rank == 1:
            recorder = comm.recorder
            recorder.events = [e._replace(enter=e.enter + ahead, leave=e.leave + ahead) for e in recorder.events]
            recorder.marks = [m._replace(enter=m.enter + ahead, leave=m.leave + ahead) for m in recorder.marks]
        comm.recorder.clock = Clock((0, ahead), (0, 500))
        return collect(comm, comm.recorder, info)

    trace = on_threads(2, work)[0]
    assert trace.clock == {"offset_ns": [0, ahead], "error_ns": [0, 500]}
    assert trace.marks["enter"].min() == 0
    assert trace.events["leave"].max() < 10**9


def test_what_collect_sends_is_recorded_nowhere():
    def work(comm):
        heard = []
        comm.recorder.listener = heard.append
        comm.barrier(site="here", reason="meet")
        traces = [collect(comm, comm.recorder, run_info(comm, argv=[])) for _ in range(2)]
        return traces, len(heard), len(comm.recorder.events)

    for rank, (traces, heard, events) in enumerate(on_threads(2, work)):
        assert (heard, events) == (1, 1)
        if rank == 0:
            assert list(traces[0]) == list(traces[1])


def test_a_rank_that_recorded_nothing():
    def work(comm):
        comm.recorder.keep_events = comm.rank == 1
        comm.barrier(site="here", reason="meet")
        return collect(comm, comm.recorder, run_info(comm, argv=[]))

    assert [event.rank for event in on_threads(3, work)[0]] == [1]


def test_the_header_names_no_folders():
    def work(comm):
        return run_info(comm, argv=["--prompt", "either/or or both", "/home/me/model.gguf", "--trace=./out/run.json",
                                    str(ROOT / "tests"), "and/or", "--n=3"], options={"seed": 1})

    info = on_threads(1, work)[0]
    assert info["command"] == ["--prompt", "either/or or both", "model.gguf", "--trace=run.json", "tests", "and/or",
                               "--n=3"]
    assert info["options"] == {"seed": 1}
    assert set(info["versions"]) == {"minitp", "python", "numpy"}


def test_the_most_crowded_host_counts():
    facts = [{"host": host, "cores": cores, "blas_threads": 1} for host, cores in
             (("a", [0, 1]), ("a", [0, 1]), ("a", [0, 1]), ("b", [0]), ("b", [1]))]
    info = complete_info({"ranks": 5}, facts)
    assert (info["hosts"], info["host_of_rank"], info["cores"], info["ranks_per_core"]) == (2, [0, 0, 0, 1, 1], 4, 1.5)


def test_values_are_copies_and_spelled_out_at_the_end():
    def work(comm):
        for array in (np.array([np.nan, np.inf, 1 / 3]), np.arange(-4999.0, 1).reshape(1, 5000), np.zeros((2, 0))):
            whole = comm.broadcast(array if comm.rank == 0 else None, shape=array.shape, dtype=array.dtype, site="s",
                                   reason="r")
            whole += 1                                           # the trace must not see this
        comm.share([1], site="s", reason="control messages have no values")
        return collect(comm, comm.recorder, run_info(comm, argv=[]))

    trace = on_threads(2, work, keep_values=True)[0]
    values = trace.values
    assert [value["event"] for value in values] == [0, 1, 2, 5, 6, 7]
    assert [value.get("after_of") for value in values] == [None, None, None, 0, 1, 2]
    assert values[0]["after"] == {"shape": [3], "data": [None, None, 0.333333]}
    assert values[1]["after"] == {"shape": [5000], "row": 0, "block": 313, "first": [-4999, -4998, -4997, -4996],
                                  "maxima": [float(f"{4999 - 313 * n:.3g}") for n in range(16)]}
    assert values[2]["after"] == {"shape": [2, 0], "data": []}
    for event in (0, 5):
        assert trace.value(event)[0] is None and trace.value(event)[1].first[2] == 0.333333
    assert trace.value(6)[1].cells.shape == (1, 16) and not trace.value(6)[1].whole
    assert trace.value(7)[1].shape == (2, 0) and not trace.value(7)[1].cells.size


# --- messages ------------------------------------------------------------------------------------------------------

def test_messages_are_recorded_on_both_ends_with_one_number():
    def work(comm):
        for number in range(2):
            if comm.rank == 0:
                comm.send(np.arange(3.0) + number, to=1, site="ring", reason="pass it on", chunk=number)
            elif comm.rank == 1:
                got = comm.receive(shape=(3,), dtype=np.float64, source=0, site="ring", reason="pass it on",
                                   chunk=number)
                assert got.tolist() == [number, 1 + number, 2 + number]
        comm.barrier(site="end", reason="meet")                  # checked mode isn't confused by messages of some ranks
        return comm.recorder.events

    events = [[e for e in of_rank if e.op != "barrier"] for of_rank in on_threads(3, work)]
    assert [len(of_rank) for of_rank in events] == [2, 2, 0]
    for rank, op, wire in ((0, "send", 24), (1, "receive", 0)):
        assert [(e.op, e.peer, e.sequence, e.chunk, e.payload, e.wire, e.before, e.plane) for e in events[rank]] == [
            (op, 1 - rank, n, n, 24, wire, "whole", "data") for n in range(2)]


@pytest.mark.parametrize("peer", [0, 2, -1])
def test_a_message_goes_to_another_rank(peer):
    def work(comm):
        comm.send(np.zeros(1), to=peer, site="ring", reason="pass it on")

    with pytest.raises(CollectiveError, match=r"rank 0 of 1|rank . of 2"):
        on_threads(1 if peer else 2, work)


def test_align_clocks_sends_nothing_on_threads():
    def work(comm):
        return align_clocks(comm), len(comm.recorder.events)

    assert on_threads(2, work) == [(Clock((0, 0), (0, 0)), 0)] * 2
