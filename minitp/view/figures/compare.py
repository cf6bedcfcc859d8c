"""The Compare page's figures: a bar per run."""
from collections.abc import Sequence

import plotly.graph_objects as go

from minitp.trace.wording import duration, share, size
from minitp.view.colors import GREY, INK
from minitp.view.compare import Entry
from minitp.view.figures.style import laid_out, marker, unit_for
from minitp.view.timeline import KINDS


def times_figure(entries: Sequence[Entry], *, ink: str = INK["light"]) -> go.Figure:
    """A token's or step's time per number of ranks, in parts; shares where some ranks were threads: no speed."""
    shares = not all(entry.is_speed for entry in entries)
    factor, unit = unit_for(max((entry.parts for entry in entries), default=0))
    figure = go.Figure()
    for kind, word in enumerate(KINDS):
        times = [getattr(entry, word) for entry in entries]
        heights = [100 * t / (entry.parts or 1) if shares else t / factor
                   for t, entry in zip(times, entries, strict=True)]
        texts = [f"{word}: {share(t, entry.parts)}" + ("" if shares else f", {duration(t)} per {entry.unit}")
                 for t, entry in zip(times, entries, strict=True)]
        figure.add_bar(x=_names(entries), y=heights, name=word, marker=marker(kind, GREY, ink), hovertext=texts,
                       hoverinfo="text")
    laid_out(figure, 320, barmode="stack")
    figure.update_xaxes(title="ranks", type="category", fixedrange=True)
    what = entries[0].unit if entries else "token"
    figure.update_yaxes(title=f"% of a {what}'s time" if shares else f"{unit} per {what}", rangemode="tozero")
    return figure


def memory_figure(entries: Sequence[Entry]) -> go.Figure:
    """Weights on the fullest rank."""
    known = [entry for entry in entries if entry.memory is not None]
    held = [entry.memory or (0, 0) for entry in known]
    factor, unit = next(((f, u) for f, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
                         if max((most for _, most in held), default=0) >= f), (1, "B"))
    figure = go.Figure(go.Bar(
        x=_names(known), y=[most / factor for _, most in held], marker={"color": GREY}, hoverinfo="text",
        hovertext=[f"{size(most)} on the fullest rank, {size(least)} on the emptiest" for least, most in held]))
    laid_out(figure, 320)
    figure.update_xaxes(title="ranks", type="category", fixedrange=True)
    figure.update_yaxes(title=f"{unit} of weights, fullest rank", rangemode="tozero")
    return figure


def _names(entries: Sequence[Entry]) -> list[str]:
    """The number of ranks; a second run on as many gets a mark of its own."""
    names: list[str] = []
    for entry in entries:
        again = sum(name.split(" ")[0] == str(entry.ranks) for name in names)
        names.append(f"{entry.ranks} ({again + 1})" if again else str(entry.ranks))
    return names
