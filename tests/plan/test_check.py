"""Predicted beside measured: a trace that a known machine made is foretold exactly, and what differs is found."""
import json
from dataclasses import replace

import numpy as np
import pytest
import typer

from minitp.commands.plan.check import called, check_trace, described, verdict
from minitp.config import TINY
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement
from minitp.plan.calibrate.durations import Kind
from minitp.plan.calibrate.messages import BETWEEN, OPS, SIZES, TESTS
from minitp.plan.check import comparison, pass_times
from minitp.plan.check import row as check_row
from minitp.plan.check.now import PAYLOADS, now
from minitp.plan.job import FLOAT32, Training
from minitp.plan.memory import own
from minitp.plan.model import PlannedModel
from minitp.plan.modeled import Stated
from minitp.plan.speed import flops
from minitp.trace.predict import TrainingPlan, predict
from minitp.trace.predict_training import Steps
from tests.mpi_world import run_threads
from tests.plan.calibration import ALPHA, DEVICE, known, plan, seconds, trace_of, training, written


@pytest.mark.parametrize("what", [plan(), plan(gathered=False), training()])
def test_a_trace_of_the_known_machine_is_foretold(what):
    trace, expected = trace_of(what), predict(what)
    found = comparison(trace, known())
    assert found.exact and found.differences == ()
    assert sum(row.predicted for row in found.rows) == len(expected)
    assert sum(row.recorded_bytes for row in found.rows) == sum(event.payload for event in expected)
    for row in found.rows:
        assert row.modeled_s == pytest.approx(row.measured_s, abs=1e-9) and row.median_s == row.measured_s
        assert row.ratio == pytest.approx(1, abs=1e-3) and row.by.startswith("α + nβ") and row.stated is None
    for one in found.passes:
        assert one.modeled_collectives_s == pytest.approx(one.measured_collectives_s, rel=1e-3)
        assert one.modeled_s > one.modeled_collectives_s and one.waiting_s > 0
        assert one.measured_s == pytest.approx(
            one.measured_computing_s + one.measured_collectives_s + one.waiting_s)


def test_tokens_and_steps_are_counted_and_timed():
    prompt, token = comparison(trace_of(plan()), known()).passes
    assert (prompt.unit, prompt.count, token.unit, token.count) == ("prefill", 1, "decode", 3)
    decode = [event for event in predict(plan()) if event.phase == "decode"]
    assert token.measured_collectives_s == pytest.approx(sum(map(seconds, decode)) / 3, rel=1e-3)
    [step] = comparison(trace_of(training()), known()).passes
    assert (step.unit, step.count) == ("training step", 2)
    unknown = replace(known(), device=replace(DEVICE, flops={"bf16": 1e12}))      # no rate for float32
    assert comparison(trace_of(training()), unknown).passes[0].modeled_s is None


@pytest.mark.parametrize("change", ["missing", "twice", "payload"])
def test_a_wrong_count_or_payload_ends_with_exit_code_1(tmp_path, capsys, change):
    expected = predict(plan())
    place = next(i for i, event in enumerate(expected) if event.phase == "decode" and event.op == "all_reduce")
    wrong = expected[place]
    wrong = [] if change == "missing" else [wrong, wrong] if change == "twice" else [
        wrong._replace(payload=wrong.payload + 4)]
    trace = trace_of(plan(), [*expected[:place], *wrong, *expected[place + 1:]])
    found = comparison(trace, known())
    assert not found.exact and found.differences and not all(row.exact for row in found.rows)
    assert check_trace(written(trace, tmp_path), known(), True) == 1
    assert json.loads(capsys.readouterr().out)["exact"] is False
    assert check_trace(written(trace, tmp_path), known(), False) == 1
    assert "differs from what was predicted" in capsys.readouterr().out


