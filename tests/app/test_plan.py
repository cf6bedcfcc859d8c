"""The page Memory and machines: each section opens, its inputs move what they should, and the address holds them."""
from dataclasses import replace

import pytest

from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import WhatIf, named
from minitp.plan.questions.symbols import explained
from minitp.plan.speed.against import published
from minitp.trace import Trace
from minitp.view import plan_layouts, plan_memory, plan_simulated
from minitp.view.plan import SECTIONS, Asked
from tests.app.conftest import APP

PAGE = APP / "views" / "plan.py"


@pytest.fixture
def opened(page, model_cache, tmp_path, monkeypatch):
    """opened(**address) → the page, on a machine that isn't calibrated."""
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path / "machines"))

    def of(**address: str):
        app = page(PAGE, **address)
        assert not app.exception, app.exception
        return app
    return of


def said(app) -> str:
    return "\n".join(one.value for kind in ("markdown", "caption", "text", "info", "warning", "success", "error")
                     for one in getattr(app, kind))


def shown(app) -> Asked:
    """What the address says now."""
    return Asked.from_address({name: value[0] if isinstance(value, list) else value
                               for name, value in app.query_params.items() if name in Asked.__dataclass_fields__})[0]


def test_it_opens_with_a_model_that_fits(opened):
    from ui import page
    app = opened()
    assert app.title[0].value == "Memory and machines"
    found = plan_memory.planned(Asked())
    assert app.success[0].value == plan_memory.verdict_line(found)
    bars, growing = app.get("plotly_chart")
    assert "not measured" in bars.proto.alt and "Four stacked bars" in growing.proto.alt
    assert len([part for part in app.expander if part.label == "Read as text"]) == 2
    terms = next(frame.value for frame in app.dataframe if "formula" in frame.value and "source" in frame.value
                 and "kind" in frame.value)
    assert terms["bytes"].sum() == found.fullest.bytes
    assert page.escaped(plan_memory.legend_line(found.fullest.rows)) in said(app)
    assert page.escaped(plan_simulated.shown(Asked())[1]) in said(app)


def test_a_slider_moves_the_picture_and_the_address(opened):
    from ui import page
    app = opened(task="train", model="llama-2-7b", tp="2", step="64")
    app.select_slider(key="plan_zero").set_value(3)
    app.select_slider(key="plan_dp").set_value(4).run()
    asked = Asked(task="train", model="llama-2-7b", tp=2, step=64, zero=3, dp=4)
    assert shown(app) == asked
    assert plan_memory.verdict_line(plan_memory.planned(asked)) in said(app)
    assert page.escaped(published().text) in said(app)
    app.select_slider(key="plan_more").set_value(0)
    app.select_slider(key="plan_wider").set_value(0).run()
    assert "Move the two sliders" in said(app)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_opens_from_its_link_and_gives_the_same_back(opened, section):
    address = {"show": section, "task": "infer", "model": "llama-2-7b", "machine": "8xh100-80", "tp": "4",
               "memory": "192 GB"}
    app = opened(**address)
    assert not app.error and shown(app) == Asked(show=section, model="llama-2-7b", machine="8xh100-80", tp=4,
                                                 memory="192 GB")
    assert app.expander and app.code                              # the link to copy
    assert all("model" in chart.proto.alt.lower() for chart in app.get("plotly_chart"))


def test_a_strangers_address_is_mended_with_a_word(opened):
    app = opened(show="<b>", tp="1e9", dp="-1", model="/etc/passwd", machine="../x", memory="1 EB", keep="a,tp")
    assert len([one for one in app.info if "The address asks for" in one.value]) == 7
    assert "<b>" not in said(app) and shown(app) == replace(Asked(), keep=("tp",))


@pytest.mark.parametrize("address, word", [({"task": "train", "step": "1000", "dp": "3"}, "dealt"),
                                           ({"pp": "200"}, "layers"), ({"ep": "3"}, "ep")])
def test_what_cannot_be_planned_is_told(opened, address, word):
    app = opened(**address)
    assert app.error and word in "\n".join(one.value for one in app.code)


def test_layouts_are_found_and_why_others_fail(opened):
    app = opened(show="layouts", model="llama-2-70b", machine="8xa100-80")
    outcome = plan_layouts.found(Asked(model="llama-2-70b"))
    assert plan_layouts.best_line(outcome) in said(app)
    fit, fail = (next(frame.value for frame in app.dataframe if name in frame.value) for name in ("room GB", "why"))
    assert len(fit) == len(outcome.best) and len(fail) == len(outcome.failed)
    app.pills(key="plan_keep").set_value(["tp"]).run()
    assert shown(app).keep == ("tp",)
    assert plan_layouts.summary_line(plan_layouts.found(Asked(model="llama-2-70b", keep=("tp",)))) in said(app)


def test_a_search_that_is_too_large_says_what_to_do_here(opened):
    app = opened(show="layouts", task="train", model="llama-2-7b", step="110880", devices="110880")
    assert "keep more or other" in app.error[0].value and any("layouts" in one.value for one in app.code)


def test_the_inputs_can_be_set_to_a_found_layout(page, model_cache):
    def loads():
        from minitp.view.plan import Asked
        from ui import plan_inputs
        plan_inputs.read_address()
        plan_inputs.put(Asked(task="train", tp=3, pp=5, micro=2, keep=("pp",)))
        plan_inputs.write_address(plan_inputs.asked_now())
    app = page(loads, tp="9", model="gpt2")
    assert not app.exception
    assert (app.session_state["plan_tp"], app.session_state["plan_keep"]) == (3, ["pp"])
    assert shown(app) == Asked(task="train", tp=3, pp=5, micro=2, keep=("pp",))


def test_a_check_without_calibration_says_how_to_get_one(opened, runs, tiny_trace):
    tiny_trace.write(runs / "tiny.json")
    app = opened(show="check", run="tiny.json")
    assert "minitp plan calibrate" in said(app) and "are as predicted" in app.success[0].value
    assert not app.get("plotly_chart")                            # no times without a machine to compare with


def test_a_question_can_be_asked_with_the_pages_model(opened):
    from ui import page
    name = next(question.name for question in QUESTIONS if "model" in question.options)
    app = opened(show="ask", question=name)
    before = said(app)
    assert page.escaped(explained(named(QUESTIONS, name).ask(WhatIf()))) in before
    app.pills(key=f"plan_with_{name}").set_value(["model"])
    app.selectbox(key="plan_model").set_value("llama-2-13b").run()
    assert not app.exception and said(app) != before and "llama&#45;2&#45;13b" in said(app)
    assert app.query_params["with"] in ("model", ["model"])


def test_in_the_app_tasks_keep_their_inputs_and_a_plan_is_simulated(page, runs, model_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path / "machines"))
    app = page()
    app.switch_page("views/plan.py")
    for key, value in {"task": "train", "model": "tiny", "tp": "2", "prompt": "4", "new": "2", "step": "32"}.items():
        app.query_params[key] = value
    app.run()
    app.segmented_control(key="plan_task").set_value("infer").run()
    assert not app.exception and not [one for one in app.select_slider if one.key == "plan_step"]
    app.button(key="plan_simulate").click().run()
    assert not app.exception and app.title[0].value == "Timeline"
    assert ["simulated" in Trace.read(path).run for path in runs.iterdir()] == [True]
    app.switch_page("views/plan.py").run()
    app.segmented_control(key="plan_task").set_value("train").run()
    assert app.select_slider(key="plan_step").value == 32
