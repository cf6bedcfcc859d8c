"""Watch a token: the player, what lies behind a sync point, the same as text, files to keep, and how to break it."""
import shlex
from typing import Any

import streamlit as st

from minitp.trace import Timeline
from minitp.view.detail import detail
from minitp.view.player.export import to_html
from minitp.view.reading import PlayReader
from minitp.view.text import pass_name, steps
from minitp.view.watch import play as play_of
from ui import page
from ui.picker import Opened, open_run
from ui.player import player
from ui.state import keep, query_choice, query_int

STATE_KEYS = ("token", "sync", "phase", "clock", "cut", "toggle")
CLOCKS, TOGGLES = ("steps", "measured"), ("after", "before")


@st.cache_resource(max_entries=4, show_spinner="Preparing the picture …")
def play_in(digest: str, _timeline: Timeline, first: int | None) -> dict[str, Any]:
    """The play of a trace, from pass `first` on; made once for all sessions, and never changed."""
    return play_of(_timeline.trace, first=first, timeline=_timeline)


def watch() -> None:
    """Streamlit keeps fragments and downloads for two minutes after a visitor has left, with all that they were given
    and the names of this module: they are given the play, which is small, and the run is no name of the module."""
    opened = open_run()
    if opened is None:
        return
    play = _window(opened)
    _picture(play, _seek(opened, play), opened.digest, opened.name)
    _as_text(play, opened.digest)
    _downloads(opened, play)
    if "training" not in opened.timeline.trace.run:
        _break_it(PlayReader(play))


# --- which passes, and where to start -----------------------------------------------------------------------------

def _window(opened: Opened) -> dict[str, Any]:
    """The play of the run, or of the passes around the one that is asked for where the run is long."""
    play = play_in(opened.digest, opened.timeline, None)
    shown, of = play["run"]["window"]["count"], play["run"]["window"]["of"]
    if shown >= of:
        return play
    key = f"window {opened.digest}"
    first = play["run"]["window"]["first"]
    token = query_int("token", 0, of - 1, first)
    keep(key, first if "token" not in st.query_params else min(token, of - shown) if token >= shown else 0)
    first = st.slider("First pass shown", 0, of - shown, key=key,
                      help=f"The run has {of:,} passes; {shown:,} of them fit into one picture.")
    return play_in(opened.digest, opened.timeline, first)


def _seek(opened: Opened, play: dict[str, Any]) -> dict[str, Any]:
    """Where the player is to go: what the address asks for, once; clamped to the play, with a word."""
    before, shown = st.session_state.get("_sought"), (opened.digest, play["run"]["window"]["first"])
    if before is not None and before["shown"] != shown and before["asked"] == _asked():
        for key in STATE_KEYS:                              # another run or part of it: that place is not in it
            st.query_params.pop(key, None)
    elif before is not None and before["shown"] == shown and _asked() in (before["asked"], (None,) * len(STATE_KEYS)):
        return before["seek"]
    seek = {"n": 0 if before is None else before["seek"]["n"] + 1} | _place(play)
    st.session_state["_sought"] = {"shown": shown, "asked": _asked(), "seek": seek}
    return seek


def _asked() -> tuple[str | None, ...]:
    return tuple(st.query_params.get(key) for key in STATE_KEYS)


def _place(play: dict[str, Any]) -> dict[str, Any]:
    if not any(key in st.query_params for key in STATE_KEYS):
        return {}
    passes, first = play["passes"], play["run"]["window"]["first"]
    last = len(passes["first"]) - 1
    if last < 0:
        return {}
    at = query_int("token", first, first + last, first) - first
    sync = query_int("sync", 0, passes["count"][at] - 1, 0)
    return {"sync": passes["first"][at] + sync, "phase": query_int("phase", 0, 3, 3),
            "clock": query_choice("clock", CLOCKS, "steps"), "cut": query_int("cut", 0, 1, 1),
            "toggle": query_choice("toggle", TOGGLES, "after")}


# --- the picture and what lies behind it --------------------------------------------------------------------------

@st.fragment
def _picture(play: dict[str, Any], seek: dict[str, Any], digest: str, name: str) -> None:
    """The player and, after a click on a sync point, its details. A click runs this part of the page alone."""
    key = f"detail {digest} {play['run']['window']['first']}"
    chosen = player(play, digest=digest, seek=seek, link={"run": name})
    if chosen is not None:
        st.session_state[key] = chosen
        _write_place(play, chosen)
    if key in st.session_state:
        _details(detail(PlayReader(play), st.session_state[key]))
    else:
        st.caption("Click a bead, a gate or a tick of the timeline, or press Enter in the picture, for its shapes, "
                   "bytes, times and line of code.")


def _write_place(play: dict[str, Any], sync: int) -> None:
    """The clicked sync into the address; it is no new place to go to."""
    at, passes = play["syncs"]["pass"][sync], play["passes"]
    st.query_params["token"] = str(play["run"]["window"]["first"] + at)
    st.query_params["sync"] = str(sync - passes["first"][at])
    st.session_state["_sought"]["asked"] = _asked()


def _details(said: dict[str, Any]) -> None:
    with st.container(border=True):
        st.text(said["title"])
        left, right = st.columns(2)
        with left:
            page.table(said["facts"], key="detail facts")
        with right:
            page.table(said["ranks"], key="detail ranks")
            st.text(f"Called at {said['caller']}")
            if said["code"]:
                st.code(said["code"], language="python", wrap_lines=True)


# --- beside the picture -------------------------------------------------------------------------------------------

@st.fragment
def _as_text(play: dict[str, Any], digest: str) -> None:
    """The table of a pass, made when it is asked for: tables need pandas, which takes a second to load and 100 MB."""
    expander = st.expander("Read as text", key="watch_text", on_change="rerun")
    if not expander.open:
        return
    reader = PlayReader(play)
    with expander:
        passes = range(len(play["passes"]["first"]))
        at = st.selectbox("Pass", passes, key=f"text {digest}", format_func=lambda i: pass_name(reader, i))
        if at is not None:
            page.table(steps(reader, at), key="steps")


def _downloads(opened: Opened, play: dict[str, Any]) -> None:
    name = f"minitp-{play['run']['id'] or 'run'}"
    with st.container(horizontal=True):
        st.download_button("This view as one HTML file", lambda: to_html(play), f"{name}.html", "text/html",
                           on_click="ignore", icon=":material/slideshow:", help="Plays without a server.")
        st.download_button("The trace", opened.as_text, f"{name}.json", "application/json", on_click="ignore",
                           icon=":material/data_object:")


def _break_it(reader: PlayReader) -> None:
    """How to see what a sync point is for: a run without it."""
    sites = list(dict.fromkeys(sync.site for sync in map(reader.sync, range(reader.n)) if sync.before == "partial"))
    with st.expander("Break it"):
        st.markdown("A rank that does not wait for the sum takes its own partial sum for the whole answer. Leave out "
                    "the all-reduce of one site and watch the text turn to garbage:")
        site = st.selectbox("Leave out the sum at", sites, key="break_site") if sites else None
        st.code(f"minitp generate --break {shlex.quote(site or 'layers.0.mlp.down')} --trace broken.json.gz "
                '"The capital of France is"', language="bash", wrap_lines=True)
        st.page_link("views/run.py", label="Start it on the Run page", icon=":material/rocket_launch:")


page.begin("Watch a token", "One pass after another, split over the ranks: of a token, or of a training step. What "
           "each rank computes, where they wait for each other, and what moves, with the numbers of this run.")
watch()
