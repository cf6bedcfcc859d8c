"""Run: what is in the runs folder, and how to add to it."""
import streamlit as st

from minitp.runs import listed, runs_folder, title_of
from minitp.trace.wording import plain, size
from ui import page

page.begin("Run", "Every run leaves a trace in the runs folder; the other pages show it.")
st.code(f'minitp generate --trace "{runs_folder() / "first.json.gz"}" "The capital of France is"', language="bash",
        wrap_lines=True)
page.table([{"file": plain(run.name, 60), "run": title_of(run.path), "size": size(run.size)}
            for run in listed(runs_folder())], key="runs")
