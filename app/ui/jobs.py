"""A run that goes on or has ended, as it is shown: looked at again every half second while it goes on."""
from pathlib import Path

import streamlit as st

from minitp.launcher.manager import Run, manager
from minitp.trace.wording import count, duration, size
from ui import page

EVERY = 0.5                            # seconds between looks
STATES = {"loading": "Starting the ranks and loading the weights", "running": "Running", "writing": "Writing the trace",
          "done": "Done", "failed": "Failed", "stopped": "Stopped"}
ICONS = {"done": ":material/check_circle:", "failed": ":material/error:", "stopped": ":material/stop_circle:"}
WATCH = Path(__file__).parents[1] / "views" / "watch.py"


def shown(run: Run, mine: bool) -> None:
    """The run's state, text and counts, with Stop; when it ends the whole page is drawn again."""
    @st.fragment(run_every=EVERY if run.going_on else None)
    def look(watched: bool = run.going_on) -> None:
        going_on = run.going_on        # asked first: what is drawn below is then not older than this
        _draw(run, mine)
        if watched and not going_on:
            st.rerun()

    look()


def _draw(run: Run, mine: bool) -> None:
    request = run.request
    with st.container(border=True):
        st.markdown(f"{ICONS.get(run.state, ':material/progress_activity:')} **{STATES[run.state]}** · {request.model} "
                    f"on {count(request.ranks, 'rank')} ({request.world}), started at {run.began:%H:%M:%S}"
                    + ("" if mine else " (from another tab, or from this one before it was reloaded)"))
        if run.going_on and not mine:
            st.caption("One run at a time: you can watch this one, or stop it.")
        _numbers(run)
        st.code(request.prompt, language=None, wrap_lines=True)
        st.code(run.text or " ", language=None, wrap_lines=True)
        if run.going_on:
            st.button("Stop", key="run_stop", icon=":material/stop:", on_click=manager().stop)
            st.caption(f"It goes on if you close this page, for at most {duration(request.seconds * 1e9)}.")
        else:
            _end(run)
        if run.log.strip():
            with st.expander("What the program said", expanded=run.state == "failed"):
                st.code(run.log.strip(), language=None, wrap_lines=True)


def _numbers(run: Run) -> None:
    cells = st.columns(4)
    cells[0].metric("Tokens", f"{run.tokens} of {run.request.max_tokens}")
    cells[1].metric("Sync points", f"{run.sync_points:,}")
    cells[2].metric("Payload", size(run.payload))
    cells[3].metric("Elapsed", duration(run.elapsed * 1e9))


def _end(run: Run) -> None:
    if run.state == "failed":
        page.problem(f"The run ended with exit code {run.code}.")
    elif run.state == "stopped":
        st.info(f"The run was stopped (exit code {run.code}){'' if run.trace else '; it leaves no trace'}.")
    if run.trace and WATCH.is_file():
        label = "Open in Watch" if run.state == "done" else "Open in Watch, up to there"
        st.page_link(WATCH, label=label, icon=":material/play_circle:", query_params={"run": run.trace})
