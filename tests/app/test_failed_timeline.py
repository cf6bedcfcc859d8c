"""The Timeline page of a run that failed: it begins where the run ended, and has a picture where nothing had ended."""
from minitp.trace import Mark, Trace
from tests.app.conftest import APP
from tests.view.test_timeline_failed import CALL, failed, two_tokens


def shown(page, runs, trace):
    trace.write(runs / "failed.json")
    app = page(APP / "main.py")
    app.switch_page("views/timeline.py")
    app.query_params["run"] = "failed.json"
    app.run()
    assert not app.exception, app.exception
    return app


def test_it_begins_where_the_run_ended(page, runs):
    app = shown(page, runs, two_tokens(CALL, CALL._replace(rank=2)).trace)
    assert any(one.value.startswith("Outlined in red is what never ended") for one in app.caption)
    told = "\n".join(one.value for one in app.text)
    assert "One lane per rank for token 3: " in told
    assert "Ranks 0 and 2 were in all_reduce at mlp.down, call 9, for 1 s." in told
    assert app.query_params["token"] == "1"


def test_where_nothing_had_ended_there_are_lanes(page, runs):
    marks = [Mark(rank, "run", None, None, 0, 10**9) for rank in range(3)]
    app = shown(page, runs, failed(Trace.of([]), CALL._replace(phase="run", step=None), marks=marks))
    assert len(app.get("plotly_chart")) == 1 and not [one for one in app.info if "no passes" in one.value]
    assert any("Rank 0 was in all_reduce at mlp.down" in one.value for one in app.text)
