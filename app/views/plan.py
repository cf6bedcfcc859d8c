"""Memory and machines: what a model needs on machines that we don't have; layouts, links, a check against real runs."""
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from minitp.errors import ConfigError, MinitpError
from minitp.plan import positions
from minitp.plan.search import Found
from minitp.plan.units import both
from minitp.runs import runs_folder
from minitp.view import plan_layouts, plan_memory, plan_network, plan_simulated
from minitp.view.figures import plan_memory as memory_figures
from minitp.view.figures import plan_network as network_figures
from minitp.view.plan import GROUPS, OPS, SECTIONS, Asked
from ui import page, plan_inputs, plan_more

MODEL = "A model, not measured."
UNSEARCHED = "This can't be searched so: keep more or other degrees as the sliders have them, or change the devices."
TITLES = {"memory": "Memory", "layouts": "Layouts", "network": "Network", "check": "Check", "ask": "Ask"}


@st.cache_resource(max_entries=24, show_spinner="Trying layouts …")
def searched(asked: Asked) -> Found:
    """Nobody changes it. The inputs are the key; those that have no part in it are the usual ones."""
    return plan_layouts.found(asked)


@st.cache_resource(max_entries=24, show_spinner="Trying more machines …")
def enough(asked: Asked) -> str:
    return plan_layouts.enough_line(asked)


def memory(asked: Asked, picture: Any) -> None:
    found = plan_memory.planned(asked)
    verdict = plan_memory.verdict_line(found)
    with picture:
        (st.success if found.verdict.fits else st.warning)(verdict)
        if beyond := positions.beyond(asked.planned(), asked.job()):
            st.warning(page.escaped(f"{beyond}."))
        st.caption(f"{plan_memory.devices_line(asked, found)}. {MODEL}")
        page.chart(memory_figures.bars_figure(found, ink=page.ink()), key="plan_bars",
                   alt=plan_memory.bars_alt(found, verdict), rows=[
                       {"rank": bar.name, "GB (GiB)": both(bar.bytes), "bytes": bar.bytes} for bar in found.bars])
        times(asked, found)
    growing(found)
    st.subheader(f"Every term of {found.fullest.name}", anchor=False)
    page.table(plan_memory.table(found.fullest.rows), key="plan_terms")
    st.caption(page.escaped(plan_memory.legend_line(found.fullest.rows)))
    with st.expander("What isn't modeled, and what the reserve is for"):
        page.table(plan_memory.not_modeled(found), key="plan_unmodeled")


def times(asked: Asked, found: plan_memory.Memory) -> None:
    """How fast, and the way to watch it."""
    try:
        speed = plan_memory.speed(asked, found)
    except ConfigError as error:
        st.caption(page.escaped(str(error)))
        return
    columns = page.columns(len(speed.cells), least="9rem", key="plan_speed")
    for column, (label, value) in zip(columns, speed.cells, strict=True):
        column.metric(f"{label} (model)", value)
    if speed.against:
        st.caption(page.escaped(speed.against))
    with st.expander("Where the time goes, by the model"):
        page.table(speed.rows, key="plan_times")
        simulation(asked)


def simulation(asked: Asked) -> None:
    try:
        told = plan_simulated.shown(asked)[1]
    except ConfigError as error:
        st.caption(page.escaped(str(error)))
        return
    if told:
        st.caption(page.escaped(told))
    if st.button("Watch it simulated", key="plan_simulate", icon=":material/movie:",
                 help="Played event by event, and written into the runs folder."):
        try:
            with st.spinner("Simulating …"):
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
               alt=f"Four stacked bars of the fullest rank: as it is, wider, with more sequences, both. {line} {MODEL}")
    st.caption("Lines falling: grows with the parameters. Lines rising: with the sequences. Crossed: with both. None: "
               "with neither. The bar of ink: where it would be, were memory proportional to parameters × sequences.")


def layouts(asked: Asked) -> None:
    st.pills("Keep as the sliders have it", list(plan_inputs.KEPT_WORDS), selection_mode="multi",
             key=plan_inputs.key("keep"), format_func=plan_inputs.KEPT_WORDS.get,
             help="The search tries all values of the others. cp always stays as it is.")
    asked = plan_inputs.asked_now()
    outcome = searched(plan_inputs.for_search(asked))
    st.caption(f"{plan_layouts.summary_line(outcome)} {MODEL}")
    told = st.empty()
    if outcome.best:
        told.success(plan_layouts.best_line(outcome))
        pick("plan_fit", plan_layouts.rows(outcome), outcome.best, asked)
    if outcome.failed:
        st.subheader("Why the others fail" if outcome.best else "Why they fail", anchor=False)
        pick("plan_fail", plan_layouts.failures(outcome), outcome.failed, asked)
    if not outcome.best:                                  # last: it takes seconds
        told.warning(plan_layouts.best_line(outcome))
        told.warning(f"{plan_layouts.best_line(outcome)} {enough(plan_inputs.for_search(asked))}")


