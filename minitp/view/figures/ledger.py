"""The Ledger page's figure."""
from collections.abc import Sequence

import plotly.graph_objects as go

from minitp.trace.summary import Row
from minitp.trace.wording import duration, share
from minitp.view.colors import GREY, INK
from minitp.view.figures.style import laid_out, literal, marker, unit_for
from minitp.view.timeline import KINDS


def sites_figure(rows: Sequence[Row], *, ink: str = INK["light"]) -> go.Figure:
    """Per kind of site: computing before it, waiting and moving in it; times added over ranks and passes."""
    factor, unit = unit_for(max((row.time for row in rows), default=0))
    names = [literal(row.key, 44) for row in rows]
    figure = go.Figure()
    for kind, word in enumerate(KINDS):
        times = [getattr(row, word) for row in rows]
        texts = [f"{name}<br>{word} {duration(t)}: {share(t, row.time)} of {duration(row.time)}"
                 for name, t, row in zip(names, times, rows, strict=True)]
        figure.add_bar(orientation="h", y=list(range(len(rows))), x=[t / factor for t in times], name=word,
                       marker=marker(kind, GREY, ink), hovertext=texts, hoverinfo="text")
    laid_out(figure, 96 + 30 * len(rows), legend=3, barmode="stack")
    figure.update_yaxes(autorange="reversed", tickvals=list(range(len(rows))), ticktext=names)
    figure.update_xaxes(title=f"{unit}, all ranks and passes", fixedrange=True)
    return figure
