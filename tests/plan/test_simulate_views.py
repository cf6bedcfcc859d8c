"""A simulated trace through the verb and every view: each says that it is a model, and none takes it for measured."""
import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from minitp.cli import app
from minitp.commands.trace import check
from minitp.runs import title
from minitp.trace import Timeline, Trace
from minitp.trace.export import chrome
from minitp.trace.show import show
from minitp.trace.simulated import NOT_MEASURED, is_simulated, lane_words, simulated_line
from minitp.trace.wording import duration
from minitp.view.ledger import Ledger
from minitp.view.passes import Passes
from minitp.view.player.export import to_html
from minitp.view.question import question_of
from minitp.view.reading import PlayReader
from minitp.view.simulated import banner, lanes
from minitp.view.text import caption, place
from minitp.view.watch import play

STEP = ["llama-3.1-8b", "--machine", "8xa100-80", "--gpus", "64", "--tp", "4", "--pp", "4", "--seq", "128"]


def asked(*words: str, fails: bool = False) -> str:
    result = CliRunner().invoke(app, ["plan", "simulate", *words])
    assert (result.exception is not None) == fails, result.output
    return str(result.exception) if fails else result.output


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("simulated") / "step.json.gz"
    said = asked(*STEP, "--straggler", "5:1.5", "-o", str(path))
    assert NOT_MEASURED in said and "waiting for another stage (bubble)" in said and "step.json.gz" in said
    return path


@pytest.fixture(scope="module")
def trace(file) -> Trace:
    return Trace.read(file)


def test_the_header_says_who_stands_for_whom(trace):
    told = trace.run["simulated"]
    assert is_simulated(trace.run) and told["devices"] == 64 and trace.run["world"] == "simulated"
    assert sum(one["stands_for"] for one in told["ranks"]) == 64
    assert "device 5 · stage 0 · dp 1 · tp 1" in lane_words(trace.run)
    assert simulated_line(trace.run).endswith(f"{trace.run['ranks']} of 64 ranks are shown.")


def test_every_view_says_that_it_is_a_model(trace):
    stream = io.StringIO()
    show(trace, console=Console(file=stream, width=200, highlight=False))
    assert NOT_MEASURED in stream.getvalue() and "rank 0: device 0 · stage 0" in stream.getvalue()
    made = play(trace)
    assert made["run"]["banner"][0].startswith(NOT_MEASURED) and made["run"]["world"] == "simulated"
    assert made["run"]["title"].endswith(", simulated")
    assert NOT_MEASURED in to_html(made)
    assert "(simulated: a model, not measured)" in chrome(trace)["traceEvents"][0]["args"]["name"]
    assert title(trace.run).endswith("(simulated)")
    assert question_of(trace.run) is None                        # never beside runs that were measured
    assert Ledger.of(Timeline.of(trace)).lines and Passes(Timeline.of(trace)).work


@pytest.mark.parametrize("name", ["watch", "timeline", "ledger", "shards"])
def test_the_pages_say_so_too(name, trace, tmp_path, monkeypatch):
    pytest.importorskip("streamlit")
    from streamlit.testing.v1 import AppTest
    monkeypatch.setenv("MINITP_RUNS", str(tmp_path))
    trace.write(tmp_path / "step.json.gz")
    page = AppTest.from_file(str(Path(__file__).parents[2] / "app" / "main.py"), default_timeout=60)
    page.switch_page(f"views/{name}.py")
    page.query_params["run"] = "step.json.gz"
    page.run()
    assert not page.exception, page.exception
    assert any("a model, not measured" in one.value for one in page.warning)


def test_layers_of_stages_can_be_named():
    said = " ".join(asked("tiny", "--pp", "2", "--gpus", "2", "--seq", "512", "--stage-layers", "0,2").split())
    assert "PP2, layers 0,2" in said and "`minitp plan` says" in said


def test_a_step_has_the_planners_own_number_beside_it():
    said = " ".join(asked("tiny", "--tp", "2", "--gpus", "4", "--seq", "512", "--zero", "1").split())
    assert "`minitp plan` says" in said and "run beside the passes" in said and "without stragglers" not in said
    assert "published runs the step of `minitp plan`, not the simulated one, is off by" in said and "times that" in said
    assert "Nobody asked" not in said
    slow = " ".join(asked("tiny", "--tp", "2", "--task", "infer", "--jitter", "0.1").split())
    assert "without stragglers and jitter" in slow and "published runs" not in slow
    assert json.loads(asked("tiny", "--gpus", "4", "--seq", "64", "--json"))["planned"]["hidden s"] > 0


def test_a_layout_that_nobody_asked_for_fits_and_is_said(tmp_path):
    fits = " ".join(asked("llama-3.1-8b", "--seq", "512", "--batch", "16").split())
    assert "the fastest that fits" in fits and "16 sequences of 512 tokens" in fits and "ZeRO-" in fits
    assert "Warning" not in fits
    path = tmp_path / "large.json"
    none = " ".join(asked("llama-3.1-405b", "--seq", "128", "--batch", "8", "-o", str(path)).split())
    assert "none of these devices carries this" in none and "Warning: It doesn't fit" in none
    assert "It doesn't fit" in simulated_line(Trace.read(path).run)
    given = " ".join(asked("llama-3.1-405b", "--gpus", "8", "--tp", "8", "--seq", "128").split())
    assert given.index("Warning: It doesn't fit") < given.index("for a training step") and "Nobody asked" not in given


