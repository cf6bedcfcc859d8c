"""What a run's file says of itself, read once for all pages and sessions."""
from pathlib import Path
from typing import Any

import streamlit as st

from minitp.runs import RunFile, header_of


def header(run: RunFile) -> dict[str, Any]:
    """`run` of the trace file, from its head alone; empty where it has none."""
    return _header(run.path, run.modified, run.size)


@st.cache_data(max_entries=500, show_spinner=False)
def _header(path: Path, modified: int, size: int) -> dict[str, Any]:
    return header_of(path)
