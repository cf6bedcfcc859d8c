"""Ledger: the collectives that were counted, against the closed form; where the time went; downloads."""
from functools import partial

import streamlit as st

from minitp.trace.summary import Row
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, duration, plain, share, size
from minitp.view import ledger as view
from minitp.view.figures.ledger import sites_figure
from ui import page
from ui.picker import Opened, open_run

MARKS = {True: "✓", False: "✗", None: "–"}


@st.cache_resource(max_entries=3, show_spinner="Counting …")
def ledger_of(digest: str, _timeline: Timeline) -> view.Ledger:
    """Worked out once per trace, and shared: nobody changes it."""
    return view.Ledger.of(_timeline)


def span(numbers: tuple[int, int]) -> str:
    """One number where all ranks have the same, else the least and the most."""
    least, most = numbers
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def sync_points(found: view.Ledger) -> None:
    st.subheader("Predicted and recorded", anchor=False)
    (st.info if found.silent else st.error if found.differences else st.info if found.failed else st.success)(
        found.verdict)
    if found.silent:
        st.text(found.silent)
    if found.formula:
        st.markdown(found.formula)
    if found.bill:
        st.markdown("What the training steps were charged for, in sync points of one rank:")
        page.table([{
            "part": item.part, "closed form": item.form, "times": f"{item.times:,}",
            "predicted": f"{item.predicted:,}", "recorded": span(item.recorded),
            "same": MARKS[item.same(found.failed)],
            "payload": size(item.recorded_bytes[1])} for item in found.bill], key="ledger_bill")
        st.caption("Forward, loss and backward: once per micro-batch. Optimizer: once per step. L is the number of "
                   "layers.")
        st.markdown("Every event, by phase and site:")
    page.table([{
        "phase": plain(line.phase, 20), "site": plain(line.site, 60), "collective": plain(line.op, 20),
        "plane": plain(line.plane, 12), "predicted": "–" if line.predicted is None else f"{line.predicted:,}",
        "recorded": span(line.recorded), "same": MARKS[line.same],
        "predicted bytes": "–" if line.predicted_bytes is None else f"{line.predicted_bytes:,}",
        "recorded bytes": span(line.recorded_bytes)} for line in found.lines], key="ledger_lines")
    st.caption("Counts and payload bytes of one rank. Where ranks differ, the least and the most of them.")
    if found.differences:
        st.text("\n".join(f"· {plain(line, 300)}" for line in found.differences))


def times(found: view.Ledger) -> None:
    st.subheader("Where the time went", anchor=False)
    st.markdown(found.waiting)
    rows, note = found.per_site
    if not rows:
        return
    page.chart(sites_figure(rows, ink=page.ink()), key="ledger_sites", rows=[spent(row, "site") for row in rows],
               alt=f"Stacked bars, one per kind of site: computing before it, waiting, moving. {found.waiting}")
    passes, cut = found.per_pass
    st.markdown("Per phase:")
    page.table([spent(row, "phase") for row in found.per_phase], key="ledger_phases")
    with st.expander(f"Per pass: {count(len(passes), 'row')}"):
        page.table([spent(row, "pass") for row in passes], key="ledger_passes")
    for line in (note, cut):
        if line:
            st.caption(line)


def spent(row: Row, what: str) -> dict[str, str]:
    """A row of a summary for a table: times of all ranks together."""
    return {what: plain(row.key, 60), "sync points": f"{row.sync_points:,}", "samples": f"{row.sample:,}",
            "payload": size(row.payload), "time, all ranks": duration(row.time),
            **{kind: share(getattr(row, kind), row.time) for kind in ("computing", "waiting", "moving")}}


def apart(title: str, why: str, rows: list[view.Apart], key: str) -> None:
    if not rows:
        return
    st.subheader(title, anchor=False)
    st.markdown(why)
    page.table([{"site": plain(row.site, 60), "collective": plain(row.op, 20), "why": plain(row.reason, 120),
                 "times on a rank": f"{row.times:,}", "bytes": size(row.payload), "time, all ranks": duration(row.time)}
                for row in rows], key=key)


def downloads(opened: Opened) -> None:
    st.subheader("Take it with you", anchor=False)
    stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in opened.name.split(".")[0])[:60] or "run"
    trace = opened.trace
    for column, label, make, name, mime in zip(
            st.columns(3), ("The trace", "Chrome trace (Perfetto)", "Events as CSV"),
            (partial(trace.to_bytes, zipped=True), partial(view.chrome_file, trace), partial(view.csv_file, trace)),
            (f"{stem}.json.gz", f"{stem}.chrome.json.gz", f"{stem}.csv"),
            ("application/gzip", "application/gzip", "text/csv"), strict=True):
        column.download_button(label, make, file_name=name, mime=mime, on_click="ignore", width="stretch",
                               icon=":material/download:", key=f"ledger_{mime}_{name}")
    st.caption("Each file is made when you ask for it.")


page.begin("Ledger", "Every collective of the run, counted, beside what the closed form says before the run begins.")
chosen = open_run()
if chosen is not None:
    found = ledger_of(chosen.digest, chosen.timeline)
    sync_points(found)
    times(found)
    apart("Control messages", "The program's own: comparing clocks, agreeing on what to run, checked mode. They are no "
          "sync points of the model, and counted apart.", found.control, "ledger_control")
    apart("Broken on purpose", "At these events a fault was injected: each rank took its partial sum for the whole.",
          found.broken, "ledger_broken")
    downloads(chosen)
