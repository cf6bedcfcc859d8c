"""The Watch page without a browser: what it sends to the player, and what it makes of addresses and clicks."""
import gc
import json
import subprocess
import sys

import pytest

from tests.app.conftest import APP
from tests.app.long_runs import long_run
from tests.app.real_runs import tiny_training


@pytest.fixture
def watch_page(page, runs, scatter_trace):
    """watch_page(**query) → the app on Watch, with one run."""
    scatter_trace.write(runs / "tiny.json")
    return lambda **query: page(run="tiny.json", **query)


def sent(at):
    """The data that the player got."""
    (data,) = json.loads(at.get("bidi_component")[0].proto.json)
    return data


def test_the_player_gets_the_run_and_no_place(watch_page, tiny_play):
    at = watch_page()
    assert not at.exception and at.title[0].value == "Watch a token"
    data = sent(at)
    assert data["play"]["syncs"]["site"] == tiny_play["syncs"]["site"]
    assert data["seek"] == {"n": 0} and data["link"] == {"run": "tiny.json"}


def test_a_training_run_is_watched_and_not_broken(page, runs):
    tiny_training().write(runs / "step.json")
    at = page(run="step.json", token="1", sync="2")
    assert not at.exception and [expander.label for expander in at.expander if "Break" in expander.label] == []
    play = sent(at)["play"]
    assert [play["strings"][i] for i in play["passes"]["phase"]] == ["forward", "backward", "optimizer"]
    assert sent(at)["seek"]["sync"] == play["passes"]["first"][1] + 2


def test_an_address_names_a_place(watch_page, tiny_play):
    seek = sent(watch_page(token="2", sync="3", phase="1", clock="measured", cut="0", toggle="before"))["seek"]
    assert seek == {"n": 0, "sync": tiny_play["passes"]["first"][2] + 3, "phase": 1, "clock": "measured", "cut": 0,
                    "toggle": "before"}


@pytest.mark.parametrize("query", [{"token": "99"}, {"token": "-1"}, {"sync": "1e9"}, {"token": "1", "sync": "6"},
                                   {"phase": "4", "token": "1"}, {"cut": "2", "sync": "1"},
                                   {"toggle": "<b>", "sync": "1"},
                                   {"clock": "<b>", "token": "1"}, {"sync": "9" * 5000}])
def test_any_other_address_is_mended_with_a_word(watch_page, tiny_play, query):
    at = watch_page(**query)
    assert not at.exception and len(at.info) == 1
    assert 0 <= sent(at)["seek"]["sync"] < len(tiny_play["syncs"]["pass"])


def test_a_rerun_asks_for_no_new_place(watch_page):
    at = watch_page(token="2", sync="3")
    before = sent(at)["seek"]
    assert sent(at.run())["seek"] == before
    at.query_params["sync"] = "1"
    after = sent(at.run())["seek"]
    assert after["n"] == before["n"] + 1 and after["sync"] == before["sync"] - 2


def test_another_run_forgets_the_place(watch_page, runs, tiny_trace):
    tiny_trace.write(runs / "other.json")
    at = watch_page(token="2", sync="3")
    at.selectbox(key="_run_list").select("other.json").run()
    assert not at.exception and "token" not in at.query_params
    assert sent(at)["seek"] == {"n": 1} and sent(at)["link"] == {"run": "other.json"}


def test_a_long_run_is_shown_in_part(page, runs):
    long_run(4, 120).write(runs / "long.json")
    at = page(run="long.json", token="100", sync="5")
    data = sent(at)
    window = data["play"]["run"]["window"]
    assert window["of"] == 120 and window["first"] <= 100 < window["first"] + window["count"]
    passes = data["play"]["passes"]
    assert data["seek"]["sync"] == passes["first"][100 - window["first"]] + 5
    at.slider[0].set_value(0).run()
    assert sent(at)["play"]["run"]["window"]["first"] == 0 and not at.exception
    assert sent(at)["seek"] == {"n": 1} and "token" not in at.query_params     # that place is in another part


@pytest.mark.parametrize("value", [None, 3, {"sync": -1}, {"sync": 10}, {"sync": "1"}, {"sync": True}, {"sync": 1.0},
                                   {}])
def test_only_a_sync_of_the_play_can_be_clicked(value):
    from ui.player import clicked
    assert clicked(value, 10) is None
    assert clicked({"sync": 9}, 10) == 9


def test_the_command_of_break_it_can_be_copied_without_harm(page, runs, scatter_trace):
    """The site comes from a file that anybody may have written; the command goes to a shell."""
    plain = scatter_trace.to_plain()
    plain["strings"] = [word if word != "layers.0.mlp.down" else "$(touch /tmp/x); '`ls`" for word in plain["strings"]]
    (runs / "evil.json").write_text(json.dumps(plain))
    at = page(run="evil.json")
    at.selectbox(key="break_site").select("$(touch /tmp/x); '`ls`").run()
    assert "--break '$(touch /tmp/x); '\"'\"'`ls`'" in at.code[0].value


def test_the_first_paint_needs_no_pandas(runs, scatter_trace):
    """It takes a second and 100 MB; only tables need it."""
    scatter_trace.write(runs / "tiny.json")
    script = ("import sys\nfrom streamlit.testing.v1 import AppTest\n"
              "at = AppTest.from_file(sys.argv[1], default_timeout=60).run()\n"
              "assert not at.exception and at.get('bidi_component')\n"
              "print(sorted({'pandas', 'pyarrow'} & set(sys.modules)))")
    ran = subprocess.run([sys.executable, "-c", script, APP / "main.py"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_nothing_holds_on_to_a_trace_that_was_watched(watch_page):
    """But for the cache, which holds few: fragments and downloads outlive a visit by minutes."""
    import streamlit as st
    at = watch_page()
    st.cache_resource.clear()
    gc.collect()
    assert not at.exception and not [one for one in gc.get_objects() if type(one).__name__ == "Opened"]


def test_the_text_table_is_made_when_it_is_opened(watch_page):
    at = watch_page()
    assert "Read as text" in [one.label for one in at.expander] and not at.dataframe
    at.session_state["watch_text"] = True
    assert len(at.run().dataframe[0].value) > 1 and not at.exception