def pick(key: str, rows: list[dict[str, Any]], entries: list[Any], asked: Asked) -> None:
    """A table; a click on a row sets the sliders to its layout."""
    def load() -> None:
        chosen = st.session_state[key]["selection"]["rows"]
        if chosen:
            plan_inputs.put(plan_layouts.loaded(asked, entries[chosen[0]]))
            st.toast(f"The sliders have {entries[chosen[0]].layout}: see Memory.")

    st.caption("The box of a row sets the sliders to its layout.")
    st.dataframe(rows, key=key, hide_index=True, width="stretch", on_select=load, selection_mode="single-row")


def network(asked: Asked, picture: Any) -> None:
    with picture:
        left, right = st.columns(2)
        left.selectbox("Collective", OPS, key=plan_inputs.key("op"), format_func=lambda op: op.replace("_", "-"))
        words = {"tp": "of a tp group", "dp": "of a dp group", "box": "of one box", "all": "all devices"}
        right.selectbox("Ranks", GROUPS, key=plan_inputs.key("group"), format_func=words.__getitem__)
        found = plan_network.network(plan_inputs.asked_now())
        lines = plan_network.lines(found)
        page.chart(network_figures.curve_figure(found, ink=page.ink()), key="plan_curve",
                   rows=plan_network.curve_rows(found),
                   alt=f"Time by payload, both logarithmic, a line for each algorithm: a model. {' '.join(lines)}")
        st.caption(f"{MODEL} {plan_network.measured_line(found)}")
    st.markdown("\n".join(f"- {page.escaped(line)}" for line in lines))
    st.subheader("What the syncs cost on each link", anchor=False)
    line = plan_network.links_line(found, asked.task == "train")
    st.markdown(line)
    page.chart(network_figures.links_figure(found, ink=page.ink()), key="plan_links",
               rows=plan_network.link_rows(found),
               alt=f"Time of all syncs of a pass on each link, for several numbers of ranks: a model. {line}")
    st.caption(MODEL)


def pictured(asked: Asked, draw: Any) -> None:
    """A picture with the sliders that move it at its right, on a phone below it; the rest over the whole width."""
    picture, right = page.columns((2, 1), least=("26rem", "15rem"), key="plan_split", gap="medium")
    with right:
        plan_inputs.layout(asked.task)
        plan_inputs.job(asked.task)
        plan_inputs.what_ifs()
    why = plan_layouts.possible(asked)
    if why:
        with picture:
            page.problem("This can't be laid out so.", why)
    else:
        draw(asked, picture)


def listed(asked: Asked) -> None:
    """The search over the whole width, under the inputs."""
    first, second, third = page.columns(3, least="14rem", key="plan_inputs")
    with first:
        plan_inputs.job(asked.task)
    with second:
        plan_inputs.layout(asked.task)
    with third:
        plan_inputs.what_ifs()
    layouts(asked)


def link() -> None:
    """The address of what is shown, to be copied."""
    with st.expander("Link to this", icon=":material/link:"):
        st.code(f"{(st.context.url or '').partition('?')[0]}?{urlencode(st.query_params.to_dict())}", language=None,
                wrap_lines=True)


def main() -> None:
    page.begin("Memory and machines", "What a model needs on machines that we don't have: bytes of every rank, "
                                      "layouts, links. Computed from the placement that real runs here use.")
    plan_inputs.read_address()
    if st.session_state[plan_inputs.key("show")] != "check":
        plan_inputs.head()
    shown = st.segmented_control("Section", SECTIONS, key=plan_inputs.key("show"), format_func=TITLES.get,
                                 label_visibility="collapsed", required=True)
    asked = plan_inputs.asked_now()
    try:
        if shown in ("memory", "network"):
            pictured(asked, memory if shown == "memory" else network)
        else:
            {"layouts": listed, "check": lambda _: plan_more.check(), "ask": lambda _: plan_more.ask()}[shown](asked)
    except (ConfigError, OSError) as error:
        page.problem(UNSEARCHED if shown == "layouts" else "This can't be planned.", str(error))
    plan_inputs.write_address(plan_inputs.asked_now())
    link()


main()
