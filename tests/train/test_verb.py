"""`minitp train` as a user meets it: what it prints, writes and refuses; and that a run goes on as if never stopped."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.commands.trace import check
from minitp.commands.train_display import Display
from minitp.config import TINY
from minitp.errors import MinitpError
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.predict_training import sync_points
from minitp.train.log import read_log
from minitp.train.optimizer import AdamW

ROOT = Path(__file__).parents[2]
SMALL = ["--batch", "4", "--tokens", "16", "--world", "threads", "--set", "run.evaluate_batches=1", "--set",
         "run.sample_tokens=4"]


@pytest.fixture(autouse=True)
def text(tmp_path, monkeypatch):
    """A folder of its own, with a short text and the cache in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("".join(f"{n} sheep and {n * n} goats.\n" for n in range(200)))


def minitp(*words: str) -> str:
    """What a command line prints; a MinitpError (printed by `main` for a user) is raised."""
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def train(*words: str) -> str:
    return minitp("train", "--text", "text.txt", *SMALL, *words)


def told(*words: str) -> str:
    """What a run says beside its output."""
    result = CliRunner().invoke(app, ["train", "--text", "text.txt", *SMALL, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stderr


def refusal(*words: str) -> str:
    with pytest.raises(MinitpError) as error:
        train(*words)
    return str(error.value)


def step_losses(folder) -> list[float]:
    return [row["loss"] for row in read_log(folder) if row["kind"] == "step"]


def test_a_run_is_told_logged_and_saved(tmp_path):
    said = train("--steps", "5", "--ranks", "3", "--evaluate-every", "2", "--save-every", "3", "--out", "run")
    rows = read_log(tmp_path / "run")
    assert [row["kind"] for row in rows] == [
        "start", "step", "memory", "step", "evaluation", "step", "checkpoint", "step", "evaluation", "step",
        "evaluation", "sample", "checkpoint", "end"]
    assert [row["step"] for row in rows if row["kind"] == "step"] == [1, 2, 3, 4, 5]
    start, end = rows[0], rows[-1]
    assert start["text"]["name"] == "text.txt" and len(start["text"]["sha256"]) == 64 and start["ranks"] == 3
    assert end["checkpoint"] == "run/step-00000005" and end["loss"] == step_losses(tmp_path / "run")[-1]
    steps = [row for row in rows if row["kind"] == "step"]
    assert {row["sync_points"] for row in steps} == {sync_points(Placement(TINY, 3))} == {15}
    assert {row["tokens"] for row in steps} == {4 * 16}
    assert all(len(line) <= 80 for line in said.splitlines())
    assert "one sync point more where kv heads are held by several ranks" in said and "to test on (bytes)" in said
    assert said.splitlines()[-1] == f'minitp generate -m {end["checkpoint"]} --temperature 0.8 "{end["prompt"]}"'
    assert "step 5/5 loss" in said and "15 sync points" in said and "step 3: saved as run/step-00000003" in said
    written = json.loads(minitp("generate", "-m", end["checkpoint"], "--max-tokens", "2", "--json", "1 sheep"))
    assert written["prompt_tokens"] == list(b"1 sheep") and len(written["tokens"]) == 2
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock", "log.jsonl", "step-00000003", "step-00000005", "train.toml"]


def test_what_is_held_is_what_the_placement_says(tmp_path):
    row = json.loads(train("--steps", "1", "--ranks", "3", "--json", "--save-every", "0", "--dtype", "bf16"))
    weights = 4 * max(Placement(TINY, 3).elements(rank) for rank in range(3))
    held = row["memory"]
    assert (held["weights"], held["gradients"], held["optimizer"]) == (weights, weights, 3 * weights)
    assert held["activations"] > 4 * 16 * TINY.hidden * 4 * TINY.layers
    assert row["checkpoint"] is None and not list((tmp_path / "runs/tiny").glob("step-*"))


@pytest.mark.parametrize("more", [["--micro-batches", "3", "--recompute", "full"],
                                  ["--embedding", "hidden", "--set", "model.tied=true", "--dropout", "0.1"],
                                  ["--trace-steps", "2", "--values"], ["--trace-steps", "-1"]])
def test_every_collective_of_a_run_is_as_foretold(tmp_path, more, capsys):
    train("--steps", "3", "--ranks", "5", "--evaluate-every", "2", "--sample-every", "2", "--trace", "t.json", *more)
    assert check(tmp_path / "t.json") == 0, capsys.readouterr().out
    trace = Trace.read(tmp_path / "t.json")
    kept = {"2": 2, "-1": 1}.get(more[1], 3)
    assert len(trace.run["losses"]) == kept and bool(trace.values) == ("--values" in more)


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    """At another number of ranks, and from within the steps after its last checkpoint."""
    way = ["--dtype", "float64", "--save-every", "2", "--dropout", "0.1", "--set", "optimizer.warmup=1"]
    train("--steps", "7", "--ranks", "2", *way, "--out", "whole")
    train("--steps", "7", "--ranks", "2", *way, "--out", "run")
    for folder in ("step-00000006", "step-00000007"):
        for file in (tmp_path / "run" / folder).iterdir():
            file.unlink()
        (tmp_path / "run" / folder).rmdir()
    (tmp_path / "whole" / "step-00000006").rename(tmp_path / "run" / "step-00000006")
    minitp("train", "--resume", "--out", "run", "--ranks", "3", "--world", "threads")
    whole, run = step_losses(tmp_path / "whole"), step_losses(tmp_path / "run")
    assert len(run) == 7 and run[:6] == whole[:6] and run[6] == pytest.approx(whole[6], abs=1e-9)
    kinds = [row["kind"] for row in read_log(tmp_path / "run")]
    assert kinds.count("resume") == 1 and kinds.count("end") == 1


def test_a_run_of_another_length_takes_its_rates_and_says_so(tmp_path):
    train("--steps", "6", "--ranks", "1", "--out", "run", "--set", "optimizer.warmup=2")
    settings = (tmp_path / "run/train.toml").read_text()
    assert "has done 6 steps (step-00000006), and would be one of 3; --steps takes 6 or more" in refusal(
        "--resume", "--steps", "3", "--out", "run", "--ranks", "2")
    assert (tmp_path / "run/train.toml").read_text() == settings
    said = told("--resume", "--steps", "8", "--out", "run", "--ranks", "2")
    rates = [row["rate"] for row in read_log(tmp_path / "run") if row["kind"] == "step"]
    assert rates[5] == rates[7] == 0 < rates[6]
    assert f"ends at step 8, not 6: the rate goes from {rates[6]:.3g} in step 7 to 0 in step 8. It was 0 in" in said
    assert "schedule" not in told("--resume", "--out", "run", "--ranks", "1")


def test_a_folder_in_the_way_of_a_checkpoint_to_come_is_met_at_the_start(tmp_path):
    train("--steps", "2", "--ranks", "1", "--out", "run")
    for step in (1, 5, 6):
        (tmp_path / f"run/step-0000000{step}").mkdir()
    more = ["--resume", "--out", "run", "--ranks", "1", "--save-every", "3"]
    why = refusal(*more, "--steps", "6")
    assert "run/step-00000006 is no checkpoint of this run" in why and "after step 6: move or rename it" in why
    train(*more, "--steps", "4")
    assert (tmp_path / "run/step-00000004/training.json").is_file() and (tmp_path / "run/step-00000005").is_dir()


@pytest.mark.parametrize("world", ["threads", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.slow])])
def test_ctrl_c_says_how_to_go_on(tmp_path, world):
    words = ["train", "--text", "text.txt", *SMALL, "--world", world, "--ranks", "2", "--steps", "99999", "--out",
             "a run", "--save-every", "2", "--set", "run.keep=1", "--sample-every", "0", "--evaluate-every", "0"]
    process = subprocess.Popen([sys.executable, "-m", "minitp", *words], env=os.environ | {"PYTHONPATH": str(ROOT)},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("a run/step-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    last = max(tmp_path.glob("a run/step-*"))
    assert process.returncode == 130 and said.endswith(
        "minitp: stopped by Ctrl-C\n"
        f"  minitp train --resume -o 'a run' goes on after step {int(last.name[5:]):,}\n")


def test_steps_that_are_not_finite_are_skipped_and_end_the_run_without_a_checkpoint(tmp_path):
    """The weights of step 1 are spoilt: no checkpoint of them takes the place of a good one."""
    why = refusal("--steps", "3", "--rate", "1e30", "--set", "optimizer.clip=0", "--ranks", "2", "--out", "run",
                  "--model", "gpt2", "--set", "model.hidden=16", "--set", "model.layers=1", "--set", "model.heads=2")
    rows = read_log(tmp_path / "run")
    assert [row["skipped"] for row in rows if row["kind"] == "step"] == [False, True, True]
    assert next(row for row in rows if row["kind"] == "sample")["text"] is None
    assert "steps 2-3, so they were skipped" in why and "--rate (it is 1e+30)" in why
    assert not list((tmp_path / "run").glob("step-*"))


def test_a_run_whose_weights_are_spoilt_ends_early_and_keeps_its_checkpoints(tmp_path, monkeypatch):
    """Good steps, then gradients that aren't finite: from the first on nothing is saved, after ten the run ends."""
    step, taken = AdamW.step, count(1)

    def spoil_the_fourth(self, gradients, rate):
        step(self, gradients, rate)
        if next(taken) == 4:
            self.weights["norm.weight"][0] = np.nan

    monkeypatch.setattr(AdamW, "step", spoil_the_fourth)
    why = refusal("--steps", "99", "--ranks", "1", "--out", "run", "--save-every", "3", "--set", "run.keep=1")
    steps = [row for row in read_log(tmp_path / "run") if row["kind"] == "step"]
    assert [row["skipped"] for row in steps] == [False] * 4 + [True] * 10 and "steps 5-14" in why
    assert [path.name for path in (tmp_path / "run").glob("step-*")] == ["step-00000003"]


def test_an_evaluation_takes_no_window_twice(tmp_path):
    train("--steps", "1", "--ranks", "1", "--out", "run", "--set", f"run.evaluate_batches={2 ** 53}")
    start, evaluation = (next(row for row in read_log(tmp_path / "run") if row["kind"] == kind)
                         for kind in ("start", "evaluation"))
    assert 0 < evaluation["tokens"] <= start["validation_tokens"]


def test_the_folder_of_a_run_stands_for_its_newest_checkpoint(tmp_path):
    train("--steps", "2", "--ranks", "1", "--out", "run", "--save-every", "1")
    words = ["generate", "--max-tokens", "2", "--json", "1 sheep"]
    result = CliRunner().invoke(app, [*words, "-m", "run"], catch_exceptions=False)
    assert result.stderr == "minitp: run is a training run: taking its newest checkpoint, step-00000002\n"
    tokens = [json.loads(out)["tokens"] for out in (result.stdout, minitp(*words, "-m", "run/step-00000002"))]
    assert tokens[0] == tokens[1]
    train("--steps", "1", "--ranks", "1", "--out", "bare", "--save-every", "0")
    with pytest.raises(MinitpError, match=r"bare is a training run that has no checkpoint \(yet\)"):
        minitp(*words, "-m", "bare")


def test_a_file_of_settings_and_options_over_it(tmp_path):
    (tmp_path / "a.toml").write_text('[train]\nsteps = 4\nseed = 7\n[model]\nlayers = 1\n[run]\nfolder = "there"\n')
    said = train("--config", "a.toml", "--steps", "2", "--set", "model.ffn=24")
    assert "step 2/2" in said
    start = read_log(tmp_path / "there")[0]
    assert start["settings"]["train"]["seed"] == 7 and start["settings"]["model"] == {"layers": 1, "ffn": 24}
    assert (start["model_config"]["layers"], start["model_config"]["ffn"]) == (1, 24)


def test_a_checkpoint_can_be_where_another_run_starts(tmp_path):
    train("--steps", "6", "--out", "first", "--tokenizer", "bpe", "--vocab", "280")
    train("--steps", "2", "--out", "second", "-m", "first/step-00000006", "--rate", "1e-4")
    first, second = step_losses(tmp_path / "first"), step_losses(tmp_path / "second")
    assert second[0] < first[0] - 0.1


def test_runs_are_never_written_over_and_wrong_ones_leave_nothing(tmp_path):
    train("--steps", "1", "--save-every", "0", "--out", "run")
    before = (tmp_path / "run" / "log.jsonl").read_bytes()
    assert "already holds a run: --resume goes on with it" in refusal("--steps", "1", "--out", "run")
    assert (tmp_path / "run" / "log.jsonl").read_bytes() == before
    assert "holds no run" in refusal("--resume", "--out", "nothing")
    assert "there is no text gone.txt" in refusal("--text", "gone.txt", "--out", "none")
    assert "sample_prompt" in refusal("--sample-prompt", "x" * 300, "--out", "none")
    assert "needs 3,000" in refusal("--set", "model.positions=4000", "--tokens", "2999", "--out", "none")
    assert "give --trace" in refusal("--values") and "--trace-steps 0" in refusal("--trace", "t", "--trace-steps", "0")
    assert not (tmp_path / "none").exists() and not (tmp_path / "nothing").exists()


class Screen:
    """A terminal: what would be seen on it."""
    encoding = "utf-8"

    def __init__(self):
        self.lines = [""]

    def write(self, text):
        while text:
            if up := re.match(r"\x1b\[(\d+)A\x1b\[J", text):           # so many lines up, and clear all below
                del self.lines[-1 - int(up[1]):]
                self.lines.append("")
                text = text[up.end():]
            elif text[0] == "\n":
                self.lines.append("")
                text = text[1:]
            else:
                self.lines[-1] += text[0]
                text = text[1:]

    def flush(self):
        pass


def test_the_bar_stays_in_its_place():
    screen = Screen()
    display = Display(screen, 50, bar=True)
    for step in range(1, 51):
        display.show({"kind": "step", "step": step, "loss": 5 - step / 10, "skipped": step == 3, "sync_points": 14,
                      "payload": 1_323_016, "tokens_per_second": 12345.6})
        if step == 1:
            display.show({"kind": "memory", "weights": 999_000_000, "gradients": 999_000_000,
                          "optimizer": 2_000_000_000, "activations": 12_345_678_901})
        if step == 20:
            display.show({"kind": "sample", "step": 20, "prompt": "The ", "text": "c\x1b[31mat"})
    display.finish()
    display.say("the end")
    assert screen.lines[0] == "step 20: The c�[31mat"
    assert screen.lines[1].startswith("━" * 20 + " step 50/50 loss 0.000 12,346 tokens/s")
    assert screen.lines[2] == "14 sync points and 1.32 MB of payload a step"
    assert screen.lines[3] == "weights 999 MB, gradients 999 MB, optimizer 2 GB, activations 12.3 GB"
    assert screen.lines[4:] == ["the end", ""]
