"""The tools on the trace of a training run: check, show, live lines, exports; and headers that nobody should trust."""
import csv as csv_module
import io
import json
import time
from contextlib import suppress
from copy import deepcopy

import pytest
from rich.console import Console
from trace_runs import on_threads

from minitp.cli import app
from minitp.commands.trace import check
from minitp.config import TINY
from minitp.errors import FileFormatError
from minitp.placement import Placement
from minitp.trace import Timeline, Trace, compare
from minitp.trace.export import chrome, csv
from minitp.trace.live import ShowPasses, pass_line
from minitp.trace.predict import Evaluation, Steps, TrainingPlan, plan_from_run, predict
from minitp.trace.predict_training import step_form, step_in_words, sync_points
from minitp.trace.show import show
from minitp.trace.summary import summarize
from minitp.trace.timeline import LAST, waits_for
from minitp.trace.wording import duration, share
from tests.families import FAMILIES
from tests.train.training_runs import traced

SIZES = ((2, 3), (1, 2))
PASSES = ["forward 1 · micro-batch 1", "backward 1 · micro-batch 1", "forward 1 · micro-batch 2",
          "backward 1 · micro-batch 2", "optimizer 1"]
STREAM = io.StringIO()


@pytest.fixture(scope="module")
def trace() -> Trace:
    def work(comm):
        if comm.rank == 0:
            comm.recorder.listener = ShowPasses(STREAM)
        made = traced(comm, micro_batches=SIZES, between=True, recompute="full")
        if comm.rank == 0:
            comm.recorder.listener.finish(made)
        return made
    return on_threads(3, work)[0]


def printed(trace, **options):
    stream = io.StringIO()
    show(trace, console=Console(file=stream, width=120, highlight=False), **options)
    return " ".join(stream.getvalue().split())


# --- predicted = recorded, through a file ---------------------------------------------------------------------------

def test_a_training_trace_is_checked_by_its_header(trace, tmp_path, capsys):
    trace.write(tmp_path / "run.json")
    assert check(tmp_path / "run.json") == 0
    events = predict(plan_from_run(trace.run))
    assert f"all {len(events)} collectives on each of 3 ranks" in capsys.readouterr().out
    plain = deepcopy(trace.to_plain())
    plain["run"]["training"]["recompute"] = "none"
    (tmp_path / "other.json").write_text(json.dumps(plain))
    assert check(tmp_path / "other.json") == 1
    assert "(backward 1 · micro-batch 1, data), is not predicted" in capsys.readouterr().out


def test_a_micro_batch_counts(trace):
    events = predict(plan_from_run(trace.run))
    at = next(i for i, event in enumerate(events) if event.micro_batch == 1)
    events[at] = events[at]._replace(micro_batch=2)
    difference, = compare(trace, events)
    assert "is all_reduce at embedding (forward 1 · micro-batch 2, data); predicted" in difference
    assert "(forward 1 · micro-batch 3, data)" in difference


def test_like_steps_become_one_segment():
    placement = Placement(TINY, 2)
    plan = TrainingPlan(placement, "float32", [*(Steps(n, 1, SIZES) for n in range(5)), Steps(5, 0, SIZES),
                                               Evaluation(5, SIZES), Steps(5, 1, SIZES), Steps(6, 1, SIZES[:1]),
                                               Steps(8, 1, SIZES[:1])])
    assert plan.segments == (Steps(0, 5, SIZES), Evaluation(5, SIZES), Steps(5, 1, SIZES), Steps(6, 1, SIZES[:1]),
                             Steps(8, 1, SIZES[:1]))
    assert TrainingPlan.from_run(json.loads(json.dumps(plan.to_run()))) == plan


