"""Two sections of the page Memory and machines that no slider moves: a check against real runs, and the questions."""
from typing import Any

import streamlit as st

from minitp.errors import ConfigError, FileFormatError
from minitp.plan.check import Comparison
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import Answer, WhatIf, named
from minitp.plan.questions.symbols import explained
from minitp.trace import Trace
from minitp.trace.summary import crowded
from minitp.view import plan_check
from minitp.view.figures import plan_check as figures
from minitp.view.plan_ask import what_if
from ui import page, plan_inputs, state
from ui.picker import open_run

_WITH = "with"                         # in the address: inputs of the page that a question is asked with


@st.cache_resource(max_entries=6, show_spinner="Comparing …")
def _compared(digest: str, calibration: int, _trace: Trace, _this: Any) -> Comparison:
    """Nobody changes it. The first two are the key."""
    return plan_check.compared(_trace, _this)


def check() -> None:
    """A real run beside its prediction."""
    opened = open_run()
    if opened is None:
        return
    try:
        this = plan_check.calibrated()
        found = _compared(opened.digest, plan_check.calibration(), opened.trace, this)
    except (ConfigError, FileFormatError, OSError) as error:
        page.problem("This run can't be compared with a prediction.", str(error))
        return
    if this is None:
        st.info("This machine isn't calibrated yet. `minitp plan calibrate` measures it in half a minute; then times "
                "are compared here too. Counts and bytes need no calibration.", icon=":material/speed:")
    (st.success if found.exact else st.warning)(plan_check.exact_line(found))
    if this is not None:
        _times(found, crowded(opened.trace))
    st.subheader("Counts and bytes", anchor=False)
    page.table(plan_check.count_rows(found), key="plan_counts")
    if found.memory:
        st.subheader("Memory, as planned and as each rank counted it", anchor=False)
        page.table(plan_check.memory_rows(found), key="plan_held")
    if found.differences:
        st.code("\n".join(found.differences[:50]), language=None, wrap_lines=True)


def _times(found: Comparison, took_turns: bool) -> None:
    shown = plan_check.points(found)
    line = plan_check.times_line(shown, took_turns)
    left, right = page.columns((1.2, 1), least=("20rem", "16rem"), key="plan_times_of_run", gap="medium")
    with right:
        st.markdown(line)
        for note in found.notes:
            st.caption(page.escaped(note[0].upper() + note[1:]))
    with left:
        if shown:
            page.chart(figures.check_figure(shown, ink=page.ink()), key="plan_check",
                       rows=plan_check.time_rows(found),
                       alt=f"Time by the model against measured time, a mark for each kind of collective. {line}")
    page.table(plan_check.pass_rows(found), key="plan_passes")


@st.cache_resource(max_entries=40, show_spinner="Working it out …")
def _answered(name: str, asked_with: WhatIf) -> Answer:
    return named(QUESTIONS, name).ask(asked_with)


def ask() -> None:
    """The planner's questions; the page's inputs may take the place of their own values."""
    if not QUESTIONS:
        st.info("There are no questions in this version.")
        return
    texts = {question.name: question.text for question in QUESTIONS}
    state.keep("plan_question", state.query_choice("question", list(texts), next(iter(texts))))
    name = st.selectbox("Question", list(texts), key="plan_question", format_func=texts.__getitem__)
    given = _own_values(name, named(QUESTIONS, name).options)
    with_ = what_if(plan_inputs.asked_now(), given)
    state.in_address(question=name, **{_WITH: ",".join(given) or None})
    try:
        answer = _answered(name, with_)
    except (ConfigError, OSError) as error:
        page.problem("This can't be answered so.", str(error))
        return
    if with_.given:
        st.caption(page.escaped(f"Asked with {', '.join(f'{one} {value}' for one, value in with_.given.items())}."))
    _show(answer)
    st.code(f"minitp plan ask {name}", language=None)


def _own_values(name: str, options: tuple[str, ...]) -> list[str]:
    """Which of the page's inputs take the place of the question's own values."""
    if not options:
        return []
    asked = st.query_params.get(_WITH, "").split(",")
    key = f"plan_with_{name}"
    state.keep(key, [option for option in options if option in asked])
    given = st.pills("With this page's own", list(options), selection_mode="multi", key=key,
                     help="The question has values of its own. Those chosen here are as this page has them.")
    left, right = page.columns(2, least="14rem", key="plan_ask_inputs")
    with left:
        plan_inputs.job(st.session_state[plan_inputs.key("task")])
    with right:
        plan_inputs.what_ifs()
    return given


def _show(answer: Answer) -> None:
    st.markdown(f"**{page.escaped(answer.short)}**")
    for text in answer.paragraphs:
        st.markdown(page.escaped(text))
    for at, one in enumerate(answer.tables):
        st.caption(page.escaped(one.title))
        page.table([dict(zip(one.heads, row, strict=True)) for row in one.rows], key=f"plan_answer_{at}")
    for text in answer.reasoning:
        st.markdown(f"- {page.escaped(text)}")
    if short := explained(answer):
        st.caption(page.escaped(f"Short: {short}."))
    if answer.sources:
        st.caption(page.escaped(f"Sources: {'; '.join(answer.sources)}"))
