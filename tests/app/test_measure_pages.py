"""Timeline, Ledger and Compare as pages: what they say of a real run, of a strange one, and how soon of a long one."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minitp.trace import Timeline, Trace
from minitp.view import timeline as view
from tests.app.conftest import APP, ROOT
from tests.app.real_runs import tiny_run
from tests.view.timed_traces import all_reduces, event
from tests.view.view_runs import training

PAGES = ("timeline", "ledger", "compare")


@pytest.fixture
def opened(page):
    """opened("ledger", run="x.json") → the page, which must not have failed."""
    def of(name: str, **query: str):
        app = page(APP / "main.py")
        app.switch_page(f"views/{name}.py")
        for key, value in query.items():
            app.query_params[key] = value
        app.run()
        assert not app.exception, app.exception
        assert app.title[0].value.lower() == name
        return app
    return of


def said(app) -> str:
    return "\n".join(one.value for kind in ("markdown", "caption", "text", "info", "warning", "success", "error")
                     for one in getattr(app, kind))


@pytest.mark.parametrize("name", PAGES)
def test_without_a_run_a_page_says_what_to_do(opened, name, monkeypatch):
    from ui import picker
    monkeypatch.setattr(picker, "samples", list)
    app = opened(name)
    assert "There is no run to show yet" in said(app) or name == "compare"


def test_the_timeline_of_a_run(opened, runs, tiny_trace):
    tiny_trace.write(runs / "tiny.json")
    app = opened("timeline", run="tiny.json")
    assert view.straggler_line(view.came_last(Timeline.of(tiny_trace))) in said(app)
    assert len(app.get("plotly_chart")) == 5 and len(app.expander) >= 5        # every chart can be read as text
    assert "stops paying" in said(app) or "it pays up to" in said(app)
    app.slider(key="timeline_first_token").set_value(3).run()
    assert not app.exception and app.query_params["token"] == "2"
    app.select_slider(key="timeline_link").set_value("NVLink").run()
    assert not app.exception and "NVLink: 1.5 µs per message" in said(app)


@pytest.mark.parametrize("token, shown, told", [("1", 2, 0), ("99", 3, 1), ("x", 2, 1)])
def test_a_token_in_the_address(opened, runs, tiny_trace, token, shown, told):
    tiny_trace.write(runs / "tiny.json")
    app = opened("timeline", run="tiny.json", token=token)
    assert app.slider(key="timeline_first_token").value == shown
    assert len([one for one in app.info if "`token`" in one.value]) == told


def test_measured_and_modeled_share_no_column(opened, runs, tiny_trace):
    tiny_trace.write(runs / "tiny.json")
    app = opened("timeline", run="tiny.json")
    for frame in app.dataframe:
        columns = list(frame.value.columns)
        if any("model" in column for column in columns):
            assert all("model" in column or "measured" in column or column in ("token", "rank", "link", "ranks")
                       for column in columns), columns


def test_the_ledger_of_a_run(opened, runs, tiny_trace):
    tiny_trace.write(runs / "tiny.json")
    app = opened("ledger", run="tiny.json")
    assert "Predicted = recorded" in app.success[0].value and "2L + 2 = 2 × 2 + 2 = 6" in said(app)
    lines = app.dataframe[0].value
    assert set(lines["same"]) == {"✓"} and (lines["predicted"] == lines["recorded"]).all()
    assert len(app.get("download_button")) == 3


def test_a_ledger_that_can_not_predict_says_so(opened, runs):
    all_reduces([[10, 20]] * 3, [5] * 3, site="<b>**x**</b>").write(runs / "bare.json")
    app = opened("ledger", run="bare.json")
    assert "can't speak about this trace" in app.info[0].value
    assert app.dataframe[0].value["site"][0] == "<b>**x**</b>" and app.dataframe[0].value["same"][0] == "–"
    assert not any("<b>" in one.value for one in app.markdown)


MARKDOWN = "![x](//e.vil/x)"


@pytest.mark.parametrize("words, said_instead", [
    ({"all_reduce": MARKDOWN}, "the model knows what collectives cost"), ({}, "in different orders")])
def test_a_run_that_can_not_be_replayed_is_shown_as_measured(opened, runs, words, said_instead):
    rows = [event(0, 0, 0, 5), event(0, 1, 6, 9), event(1, 1, 0, 5), event(1, 0, 6, 9)]
    plain = Trace.of(rows).to_plain()
    (runs / "odd.json").write_text(json.dumps(
        plain | {"strings": [words.get(word, word) for word in plain["strings"]]}))
    app = opened("timeline", run="odd.json")
    info, = (one.value for one in app.info if said_instead in one.value)
    assert "![" not in said(app) and len(app.get("plotly_chart")) == 2
    assert not words or "&#33;&#91;x&#93;" in info


@pytest.mark.parametrize("name, there", [
    ("timeline", "One lane per rank for step 1, forward of micro-batch 1 to step 1, optimizer"),
    ("ledger", "forward 2L + 1 = 5, loss 3 and backward 2L + 1 = 5 of each of 3 micro-batches, optimizer 1"),
    ("shards", "where the last column below says partial")])
def test_a_training_run_is_told_in_its_own_words(opened, runs, name, there):
    training(3, between=False).write(runs / "training.json")
    app = opened(name, run="training.json")
    assert there in said(app) and "token" not in said(app)
    assert app.selectbox(key="_run_list").options[-1].startswith("1 training step · ")
    columns = [column for frame in app.dataframe for column in frame.value.columns]
    assert not [column for column in columns if "token" in column]


def test_comparing_here_and_now(opened):
    app = opened("compare")
    assert "on 1, 2, 3, 4, 8 ranks" in said(app).replace("&#44;", ",")
    rows = app.dataframe[0].value
    assert list(rows["ranks"]) == ["1", "2", "3", "4", "8"] and set(rows["same tokens"]) == {"✓"}
    assert "no speed" in rows["time per token"][1] and "no speed" not in rows["time per token"][0]
    app.text_input(key="compare_prompt").set_value("").run()
    assert not app.exception and "Type a prompt" in said(app) and not app.dataframe


def test_comparing_runs_of_the_folder(opened, runs, tiny_trace):
    tiny_trace.write(runs / "two.json")
    tiny_run(ranks=3).write(runs / "three.json")
    all_reduces([[1, 2]], [3]).write(runs / "other.json")
    app = opened("compare")
    app.session_state["compare_way"] = "Runs from the folder"
    app.run()
    assert not app.exception
    rows = app.dataframe[0].value
    assert list(rows["run"]) == ["two.json", "three.json"] and set(rows["logits differ by"]) == {"not kept"}
    assert "The same 3 tokens on 2, 3 ranks" in said(app).replace("&#46;", ".")


@pytest.mark.slow
def test_a_long_run_opens_within_two_seconds():
    """In a process of its own: here the types of every call are checked, which takes several times as long."""
    script = Path(__file__).with_name("opening_time.py")
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=True,
                           env=os.environ | {"PYTHONPATH": str(ROOT)}).stdout
    print(shown)
    seconds = {name: float(said.split()[0]) for name, said in (line.split(": ") for line in shown.splitlines())}
    reading = seconds.pop("reading")
    assert len(seconds) == 2 and max(seconds.values()) < 12 * reading, "2 s is the target where reading takes 0.3 s"


def test_a_break_that_no_pass_meets_is_told_before_the_run(opened):
    """With the words of the command, and no run is started for it."""
    app = opened("run")
    app.selectbox(key="run_model").set_value("tiny")
    app.text_input(key="run_broken").set_value("layers.0.mlp.<b>").run()
    assert app.button(key="run_start").disabled and "meet there" in said(app) and "<b>" not in said(app)
    app.text_input(key="run_broken").set_value("layers.*.mlp.down").run()
    assert not app.button(key="run_start").disabled and not app.exception