def test_a_right_trace_ends_with_exit_code_0(tmp_path, capsys):
    assert check_trace(written(trace_of(plan()), tmp_path), known(), True) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["exact"] and plain["machine"] == "known" and plain["trace"] == "run.json"
    for row in plain["collectives"]:                                    # modeled and measured have keys of their own
        assert row["predicted"] == row["recorded"] and row["modeled_s"] > 0 < row["measured_s"]
    assert check_trace(written(trace_of(plan()), tmp_path), known(), False) == 0
    assert "as predicted, in order and to the byte" in " ".join(capsys.readouterr().out.split())


def test_a_silent_rank_is_a_difference():
    trace = trace_of(plan())
    kept = trace.events["rank"] == 0
    trace.events = {name: column[kept] for name, column in trace.events.items()}
    found = comparison(trace, known())
    assert not found.exact and all(row.recorded == 0 for row in found.rows)


def test_kinds_within_the_stated_error_are_counted():
    trace = trace_of(plan())
    errors = {"all_reduce on 2": {"median": 0.01, "worst": 0.05}, "all_gather on 2": {"median": 0.1, "worst": 0.2}}
    found = comparison(trace, known(measured={"errors": errors}))
    kinds = [row for row in found.rows if row.op in ("all_reduce", "all_gather")]
    assert found.within == (len(kinds), len(kinds)) and all(row.stated.worst in (0.05, 0.2) for row in kinds)
    trace.events["leave"][trace.words("op") == "all_gather"] += 10**6
    assert comparison(trace, known(measured={"errors": errors})).within[0] < len(kinds)


def test_a_time_on_the_other_level_is_within_the_spread():
    two = Stated(0.05, 0.1, 0.8)
    assert two.covers(10.0, 10.5) and two.covers(10.0, 17.9)
    assert not two.covers(10.0, 18.1) and not two.covers(10.0, 5.0)
    assert not Stated(0.05, 0.1).covers(10.0, 12.0)


def test_memory_is_exact_or_a_difference():
    trace = trace_of(plan())
    held = [own.held(rows) for rows in own.of_trace(trace.run)]
    trace.run["memory"] = held
    assert comparison(trace, known()).exact and len(comparison(trace, known()).memory) == 2 * len(held[0])
    trace.run["memory"] = [held[0], held[1] | {"weights": held[1]["weights"] + 1}]
    found = comparison(trace, known())
    assert not found.exact and [row.rank for row in found.memory if not row.exact] == [1]
    trace.run["memory"] = [{"weights": "many"}]
    with pytest.raises(FileFormatError):
        comparison(trace, known())


def test_what_cannot_be_compared_is_refused():
    trace = trace_of(plan())
    trace.run["simulated"] = {"machine": "8xa100-80"}
    with pytest.raises(ConfigError, match="simulated"):
        comparison(trace, known())
    trace = trace_of(plan())
    trace.run["generation"]["passes"] = []
    assert not comparison(trace, known()).exact                          # nothing was predicted, something was recorded
    trace.run["generation"]["passes"] = [["prefill", 5]] * 10**6
    with pytest.raises(FileFormatError):
        comparison(trace, known())


def test_what_to_know_is_said():
    measured = {"world": "threads", "cores": 8, "hosts": 1, "versions": {"mpi": "another \x1b[31m"}}
    trace = trace_of(plan())
    trace.run |= {"versions": {"mpi": "MPICH"}, "ranks_per_core": 2.0}
    said = " | ".join(comparison(trace, known(measured=measured, note="mind \x1b this")).notes)
    for words in ("world: mpi in the trace, threads", "cores: 2 in the trace, 8", "MPI: MPICH in the trace, another",
                  "took turns on 2 cores", "mind", "--ranks 2"):
        assert words in said
    assert "\x1b" not in said and "hosts" not in said and "stay in the caches" in said
    assert "wasn't calibrated here" in " ".join(comparison(trace, known()).notes)


