"""Lines of bytes. They are told apart by dashes: no line is a rank's, so none has a hue."""
from math import log10

import plotly.graph_objects as go

from minitp.trace.wording import size
from minitp.view.colors import GREY, INK
from minitp.view.figures.style import laid_out, literal
from minitp.view.lines import Lines, digits

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def lines_figure(found: Lines, *, ink: str = INK["light"]) -> go.Figure:
    """A line for each name, in ink; what is marked, as a dotted line across them."""
    figure, shape = go.Figure(), "hv" if found.steps else "linear"
    for at, (name, points) in enumerate(found.lines.items()):
        if found.steps:
            points = [*points, (points[-1][0] + 1, points[-1][1])]         # the last step lasts as long as the others
        figure.add_scatter(x=[x for x, _ in points], y=[height for _, height in points], name=literal(name),
                           mode="lines", hoverinfo="text",
                           line={"color": ink, "width": 2.5, "dash": DASHES[at % len(DASHES)], "shape": shape},
                           hovertext=[f"{literal(name)}<br>{literal(found.across)}: {digits(x)}<br>"
                                      f"{size(round(height))}"
                                      for x, height in points])
    if found.mark is not None:
        at_x, words = found.mark
        figure.add_vline(x=at_x, line={"color": GREY, "width": 1.5, "dash": "dot"})
        figure.add_annotation(x=at_x if found.steps else log10(at_x), y=1, yref="paper", yanchor="bottom",
                              text=literal(words), showarrow=False, font={"color": ink})
    laid_out(figure, 320, legend=1)
    scale = {} if found.steps else {"type": "log", "dtick": 1}
    figure.update_xaxes(title=literal(found.across), fixedrange=True, automargin=True, **scale)
    figure.update_yaxes(title="bytes", tickformat="~s", ticksuffix="B", **scale)
    if found.steps:
        figure.update_yaxes(rangemode="tozero")
    return figure
