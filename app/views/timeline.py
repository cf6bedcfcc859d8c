"""Timeline: all ranks, all passes, as they were measured; beside it the same run replayed on another link."""
import streamlit as st

from minitp.errors import ConfigError
from minitp.plan.links import LINKS
from minitp.trace.simulated import is_simulated
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, duration, share
from minitp.view import timeline as view
from minitp.view.figures import timeline as figures
from minitp.view.passes import Passes
from minitp.view.replay import Replay, Script, cutting, cutting_lines, replay
from minitp.view.steps import Steps
from ui import page
from ui.picker import Opened, open_run
from ui.state import keep, query_int


@st.cache_resource(max_entries=3, show_spinner="Adding up the times …")
def passes_of(digest: str, _timeline: Timeline) -> Passes:
    """Worked out once per trace, and shared: nobody changes it."""
    return Passes(_timeline)


@st.cache_resource(max_entries=3, show_spinner="Replaying the run …")
def replays(digest: str, _passes: Passes) -> dict[str, Replay]:
    """The run on every link."""
    script = Script.of(_passes)
    return {link.name: replay(script, link) for link in LINKS}


@st.cache_data(max_entries=12, show_spinner=False)
def last_to_come(digest: str, _timeline: Timeline) -> list[view.Straggler]:
    return view.came_last(_timeline)


def parts(row: view.Group, source: str = "") -> dict[str, str]:
    """A row's times for a table. What is measured and what a model says have columns of their own."""
    return {f"{source}{name}": duration(getattr(row, name)) for name in ("time", *view.KINDS)}


def overview(passes: Passes) -> list[view.Group]:
    st.subheader("All tokens" if passes.unit == "token" else "All passes", anchor=False)
    groups, note = view.overview(passes.work, passes.unit)
    shares = st.segmented_control("Height of a bar", ["time", "share"], key="timeline_height") == "share"
    rows = [{passes.unit: group.name, "text": group.word, **parts(group)} for group in groups]
    page.chart(figures.overview_figure(groups, shares=shares, unit=passes.unit, ink=page.ink()), rows=rows,
               key="timeline_overview",
               alt=f"Stacked bars, one per {passes.unit}, mean over the ranks. {view.share_line(passes)}")
    if note:
        st.caption(note)
    return groups


FIRST = {"token": (2, "1 is the prompt with the first new token"),       # where the detail usually begins; the help
         "pass": (1, "in the order in which they began; a training step is several")}


def chosen_passes(passes: Passes) -> tuple[int, int]:
    """Indices of the first and last pass of the detail: from the sliders, which count from 1, or from the address,
    which gives the number of a pass. A run that failed begins where it did."""
    rows, usual, (begin, help_) = passes.work, view.step_from(passes, 0), FIRST[passes.unit]
    failed = len(passes.trace.unfinished["rank"]) > 0
    begin = len(rows) if failed else begin
    key, key_count, key_address = (f"timeline_{what}_{passes.unit}{'_failed' * failed}"
                                   for what in ("first", "count", "address"))
    asked = query_int("token", 0, passes.rows[-1].number, -1)
    if asked >= 0 and asked != st.session_state.get(key_address):
        st.session_state[key] = 1 + next((i for i, row in enumerate(rows) if row.number >= asked), 0)
    shown = st.session_state[key] = min(keep(key, begin), len(rows))
    left, right = st.columns(2)
    if len(rows) > 1:
        shown = left.slider(f"First {passes.unit}", 1, len(rows), key=key, help=help_)
    first = shown - 1
    most = min(view.fits(passes, first), len(rows) - first)
    wanted = keep(key_count, usual)
    if wanted > most:
        wanted = st.session_state[key_count] = most
    if most > 1:
        wanted = right.slider("How many", 1, most, key=key_count, help=f"as many as {view.MOST_BARS:,} bars can show")
    number = st.session_state[key_address] = rows[first].number
    st.query_params["token"] = str(number)
    return first, first + wanted - 1


def detail(opened: Opened, passes: Passes) -> int:
    """The lanes of the passes that are chosen. Returns the first one."""
    st.subheader("Rank by rank", anchor=False)
    first, last = chosen_passes(passes)
    lanes(opened, passes, first, last)
    return first


def lanes(opened: Opened, passes: Passes, first: int, last: int) -> None:
    """A click on a bar opens Watch there."""
    bars = view.detail(passes, first, last)
    texts = view.hover_texts(passes, bars)
    blank = "parts of a pass, where Python draws and writes the token" if passes.unit == "token" else "passes"
    st.caption(f"Solid: the rank computes. Hatched: it waits for another rank. Ink: data moves. Blank: between two "
               f"{blank}, and nothing is recorded. Drag to zoom in, double-click to zoom out; a click on a bar opens "
               "it in Watch.")
    rows = [{"rank": rank, "begin": duration(start), "what": text} for rank, start, text in
            zip(bars.rank.tolist(), bars.start.tolist(), texts, strict=True)]
    picked = page.chart(
        figures.lanes_figure(bars, texts, ink=page.ink()), rows=rows, key=f"timeline_lanes_{opened.digest}", pick=True,
        alt=view.lanes_alt(passes, bars, first, last))
    for note in bars.notes:
        st.caption(note)
    if isinstance(picked, int) and picked != -1:                  # not a bar that leads to the end of its pass
        token, sync = view.place_in_watch(Steps.of(opened.timeline), picked)
        st.switch_page("views/watch.py", query_params={"run": opened.name, "token": str(token), "sync": str(sync)})