def test_other_work_on_the_machine_is_seen():
    trace = trace_of(plan())
    busy = np.flatnonzero(trace.words("op") == "all_gather")
    steps = trace.events["step"][busy]
    trace.events["leave"][busy[steps > 1]] += 500_000
    assert any("other work" in note and "all_gather" in note for note in comparison(trace, known()).notes)


def test_a_collective_for_which_nobody_waited_has_no_time(capsys):
    from rich.console import Console

    from minitp.commands.plan.check import collectives_table
    rows = [check_row(Kind("gather", 2, 4), 1, 1, np.zeros(3), known())]
    Console(width=140).print(collectives_table(rows, "now"))
    assert "0 ns" not in capsys.readouterr().out and rows[0].ratio is None


def test_a_token_has_its_stated_error_and_a_step_is_a_lower_bound(tmp_path, capsys):
    measured = {"errors": {"token on 2": {"median": 0.12, "worst": 0.34}}, "created": "2026-05-06T07:08",
                "overhead": {"layer_s": 1e-6, "pass_s": 2e-6}}
    prompt, token = comparison(trace_of(plan()), known(measured=measured)).passes
    assert token.stated.worst == 0.34 and prompt.stated is None and not token.lower_bound
    assert token.modeled_overhead_s == pytest.approx(TINY.layers * 1e-6 + 2e-6)
    assert token.modeled_s == pytest.approx(token.modeled_busy_s + token.modeled_collectives_s)
    check_trace(written(trace_of(plan()), tmp_path), known(measured=measured), False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "12%, 34%" in shown and "model of known, calibrated on 2026-05-06 gives: modeled / measured" in shown
    assert comparison(trace_of(training()), known(measured=measured)).passes[0].lower_bound
    check_trace(written(trace_of(training()), tmp_path), known(measured=measured), False)
    assert "≥" in capsys.readouterr().out and called(replace(known(), name="this")) == "this machine"


def test_without_a_description_it_is_said_how_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path))
    with pytest.raises(typer.Exit) as ended:
        described("this")
    assert ended.value.exit_code == 2 and "minitp plan calibrate" in " ".join(capsys.readouterr().err.split())
    assert described("8xa100-80").devices == 8


def test_collectives_run_now_are_at_payloads_of_no_table():
    assert not set(PAYLOADS[1:-1]) & {*SIZES, *BETWEEN, *TESTS} and (PAYLOADS[0], PAYLOADS[-1]) == (4, 2**24)
    assert all(size % 4 == 0 for size in PAYLOADS)


def test_collectives_run_now_stand_beside_the_machine(monkeypatch):
    from minitp.plan.check import now as check_now
    monkeypatch.setattr(check_now, "PAYLOADS", (4, 80))
    found, other = run_threads(lambda comm: now(comm, known(), seconds=0), 2)
    rows = found.rows
    assert "wasn't calibrated here" in found.notes[0]
    assert other is None and [Kind(row.op, row.ranks, row.payload) for row in rows] == [
        Kind(op, 2, size) for op in OPS for size in (4, 80)]
    assert all(row.measured_s > 0 and row.modeled_s > ALPHA / 2 for row in rows)
    assert f"of {len([r for r in rows if r.op == 'all_reduce'])} all-reduces" in verdict(rows)
    assert verdict([]) == "no all-reduce was measured"
    with pytest.raises(ConfigError, match="--ranks 2"):
        run_threads(lambda comm: now(comm, known()), 1)


def test_a_steps_computing_is_that_of_the_rank_with_the_most():
    """8 heads over 3 ranks: some have three of them, and the others wait."""
    what = TrainingPlan(Placement(TINY, 3), "float32", [Steps(0, 2, ((1, 8), (2, 8)))])
    model, machine = PlannedModel(TINY), known(3)
    whole = sum(flops.step(model, Training(batch, 8, batch, "none", FLOAT32)).hardware for batch in (1, 2))
    evenly = whole / 3 / machine.device.peak("float32")
    assert 1.02 * evenly < pass_times._computing(what, "training step", machine) < 2 * evenly