HOSTILE = [
    ("recompute", "all"), ("recompute", []), ("dtype", "float16"), ("dtype", None), ("segments", None),
    ("segments", 5), ("segments", [[]]), ("segments", [{}]), ("segments", ["steps"]), ("segments", [None]),
    ("segments", [{"steps": [0, 1]}]), ("segments", [{"steps": [0, 10**9], "micro_batches": [[1, 1]]}]),
    ("segments", [{"steps": [0, 10**9], "micro_batches": []}]), ("segments", [{"steps": [0, -1], "micro_batches": []}]),
    ("segments", [{"steps": [0], "micro_batches": []}]), ("segments", [{"steps": [0, 1], "micro_batches": [[1]]}]),
    ("segments", [{"steps": [0, 1], "micro_batches": [[1, 10**400]]}]),
    ("segments", [{"steps": [0, 1], "micro_batches": [[1, True]]}]),
    ("segments", [{"steps": [0, 1], "micro_batches": [[1.5, 1]]}]), ("segments", [{"evaluate": None, "batches": []}]),
    ("segments", [{"evaluate": 1, "batches": 7}]), ("segments", [{"evaluate": "1", "batches": []}]),
    ("segments", [{"evaluate": 1, "batches": [[1, 1]] * 200_000}]), ("segments", [{"sample": 3}]),
    *(("segments", [{"sample": {"batch": 1, "passes": passes, "choices": 1, "gathered": True, "candidates": 2}}])
      for passes in ([["decode", -1]], [["decode"]], 7, [["decode", 1]] * 200_000))]


