"""A run that failed, on every page that takes a run, and in the browser."""
import pytest

from minitp.launcher.manager import Run, RunRequest, manager
from minitp.trace.failed import failed_line
from minitp.view.reading import PlayReader
from minitp.view.text import caption
from minitp.view.watch import play
from tests.app.browser import press, settle
from tests.view.failed_runs import RUNS, hang
from ui.page import escaped

PAGES = ("timeline", "shards", "ledger")


def opened(page, runs, name: str):
    RUNS[name]().write(runs / "failed.json")
    return page(run="failed.json")


@pytest.mark.parametrize("name", ["generation", "training", "in loading", "nothing at all"])
def test_every_page_holds_and_says_first_that_it_failed(page, runs, name):
    at = opened(page, runs, name)
    for view in (None, *PAGES):
        if view is not None:
            at.switch_page(f"views/{view}.py").run()
        assert not at.exception
        assert escaped(failed_line(RUNS[name]().run)) in at.error[0].value


def test_a_model_of_it_is_refused_in_words(page, runs):
    at = opened(page, runs, "generation").switch_page("views/timeline.py").run()
    assert escaped("there is no whole run to replay") in at.info[-1].value
    at.switch_page("views/plan.py")
    at.query_params["show"] = "check"
    at.run()
    assert not at.exception and any("no whole run to hold against a prediction" in code.value for code in at.code)


def test_what_it_says_is_no_markup(page, runs):
    trace = hang()
    trace = type(trace).from_plain(trace.to_plain() | {"run": trace.run | {"failed": "**<b>x</b>** [a](b) :red[c]"}})
    trace.write(runs / "failed.json")
    said = page(run="failed.json").error[0].value
    assert not set("<>[]:") & set(said) and "x" in said


@pytest.mark.parametrize("trace, says", [(None, "; it leaves no trace."), ("run-stopped.json.gz", "(exit code 143).")])
def test_a_run_that_was_stopped_leaves_no_trace_or_says_none_of_that(page, monkeypatch, tmp_path, trace, says):
    from ui import jobs
    run = Run(RunRequest("a river"), "")
    run.trace = trace
    run.end("stopped", 143)
    monkeypatch.setattr(jobs, "WATCH", tmp_path / "none.py")             # a page of its own has nowhere to lead
    monkeypatch.setattr(manager(), "run", run)

    def shown():
        from minitp.launcher.manager import manager
        from ui.jobs import shown
        shown(manager().run, mine=True)
    at = page(shown)
    assert not at.exception and at.info[0].value.endswith(says)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 420])
def test_the_gate_fills_and_never_opens(watch, width):
    made = play(hang())
    page, reader = watch(made, width=width), PlayReader(made)
    last = reader.n - 1
    for k in range(reader.n):
        said = page.evaluate(f"[0, 1, 2, 3].map(phase => captionOf(player.model, player.model.sync({k}), phase))")
        assert said == [caption(reader, k, phase) for phase in range(4)]
    state = press(page, "End")
    assert (state["sync"], state["phase"]) == (str(last), "3")
    words = page.text_content(".scene")
    assert "2 of 3 arrived" in words and "never opens" in words and "never came" in words
    assert reader.sync(last).failed.replace(" ", "") in words.replace(" ", "")       # its lines have no space between
    assert page.text_content(".banner") == " ".join(made["run"]["banner"])
    page.keyboard.press("Home")
    page.keyboard.press("Space")
    page.wait_for_function("player.state().playing === false && player.state().phase === 3")
    settle(page)
    assert "never opens" in page.text_content(".scene")


@pytest.mark.slow
def test_a_run_that_failed_before_anything_moved_says_so(watch):
    made = play(RUNS["nothing at all"]())
    page = watch(made, ready=".player.empty")
    assert page.text_content(".banner") == made["run"]["banner"][0] and page.is_visible(".banner")
