"""The player as a component of the page. Defined once, when this module is imported: again would replace it."""
from typing import Any

import streamlit as st

from minitp.view.player import assets

_component = st.components.v2.component(
    "minitp_player", html=assets.html(), css=assets.css("streamlit"), js=assets.javascript("streamlit"))


def player(play: dict[str, Any], *, digest: str, seek: dict[str, Any], link: dict[str, str], key: str = "player"
           ) -> int | None:
    """Show a play. Returns the sync that was clicked in this run of the script, if one was.

    digest: of the file that the play is of: another one is another play, whatever its header says
    seek: {"n": counter, "sync", "phase", "clock"}: where to go; followed when `n` is another one than before
    link: query keys that a copied link has besides those of the state
    """
    # in a list: among the values of a dict Streamlit looks for data frames, and loads pandas to do so
    data = [{"play": play, "digest": digest, "seek": seek, "link": link}]
    shown = _component(key=key, data=data, on_detail_change=lambda: None)
    return clicked(shown.detail, len(play["syncs"]["pass"]))


def clicked(value: Any, n: int) -> int | None:
    """The number of a sync out of what the browser sent; None where it is none of the play's `n`."""
    sync = value.get("sync") if isinstance(value, dict) else None
    return sync if type(sync) is int and 0 <= sync < n else None
