"""What all figures share: one look, hatching for waiting, and words from files that stay words."""
from html import escape
from typing import Any

import plotly.graph_objects as go

from minitp.trace.wording import plain
from minitp.view.colors import GREY

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


def literal(text: object, longest: int = 120) -> str:
    """Words from a trace for a figure: Plotly reads tags in its texts, so they are written out."""
    return escape(plain(text, longest), quote=False)


def unit_for(ns: float) -> tuple[float, str]:
    """(ns per unit, unit): the one in which `ns` is a number that is easy to read."""
    return next(((factor, unit) for factor, unit in UNITS if ns >= factor), UNITS[-1])


def solid(color: str) -> dict[str, Any]:
    """Computing."""
    return {"color": color, "line": {"width": 0}}


def hatched(color: str) -> dict[str, Any]:
    """Waiting."""
    return {"color": color, "line": {"width": 0},
            "pattern": {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace", "fgcolor": color}}


def inked(ink: str) -> dict[str, Any]:
    """Moving: the outline stays legible where the theme changes and the figure isn't drawn anew."""
    return {"color": ink, "line": {"width": 0.5, "color": GREY}}


def laid_out(figure: go.Figure, height: int, **layout: Any) -> go.Figure:
    """The common layout: legend below, so that it fits on a phone; narrow margins; room for names."""
    figure.update_layout(height=height, margin={"l": 8, "r": 8, "t": 24, "b": 8}, dragmode="pan", bargap=0.25,
                         legend={"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
                         hoverlabel={"align": "left"}, **layout)
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure
