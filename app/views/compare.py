"""Compare: one model and one prompt on several numbers of ranks: the same tokens? the logits? time, memory, waits."""
from pathlib import Path

import streamlit as st

from minitp.errors import MinitpError
from minitp.runs import RunFile, listed, runs_folder, samples, title, training_steps
from minitp.trace.file import Trace
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, duration, plain, share, size
from minitp.view import compare as view
from minitp.view import question
from minitp.view.figures.compare import memory_figure, times_figure
from minitp.view.rerun import LONGEST, RANKS, rerun
from ui import page
from ui.headers import header
from ui.state import keep

WAYS = ("Run it here, now", "Runs from the folder")


@st.cache_data(max_entries=20, show_spinner="Reading the traces …")
def read(files: tuple[tuple[str, Path, int, int], ...]) -> list[view.Entry]:
    """The comparison of these files; their times and sizes are part of the key."""
    return view.compare([view.Run(name, Timeline.of(Trace.read(path))) for name, path, _, _ in files])


@st.cache_data(max_entries=20, show_spinner="Running the tiny model on 1, 2, 3, 4 and 8 ranks …")
def run_here(prompt: str, tokens: int) -> list[view.Entry]:
    return view.compare(rerun(prompt, tokens))


def here() -> list[view.Entry] | None:
    left, right = st.columns([2, 1])
    prompt = left.text_input("Prompt", key="compare_prompt", max_chars=LONGEST,
                             help="the tiny model reads bytes and was trained on Python's reference")
    tokens = right.slider("New tokens", 1, 32, key="compare_tokens")
    st.caption(f"The bundled model, small and trained for minutes, on {', '.join(map(str, RANKS))} ranks that are "
               "threads of this process; the logits of every position are kept and compared. For a model that writes "
               "sentences, start the same prompt on several numbers of ranks on the Run page, and compare those runs "
               "here.")
    if Path(__file__).with_name("run.py").is_file():
        st.page_link("views/run.py", label="Start runs of SmolLM2 on the Run page", icon=":material/rocket_launch:")
    if not prompt:
        st.info("Type a prompt: a model continues at least one token.")
        return None
    return run_here(prompt, tokens)


def from_folder() -> list[view.Entry] | None:
    files = {file.name: file for file in (*samples(), *listed(runs_folder()))}
    headers = {name: header(file) for name, file in files.items()}
    groups = question.groups(headers)
    if not groups:
        st.info("No two runs of the same model and prompt, or of the same training, are in the runs folder yet: start "
                "the same prompt on 1, 2 and 4 ranks on the Run page, or run the tiny model here.")
        return None
    labels = [f"{count(len(group), 'run')}: {shared(headers[group[0]])}" for group in groups]
    number = st.selectbox("Model and prompt, or training", range(len(groups)), format_func=labels.__getitem__)
    names = st.multiselect("Runs", groups[number], default=question.newest(groups[number], headers),
                           format_func=lambda name: label(files[name], headers[name]))
    if not names:
        st.info("Pick two runs or more.")
        return None
    return read(tuple((plain(name, 60), file.path, file.modified, file.size) for name in names
                      for file in [files[name]]))


def shared(run: dict) -> str:
    """What the runs of a group have in common."""
    return question.training_in_words(run) if training_steps(run) else title(run)


def label(file: RunFile, run: dict) -> str:
    broken = ", broken on purpose" if question.was_broken(run) else ""
    return f"{count(run['ranks'], 'rank')}, {plain(run.get('world', ''), 12)}{broken} · {plain(file.name, 40)}"


def show(entries: list[view.Entry]) -> None:
    tight = [entry for entry in entries if entry.crowded]
    if tight:
        st.warning(f"**{len(tight)} of these runs had more ranks than cores: their waits show the scheduler taking "
                   "turns, not a network.**", icon=":material/groups:")
    st.subheader("The same?", anchor=False)
    wrong = any(entry.differs not in (None, -1) or (entry.loss or 0) > view.SAME_LOSS for entry in entries)
    (st.error if wrong else st.success)(page.escaped(view.verdict(entries)))
    page.table([row_of(entry) for entry in entries], key="compare_rows")
    st.subheader("Time and memory", anchor=False)
    left, right = st.columns(2)
    with left:
        page.chart(times_figure(entries, ink=page.ink()), rows=[time_of(entry) for entry in entries],
                   key="compare_times", alt="Stacked bars, one per run: computing, waiting and moving of a "
                                            f"{entries[0].unit}, mean over the ranks.")
    with right:
        page.chart(memory_figure(entries), key="compare_memory",
                   rows=[{"ranks": entry.ranks, "weights per rank": memory(entry.memory)} for entry in entries],
                   alt="Bars, one per run: bytes of weights on the fullest rank.")
    st.markdown("\n".join(f"- {page.escaped(line)}" for line in view.why_slower(entries)))


def row_of(entry: view.Entry) -> dict[str, str]:
    if entry.unit == "step":
        same = {"losses differ by": "not known" if entry.loss is None else f"{entry.loss:.2g} of their size"}
    else:
        same = {"same tokens": {None: "not known", -1: "✓"}.get(entry.differs, f"✗ from token {entry.differs}"),
                "logits differ by": "not kept" if entry.logits is None else f"{entry.logits:.2g}"}
    return {
        "ranks": f"{entry.ranks:,}", "world": entry.world, "run": entry.name, **same,
        f"time per {entry.unit}": duration(entry.time) + ("" if entry.is_speed else " (no speed)"),
        "weights per rank": memory(entry.memory), f"syncs per {entry.unit}": f"{entry.sync_points:,}",
        "waiting": share(entry.waiting, entry.parts)}


def time_of(entry: view.Entry) -> dict[str, str]:
    return {"ranks": f"{entry.ranks:,}", "world": entry.world, f"time per {entry.unit}": duration(entry.time),
            **{kind: f"{duration(getattr(entry, kind))} ({share(getattr(entry, kind), entry.parts)})"
               for kind in ("computing", "waiting", "moving")},
            "cores": "not known" if entry.cores is None else f"{entry.cores:,}"}


def memory(held: tuple[int, int] | None) -> str:
    if held is None:
        return "not known"
    return size(held[1]) if held[0] == held[1] else f"{size(held[0])} to {size(held[1])}"


keep("compare_way", WAYS[0])
keep("compare_prompt", "The cat sat")
keep("compare_tokens", 12)
page.begin("Compare", "One model and one prompt on several numbers of ranks: the same tokens, what it costs, what it "
                      "saves.")
way = st.segmented_control("What to compare", WAYS, key="compare_way", label_visibility="collapsed")
try:
    entries = from_folder() if way == WAYS[1] else here()
except (MinitpError, OSError) as error:
    page.problem("These runs can't be compared.", plain(error, 400))
    entries = None
if entries:
    show(entries)
