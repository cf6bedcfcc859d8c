"""Memory and machines: what a model needs on machines that we don't have, by layouts, links and a check against runs."""
from typing import Any

import streamlit as st

from minitp.errors import ConfigError, FileFormatError, MinitpError
from minitp.plan.questions import QUESTIONS
from minitp.plan.search import Found
from minitp.runs import runs_folder
from minitp.view import plan_check, plan_layouts, plan_memory, plan_network, plan_simulated
from minitp.view.figures import plan_check as check_figures
from minitp.view.figures import plan_memory as memory_figures
from minitp.view.figures import plan_network as network_figures
from minitp.view.plan import GROUPS, OPS, SECTIONS, Asked
from ui import page, plan_inputs, state
from ui.picker import open_run

MODEL = "A model, not measured."
TITLES = {"memory": "Memory", "layouts": "Layouts", "network": "Network", "check": "Check", "ask": "Ask"}


@st.cache_resource(max_entries=24, show_spinner="Trying layouts …")
def searched(asked: Asked) -> Found:
    """Nobody changes it. The inputs are the key; those that have no part in it are the usual ones."""
    return plan_layouts.found(asked)


def memory(asked: Asked) -> None:
    found = plan_memory.planned(asked)
    verdict = plan_memory.verdict_line(found)
    (st.success if found.verdict.fits else st.warning)(verdict)
    st.caption(f"{plan_memory.devices_line(asked, found)}. {MODEL}")
    page.chart(memory_figures.bars_figure(found, ink=page.ink()), key="plan_bars",
               alt=memory_figures.bars_alt(found, verdict), rows=[
                   {"rank": bar.name, "GB": round(bar.bytes / 1e9, 3), "GiB": round(bar.bytes / 2**30, 3)}
                   for bar in found.bars])
    times(asked, found)
    st.subheader(f"Every term of {found.fullest.name}", anchor=False)
    page.table(plan_memory.table(found.fullest.rows), key="plan_terms")
    with st.expander("What isn't modeled, and what the reserve is for"):
        page.table(plan_memory.not_modeled(found), key="plan_unmodeled")
    growing(found)


def times(asked: Asked, found: plan_memory.Memory) -> None:
    """How fast, and the way to watch it."""
    try:
        speed = plan_memory.speed(asked, found)
    except ConfigError as error:
        st.caption(page.escaped(str(error)))
        return
    for column, (label, value) in zip(st.columns(len(speed.cells)), speed.cells, strict=True):
        column.metric(f"{label} (model)", value)
    with st.expander("Where the time goes, by the model"):
        page.table(speed.rows, key="plan_times")
        simulation(asked)


def simulation(asked: Asked) -> None:
    if st.button("Watch it simulated", key="plan_simulate", icon=":material/movie:",
                 help="Played event by event, and written into the runs folder."):
        try:
            name = plan_simulated.write(asked, runs_folder())
        except (MinitpError, OSError) as error:
            page.problem("This can't be simulated.", str(error))
            return
        st.switch_page("views/timeline.py", query_params={"run": name})


def growing(found: plan_memory.Memory) -> None:
    st.subheader("What grows with what", anchor=False)
    left, right = st.columns(2)
    with left:
        plan_inputs.number("wider", "Width of the model", "Hidden size, heads and feed-forward width.",
                           words=lambda n: f"× {2**n}")
    with right:
        plan_inputs.number("more", "Sequences at once", words=lambda n: f"× {2**n}")
    grown = plan_memory.growing(found, st.session_state[plan_inputs.key("wider")],
                                st.session_state[plan_inputs.key("more")])
    line = plan_memory.growth_line(grown)
    st.markdown(line)
    page.chart(memory_figures.growing_figure(grown, ink=page.ink()), key="plan_growing", rows=grown.rows,
               alt=f"Four stacked bars of the fullest rank: as it is, wider, with more sequences, both. {line}")
    st.caption("Lines falling: grows with the parameters. Lines rising: with the sequences. Crossed: with both. None: "
               "with neither. The bar of ink: where it would be, were memory proportional to parameters × sequences.")


def layouts(asked: Asked) -> None:
    st.pills("Keep as set", list(plan_inputs.KEPT_WORDS), selection_mode="multi", key=plan_inputs.key("keep"),
             format_func=plan_inputs.KEPT_WORDS.get, help="The search leaves these as the sliders have them.")
    outcome = searched(plan_inputs.for_search(plan_inputs.asked_now()))
    st.caption(f"{plan_layouts.summary_line(outcome)} {MODEL}")
    if outcome.best:
        st.success(plan_layouts.best_line(outcome))
        pick("plan_fit", plan_layouts.rows(outcome), outcome.best, asked)
    else:
        st.warning(f"{plan_layouts.best_line(outcome)} {plan_layouts.enough_line(asked)}")
    if outcome.failed:
        st.subheader("Why the others fail", anchor=False)
        pick("plan_fail", plan_layouts.failures(outcome), outcome.failed, asked)


