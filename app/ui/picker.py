"""Choosing a run: bundled samples, the runs folder, a trace that was uploaded. The choice is in the address.

What is opened is what is shown: an upload is a line of the list with its digest, until it is removed.
"""
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path

import streamlit as st

from minitp.errors import FileFormatError
from minitp.runs import RunFile, listed, runs_folder, samples, title
from minitp.trace import Timeline, Trace
from minitp.trace.emulated import emulated_line
from minitp.trace.failed import failed_line, is_failed, waiting_lines
from minitp.trace.simulated import is_simulated, lane_words, simulated_line
from minitp.trace.summary import broken_sites, crowded
from minitp.trace.wording import count, plain, sites_in_words, size
from ui import page
from ui.headers import header

UPLOAD_TEXT = 32_000_000               # bytes of JSON text that an uploaded file may hold when unpacked
DIGITS = 12                            # of the digest that is shown
_CHOSEN, _UPLOAD, _LIST = "_run", "_upload", "_run_list"


@dataclass(frozen=True)
class Opened:
    """A run that pages show. `digest`: of the file's bytes, so that two of one name can't be taken for each other."""
    name: str
    trace: Trace
    timeline: Timeline
    digest: str
    as_text: Callable[[], str]           # the trace as JSON; of a file it is read again, so as not to hold on to it


@dataclass(frozen=True)
class Upload:
    """A file that came from the browser, or why it can't be opened."""
    name: str
    digest: str
    opened: Opened | None
    error: str = ""

    @property
    def key(self) -> str:
        return f"upload-{self.digest}"


def open_run() -> Opened | None:
    """The run picker, in the sidebar, and the run that was chosen; None once the page says why there is none."""
    place = st.sidebar.container()                        # above the uploader, which has to be asked first
    _take_upload()
    choices: dict[str, RunFile | Upload] = {run.name: run for run in (*samples(), *listed(runs_folder()))}
    upload: Upload | None = st.session_state.get(_UPLOAD)
    if upload is not None:
        choices = {upload.key: upload} | choices
    if not choices:
        _nothing_yet()
        return None
    with place:
        chosen = choices[_choose(choices)]
    opened = _open(chosen)
    if opened is not None:
        with place:
            st.caption(f"{count(opened.trace.run['ranks'], 'rank')} · {count(len(opened.trace), 'event')} · "
                       f"sha256 {opened.digest}")
        _banners(opened.trace)
    return opened


def _choose(choices: dict[str, RunFile | Upload]) -> str:
    """The name of the chosen run: from the list, from the address, as before, or the first."""
    asked, before = st.query_params.get("run"), st.session_state.get(_CHOSEN)
    if asked is not None and asked not in choices:
        st.info("The address asks for a run that isn't here (any more). Shown is another one.")
    chosen = next((name for name in (asked, before) if name in choices), next(iter(choices)))
    st.session_state[_LIST] = chosen
    labels = _labels(choices)
    st.selectbox("Run", list(choices), key=_LIST, format_func=labels.__getitem__, on_change=_changed)
    _choice_is(chosen)
    shown = choices[chosen]
    if isinstance(shown, Upload):
        st.button("Remove this upload", key="_remove_upload", on_click=_remove_upload, icon=":material/delete:")
    return chosen


def _changed() -> None:
    _choice_is(st.session_state[_LIST])


def _choice_is(name: str) -> None:
    st.session_state[_CHOSEN] = name
    if st.query_params.get("run") != name:
        st.query_params["run"] = name


def _labels(choices: dict[str, RunFile | Upload]) -> dict[str, str]:
    """What the list says of each; of several that would read alike, the file's name as well."""
    said = {name: _label(choice) for name, choice in choices.items()}
    often = Counter(said.values())
    return {name: f"{label} · {plain(name, 60)}" if often[label] > 1 else label for name, label in said.items()}


def _label(choice: RunFile | Upload) -> str:
    if isinstance(choice, Upload):
        return f"Uploaded {plain(choice.name, 60)} ({choice.digest})"
    said = title(header(choice)) or plain(choice.name, 60)
    when = f"{datetime.fromtimestamp(choice.modified / 1e9):%d %b %H:%M}"
    return f"Sample: {said}" if choice.sample else f"{said} · {when}"


