"""`minitp compare`: one table and its JSON rows against the closed form, the placement and broken gradients."""
import io
import json
import re
import subprocess
import sys
from math import inf, nan

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from minitp.cli import app
from minitp.commands import compare_table
from minitp.commands.compare import CompareOptions, compare, meshes, runs
from minitp.config import TINY
from minitp.errors import ConfigError, LaunchError, MinitpError, NumericsError
from minitp.placement import Placement
from minitp.plan.network.collectives import cost
from minitp.progress import bytes_bar, steps_bar
from minitp.trace.predict_training import Steps, TrainingPlan
from minitp.train.compare import PHASES, finite
from tests.until import until

FEW = {"train": {"steps": 2, "batch": 3, "tokens": 8, "micro_batches": 2, "dtype": "float64"}}


def rows_of(ranks="1,2,3,5", **train):
    options = CompareOptions({"train": FEW["train"] | train}, ranks)
    return list(runs(options, options.config()))


@pytest.fixture(scope="module")
def rows():
    return rows_of()


def test_every_number_of_ranks_takes_the_steps_of_one(rows):
    assert [row["mesh"] for row in rows] == [{"tp": 1}, {"tp": 2}, {"tp": 3}, {"tp": 5}]
    assert [row["ranks"] for row in rows] == [1, 2, 3, 5]
    for row in rows:
        np.testing.assert_allclose(row["losses"], rows[0]["losses"], rtol=0, atol=1e-12)
        assert row["loss"] == row["losses"][-1] and row["losses"][0] == pytest.approx(np.log(256), abs=0.1)
        assert row["max_gradient_difference"] < 1e-12 < row["max_gradient"]
    assert rows[0]["max_gradient_difference"] == 0


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_sync_points_and_payload_are_those_of_the_closed_form(rows, recompute):
    for row in rows if recompute == "none" else rows_of("3", recompute=recompute):
        plan = TrainingPlan(Placement(TINY, row["ranks"]), "float64", [Steps(0, 1, ((2, 8), (1, 8)))], recompute)
        events = list(plan.events())
        for phase in PHASES:
            of_phase = [event for event in events if event.phase == phase]
            assert row["sync_points_by_phase"][phase] == len(of_phase)
            assert row["payload_by_phase"][phase] == sum(event.payload for event in of_phase)
        assert row["sync_points"] == len(events) and row["payload"] == sum(event.payload for event in events)
        assert row["bytes_per_rank"] == pytest.approx(2 * (row["ranks"] - 1) / row["ranks"] * row["payload"], abs=1)
        assert float(cost("all_reduce", "ring", 3).volume) == pytest.approx(4 / 3)


def test_memory_is_what_the_placement_gives_each_rank(rows):
    for row in rows:
        placement, held = Placement(TINY, row["ranks"]), row["memory_by_rank"]
        for rank, of_rank in enumerate(held):
            weights = 8 * placement.elements(rank)
            assert (of_rank["weights"], of_rank["gradients"], of_rank["optimizer"]) == (weights, weights, 2 * weights)
            assert of_rank["activations"] > 0
        totals = [sum(of_rank.values()) for of_rank in held]
        assert row["memory"] == held[row["memory"]["rank"]] | {"rank": totals.index(max(totals))}
        assert len(row["seconds"]) == 2 and row["seconds_per_step"] == row["seconds"][1] > 0


def test_a_debt_that_is_not_paid_shows(monkeypatch):
    """kv heads that two ranks hold: without their sum the loss of the first step is right, and the gradient isn't."""
    monkeypatch.setattr("minitp.train.step.sum_copies", lambda *_: None)
    right, wrong = rows_of("3", steps=1)
    assert wrong["losses"] == pytest.approx(right["losses"], abs=1e-12)
    assert wrong["max_gradient_difference"] > 1e-3


def test_gradients_that_are_no_numbers_are_null():
    assert [finite(number) for number in (1.5, nan, inf)] == [1.5, None, None]
    assert compare_table.losses([1.0, None]) == "1.000000\nnot finite" and compare_table.number(None) == "not finite"


@pytest.mark.parametrize("ranks", ["0", "a,2", "", "1,,2", "-1", "65", "2.0", "٣"])
def test_a_wrong_list_of_ranks_is_refused_with_a_right_one(ranks):
    with pytest.raises(ConfigError, match=r"isn't a number of ranks.*such as 1,2,4"):
        meshes(ranks)


def test_one_rank_comes_first_and_none_twice():
    assert meshes("3, 2,3,1") == [{"tp": 1}, {"tp": 3}, {"tp": 2}]


