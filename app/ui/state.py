"""Values that outlive a page switch, and values from the address, which strangers write."""
from collections.abc import Sequence
from typing import Any

import streamlit as st

_KEPT = "_kept"                        # the keys that `keep` was asked to keep


def keep(key: str, default: Any) -> Any:
    """The value under `key`, kept over page switches: call it before the widget that has this key, and give that
    widget no value of its own.

        keep("ranks", 4)
        ranks = st.slider("Ranks", 1, 8, key="ranks")
    """
    st.session_state.setdefault(_KEPT, set()).add(key)
    if key not in st.session_state:
        st.session_state[key] = default
    return st.session_state[key]


def restore() -> None:
    """Before each run of a page: Streamlit forgets a widget's value where the page doesn't draw it, but not one that
    was set by hand."""
    for key in st.session_state.get(_KEPT, ()):
        if key in st.session_state:
            st.session_state[key] = st.session_state[key]


def query_int(key: str, lo: int, hi: int, default: int) -> int:
    """A whole number from the address, from `lo` to `hi`; one that is none or outside is mended, with a word."""
    text = st.query_params.get(key)
    if text is None:
        return default
    try:
        wanted = int(text)                                # (of too many digits: ValueError as well)
    except ValueError:
        wanted = None
    value = default if wanted is None else max(lo, min(hi, wanted))
    if value != wanted:
        st.info(f"The address asks for a `{key}` that isn't there: it goes from {lo:,} to {hi:,}. Shown is {value:,}.")
    return value


def in_address(**values: Any) -> None:
    """Write what is shown into the address, so that a copied link opens the same; None: the address needn't say it."""
    address = st.query_params.to_dict()
    wanted = {key: value for key, value in address.items() if key not in values}
    wanted |= {key: str(value) for key, value in values.items() if value is not None}
    if wanted != address:
        st.query_params.from_dict(wanted)


def query_choice(key: str, options: Sequence[str], default: str) -> str:
    """One of `options` from the address; anything else is answered with the default, and a word."""
    text = st.query_params.get(key)
    if text is None or text in options:
        return default if text is None else text
    st.info(f"The address asks for a `{key}` that isn't there. Shown is the usual one.")
    return default