# --- opening --------------------------------------------------------------------------------------------------------

def _open(choice: RunFile | Upload) -> Opened | None:
    try:
        if isinstance(choice, RunFile):
            trace, timeline, digest = _read(choice.path, choice.modified, choice.size)
            opened: Opened | None = Opened(choice.name, trace, timeline, digest,
                                                    partial(_text_of, choice.path))
        else:
            opened = choice.opened
    except (FileFormatError, OSError) as error:            # it may also have been deleted meanwhile
        page.problem("This run can't be opened.", str(error))
        return None
    if opened is None:
        page.problem("The uploaded file can't be opened.", choice.error)
        return None
    return opened


@st.cache_resource(max_entries=3, show_spinner="Reading the trace …")
def _read(path: Path, modified: int, size: int) -> tuple[Trace, Timeline, str]:
    """A trace file, parsed and checked once for all sessions; nobody changes it. The arguments are the key."""
    trace = Trace.read(path)
    with path.open("rb") as file:
        return trace, Timeline.of(trace), file_digest(file, "sha256").hexdigest()[:DIGITS]


def _text_of(path: Path) -> str:
    return json.dumps(Trace.read(path).to_plain())


# --- uploads --------------------------------------------------------------------------------------------------------

def _take_upload() -> None:
    """The uploader. A file that came is read at once and becomes a line of the list; the uploader is empty again."""
    turn = st.session_state.setdefault("_upload_turn", 0)
    with st.sidebar.expander("Open a trace file", icon=":material/upload_file:"):
        file = st.file_uploader(f"A file that `--trace` wrote, of at most {size(UPLOAD_TEXT)} of text",
                                key=f"_uploader_{turn}")
    if file is None:
        return
    upload = _uploaded(file.name, file.getvalue())
    st.session_state[_UPLOAD], st.session_state["_upload_turn"] = upload, turn + 1
    _choice_is(upload.key)
    st.rerun()


def _uploaded(name: str, data: bytes) -> Upload:
    digest = sha256(data).hexdigest()[:DIGITS]
    try:
        trace = Trace.parse(data, UPLOAD_TEXT)
        return Upload(name, digest, Opened(plain(name, 60), trace, Timeline.of(trace), digest,
                                           lambda: json.dumps(trace.to_plain())))
    except FileFormatError as error:
        return Upload(name, digest, None, f"{plain(name, 60)}: {error}")


def _remove_upload() -> None:
    for key in (_UPLOAD, _CHOSEN):
        st.session_state.pop(key, None)
    st.query_params.pop("run", None)


# --- what the page says -----------------------------------------------------------------------------------------------

def _banners(trace: Trace) -> None:
    run = trace.run
    if is_failed(run):
        st.error(f"**{page.escaped(failed_line(run))}**", icon=":material/error:")
        if lines := waiting_lines(trace):
            st.text("\n".join(lines))
    if is_simulated(run):
        st.warning(f"**{page.escaped(simulated_line(run))}**", icon=":material/model_training:")
        with st.expander("Who the ranks are"):
            page.table([{"rank": rank, "stands for": words} for rank, words in enumerate(lane_words(run))],
                       key="_lanes")
    if emulated := emulated_line(run):
        st.warning(f"**{emulated}**", icon=":material/slow_motion_video:")
    if crowded(trace):
        st.warning(f"**{count(run['ranks'], 'rank')} shared {count(run['cores'], 'core')} in this run: its waits show "
                   "the scheduler taking turns, not a network.**", icon=":material/groups:")
    if broken := broken_sites(trace):
        st.warning("**This run was broken on purpose:** ranks took their partial sums for the whole at the places "
                   "below, so its text is wrong.", icon=":material/heart_broken:")
        st.text(sites_in_words(broken, 200))


def _nothing_yet() -> None:
    st.info("There is no run to show yet: open a trace file in the sidebar, or record one and reload this page.",
            icon=":material/inbox:")
    st.code(f'minitp generate --trace "{runs_folder() / "first.json.gz"}" "The capital of France is"',
            language="bash", wrap_lines=True)
