"""The app's entry: page settings, the navigation, and the page that was asked for. `minitp app` starts it."""
from pathlib import Path

import streamlit as st

from ui import state

VIEWS = Path(__file__).parent / "views"
SECTIONS = {                                              # file and url_path, title, icon
    "Watch": [("watch", "Watch a token", ":material/play_circle:"),
              ("place", "Place the cuts", ":material/content_cut:")],
    "Measure": [("timeline", "Timeline", ":material/view_timeline:"),
                ("shards", "Shards", ":material/grid_view:"),
                ("ledger", "Ledger", ":material/receipt_long:"),
                ("compare", "Compare", ":material/compare_arrows:")],
    "Do": [("run", "Run", ":material/rocket_launch:"),
           ("lab", "Collectives lab", ":material/hub:")],
}


def pages() -> dict[str, list]:
    """The pages whose script exists, by section. The first is where the app opens."""
    first = next(name for entries in SECTIONS.values() for name, *_ in entries if (VIEWS / f"{name}.py").is_file())
    return {section: made for section, entries in SECTIONS.items() if (made := [
        st.Page(VIEWS / f"{name}.py", title=title, icon=icon, url_path=name, default=name == first)
        for name, title, icon in entries if (VIEWS / f"{name}.py").is_file()])}


st.set_page_config(page_title="minitp", page_icon=":material/account_tree:", layout="wide")
state.restore()
st.navigation(pages()).run()
