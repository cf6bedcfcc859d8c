"""The lab's page: what is chosen runs, rounds go back and forth, the address is read and mended."""
from minitp.comm.algorithms import ALGORITHMS
from tests.app.conftest import APP

PAGE = APP / "views" / "lab.py"


def test_it_opens_with_a_picture_and_says_what_is_measured_and_what_is_not(page):
    app = page(PAGE)
    assert not app.exception and app.title[0].value == "Collectives lab"
    picture, curves = app.get("plotly_chart")
    assert picture.proto.alt.startswith("Round 1 of 6") and "Model" in curves.proto.alt
    assert "24 message" in app.markdown[2].value and any("not known" in info.value for info in app.info)
    assert "(model)" in app.subheader[0].value
    costs = next(table.value for table in app.dataframe if "cheapest" in table.value.columns)
    assert all("model" in column for column in costs.columns if column not in ("link", "cheapest"))


def test_next_then_back_is_where_it_was(page):
    app = page(PAGE)
    seen = [app.get("plotly_chart")[0].proto.alt]
    for _ in range(3):
        app.button(key="lab_next").click().run()
        seen.append(app.get("plotly_chart")[0].proto.alt)
    assert len(set(seen)) == 4 and app.slider(key="lab_round").value == 4
    for wanted in reversed(seen[:-1]):
        app.button(key="lab_back").click().run()
        assert app.get("plotly_chart")[0].proto.alt == wanted
    assert app.button(key="lab_back").disabled


def test_every_collective_opens_with_its_algorithms(page):
    """Also where the algorithm, the round and the numbers chosen before don't exist for it."""
    app = page(PAGE, op="all_reduce", algorithm="halving", ranks="8", round="6")
    for op, algorithms in ALGORITHMS.items():
        app.selectbox(key="lab_op").set_value(op).run()
        assert not app.exception, op
        assert tuple(app.selectbox(key="lab_algorithm").options) == algorithms
    app.slider(key="lab_ranks").set_value(3).run()
    assert not app.exception and app.query_params["ranks"] == "3"


def test_the_address_is_read_and_mended_with_a_word(page):
    app = page(PAGE, op="broadcast", algorithm="tree", ranks="7", round="2")
    assert not app.exception and app.get("plotly_chart")[0].proto.alt.startswith("Round 2 of 3")
    wrong = page(PAGE, op="<b>", algorithm="tower", ranks="1e9", round="-1")
    assert not wrong.exception and len(wrong.info) >= 4
    assert wrong.slider(key="lab_ranks").value == 4 and "<b>" not in "".join(info.value for info in wrong.info)
    far = page(PAGE, op="gather", algorithm="star", ranks="2", round="99")
    assert not far.exception and far.get("plotly_chart")[0].proto.alt.startswith("Round 1 of 1")
