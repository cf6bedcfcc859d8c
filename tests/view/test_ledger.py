"""The ledger: predicted beside recorded, what differs, what stands apart, and the files to take away."""
import csv
import gzip
import io
import json

import numpy as np
import pytest

from minitp.trace import Timeline, Trace
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.summary import summarize, working_phases
from minitp.view import ledger as view
from minitp.view.figures.ledger import sites_figure
from minitp.view.ledger import Ledger
from tests.app.real_runs import tiny_run
from tests.view.timed_traces import RUN, all_reduces, event


@pytest.fixture(scope="module")
def real() -> Trace:
    return tiny_run("--load", "scatter", ranks=3)


def without(trace: Trace, number: int) -> Trace:
    """The trace with one event lost."""
    kept = np.arange(len(trace)) != number
    return Trace(trace.run, trace.clock, trace.strings, trace.shapes,
                 {name: column[kept] for name, column in trace.events.items()}, trace.marks)


def test_a_real_run_is_what_was_predicted(real):
    found = Ledger.of(Timeline.of(real))
    assert not found.differences and not found.silent and all(line.same for line in found.lines)
    events = predict(GenerationPlan.from_run(real.run))
    assert sum(line.predicted or 0 for line in found.lines) == len(events)
    assert sum(line.recorded[0] for line in found.lines) == len(events)
    assert sum(line.recorded_bytes[1] for line in found.lines) == sum(event.payload for event in events)
    assert f"all {len(events)} events of each of 3 ranks" in found.verdict
    assert {line.phase for line in found.lines} == {"load", "prefill", "decode"}


@pytest.mark.parametrize("options, said", [
    ((), "2L + 2 = 2 × 2 + 2 = 6 sync points per pass: 2 in each of 2 layers (attention.o, mlp.down), 1 for the "
         "embedding and 1 for the logits."),
    (("--sharded-logits",), "2L + 1 = 2 × 2 + 1 = 5 sync points"),
    (("--parallel-block",), "L + 2 = 1 × 2 + 2 = 4 sync points per pass: 1 in each of 2 layers (mlp.down)"),
    (("--embedding", "hidden"), "2L + 2 = 2 × 2 + 2 = 6 sync points")])
def test_the_formula_is_that_of_the_run(options, said):
    found = Ledger.of(Timeline.of(tiny_run(*options)))
    assert said in found.formula and "3 passes" in found.formula
    assert ("exchange of the ranks' best" in found.formula) == ("--sharded-logits" in options)
    assert not found.differences
    per_pass = sum(line.recorded[0] for line in found.lines if line.plane == "data") // 3
    assert f"= {per_pass} sync points per pass" in found.formula


def test_a_lost_event_is_found(real):
    lost = int(np.flatnonzero(real.where(rank=1, phase="decode", step=1, op="all_gather"))[0])
    found = Ledger.of(Timeline.of(without(real, lost)))
    wrong, = (line for line in found.lines if not line.same)
    assert (wrong.phase, wrong.site, wrong.op) == ("decode", "head", "all_gather")
    assert wrong.predicted == wrong.recorded[1] == wrong.recorded[0] + 1
    assert "not what the closed form says: 1 difference." in found.verdict


def test_a_run_without_a_header_is_counted_alone():
    found = Ledger.of(Timeline.of(all_reduces([[10, 20]] * 3, [5] * 3)))
    assert "doesn't say what was run" in found.silent and "can't speak about this trace" in found.verdict
    assert found.formula == "" and not found.differences
    line, = found.lines
    assert (line.predicted, line.recorded, line.same) == (None, (3, 3), None)
    assert line.recorded_bytes == (12_000, 12_000) and line.site == "layers.*.mlp.down"


def test_control_and_broken_events_stand_apart():
    rows = [event(0, 0, 0, 5, plane="control", op="broadcast", site="model", reason="which"),
            event(0, 1, 5, 8, broken=True), event(0, 2, 8, 9)]
    found = Ledger.of(Timeline.of(Trace.of([*rows, *(row._replace(rank=1) for row in rows)], run=RUN)))
    assert found.control == [view.Apart("model", "broadcast", "which", 1, 4000, 10)]
    assert found.broken == [view.Apart("layers.*.mlp.down", "all_reduce", "why", 1, 4000, 6)]
    assert sum(line.recorded[0] for line in found.lines) == 2          # control isn't counted with the others


def test_skipped_syncs_are_no_sync_points_that_were_made():
    found = Ledger.of(Timeline.of(tiny_run("--break", "layers.0.mlp.down")))
    assert "3 passes: 18 sync points, 3 of them skipped on purpose." in found.formula and not found.differences


def test_waiting_and_rows_are_the_summary(real):
    found = Ledger.of(Timeline.of(real))
    assert [row.key for row in found.per_phase] == ["load", "prefill", "decode"]
    rows, note = found.per_pass
    assert [row.key for row in rows] == ["load", "prompt → first token", "token 2", "token 3"] and not note
    assert [vars(row) | {"key": ""} for row in rows] == [
        vars(row) | {"key": ""} for row in summarize(found.timeline, "token", phases=working_phases(found.timeline))]
    sites, _ = found.per_site
    assert [row.time for row in sites] == sorted((row.time for row in sites), reverse=True)
    assert len(sites_figure(sites).data) == 3
    assert "% of the ranks' time in the passes was waiting" in found.waiting


def test_many_rows_are_cut_with_a_note(monkeypatch):
    monkeypatch.setattr(view, "MOST_ROWS", 10)
    found = Ledger.of(Timeline.of(all_reduces([[1, 2]] * 20, [5] * 20, per_pass=1)))
    rows, note = found.per_pass
    assert len(rows) == 10 and "first 10 of 20" in note


def test_the_downloads_open(real):
    assert Trace.parse(real.to_bytes(zipped=True)).to_plain() == real.to_plain()
    assert Trace.parse(real.to_bytes()).run == real.run
    shown = json.loads(gzip.decompress(view.chrome_file(real)))
    assert {row["cat"] for row in shown["traceEvents"] if row["ph"] == "X"} == {
        "phase", "compute", "wait", "move"}
    rows = list(csv.DictReader(io.StringIO(view.csv_file(real).decode())))
    assert len(rows) == len(real)
    assert [int(row["waiting"]) for row in rows] == Timeline.of(real).waiting.tolist()


@pytest.mark.parametrize("trace", [Trace.of([]), Trace.of([event(0, 0, 1, 2, site="<b>", op="<i>")])])
def test_odd_traces_have_a_ledger(trace):
    found = Ledger.of(Timeline.of(trace))
    assert found.silent and found.waiting and len(found.lines) == len(trace)
    assert sites_figure(found.per_site[0]) is not None