def other_link(opened: Opened, passes: Passes, groups: list[view.Group], first: int) -> None:
    st.subheader("The same run on another link", anchor=False)
    st.markdown("Every rank's computing stays as it was measured; each sync takes the time that a model of the link "
                "gives it, and arrivals and waits follow. What is a **model** is never in one column with what was "
                "**measured**.")
    try:
        runs = replays(opened.digest, passes)
    except ConfigError as error:                          # it may name the collectives of a stranger's trace
        st.info(page.escaped(str(error)))
        return
    name = st.select_slider("Link", list(runs), key="timeline_link")
    run, link = runs[name], runs[name].link
    modeled = view.modeled_groups(run)
    st.caption(f"{link.name}: {duration(link.latency_s * 1e9)} per message, {link.bytes_per_s / 1e9:.3g} GB/s. "
               f"{link.source}.")
    rows = [{passes.unit: one.name, **parts(one, "measured "), **parts(other, "model: ")}
            for one, other in zip(groups, modeled, strict=True)]
    page.chart(figures.panels_figure(groups, modeled, name, unit=passes.unit, ink=page.ink()), rows=rows,
               key="timeline_panels",
               alt=f"Two panels on one scale: time per {passes.unit} as measured, and by the model of {name}.")
    bars, there = view.detail(passes, first, first), view.modeled_detail(passes, run, first)
    sides = [(bars, view.hover_texts(passes, bars)), (there, view.hover_texts(passes, there, modeled=True))]
    st.markdown(f"Rank by rank, on one scale: {page.escaped(passes.work[first].name)}, the first of those "
                "chosen above.")
    rows = [{"rank": rank, f"begin ({source})": duration(start), source: text}
            for source, (side, texts) in zip(("measured", "model"), sides, strict=True)
            for rank, start, text in zip(side.rank.tolist(), side.start.tolist(), texts, strict=True)]
    page.chart(figures.two_lanes_figure(*sides, name, ink=page.ink()), rows=rows, key="timeline_two_lanes",
               alt=f"The lanes of all ranks twice: as measured, and by the model of {name}.")
    st.markdown(f"**By the model**, per {passes.unit}, mean over ranks and all of them:")
    means = {one: view.mean_of(other) for one, other in runs.items()}
    page.table([{"link": one, **parts(mean, "model: "),
                 "model: waiting and moving": share(mean.waiting + mean.moving, mean.time)}
                for one, mean in means.items()], key="timeline_links")


def cutting_further(passes: Passes) -> None:
    found = cutting(passes)
    if found is None:
        return
    st.subheader("Where cutting further stops paying", anchor=False)
    st.markdown(f"By the model: one {found.what} of this run needs {duration(found.computing * 1e9)} of "
                f"computing, all ranks together, as measured here, and {count(found.sync_points, 'sync point')}. "
                "Assumed: the computing divides evenly over p ranks, and the payloads stay the same.")
    rows = [{"link (model)": curve.link.name, "ranks": p, f"time per {found.unit} (model)": duration(seconds * 1e9)}
            for curve in found.curves for p, seconds in enumerate(curve.seconds, start=1)]
    lines = cutting_lines(found)
    page.chart(figures.cutting_figure(found, ink=page.ink()), rows=rows, key="timeline_cutting",
               alt=f"Time per {found.unit} against the number of ranks, one curve per link, by the model. "
                   f"{' '.join(lines)}")
    st.markdown("\n".join(f"- {line}" for line in lines))


def show(opened: Opened) -> None:
    passes = passes_of(opened.digest, opened.timeline)
    if not passes.work and len(opened.trace.unfinished["rank"]):
        lanes(opened, passes, 0, -1)
        return
    if not passes.work:
        st.info("This run has no passes: nothing of a model moved in it, so there is no time to show.")
        return
    st.markdown(f"{view.straggler_line(last_to_come(opened.digest, opened.timeline))}  \n{view.share_line(passes)}")
    groups = overview(passes)
    first = detail(opened, passes)
    if is_simulated(opened.trace.run):
        st.info("What this would be on another link or machine, `minitp plan simulate` says: nothing here is measured, "
                "so there is nothing to replay.")
        return
    other_link(opened, passes, groups, first)
    cutting_further(passes)


keep("timeline_height", "time")
keep("timeline_link", LINKS[-1].name)
page.begin("Timeline", "Where the time of every pass went, on every rank: computing, waiting for another rank, moving "
                       "data.")
chosen = open_run()
if chosen is not None:
    show(chosen)
