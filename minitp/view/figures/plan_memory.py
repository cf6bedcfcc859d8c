"""Memory as stacked bars: what fills each kind of rank under the lines of its device, and what grows with what.

The hues of what fills memory are none of the ranks' hues: a color has one meaning. Neighbors in a stack differ in
lightness too, and every part has its name in the legend.
"""
from typing import Any

import plotly.graph_objects as go

from minitp.plan.memory.growth import Grows
from minitp.plan.rows import KINDS, Kind, Row, by_kind, total
from minitp.plan.units import both
from minitp.view.colors import GREY, INK
from minitp.view.figures.style import laid_out, literal
from minitp.view.plan_memory import Bar, Growing, Memory

HUES: dict[Kind, str] = {"weights": "#6699CC", "gradients": "#997700", "optimizer": "#EECC66",
                         "activations": "#994455", "kv cache": "#EE99AA", "logits": "#44AA99", "buffers": "#AA99CC",
                         "reserve": GREY}
"""After Paul Tol's medium-contrast scheme, which color-blind readers tell apart as well."""
PATTERNS: dict[Grows, str] = {"with parameters": "\\", "with batch": "/", "with both": "x", "with neither": ""}
"""Lines one way for the parameters, the other way for the sequences, crossed for both."""
HEADROOM = 1.25                        # of the growing bars' axis over the highest
_SLOTS = 5                             # a picture of fewer bars leaves room at their sides
_LONGEST = 4                           # terms that a hover shows
_SMALL = 0.05                          # of a device: bars below that would be lines, so its own lines are left out


