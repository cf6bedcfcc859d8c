"""The page Shards: the open run's model or one that the machine knows, on any number of ranks."""
import json

import pytest

from minitp.config import TINY
from minitp.placement import Placement
from minitp.view.shards import sentence, totals
from tests.app.conftest import APP
from tests.app.real_runs import tiny_run
from tests.view.test_known_models import folder


@pytest.fixture
def opened(page, model_cache):
    """opened(**query) → the page, on a machine that knows the tiny model alone."""
    def open_page(**query):
        return page(APP / "views" / "shards.py", **query)
    return open_page


def words(app):
    return [element.value for element in (*app.markdown, *app.info, *app.text, *app.caption)]


def test_it_opens_with_a_bundled_run_and_another_model_can_be_chosen(opened):
    app = opened()
    assert not app.exception and len(app.get("plotly_chart")) == 2
    app.selectbox(key="shard model").set_value("tiny").run()
    assert f"tiny: {totals(Placement(TINY, 4), 4).sentence()}" in words(app)
    assert len(app.get("plotly_chart")) == 2


def test_the_open_run_shows_its_own_cut_with_numbers(opened, runs):
    tiny_run("--embedding", "hidden", ranks=3).write(runs / "r.json")
    app = opened(run="r.json", tensor="embedding.weight", rank="2")
    assert not app.exception
    placement = Placement(TINY, 3, "hidden")
    assert sentence(placement, placement.parameter("embedding.weight")) in words(app)
    assert any("The deeper the color" in text for text in words(app))
    assert app.number_input(key="shard rank").value == 2
    app.number_input(key="shard ranks r.json").set_value(2).run()    # another cut: these aren't its pieces
    assert not app.exception and any("No numbers" in text for text in words(app))
    assert app.number_input(key="shard rank").value == 1 and app.query_params["ranks"] == "2"


def test_the_address_is_clamped(opened):
    app = opened(model="tiny", tensor="../../etc/passwd", rank="70", ranks="5000", embedding="x")
    assert not app.exception
    assert app.number_input(key="shard ranks tiny").value == 64 and app.number_input(key="shard rank").value == 63
    assert app.selectbox(key="shard tensor").value == "layers.0.mlp.gate.weight"
    assert sum("asks for" in info.value for info in app.info) == 4


def test_a_tensor_that_the_next_model_lacks_is_let_go(opened, model_cache):
    (folder(model_cache, "gpt") / "config.json").write_text(json.dumps(
        {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 30, "n_positions": 8}))
    app = opened(model="tiny", tensor="layers.1.mlp.gate.weight")
    assert app.selectbox(key="shard tensor").value == "layers.1.mlp.gate.weight"
    app.selectbox(key="shard model").set_value("gpt").run()
    assert not app.exception and app.selectbox(key="shard tensor").value == "layers.0.mlp.up.weight"


def test_a_trace_that_does_not_say_its_cut_is_told(opened, runs, tiny_trace):
    tiny_trace.run["placement"] = {"ranks": 2}
    tiny_trace.write(runs / "odd.json")
    app = opened(run="odd.json")
    assert not app.exception and app.error


def test_a_broken_config_in_the_models_folder_is_told(opened, model_cache):
    (folder(model_cache, "<b>bad") / "config.json").write_text('{"model_type": "<img src=x onerror=alert(1)>"}')
    app = opened(model="<b>bad")
    assert not app.exception and app.error and "<img" not in app.error[0].value and "<img" in app.code[0].value


def test_every_picture_can_be_read(opened):
    charts = opened(model="tiny").get("plotly_chart")
    assert "held by rank 0" in charts[0].proto.alt and "of weights on 4 ranks" in charts[1].proto.alt
