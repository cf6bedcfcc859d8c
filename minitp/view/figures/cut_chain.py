"""A part of a pass as a chain from top to bottom: arrays with one cell per rank, steps between them, syncs as gates.

A cell is as wide as the array: what this rank holds of it is filled. Whole is gray with a thin edge, a shard in the
rank's hue with a thick one, a partial sum in its hue, dashed.
"""
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from minitp.view.colors import GREY, rank_hue, with_opacity
from minitp.view.cut_rows import Row

Drawn = dict[str, Any]                 # a shape or an annotation; set all at once: one by one takes n² time
HEIGHTS = {"array": 50, "work": 28, "sync": 38, "slice": 28}          # px
HEAD, EDGE = 24, 8
LOOKS = {"whole": (1, "solid", 0.3), "shard": (2.5, "solid", 0.85), "partial": (2, "dash", 0.2)}
"""State → width and dash of the edge, opacity of what is filled."""


def chain_figure(rows: Sequence[Row], ink: str = GREY) -> go.Figure:
    """The chain as a figure whose height fits its rows; it takes any width. Syncs are drawn in `ink`."""
    ranks, top = len(rows[0].spans), float(HEAD)
    texts = [_text((rank + 0.5) / ranks, HEAD / 2, f"rank {rank}" if ranks <= 4 else f"{rank}", size=11)
             for rank in range(ranks)]
    boxes: list[Drawn] = []
    for row in rows:
        middle, bottom = top + HEIGHTS[row.kind] / 2, top + HEIGHTS[row.kind]
        if row.kind == "array":
            texts += [_text(0, top + 13, f"<b>{row.text}</b>", size=13, xanchor="left"),
                      _text(1, top + 13, row.detail, size=11, xanchor="right")]
            boxes += _cells(row, top + 26, bottom - 6)
        elif row.kind == "sync":
            texts.append(_text(0.5, middle, f"<b>{row.text}</b>, {row.detail}", size=13))
            boxes.append(_box(0, 1, top + 6, bottom - 6, color=ink, line=2, fill=with_opacity(ink, 0.12)))
        else:
            texts.append(_text(0.5, middle, f"<i>{row.text}</i>" if row.kind == "slice" else f"↓ {row.text}", size=12))
        top = bottom
    figure = go.Figure(_hover(rows))
    figure.update_layout(height=int(top) + EDGE, margin={"l": 0, "r": 0, "t": 0, "b": 0}, showlegend=False,
                         dragmode=False, hoverlabel={"align": "left"}, annotations=texts, shapes=boxes)
    figure.update_xaxes(visible=False, range=[-0.005, 1.005], fixedrange=True)
    figure.update_yaxes(visible=False, range=[top + EDGE, 0], fixedrange=True)
    return figure


def _cells(row: Row, top: float, bottom: float) -> list[Drawn]:
    """One cell per rank, and in it what the rank holds."""
    made, ranks = [], len(row.spans)
    for rank, (begin, end) in enumerate(row.spans):
        left, width = (rank + 0.04) / ranks, 0.92 / ranks
        kind = row.state.kind
        if kind == "shard":
            made.append(_box(left, left + width, top, bottom, color=GREY, line=0.6, dash="dot"))
        if end > begin:
            line, dash, opacity = LOOKS[kind]
            color = GREY if kind == "whole" else rank_hue(rank)
            made.append(_box(left + begin * width, left + end * width, top, bottom, color=color, line=line, dash=dash,
                             fill=with_opacity(color, opacity)))
    return made


def _hover(rows: Sequence[Row]) -> go.Scatter:
    """An invisible point in the middle of each row, whose text says more."""
    heights, top = [], float(HEAD)
    for row in rows:
        heights.append(top + HEIGHTS[row.kind] / 2)
        top += HEIGHTS[row.kind]
    said = ["<br>".join(filter(None, (row.text, row.detail, *wrap(row.why, 50)))) for row in rows]
    return go.Scatter(x=[0.5] * len(rows), y=heights, mode="markers", marker={"size": 20, "opacity": 0},
                      hovertext=said, hoverinfo="text")


def _text(x: float, y: float, text: str, size: int, xanchor: str = "center") -> Drawn:
    """No color of its own: the theme's."""
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": size}, "xanchor": xanchor,
            "yanchor": "middle"}


def _box(left: float, right: float, top: float, bottom: float, *, color: str, line: float, dash: str = "solid",
         fill: str = "rgba(0,0,0,0)") -> Drawn:
    return {"type": "rect", "x0": left, "x1": right, "y0": top, "y1": bottom, "fillcolor": fill,
            "line": {"color": color, "width": line, "dash": dash}}