def bars_figure(found: Memory, *, ink: str = INK["light"]) -> go.Figure:
    """A stacked bar for each kind of rank, with the device's memory by its name and in fact, and the reserve."""
    figure, at = go.Figure(), list(range(len(found.bars)))
    held = [by_kind(bar.rows) for bar in found.bars]
    for kind in KINDS:
        if any(kind in one for one in held):
            sizes = [one.get(kind, 0) for one in held]
            figure.add_bar(x=at, y=[size / 1e9 for size in sizes], name=kind, hoverinfo="text",
                           hovertext=[_hover(bar, kind) for bar in found.bars],
                           marker={"color": HUES[kind], "line": {"width": 0.75, "color": GREY}})
    if found.fullest.bytes < _SMALL * found.capacity.bytes:
        figure.add_annotation(x=0.5, xref="paper", y=1, yref="paper", yanchor="bottom", showarrow=False,
                              text=f"↑ the device: {both(found.capacity.bytes)}", font={"color": ink, "size": 13})
    else:
        _device(figure, found, ink)
    laid_out(figure, 380, legend=2, barmode="stack")
    names, title = _names(found)
    step = max(1, -(-len(at) // 16))
    figure.update_xaxes(tickvals=at[::step], ticktext=names[::step], range=_sides(len(at)), fixedrange=True,
                        title=title, tickangle=0 if len(at) <= 4 or title else -60, automargin=True)
    figure.update_yaxes(title="GB of one rank", rangemode="tozero")
    return figure


def _names(found: Memory) -> tuple[list[str], str]:
    """What stands below the bars, and the axis' title: of a bar for each stage only its number."""
    if len(found.bars) == found.layout.pp > 1:
        return [str(bar.place.pp) for bar in found.bars], "pipeline stage"
    return [bar.name for bar in found.bars], ""


def _sides(bars: int) -> tuple[float, float]:
    room = max(0, _SLOTS - bars) / 2
    return -0.5 - room, bars - 0.5 + room


def _hover(bar: Bar, kind: Kind) -> str:
    rows = sorted((row for row in bar.rows if row.kind == kind), key=lambda row: -row.bytes)
    lines = [f"<b>{bar.name}: {kind}, {both(total(rows))}</b>"]
    for row in rows[:_LONGEST]:
        lines += _term(row)
    if len(rows) > _LONGEST:
        lines.append(f"… and {len(rows) - _LONGEST} more")
    return "<br>".join(lines)


def _term(row: Row) -> list[str]:
    return [f"{literal(row.term)}: {both(row.bytes)}", f"  {literal(row.formula, 90)}",
            f"  = {literal(row.numbers, 90)}"]


def _device(figure: go.Figure, found: Memory, ink: str) -> None:
    """The device's two sizes as lines, and what is kept free of the one that counts, hatched."""
    capacity = found.capacity
    left, right = _sides(len(found.bars))
    for size, dash, words in ((capacity.real, "solid", "in fact"), (capacity.nominal, "dot", "by its name")):
        if size == capacity.real or capacity.nominal != capacity.real:
            figure.add_scatter(x=[left, right], y=[size / 1e9] * 2, mode="lines", hoverinfo="text",
                               name=f"device, {words}" if capacity.nominal != capacity.real else "device",
                               hovertext=f"the device {words}: {both(size)}",
                               line={"color": ink, "width": 2, "dash": dash})
    if capacity.kept:
        figure.add_bar(x=[(left + right) / 2], width=[right - left], y=[capacity.kept / 1e9],
                       base=[capacity.usable / 1e9], name=f"reserve, {capacity.reserve:.0%}", hoverinfo="text",
                       hovertext=f"kept free for what isn't modeled: {both(capacity.kept)}", offset=None,
                       marker={"color": "rgba(0,0,0,0)", "line": {"width": 0},
                               "pattern": {"shape": "/", "size": 8, "solidity": 0.15, "fgcolor": GREY}})


def growing_figure(found: Growing, *, ink: str = INK["light"]) -> go.Figure:
    """The rank four times; the marks: where it would be, were memory proportional to parameters × sequences."""
    figure, names = go.Figure(), [bar.name.replace(" × ", "<br>× ") for bar in found.bars]
    keys = [(kind, grows) for grows in PATTERNS for kind in KINDS
            if any((kind, grows) in bar.parts for bar in found.bars)]
    for kind, grows in keys:
        sizes = [bar.parts.get((kind, grows), 0) for bar in found.bars]
        figure.add_bar(x=names, y=[size / 1e9 for size in sizes], name=f"{kind}: {grows.removeprefix('with ')}",
                       hoverinfo="text", hovertext=[f"<b>{bar.name}</b><br>{kind}, grows {grows}: {both(size)}"
                                                    for bar, size in zip(found.bars, sizes, strict=True)],
                       marker=_patterned(kind, grows))
    top = HEADROOM * max(bar.bytes for bar in found.bars) / 1e9
    _proportional(figure, found, names, top, ink)
    laid_out(figure, 340, legend=3, barmode="stack")
    figure.update_xaxes(fixedrange=True, automargin=True, tickangle=0)
    figure.update_yaxes(title="GB of the fullest rank", range=[0, top])
    return figure


def _proportional(figure: go.Figure, found: Growing, names: list[str], top: float, ink: str) -> None:
    """A line where each bar would end; above the picture an arrow with the size."""
    inside = [(name, bar.proportional / 1e9) for name, bar in zip(names, found.bars, strict=True)
              if bar.proportional / 1e9 <= top]
    figure.add_scatter(x=[name for name, _ in inside], y=[size for _, size in inside], mode="markers",
                       name="were it parameters × sequences", hoverinfo="text",
                       hovertext=[f"were it proportional: {both(1e9 * size)}" for _, size in inside],
                       marker={"symbol": "line-ew", "size": 40, "line": {"width": 3, "color": ink}})
    for name, bar in zip(names, found.bars, strict=True):
        if bar.proportional / 1e9 > top:
            figure.add_annotation(x=name, y=top, text=f"↑ {_short(bar.proportional)}", showarrow=False, yanchor="top",
                                  font={"color": ink, "size": 13})


def _short(size: float) -> str:
    return both(size).partition(" (")[0]


def _patterned(kind: Kind, grows: Grows) -> dict[str, Any]:
    marker: dict[str, Any] = {"color": HUES[kind], "line": {"width": 0.75, "color": GREY}}
    if PATTERNS[grows]:
        marker["pattern"] = {"shape": PATTERNS[grows], "size": 8, "solidity": 0.22, "fillmode": "overlay",
                             "fgcolor": "#000000", "fgopacity": 0.65}
    return marker
