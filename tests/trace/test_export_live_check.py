"""For other programs, for the terminal, and against a prediction."""
import csv as csv_module
import io
import json
import time
from itertools import pairwise

import pytest
from trace_runs import body, on_threads

from minitp.config import ModelConfig
from minitp.placement import Placement
from minitp.trace import Event, Expected, Mark, ShowComm, Timeline, Trace, compare
from minitp.trace.check import SHOWN
from minitp.trace.export import CSV_COLUMNS, chrome, csv
from minitp.trace.live import line
from minitp.trace.predict import GenerationPlan, predict


@pytest.fixture(scope="module")
def trace():
    return on_threads(3, lambda comm: body(comm, tokens=2))[0]


# --- Chrome's trace event format ------------------------------------------------------------------------------------

def test_chrome(trace):
    data = json.loads(json.dumps(chrome(trace), allow_nan=False))
    names = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2"}
    phases = [e for e in data["traceEvents"] if e.get("cat") == "phase"]
    assert [e["name"] for e in phases if e["tid"] == 1] == ["load", "prefill 0", "decode 1", "decode 2"]
    complete = [e for e in data["traceEvents"] if e["ph"] == "X" and e["cat"] != "phase"]
    assert {e["cat"] for e in complete} == {"compute", "wait", "move"}
    assert {e["pid"] for e in data["traceEvents"]} == {0}
    assert sum(e["cat"] == "move" for e in complete) == len(trace)
    for rank in names:
        mine = sorted((e["ts"], e["dur"]) for e in complete if e["tid"] == rank)
        assert all(duration >= 0 for _, duration in mine)
        for (begin, duration), (then, _) in pairwise(mine):
            assert begin + duration <= then + 1e-4               # µs, so 0.1 ns: floats carry fractions
    for one in complete:                                         # no slice sticks out of the phase that it is in
        assert any(e["tid"] == one["tid"] and e["ts"] <= one["ts"] + 1e-4
                   and one["ts"] + one["dur"] <= e["ts"] + e["dur"] + 1e-4 for e in phases)
    args = next(e["args"] for e in complete if e["cat"] == "wait")
    assert {"site", "reason", "shape", "payload_bytes", "phase", "step"} <= set(args)
    timeline = Timeline.of(trace)
    waited = sum(e["dur"] for e in complete if e["cat"] == "wait")
    assert waited == pytest.approx(timeline.waiting.sum() / 1000)


# --- CSV ------------------------------------------------------------------------------------------------------------

def test_csv_parses_back(trace, tmp_path):
    csv(trace, tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv_module.DictReader(stream))
    assert tuple(rows[0]) == CSV_COLUMNS
    timeline = Timeline.of(trace)
    assert len(rows) == len(trace)
    for row, event, waiting in zip(rows, trace, timeline.waiting.tolist(), strict=True):
        assert int(row["waiting"]) == waiting and int(row["waiting"]) + int(row["moving"]) == event.leave - event.enter
        for name in Event._fields:
            value = getattr(event, name)
            text = "x".join(map(str, value)) if name == "shape" else "" if value is None else str(value)
            assert row[name] == (text if name != "broken" else "0")


def test_csv_keeps_newlines_quotes_and_whatever_inside_a_cell(trace, tmp_path):
    nasty = 'a,"b"\r\n;=1+1\x00\ud800'
    one = Trace.of([next(iter(trace))._replace(site=nasty)])
    csv(one, tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv_module.DictReader(stream))
    assert [row["site"] for row in rows] == [nasty.replace("\ud800", "\\ud800")]


# --- live lines -----------------------------------------------------------------------------------------------------

def test_live_lines():
    stream = io.StringIO()

    def work(comm):
        if comm.rank == 0:
            comm.recorder.listener = ShowComm(stream)
        collected = body(comm, tokens=1)
        if comm.rank == 0:
            comm.recorder.listener.finish(collected)

    on_threads(3, work)
    lines = stream.getvalue().splitlines()
    assert [row.strip("─ ") for row in lines if row.startswith("──")] == ["load", "prefill 0", "decode 1"]
    assert len(lines) == 3 + 2 + 2 * 6 + 2                       # headings, load, passes, the last two
    assert max(map(len, lines)) <= 120
    assert any("partial ─all_reduce→ whole" in row and "320 B" in row for row in lines)
    assert "barrier" not in stream.getvalue()                    # control
    assert "of the time in prefill and decode was waiting" in lines[-2]
    assert lines[-1].startswith("Printing 14 lines took")
    columns = {row.index("─all_reduce→") for row in lines if "─all_reduce→" in row}
    assert len(columns) == 1


def test_a_long_line_is_cut_and_a_poor_terminal_gets_question_marks(trace):
    event = next(iter(trace))._replace(site="s" * 300, reason="r\n\x1b[31m" * 50, shape=(10**9,) * 9, op="o" * 80)
    assert len(line(event)) == 120 and "\x1b" not in line(event)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ShowComm(stream)(event)
    assert b"?" in stream.buffer.getvalue()