def test_under_mpirun_it_is_refused(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(LaunchError, match=r"leave out mpirun; --world mpi"):
        compare(CompareOptions(FEW))


# ── what is printed ──

SMALL = ["compare", "--steps", "1", "--batch", "1", "--tokens", "4"]


def test_json_is_a_row_a_line():
    shown = CliRunner().invoke(app, [*SMALL, "--ranks", "2", "--json"], catch_exceptions=False)
    found = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["mesh"]["tp"] for row in found] == [1, 2] and {row["dtype"] for row in found} == {"float64"}
    assert found[1]["world"] == "threads" and found[1]["text"]["name"] == "pydoc_data.topics"


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_losses_that_are_not_finite_are_shown_and_end_it_with_an_error(how, capsys):
    words = ["compare", "--steps", "2", "--batch", "1", "--tokens", "4", "--ranks", "2", "--dtype", "float32", "--set",
             "optimizer.rate=1e38", "--set", "optimizer.clip=0", *how]
    with pytest.raises(NumericsError, match=r"tp=1, tp=2 aren't finite.*it is 1e\+38"):
        app(words, standalone_mode=False)
    shown = capsys.readouterr().out
    assert ("not finite" if not how else '"loss": null') in shown


def test_a_file_of_settings_holds_where_no_option_does(tmp_path):
    file = tmp_path / "train.toml"
    file.write_text('[model]\nfamily = "gpt2"\nhidden = 12\nlayers = 1\nheads = 3\n[train]\nsteps = 900\nbatch = 1\n'
                    'tokens = 8\ndtype = "float32"\n[optimizer]\nwarmup = 90\n[run]\nfolder = "elsewhere"\n')
    words = ["compare", "--config", str(file), "--steps", "1", "--batch", "2", "--ranks", "2", "--json"]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    row = json.loads(shown.stdout.splitlines()[-1])
    assert [row[key] for key in ("model", "steps", "batch", "tokens", "dtype")] == ["gpt2", 1, 2, 8, "float32"]
    assert row["max_gradient_difference"] < 1e-6


@pytest.mark.parametrize(("words", "says"), [
    (["--model", "smoll"], "no model"), (["--micro-batches", "2"], "micro_batches 2"), (["--tokens", "999"], "999"),
    (["--text", "nowhere"], "no text"), (["--set", "train.x=1"], "no setting 'x'")])
def test_what_cannot_be_compared_is_refused(words, says):
    with pytest.raises(MinitpError, match=says):
        CliRunner().invoke(app, [*SMALL, *words], catch_exceptions=False)


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_fits_and_says_all(rows, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    many = [row | {"losses": row["losses"] * 5, "payload": 9_999, "bytes_per_rank": 9_999} for row in rows]
    compare_table.print_table(many, console)
    shown = console.file.getvalue()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert shown.count("…") == 4, "once in each block: losses in between; nothing is cut off"
    for words in ("tp=5", "reference", "9,999 B sent", "activations", "optimizer", "2 micro-batches",
                  "a model, not measured", f"{rows[1]['losses'][0]:.6f}", "threads of one process"):
        assert words in " ".join(shown.split()), words


def test_a_bar_shows_by_itself_and_goes_away():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with steps_bar(console, "comparing", 6, after=0.0) as show:
        show(3, "tp=2")
    assert "comparing tp=2" in console.file.getvalue() and "3/6" in console.file.getvalue()
    quiet = Console(file=io.StringIO(), width=80, force_terminal=True)
    with steps_bar(quiet, "comparing", 6) as show:
        show(6, "tp=2")
    assert not quiet.file.getvalue()


def test_a_spinner_turns_when_all_is_read_and_the_work_goes_on():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with bytes_bar(console, "learning", after=0.0) as show:
        show(5, 5)
        until(lambda: len(set(re.findall(r"([-\\|/]) learning", console.file.getvalue()))) > 1)


@pytest.mark.mpi
@pytest.mark.slow
def test_mpi_jobs_take_the_same_steps():
    ended = subprocess.run([sys.executable, "-m", "minitp", *SMALL, "--ranks", "3", "--world", "mpi", "--json"],
                           capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["world"], row["ranks"]) for row in found] == [("mpi", 1), ("mpi", 3)]
    assert found[1]["losses"] == pytest.approx(found[0]["losses"], abs=1e-12)
    assert found[1]["max_gradient_difference"] < 1e-12
    assert found[1]["sync_points_by_phase"] == {"forward": 8, "backward": 5, "optimizer": 2}


@pytest.mark.mpi
@pytest.mark.slow
def test_a_job_that_fails_says_why_once():
    ended = subprocess.run([sys.executable, "-m", "minitp", *SMALL, "--ranks", "2", "--world", "mpi", "--text", "none"],
                           capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and not ended.stdout
    assert ended.stderr.count("no text none") == 1 and "Traceback" not in ended.stderr


def test_a_setting_that_no_run_has_is_refused_though_it_would_not_be_used():
    with pytest.raises(ConfigError, match="did you mean keep"):
        CompareOptions({"run": {"kep": 3}}).config()