@pytest.mark.parametrize("option", [["--tp", "4"], ["--seq", "128"], ["--zero", "2"], ["--sequence-parallel"],
                                    ["--schedule", "gpipe"], ["--batch", "4"], ["--embedding", "hidden"],
                                    ["--show", "all"], ["--weights", "int8"]])
def test_a_replay_refuses_what_belongs_to_a_prediction(option):
    bundled = Path(__file__).parents[2] / "minitp" / "view" / "traces" / "tiny-4-ranks.json.gz"
    assert f"{option[0]} belongs to the simulation of a model" in asked(str(bundled), *option, fails=True)


def test_a_strangers_header_is_taken_as_text():
    for told in ({"machine": "<b>[x](y)", "model of": 7, "ranks": [7, None, {"device": -1, "tp": "x", "pp": 2**40}]},
                 {"ranks": "x" * 10**6, "devices": "many"}, {}):
        run = {"simulated": told, "ranks": 2}
        assert simulated_line(run).startswith(NOT_MEASURED) and all(len(words) < 200 for words in lane_words(run))
    assert simulated_line({"simulated": "yes"}) == "" and lane_words({"simulated": []}) == []


def test_numbers_as_json_and_a_run_replayed(tmp_path, capsys):
    files = [tmp_path / "run.json", tmp_path / "there.json"]
    made = json.loads(asked("tiny", "--tp", "3", "--dp", "1", "--task", "infer", "--weights", "float32",
                            "--activations", "float32", "--cache", "float32", "--show", "all", "--json",
                            "-o", str(files[0])))
    assert made["devices"] == 3 and sum(one["seconds"] for one in made["shares"]) == pytest.approx(made["seconds"])
    assert check(files[0]) == 0
    asked("tiny", "--tp", "2", "--dp", "1", "--seq", "64", "--precision", "float32", "-o", str(files[0]))
    assert Trace.read(files[0]).run["ranks"] == 1 and check(files[0]) == 0         # one for both, and it says so
    bundled = Path(__file__).parents[2] / "minitp" / "view" / "traces" / "tiny-4-ranks.json.gz"
    assert "for a replay on 4 devices" in asked(str(bundled), "--machine", "8xa100-80", "-o", str(files[1]))
    assert check(files[1]) == 0


@pytest.mark.parametrize("show_", ["classes", "all"])
def test_what_has_no_closed_form_says_so(show_, tmp_path, capsys):
    path = tmp_path / "step.json"
    asked("tiny", "--tp", "2", "--pp", "2", "--gpus", "8", "--seq", "32", "--show", show_, "-o", str(path))
    assert check(path) == 2
    said = capsys.readouterr().err
    assert "simulated one of TP2 × PP2 × DP2" in said and "tensor parallelism alone" in said and "Error" not in said


@pytest.mark.parametrize(("words", "told"), [
    (["nothing.json.gz"], "there is no trace"), (["tiny", "--tp", "3", "--gpus", "8"], "6 would work"),
    (["tiny", "--tp", "2", "--dp", "2", "--gpus", "8"], "leave out --gpus or --dp"),
    (["tiny", "-o", "x.txt"], "NAME.json"), (["tiny", "-o", "no/where.json"], "no folder"),
    (["tiny", "--straggler", "5"], "5:1.5"), (["tiny", "--straggler", "x:2"], "5:1.5"),
    (["tiny", "--straggler", "9:2"], "no device of 0…7"),
    (["gpt2", "--pp", "4", "--dp", "1", "--schedule",
      "interleaved", "--chunks", "2", "--batch", "6"], "multiple of 4")])
def test_what_the_verb_refuses(words, told):
    assert told in asked(*words, fails=True)


def test_who_meets_is_said_by_stage_and_size(trace):
    """The player's captions are these word for word."""
    made = play(trace)
    reader, run = PlayReader(made), made["run"]
    assert "A lane is one device, named by its place in the layout" in run["banner"][1] and len(run["lanes"]) > 4
    assert not any(NOT_MEASURED in note for note in run["notes"])
    embedding = next(k for k in range(reader.n) if reader.sync(k).site == "embedding")
    said = [caption(reader, embedding, phase) for phase in range(4)]
    assert "between 4 devices of stage 0 (tp): adds the 4 partial sums" in said[2]
    assert not any("one rank alone" in text or "every rank" in text for text in said)
    sent = [reader.sync(k) for k in range(reader.n) if reader.sync(k).op == "send"]
    assert {one.part for one in sent} == {"message"}
    assert {one.group for one in sent if one.phase == "forward"} == {
        f"stage {n} sends to stage {n + 1}" for n in range(3)}
    assert place(reader, sent[0].index).split(" · ")[-2].startswith("stage ")
    for phase in range(4):
        assert "rank" not in caption(reader, sent[0].index, phase)
    assert "Message: stage 0 sends to stage 1" in caption(reader, sent[0].index, 2)


def test_strangers_places_are_numbers_or_nothing():
    for told in ({"layout": "x", "ranks": [7, {"pp": "x", "stands_for": -1}]}, {"layout": 7}, {"layout": "TP2"}):
        assert banner({"simulated": told, "ranks": 2})[0].startswith(NOT_MEASURED)
        assert all(isinstance(name, str) for name in lanes({"simulated": told, "ranks": 2}))
    assert lanes({}) == [] == banner({})


def test_a_clock_of_whole_ns_tells_no_part_of_one():
    assert [duration(ns) for ns in (0.0915, 0.0, 1.0, 1.5)] == ["0 ns", "0 ns", "1 ns", "1.5 ns"]
