"""Run: start a real run on this machine, watch it, stop it; its trace goes to the runs folder."""
from typing import Any
from uuid import uuid4

import streamlit as st

from minitp.environment import cores
from minitp.errors import MinitpError
from minitp.launcher.manager import LONGEST_PROMPT, MOST_RANKS, MOST_TOKENS, RunRequest, manager
from minitp.launcher.mpiexec import no_mpi
from minitp.models import list_models
from minitp.runs import listed, runs_folder, title
from minitp.trace.wording import count, plain, size
from ui import models, page
from ui.headers import header
from ui.jobs import shown
from ui.state import keep

WORLDS = {"mpi": "processes (MPI)", "threads": "threads of one process"}
CUTS = {"vocab": "along the vocabulary", "hidden": "along hidden"}
LOADS = {"slice": "every rank reads its slices", "scatter": "rank 0 reads and scatters"}


def ask() -> RunRequest | None:
    """The form; the request where it is one."""
    prompt = st.text_area("Prompt", key="run_prompt", max_chars=LONGEST_PROMPT, height=80)
    left, middle, right = st.columns(3)
    with left:
        model = choose_model()
        max_tokens = st.slider("New tokens, at most", 1, MOST_TOKENS, key="run_max_tokens")
    with middle:
        ranks = st.slider("Ranks", 1, MOST_RANKS, key="run_ranks")
        if ranks > cores():
            st.caption(f":orange[More ranks than the {count(cores(), 'core')} here: they take turns, and waits will "
                       "show the scheduler.]")
        world = choose_world()
    with right:
        temperature = st.slider("Temperature (0 takes the best token)", 0.0, 2.0, step=0.1, key="run_temperature")
        seed = st.number_input("Seed", 0, 2**31 - 1, key="run_seed", disabled=temperature == 0)
    with st.expander("More"):
        more = further()
    if more["broken"] and (wrong := models.wrong_break(more["broken"], model, ranks, more["embedding"])):
        st.caption(page.escaped(wrong))
        return None
    try:
        return RunRequest(prompt, model, ranks, world, max_tokens, temperature, int(seed), **more)
    except MinitpError as error:
        st.caption(page.escaped(str(error)))
        return None


def further() -> dict[str, Any]:
    """The rest of the request, which most runs leave as it is."""
    return {
        "values": st.checkbox("Record the numbers too: Watch then shows them, and the run takes longer",
                              key="run_values"),
        "embedding": st.radio("Cut the embedding table", list(CUTS), format_func=CUTS.__getitem__, key="run_embedding",
                              horizontal=True),
        "load": st.radio("How weights reach the ranks", list(LOADS), format_func=LOADS.__getitem__, key="run_load",
                         horizontal=True),
        "broken": st.text_input("Break it: leave out the all-reduce of these sites", key="run_broken", max_chars=100,
                                placeholder="layers.*.mlp.down",
                                help="Each rank then takes its partial sum for the whole. See what the text becomes."),
        "seconds": 60.0 * st.slider("Stop it after so many minutes", 1, 60, key="run_minutes")}


def first_model() -> str:
    """The one that writes English, if it is on this machine."""
    return next((row.name for row in reversed(list_models()) if row.fetched), "tiny")


def choose_model() -> str:
    rows = {row.name: row for row in list_models()}
    name = st.selectbox("Model", list(rows), key="run_model", format_func=lambda name: f"{name}: {rows[name].what}")
    if not rows[name].fetched:
        st.caption(f"{name} isn't on this machine yet. The run fetches it first, once; or fetch it now in a terminal:")
        st.code(f"minitp models fetch {name}", language="bash")
    return name


def choose_world() -> str:
    missing = no_mpi()
    worlds = ["threads"] if missing else list(WORLDS)
    if missing:
        st.session_state["run_world"] = "threads"
    world = st.radio("The ranks are", worlds, key="run_world", format_func=WORLDS.__getitem__)
    if missing:
        st.caption(f"Only threads here: {page.escaped(missing)}. For processes:")
        st.code("pip install 'minitp[mpi]'", language="bash")
    elif world == "threads":
        st.caption("Threads take turns in Python: the same numbers and sync points, but no speed.")
    return world


def start(request: RunRequest) -> None:
    try:
        manager().start(request, owner=st.session_state["run_owner"])
    except (MinitpError, OSError) as error:
        st.session_state["run_refused"] = str(error)


keep("run_owner", uuid4().hex)
for key, default in {"prompt": "The capital of France is", "model": first_model(), "ranks": min(4, max(2, cores())),
                     "world": "mpi", "max_tokens": 12, "temperature": 0.0, "seed": 0, "values": True,
                     "embedding": "vocab", "load": "slice", "broken": "", "minutes": 10}.items():
    keep(f"run_{key}", default)

page.begin("Run", "Start a real run on this machine. It leaves a trace, which the other pages show.")
request = ask()
busy = manager().run is not None and manager().run.going_on
st.button("Start", type="primary", key="run_start", icon=":material/play_arrow:", disabled=busy or request is None,
          on_click=start, args=(request,))
if refused := st.session_state.pop("run_refused", ""):
    page.problem("The run was not started.", refused)
if manager().run is not None:
    shown(manager().run, mine=manager().run.owner == st.session_state["run_owner"])

with st.expander(f"Runs folder: {count(len(found := listed(runs_folder())), 'run')}"):
    st.code(str(runs_folder()), language=None, wrap_lines=True)
    page.table([{"file": plain(run.name, 60), "run": title(header(run)), "size": size(run.size)} for run in found],
               key="run_files")
