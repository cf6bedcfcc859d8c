"""The page Place the cuts: what is chosen is what is counted, shown and written into the address."""
import pytest

from minitp.config import TINY
from minitp.view.cuts import MATRICES, USUAL, Choice, place, verdict
from tests.app.conftest import APP


@pytest.fixture
def opened(page, model_cache):
    """opened(**query) → the page, on a machine that knows the tiny model alone."""
    def open_page(**query):
        return page(APP / "views" / "place.py", **query)
    return open_page


def words(app):
    return [element.value for element in (*app.markdown, *app.info, *app.text)]


def test_it_opens_with_the_usual_choice(opened):
    app = opened()
    assert not app.exception and app.title[0].value == "Place the cuts"
    assert verdict(place(TINY, 4), place(TINY, 4)) in words(app)
    assert len(app.get("plotly_chart")) == 4 and app.button[0].disabled
    assert [app.selectbox(key=f"cut {name}").value for name in MATRICES] == [getattr(USUAL, name) for name in MATRICES]


def test_a_choice_is_counted_and_goes_into_the_address(opened):
    app = opened()
    app.selectbox(key="cut gate_up").set_value("rows")
    app.slider(key="cut ranks").set_value(3).run()
    plan, usual = place(TINY, 3, Choice(gate_up="rows")), place(TINY, 3)
    assert verdict(plan, usual) in words(app)
    assert any("layers.*.mlp.gate_up" in text and "act(a + b) ≠ act(a) + act(b)" in text for text in words(app))
    assert (app.query_params["gate_up"], app.query_params["ranks"]) == ("rows", "3")
    app.button[0].click().run()
    assert app.selectbox(key="cut gate_up").value == "columns"
    assert verdict(usual, usual) in words(app)


def test_the_address_chooses_and_is_clamped(opened):
    app = opened(qkv="whole", o="sideways", ranks="99", tokens="-3", model="/etc/passwd")
    assert not app.exception
    assert app.selectbox(key="cut qkv").value == "whole" and app.selectbox(key="cut o").value == "rows"
    assert app.slider(key="cut ranks").value == 16 and app.number_input(key="cut tokens").value == 1
    assert sum("asks for" in info.value for info in app.info) == 4


def test_sizes_that_are_no_model_are_told(opened):
    app = opened()
    app.number_input(key="cut size tiny heads").set_value(7).run()
    assert not app.exception and app.error and "can't share" in app.code[0].value
    app.number_input(key="cut size tiny heads").set_value(12).run()
    assert not app.error and len(app.get("plotly_chart")) == 4


def test_every_picture_can_be_read(opened):
    app = opened()
    charts = app.get("plotly_chart")
    assert all("from top to bottom" in chart.proto.alt for chart in charts)
    assert sum("Read as text" in expander.label for expander in app.expander) == len(charts)
