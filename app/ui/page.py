"""The parts of a page: its head, charts with their text, tables, and words from files as nothing but text."""
from collections.abc import Sequence
from typing import Any

import streamlit as st

from minitp.view.colors import INK

_MARKS = set("\\`*_{}[]()<>#+-.!|~:$&^=\"'/@")

# Streamlit's gray for the words in charts has a contrast of 3.7 in the light theme; its primary color, in which it
# writes a slider's value and what is chosen of several, one as low in the dark: they take the text's color
_LEGIBLE = ('<style>.stPlotlyChart text[style*="rgb(128, 132, 149)"] {fill: currentColor !important} '
            "[data-testid=stSliderThumbValue], button[data-variant][data-selected=true] "
            "{color: inherit !important}</style>")


# Streamlit leaves 6rem above the title and 5rem at the sides, which pictures need: of 900 px the sidebar takes a third
_ROOM = "<style>.stMainBlockContainer {padding-top: 3.75rem; padding-inline: clamp(1rem, 3vw, 5rem)}</style>"


def begin(title: str, lead: str) -> None:
    """The title and one sentence that says what the page shows. Both are minitp's own words, in Markdown."""
    st.html(_LEGIBLE + _ROOM)
    st.title(title, anchor=False)
    st.markdown(lead)


def columns(spec: int | Sequence[float], *, least: str | Sequence[str], key: str, **options: Any) -> list[Any]:
    """Columns that stand below each other where the page is narrower than they need; `least`: the width of each, or
    of all, as CSS has it. Streamlit's own shrink to a few letters beside an open sidebar."""
    number = spec if isinstance(spec, int) else len(spec)
    widths = [least] * number if isinstance(least, str) else least
    with st.container(key=key):
        st.html("<style>" + "".join(
            f".st-key-{key} > * > .stHorizontalBlock > .stColumn:nth-child({at}) {{min-width: min(100%, {width})}}"
            for at, width in enumerate(widths, start=1)) + "</style>")
        return st.columns(spec, **options)


def chart(figure: Any, *, alt: str, rows: list[dict[str, Any]], key: str, pick: bool = False) -> Any:
    """A Plotly figure over the page's width, in light and dark; `rows` say the same as a table.

    With `pick`, a click runs the page again and returns the clicked point's customdata; None where there was none.
    """
    figure.update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")
    if figure.layout.margin.t is None:
        figure.update_layout(margin={"t": 32, "b": 32, "l": 8, "r": 8})
    if figure.layout.legend.orientation is None:                        # below: on a phone it would take half the width
        figure.update_layout(legend={"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0})
    event: Any = st.plotly_chart(figure, width="stretch", theme="streamlit", alt=alt, key=key,
                                 config={"displaylogo": False}, on_select="rerun" if pick else "ignore",
                                 selection_mode="points")
    with st.expander("Read as text"):
        st.text(alt)
        table(rows, key=f"{key} rows")
    points = event["selection"]["points"] if pick else []
    return points[0].get("customdata") if points else None


def ink() -> str:
    """The color of collectives in figures: that of text, as the theme was when this page ran."""
    return INK["dark" if st.context.theme.type == "dark" else "light"]


def table(rows: list[dict[str, Any]], key: str) -> None:
    """Rows as a table; words from a trace stay text in it."""
    if rows:
        st.dataframe(rows, width="stretch", hide_index=True, key=key)
    else:
        st.caption("Nothing to list.")


def escaped(text: str) -> str:
    """Text in which Streamlit's Markdown finds nothing to interpret: no marks, links, colors, icons or emoji."""
    return "".join(f"&#{ord(char)};" if char in _MARKS else char for char in text)


def problem(headline: str, details: str = "") -> None:
    """An error: the headline is minitp's own, the details may quote a stranger's file and are shown as plain text."""
    st.error(headline, icon=":material/error:")
    if details:
        st.code(details, language=None, wrap_lines=True)
