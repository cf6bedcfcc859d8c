"""Predicted against measured: a mark for each kind of collective. On the diagonal both agree."""
from math import log10

import plotly.graph_objects as go

from minitp.plan.check import GOAL
from minitp.plan.units import duration
from minitp.trace.wording import size
from minitp.view.colors import GREY, INK
from minitp.view.figures.plan_network import MEASURED
from minitp.view.figures.style import laid_out, literal
from minitp.view.plan_check import Point

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "pentagon")


def check_figure(points: list[Point], *, ink: str = INK["light"]) -> go.Figure:
    """Across what was measured, upward what the model says, one logarithmic scale; the band: within 25 %."""
    figure = go.Figure()
    times = [time for point in points for time in (point.measured, point.modeled)]
    low, high = min(times) / 2, max(times) * 2
    figure.add_scatter(x=[low, high, high, low], y=[low * (1 + GOAL), high * (1 + GOAL), high * (1 - GOAL),
                                                    low * (1 - GOAL)], fill="toself", mode="none",
                       fillcolor="rgba(128,132,149,0.2)", name=f"within {GOAL:.0%}", hoverinfo="skip")
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", name="both the same", hoverinfo="skip",
                       line={"color": GREY, "width": 1.5, "dash": "dot"})
    for at, op in enumerate(dict.fromkeys(point.op for point in points)):
        mine = [point for point in points if point.op == op]
        figure.add_scatter(x=[point.measured for point in mine], y=[point.modeled for point in mine],
                           name=literal(op.replace("_", "-"), 30), mode="markers", hoverinfo="text",
                           hovertext=[f"{literal(op)}, {size(point.payload)}, {point.count:,} times<br>measured: "
                                      f"{duration(point.measured)}<br>model: {duration(point.modeled)} "
                                      f"({literal(point.by)})" for point in mine],
                           marker={"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 11, "color": ink,
                                   "line": {"width": 1, "color": GREY}})
    laid_out(figure, 380, legend=2)
    steps = (1,) if high > 1e4 * low else (1, 3)
    ticks = [step * 10.0**power for power in range(-9, 6) for step in steps if low <= step * 10.0**power <= high]
    axis = {"type": "log", "tickvals": ticks, "ticktext": [duration(tick) for tick in ticks], "tickangle": 0,
            "range": [log10(low), log10(high)]}
    figure.update_xaxes(title={"text": "measured", "font": {"color": MEASURED}}, **axis)
    figure.update_yaxes(title={"text": "model", "font": {"color": ink}}, **axis)
    return figure
