"""Latency against bytes, and what the syncs of one token cost on each link. All of it a model, but the hollow marks."""
from collections.abc import Callable
from math import log10
from typing import Any

import plotly.graph_objects as go

from minitp.plan.network.sync_cost import BARE, SyncRow
from minitp.plan.units import both, duration
from minitp.trace.wording import duration as short
from minitp.view.colors import GREY, INK
from minitp.view.figures.style import laid_out
from minitp.view.lab_cost import binary
from minitp.view.plan_network import Network, named

MEASURED = "#AA4499"
"""What was measured, where it stands beside a model, which is ink: none of the ranks' hues."""
_DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot", "12px,3px,2px,3px,2px,3px")
_SYMBOLS = ("circle", "triangle-up", "square", "diamond")
_MARKS = ("star", "star-square", "star-diamond")


def curve_figure(found: Network, *, ink: str = INK["light"]) -> go.Figure:
    """Seconds by payload, both logarithmic: the chosen algorithm in ink, the others gray, the job's syncs as stars."""
    one, figure = found.curve, go.Figure()
    for at, line in enumerate(line for line in one.lines if line.algorithm != "measured"):
        figure.add_scatter(x=list(one.sizes), y=list(line.seconds), name=line.algorithm, mode="lines",
                           line={"color": GREY, "width": 1.5, "dash": _DASHES[at % len(_DASHES)]}, hoverinfo="skip")
    figure.add_scatter(x=list(one.sizes), y=list(one.seconds), name="what is taken", mode="lines", hoverinfo="text",
                       line={"color": ink, "width": 3},
                       hovertext=[f"{both(size)}: {duration(seconds)} by {named(name)}{_kind(name)}"
                                  for size, seconds, name in zip(one.sizes, one.seconds, one.chosen, strict=True)])
    if one.measured:
        figure.add_scatter(x=[size for size, _ in one.measured], y=[seconds for _, seconds in one.measured],
                           name="measured", mode="markers", hoverinfo="text",
                           hovertext=[f"{both(size)}: {duration(time)} (measured)" for size, time in one.measured],
                           marker={"symbol": "diamond-open", "size": 8, "color": MEASURED, "line": {"width": 2}})
    for at, mark in enumerate(one.marks):
        figure.add_scatter(x=[mark.payload], y=[mark.seconds], name=mark.name.partition(":")[0],
                           mode="markers", hoverinfo="text",
                           hovertext=f"{mark.name}<br>{both(mark.payload)}: {duration(mark.seconds)} by "
                                     f"{named(mark.algorithm)}{_kind(mark.algorithm)}<br>bound by {mark.bound}",
                           marker={"symbol": _MARKS[at % len(_MARKS)], "size": 15, "color": ink,
                                   "line": {"width": 1, "color": GREY}})
    if one.half is not None:
        figure.add_vline(x=one.half, line={"color": GREY, "width": 1.5, "dash": "dot"})
        figure.add_annotation(x=log10(one.half), y=1, yref="paper", yanchor="bottom", text="n½", showarrow=False,
                              font={"color": ink})          # on a logarithmic axis a note's place is the power of ten
    laid_out(figure, 380, legend=4)
    ticks = one.sizes[2::8]
    figure.update_xaxes(type="log", tickangle=0, title="payload", tickvals=list(ticks),
                        ticktext=[binary(size) for size in ticks], fixedrange=True)
    _times(figure.update_yaxes, [*one.seconds, *(seconds for _, seconds in one.measured)], "time by payload")
    return figure


def _kind(algorithm: str) -> str:
    return "" if algorithm == "measured" else " (model)"


def _times(update: Callable[..., Any], seconds: list[float], title: str = "", most: int = 12) -> None:
    """Decades of time as words on an axis, at most so many of them."""
    decades = [10.0**power for power in range(-9, 10)]
    near = [tick for tick in decades if min(seconds) / 1.5 <= tick <= max(seconds) * 1.5]
    near = near[::-(-len(near) // most)]
    update(type="log", title=title, tickvals=near, ticktext=[short(1e9 * tick) for tick in near])


def links_figure(found: Network, *, ink: str = INK["light"]) -> go.Figure:
    """All syncs of one pass on each link: a mark for each number of ranks, the quicker algorithm; on one scale."""
    figure, best = go.Figure(), dict[tuple[int, str], SyncRow]()
    for row in found.links:
        key = row.ranks, row.link
        if key not in best or row.token_s < best[key].token_s:
            best[key] = row
    for at, ranks in enumerate(dict.fromkeys(row.ranks for row in found.links)):
        rows = [row for (of, _), row in best.items() if of == ranks]
        figure.add_scatter(x=[row.token_s for row in rows], y=[row.link.replace(", ", ",<br>") for row in rows],
                           name=f"{ranks} ranks", mode="markers", hoverinfo="text",
                           hovertext=[f"{row.link}, {ranks} ranks<br>{duration(row.token_s)} by {row.algorithm} "
                                      f"(model)<br>{duration(row.once_s)} a sync" for row in rows],
                           marker={"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 11, "color": ink,
                                   "opacity": 0.35 + 0.65 * (at + 1) / len(_SYMBOLS),
                                   "line": {"width": 1, "color": GREY}})
    laid_out(figure, 40 + 38 * len(dict.fromkeys(row.link for row in found.links)))
    figure.update_yaxes(autorange="reversed")
    _times(figure.update_xaxes, [row.token_s for row in found.links], f"all syncs of a pass: {BARE}", most=3)
    figure.update_xaxes(tickangle=0)
    return figure