def test_finish_without_a_trace_says_nothing():
    stream = io.StringIO()
    ShowComm(stream).finish(None)
    ShowComm(stream).finish(Trace.of([]))
    assert stream.getvalue() == ""


# --- predicted = recorded -------------------------------------------------------------------------------------------

def events_of(trace, rank=0):
    return [event for event in trace if event.rank == rank and event.plane != "control"]


def test_what_was_recorded_is_what_is_predicted_of_it(trace):
    assert compare(trace, events_of(trace)) == []
    assert compare(trace, {rank: events_of(trace, rank) for rank in range(3)}) == []
    expected = [Expected(*(getattr(event, name) for name in Expected._fields)) for event in events_of(trace)]
    assert compare(trace, iter(expected)) == []
    assert compare(trace, [*expected, expected[0]._replace(plane="control")]) == []      # control is left out


@pytest.mark.parametrize("field, value, says", [
    ("payload", 5, "payload is 320, predicted 5"), ("dtype", "float64", "dtype is float32, predicted float64"),
    ("shape", (2, 16), "shape is 1×5×16, predicted 2×16"), ("after", "shard(1)", "after is whole, predicted shard(1)"),
    ("before", "whole", "before is partial, predicted whole"), ("op", "reduce", "predicted: reduce at layers.0.mlp"),
    ("site", "elsewhere", "predicted: all_reduce at elsewhere"), ("step", 9, "predicted: all_reduce at layers.0.mlp"),
    ("phase", "load", "(load 0, data)"), ("plane", "sample", "(prefill 0, sample)")])
def test_each_field_counts(trace, field, value, says):
    predicted = events_of(trace)
    predicted[4] = predicted[4]._replace(**{field: value})
    differences = compare(trace, predicted)
    assert len(differences) == 1 and says in differences[0] and "event 4" in differences[0]


def test_missing_extra_and_swapped_events(trace):
    predicted = events_of(trace)
    extra, = compare(trace, predicted[:3] + predicted[4:])
    assert extra == "rank 0, event 3, all_reduce at layers.0.attention.out (prefill 0, data), is not predicted"
    lacking, = compare(trace, [*predicted[:3], predicted[0]._replace(site="new"), *predicted[3:]])
    assert lacking == "rank 0 lacks scatter at new (load, data) before event 3; it is predicted"
    extra, = compare(trace, predicted[:-1])
    assert extra.endswith("(decode 2, data), is not predicted")
    assert len(compare(trace, [*predicted[:3], predicted[4], predicted[3], *predicted[5:]])) == 2


def test_of_many_differences_the_first_are_said(trace):
    wrong = [event._replace(payload=1) for event in events_of(trace)]
    assert len(wrong) == SHOWN and len(compare(trace, wrong)) == SHOWN
    many = Trace.of([wrong[3]._replace(sequence=n) for n in range(50)])
    assert compare(many, [])[-1] == "and more" and len(compare(many, [])) == SHOWN + 1


def test_ranks_that_differ_are_named():
    one = Event(0, "tp", 0, 0, "data", "all_reduce", None, None, None, "a", "r", "decode", 0, None, None, "partial",
                "whole", (4,), "float32", 16, 0, 1, None, None, None, None, False, "")
    trace = Trace.of([one, one._replace(rank=1, payload=8), one._replace(rank=2), one._replace(rank=2, site="b")],
                     [Mark(0, "decode", 0, None, 0, 1)], run={"ranks": 4})
    assert compare(trace, [one]) == [
        "1 of 4 ranks recorded nothing, of them rank 3 is the first",
        "rank 1, event 0, all_reduce at a (decode 0, data): payload is 8, on rank 0 16",
        "rank 2, event 1, all_reduce at b (decode 0, data), is not on rank 0"]


def test_ranks_without_end_take_no_time():
    config = ModelConfig(hidden=8, layers=200, heads=4, kv_heads=2, head_size=2, ffn=16, vocab=32, positions=64)
    plan = GenerationPlan(Placement(config, 1 << 20), "scatter", "float32", 1, [("prefill", 1)], 1)
    expected, start = predict(plan), time.thread_time()
    one = Event(0, "tp", 0, 0, "data", "all_reduce", None, None, None, "a", "r", "decode", 0, None, None, "partial",
                "whole", (4,), "float32", 16, 0, 1, None, None, None, None, False, "")
    found = compare(Trace.of([one], run={"ranks": 1 << 20}), expected)
    assert found[0] == "1,048,575 of 1,048,576 ranks recorded nothing, of them rank 1 is the first"
    assert len(found) == SHOWN + 1 and time.thread_time() - start < 5
    assert compare(Trace.of([], run={"ranks": 4}), expected) == [
        "4 of 4 ranks recorded nothing, of them rank 0 is the first"]
