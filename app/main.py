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
    "Plan": [("plan", "Memory and machines", ":material/memory:")],
    "Do": [("run", "Run", ":material/rocket_launch:"),
           ("lab", "Collectives lab", ":material/hub:")],
}


def pages() -> dict[str, list]:
    """The pages whose script exists, by section. The first is where the app opens: Streamlit serves it at `/` alone, so
    a hidden one at the address it would have leads there."""
    there = {section: [entry for entry in entries if (VIEWS / f"{entry[0]}.py").is_file()]
             for section, entries in SECTIONS.items()}
    first = next(name for entries in there.values() for name, *_ in entries)
    made = {section: [st.Page(VIEWS / f"{name}.py", title=title, icon=icon, default=name == first,
                              url_path="home" if name == first else name)
                      for name, title, icon in entries] for section, entries in there.items() if entries}
    home = next(iter(made.values()))[0]

    def lead_home() -> None:
        st.switch_page(home, query_params=st.query_params.to_dict())

    return made | {"": [st.Page(lead_home, title="minitp", url_path=first, visibility="hidden")]}


st.set_page_config(page_title="minitp", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
chosen = st.navigation(pages())            # after the icon: a page's own one would be fetched from the internet
st.set_page_config(page_title=f"{chosen.title} · minitp")
state.restore()
chosen.run()