@pytest.mark.parametrize(("key", "value"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_strangers_header_is_refused_at_once(key, value):
    run = TrainingPlan(Placement(TINY, 2), "float32", [Steps(0, 1, SIZES)]).to_run()
    run["training"][key] = value
    start = time.thread_time()
    with pytest.raises(FileFormatError, match="doesn't say what was run"):
        predict(plan_from_run(run))
    assert time.thread_time() - start < 5


def test_a_header_that_says_nothing_is_refused():
    for run in ({}, {"training": {}}, {"training": None}, {"training": {"segments": []}, "model": {}}):
        with pytest.raises(FileFormatError):
            plan_from_run(run)


# --- the form that people quote -------------------------------------------------------------------------------------

def form(family, ranks=1, embedding="vocab", recompute="none"):
    return {name: str(part) for name, part in
            step_form(Placement(FAMILIES[family], ranks, embedding), recompute).items()}


def test_the_form_of_a_step():
    assert form("llama") == {"forward": "2L + 1 = 5", "loss": "3", "backward": "2L + 1 = 5", "optimizer": "1"}
    assert form("llama", ranks=5, recompute="selective") == form("llama") | {"optimizer": "2"}       # copied kv heads
    assert form("llama", recompute="full") == form("llama") | {"backward": "4L + 1 = 9"}
    assert form("llama", embedding="hidden") == form("llama")
    assert form("gpt2", embedding="hidden") == form("llama") | {"forward": "2L + 2 = 6", "backward": "2L + 2 = 6"}
    assert form("parallel", recompute="full") == form("llama") | {"forward": "L + 1 = 3", "backward": "2L + 1 = 5"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("embedding", ["vocab", "hidden"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_step_is_counted_as_it_is_foretold(family, embedding, recompute):
    for ranks in (1, 5):
        placement = Placement(FAMILIES[family], ranks, embedding)
        for m in (1, 3):
            foretold = predict(TrainingPlan(placement, "float32", [Steps(7, 1, SIZES[:1] * m)], recompute))
            assert sync_points(placement, m, recompute) == len(foretold)


def test_the_form_in_words():
    assert step_in_words(Placement(FAMILIES["llama"], 2), 3) == (
        "A training step meets at 41 sync points: forward 2L + 1 = 5, loss 3 and backward 2L + 1 = 5 of each of 3 "
        "micro-batches, optimizer 2.")
    assert "of each" not in step_in_words(Placement(FAMILIES["llama"], 3), 1)
    assert "at 14 sync points" in step_in_words(Placement(FAMILIES["llama"], 3), 1)


# --- the tools ------------------------------------------------------------------------------------------------------

def test_a_training_trace_is_shown(trace):
    text = printed(trace)
    for row in ("forward 4 8 ", "backward 4 9 ", "optimizer 3 1 8 B", "evaluate 1 8 ", "decode 1 5 + 1 sample"):
        assert row in text
    assert "A training step meets at 35 sync points: forward 2L + 1 = 5, loss 3 and backward 4L + 1 = 9 of each of 2 " \
           "micro-batches, optimizer 1." in text
    assert "3 training steps: 23.67 sync points" in text and "reads the table of forward the other way" in text
    assert "loss.max all_reduce_max" in text
    by_phase = printed(trace, by="phase")
    assert "backward: the loss's gradient back through the layers" in by_phase and "per site" not in by_phase


def test_a_training_trace_without_a_header_is_shown_too(trace):
    plain = deepcopy(trace.to_plain())
    for key in ("training", "model", "placement"):
        plain["run"].pop(key)
    text = printed(Trace.from_plain(plain))
    assert "3 training steps: 23.67 sync points" in text and "2L + 1" not in text


def test_a_step_is_one_row(trace):
    rows = summarize(Timeline.of(trace), "step")
    assert [(row.key, row.passes, row.sync_points) for row in rows if row.sync_points] == [
        ("step 1", 5, 35), ("evaluate 1", 1, 8), ("prefill 0", 1, 5), ("decode 1", 1, 5), ("step 2", 3, 18),
        ("step 3", 3, 18)]
    assert sum(row.time for row in rows) == sum(row.time for row in summarize(Timeline.of(trace), "phase"))
    assert "step 2 3 18 " in printed(trace, by="step")


def test_for_a_maximum_all_wait_for_the_last(trace):
    of_maximum = trace.where(op="all_reduce_max")
    assert of_maximum.sum() == 3 * 5 and set(waits_for(trace)[of_maximum]) == {LAST}


def test_checkpoints_are_shown_apart(trace):
    plain = deepcopy(trace.to_plain())
    events, strings = plain["events"], plain["strings"]
    strings += ["checkpoint", "control"]
    for i in [i for i, phase in enumerate(events["phase"]) if strings[phase] == "optimizer"]:
        events["phase"][i], events["plane"][i] = len(strings) - 2, len(strings) - 1
    assert "checkpoint – 3 control 0 B" in printed(Trace.from_plain(plain))


def test_live_one_line_for_a_pass(trace):
    lines = STREAM.getvalue().splitlines()
    passes = [line for line in lines if "in them" in line]
    assert [line.split("  ")[0] for line in passes] == [
        *PASSES, "evaluate 1 · micro-batch 1", "prefill 0", "decode 1", "forward 2 · micro-batch 1",
        "backward 2 · micro-batch 1", "optimizer 2", "forward 3 · micro-batch 1", "backward 3 · micro-batch 1",
        "optimizer 3"]
    assert max(map(len, lines)) <= 80
    assert "8 sync points" in passes[0] and "1 sync point " in passes[4]
    assert "Printing 14 lines took" in " ".join(lines[len(passes):])


def test_the_time_of_a_pass_has_its_computing_in_it(trace):
    first, second, *_ = [event for event in trace if event.rank == 0 and event.site == "gradients.norm"]
    assert "100 % in them" in pass_line([first], None)
    spent = second.leave - first.leave
    line = pass_line([second], first.leave)
    assert duration(spent) in line and f"{share(second.leave - second.enter, spent)} in them" in line


def test_the_verb_trains_shows_and_is_checked(tmp_path, capsys):
    file, text = tmp_path / "run.json", tmp_path / "text.txt"
    text.write_text("every rank waits for the last one\n" * 20)
    with suppress(SystemExit):
        app(["train", "--steps", "1", "--batch", "3", "--tokens", "4", "--micro-batches", "2", "--ranks", "2",
             "--world", "threads", "--text", str(text), "--out", str(tmp_path / "run"), "--save-every", "0",
             "--sample-every", "0", "--evaluate-every", "0", "--show-comm", "--trace", str(file)])
    told = capsys.readouterr()
    passes = [line.split("  ")[0] for line in told.err.splitlines() if "in them" in line]
    assert passes == PASSES
    assert "was waiting" in told.err and "step 1/1 loss" in told.out
    assert check(file) == 0


def test_exports_name_the_passes(trace):
    spans = [e for e in chrome(trace)["traceEvents"] if e.get("cat") == "phase" and e["tid"] == 1]
    assert [e["name"] for e in spans][:6] == ["load", *PASSES]
    assert spans[1]["args"]["micro_batch"] == 0 and "to its loss" in spans[1]["args"]["what"]
    text = io.StringIO(newline="")
    csv(trace, text)
    rows = list(csv_module.DictReader(io.StringIO(text.getvalue())))
    assert {row["micro_batch"] for row in rows} == {"", "0", "1"}
    assert {row["op"] for row in rows} == {"all_reduce", "all_reduce_max", "all_gather"}
