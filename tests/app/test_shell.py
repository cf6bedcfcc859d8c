"""The frame: navigation, values that stay over a page switch, values from the address, words that stay words."""
from pathlib import Path
from shutil import copytree

import pytest

from minitp.launcher.manager import manager
from tests.app.conftest import APP


def test_the_app_opens_and_leads_to_its_pages(page):
    app = page()
    assert not app.exception and app.title
    app.switch_page("views/run.py").run()
    assert not app.exception and app.title[0].value == "Run"


def test_values_survive_a_page_switch(page, tmp_path):
    """F04: through a page that draws none of these widgets, and back."""
    copy = Path(copytree(APP, tmp_path / "app"))
    (copy / "views" / "lab.py").write_text("import streamlit as st; st.title('lab')")
    app = page(copy / "main.py")
    app.switch_page("views/run.py").run()
    app.slider(key="run_ranks").set_value(5)
    app.text_area(key="run_prompt").set_value("a river").run()
    app.switch_page("views/lab.py").run()
    assert app.title[0].value == "lab" and not app.slider
    app.switch_page("views/run.py").run()
    assert app.slider(key="run_ranks").value == 5 and app.text_area(key="run_prompt").value == "a river"


def test_a_run_is_started_watched_and_offered_to_watch(page, runs, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(APP.parent))
    app = page()
    app.switch_page("views/run.py").run()
    app.selectbox(key="run_model").set_value("tiny")
    app.radio(key="run_world").set_value("threads")
    app.slider(key="run_max_tokens").set_value(2)
    app.text_area(key="run_prompt").set_value("<b>ab</b>").run()
    app.button(key="run_start").click().run()
    assert not app.exception and (not manager().run.going_on or app.button(key="run_start").disabled)
    assert manager().wait(30)
    app.run()
    assert "**Done**" in "".join(text.value for text in app.markdown) and not app.button(key="run_start").disabled
    assert [path.name for path in runs.iterdir()] == [manager().run.trace]
    assert "<b>ab</b>" in [code.value for code in app.code]
    assert not [text for text in app.markdown if "<b>ab" in text.value]


def asks():
    import streamlit as st

    from ui import state
    st.text(state.query_int("token", 0, 19, 3))
    st.text(state.query_choice("clock", ["steps", "measured"], "steps"))


@pytest.mark.parametrize("token, shown, told", [(None, "3", 0), ("7", "7", 0), ("-4", "0", 1), ("20", "19", 1),
                                                ("seven", "3", 1), ("9" * 5000, "3", 1), ("1e3", "3", 1), ("", "3", 1)])
def test_a_number_in_the_address_is_clamped_with_a_word(page, token, shown, told):
    app = page(asks, **({} if token is None else {"token": token}))
    assert not app.exception
    assert app.text[0].value == shown and len(app.info) == told
    assert not told or "from 0 to 19" in app.info[0].value


def test_a_choice_in_the_address_is_checked(page):
    assert page(asks, clock="measured").text[1].value == "measured"
    wrong = page(asks, clock="<img src=x onerror=alert(1)>")
    assert wrong.text[1].value == "steps" and len(wrong.info) == 1 and "<img" not in wrong.info[0].value


def test_escaped_text_has_no_mark_left():
    from ui.page import escaped
    nasty = "**b** `c` [l](http://x) :red[r] :smile: $x$ <b> ![i](j) www.evil.com https://a.b # h ~~s~~ &lt;"
    marked = escaped(nasty)
    for mark in "*`[]()$<>!#~:/.":
        assert mark not in marked.replace("&#", "") or mark == "#"
    import html
    assert html.unescape(marked) == nasty


def test_a_chart_has_its_rows_and_its_alternative_text(page):
    def drawn():
        import plotly.graph_objects as go

        from ui import page as part
        part.chart(go.Figure(go.Bar(x=["a"], y=[2.0])), alt="one bar, 2 high", key="c", rows=[{"x": "<b>a</b>"}])
    app = page(drawn)
    assert not app.exception
    assert app.get("plotly_chart")[0].proto.alt == "one bar, 2 high"
    assert app.text[0].value == "one bar, 2 high" and app.dataframe[0].value["x"][0] == "<b>a</b>"