def pick(key: str, rows: list[dict[str, Any]], entries: list[Any], asked: Asked) -> None:
    """A table; a click on a row sets the sliders to its layout."""
    def load() -> None:
        chosen = st.session_state[key]["selection"]["rows"]
        if chosen:
            plan_inputs.put(plan_layouts.loaded(asked, entries[chosen[0]]))

    st.caption("A row's box sets the sliders to its layout.")
    st.dataframe(rows, key=key, hide_index=True, width="stretch", on_select=load, selection_mode="single-row")


def network(asked: Asked) -> None:
    left, right = st.columns(2)
    left.selectbox("Collective", OPS, key=plan_inputs.key("op"), format_func=lambda op: op.replace("_", "-"))
    words = {"tp": "a tp group", "dp": "a dp group", "box": "one box", "all": "all devices"}
    right.segmented_control("Ranks", GROUPS, key=plan_inputs.key("group"), format_func=words.get, required=True)
    found = plan_network.network(plan_inputs.asked_now())
    lines = plan_network.lines(found)
    page.chart(network_figures.curve_figure(found, ink=page.ink()), key="plan_curve",
               rows=plan_network.curve_rows(found),
               alt=f"Time by payload, both logarithmic, a line for each algorithm: a model. {' '.join(lines)}")
    st.markdown("\n".join(f"- {page.escaped(line)}" for line in lines))
    st.caption(f"{MODEL} Hollow marks, where there are some, were measured.")
    st.subheader("What the syncs cost on each link", anchor=False)
    line = plan_network.links_line(found, asked.task == "train")
    st.markdown(line)
    page.chart(network_figures.links_figure(found, ink=page.ink()), key="plan_links", rows=plan_network.link_rows(found),
               alt=f"Time of all syncs of a pass on each link, for several numbers of ranks: a model. {line}")
    st.caption(MODEL)


def check() -> None:
    opened = open_run()
    if opened is None:
        return
    this = plan_check.calibrated()
    if this is None:
        st.info("This machine isn't calibrated: `minitp plan calibrate` measures it, and times can be compared. Counts "
                "and bytes need no calibration.", icon=":material/speed:")
    try:
        found = plan_check.compared(opened.trace, this)
    except (ConfigError, FileFormatError) as error:
        page.problem("This run can't be compared with a prediction.", str(error))
        return
    (st.success if found.exact else st.warning)(plan_check.exact_line(found))
    if this is not None:
        compared_times(found)
    st.subheader("Counts and bytes", anchor=False)
    page.table(plan_check.count_rows(found), key="plan_counts")
    if found.memory:
        st.subheader("Memory", anchor=False)
        page.table(plan_check.memory_rows(found), key="plan_held")
    if found.differences:
        st.code("\n".join(found.differences[:50]), language=None, wrap_lines=True)


def compared_times(found: Any) -> None:
    shown = plan_check.points(found)
    line = plan_check.times_line(shown)
    st.markdown(line)
    if shown:
        page.chart(check_figures.check_figure(shown, ink=page.ink()), key="plan_check", rows=plan_check.time_rows(found),
                   alt=f"Time by the model against measured time, a mark for each kind of collective. {line}")
    for note in found.notes:
        st.caption(page.escaped(note))
    page.table(plan_check.pass_rows(found), key="plan_passes")


def ask() -> None:
    if not QUESTIONS:
        st.info("There are no questions yet.")
        return
    names = [question.name for question in QUESTIONS]
    by_name = {question.name: question for question in QUESTIONS}
    state.keep("plan_question", state.query_choice("question", names, names[0]))
    name = st.selectbox("Question", names, key="plan_question", format_func=lambda one: by_name[one].text)
    state.in_address(question=name)
    answer = by_name[name].ask()
    st.markdown(f"**{page.escaped(answer.short)}**")
    for text in answer.paragraphs:
        st.markdown(page.escaped(text))
    for at, one in enumerate(answer.tables):
        st.markdown(page.escaped(one.title))
        page.table([dict(zip(one.heads, row, strict=True)) for row in one.rows], key=f"plan_answer_{at}")
    for text in answer.reasoning:
        st.caption(page.escaped(text))
    st.code(f"minitp plan ask {name}", language=None)


def planned(asked: Asked, draw: Any) -> None:
    """Inputs at the right, on a phone below, and the section that they move."""
    picture, inputs = st.columns((2.4, 1), gap="large")
    with inputs:
        plan_inputs.layout(asked.task)
        plan_inputs.job(asked.task)
        plan_inputs.what_ifs()
    with picture:
        why = plan_layouts.possible(asked)
        if why:
            page.problem("This can't be laid out so.", why)
        if why and draw is not layouts:
            return
        try:
            draw(asked)
        except (ConfigError, OSError) as error:
            page.problem("This can't be planned.", str(error))


def main() -> None:
    page.begin("Memory and machines", "What a model needs on machines that we don't have: bytes of every rank, layouts, "
                                      "links. Computed from the placement that real runs here use.")
    plan_inputs.read_address()
    plan_inputs.head()
    shown = st.segmented_control("Section", SECTIONS, key=plan_inputs.key("show"), format_func=TITLES.get,
                                 label_visibility="collapsed", required=True)
    asked = plan_inputs.asked_now()
    if shown == "check":
        check()
    elif shown == "ask":
        ask()
    else:
        planned(asked, {"memory": memory, "layouts": layouts, "network": network}[shown])
    plan_inputs.write_address(plan_inputs.asked_now())


main()
