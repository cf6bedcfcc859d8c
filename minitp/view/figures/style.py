"""What all figures share: one look, hatching for waiting, and words from files that stay words."""
from html import escape
from typing import Any

import plotly.graph_objects as go

from minitp.trace.wording import plain
from minitp.view.colors import GREY, RED, with_opacity
from minitp.view.timeline import ENDLESS, MOVING, WAITING

UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


def literal(text: object, longest: int = 120) -> str:
    """Words from a trace for a figure: Plotly reads tags in its texts, so they are written out."""
    return escape(plain(text, longest), quote=False)


def unit_for(ns: float) -> tuple[float, str]:
    """(ns per unit, unit): the one in which `ns` is a number that is easy to read."""
    return next(((factor, unit) for factor, unit in UNITS if ns >= factor), UNITS[-1])


def marker(kind: int, color: str, ink: str) -> dict[str, Any]:
    """How a bar looks: COMPUTING solid, WAITING hatched, ENDLESS too and outlined in red, MOVING in ink, whose gray
    outline stays legible where the theme changes and the figure isn't drawn anew."""
    if kind == MOVING:
        return {"color": ink, "line": {"width": 0.5, "color": GREY}}
    pattern = {"shape": "/", "size": 5, "solidity": 0.35, "fillmode": "replace", "fgcolor": color}
    if kind == ENDLESS:
        return {"color": color, "line": {"width": 2, "color": RED}, "pattern": pattern | {"size": 9, "solidity": 0.15}}
    return {"color": color, "line": {"width": 0}} | ({"pattern": pattern} if kind == WAITING else {})


TONES = {"forward": 0.2, "evaluate": 0.2, "backward": 0.5, "optimizer": 0.8}


def phase_marker(phase: str) -> dict[str, Any]:
    """How a phase of a training step looks: a gray of its own, outlined; other phases are the lightest."""
    return {"color": with_opacity(GREY, TONES.get(phase, 0.08)), "line": {"width": 1, "color": GREY}}


def laid_out(figure: go.Figure, height: int, *, legend: int = 1, **layout: Any) -> go.Figure:
    """The common layout of a figure of `height` px: narrow margins, and below the axis the legend, which on a phone
    takes up to `legend` lines."""
    figure.update_layout(height=height + 24 * legend, margin={"l": 8, "r": 8, "t": 28, "b": 56 + 24 * legend},
                         dragmode="zoom", bargap=0.25, hoverlabel={"align": "left"}, **layout)
    figure.update_layout(legend={
        "orientation": "h", "xref": "container", "x": 0.01, "xanchor": "left", "yref": "container", "y": 0.01,
        "yanchor": "bottom", "traceorder": "normal"})
    figure.update_xaxes(automargin=False, title_standoff=8)
    figure.update_yaxes(automargin=True, fixedrange=True)
    return figure
