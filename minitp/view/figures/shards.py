"""Figures of the Shards page: who holds which part of a matrix, and how many bytes each rank holds."""
import numpy as np
import plotly.graph_objects as go

from minitp.trace.wording import size
from minitp.view.colors import GREY, rank_hue, with_opacity
from minitp.view.shards import Totals, holders
from minitp.view.tensor import Picture, Piece

KIND_SHADES = {"embedding": "#4A5A7D", "attention": "#7587AD", "mlp": "#A3B1CF", "norm": "#6F6A5E", "head": "#C9D2E4"}
"""Shades that are no rank's hue."""

NAMED = 24                             # pieces up to which each says whose it is


def tensor_figure(picture: Picture) -> go.Figure:
    """The whole matrix, every piece in its owner's hue; gray where all hold all. Opacity is the number's magnitude."""
    scale = picture.largest
    bare = [piece.cells is None or not scale for piece in picture.pieces]
    names = [_name(picture, piece) for piece, is_bare in zip(picture.pieces, bare, strict=True) if is_bare]
    figure = go.Figure([_hover(picture, piece) if piece.cells is None or not scale else
                        _heat(picture, piece, piece.cells, scale) for piece in picture.pieces])
    down, across = picture.shape
    height = int(np.clip(520 * down / across, 70 if down == 1 else 220, 520))
    figure.update_layout(height=height + 90, margin={"l": 10, "r": 10, "t": 50, "b": 40}, showlegend=False,
                         dragmode=False, shapes=list(map(_outline, picture.pieces, bare)),
                         annotations=names if len(names) <= NAMED else [])
    ticks = _ticks(picture)
    figure.update_xaxes(range=[-0.004, 1.004], showgrid=False, zeroline=False, fixedrange=True,
                        title=_axis(picture, 1), tickvals=[], automargin=True)
    figure.update_yaxes(range=[1.004, -0.004], showgrid=False, zeroline=False, fixedrange=True,
                        title=_axis(picture, 0), tickvals=[], automargin=True)
    if picture.cut == 0:
        figure.update_yaxes(**ticks)
    elif picture.cut == 1:
        figure.update_xaxes(side="top", **ticks)
    return figure


def _axis(picture: Picture, axis: int) -> str:
    name = picture.axes[axis].replace("_", " ")
    arrow = "→" if axis else "↓"
    return f"{name}, {picture.shape[axis]:,} {arrow}" if name else ""


def _ticks(picture: Picture) -> dict:
    """Who holds each band, in its middle; of many bands every n-th is named."""
    whole = picture.shape[picture.cut or 0]
    step = -(-len(picture.bands) // 16)
    shown = picture.bands[::step]
    long = len(picture.bands) <= 6
    names = [_short(band.ranks, long) for band in shown]
    return {"tickvals": [(band.start + band.stop) / 2 / whole for band in shown], "ticktext": names}


def _short(ranks: tuple[int, ...], long: bool) -> str:
    numbers = ", ".join(map(str, ranks)) if len(ranks) <= 4 else f"{ranks[0]} … {ranks[-1]}"
    return f"rank{'s' * (len(ranks) > 1)} {numbers}" if long else numbers


def _color(piece: Piece) -> str:
    return GREY if piece.rank < 0 else rank_hue(piece.rank)


def _outline(piece: Piece, filled: bool) -> dict:
    color = _color(piece)
    return {"type": "rect", "x0": piece.across[0], "x1": piece.across[1], "y0": piece.down[0], "y1": piece.down[1],
            "line": {"color": color, "width": 1 if piece.rank < 0 else 2},
            "fillcolor": with_opacity(color, 0.35 if filled else 0)}


def _name(picture: Picture, piece: Piece) -> dict:
    """Whose piece it is, in the theme's text color."""
    side = len(picture.pieces) if picture.cut == 1 else 1                       # as many as that lie side by side
    text = "on every rank" if piece.rank < 0 else f"rank {piece.rank}" if side <= 8 else str(piece.rank)
    return {"x": sum(piece.across) / 2, "y": sum(piece.down) / 2, "text": text, "showarrow": False}


def _held_by(picture: Picture, piece: Piece) -> str:
    return f"held by {holders(piece.holders, picture.ranks)}"


def _hover(picture: Picture, piece: Piece) -> go.Scatter:
    middle = sum(piece.across) / 2, sum(piece.down) / 2
    return go.Scatter(x=[middle[0]], y=[middle[1]], mode="markers", marker={"size": 30, "opacity": 0},
                      hovertext=[_held_by(picture, piece)], hoverinfo="text")


def _heat(picture: Picture, piece: Piece, numbers: np.ndarray, scale: float) -> go.Heatmap:
    cells, color = np.nan_to_num(numbers), _color(piece)
    rows, columns = cells.shape
    what = "%{customdata:.4g}" if piece.exact else "largest of its block: %{customdata:.4g}"
    return go.Heatmap(
        x=np.linspace(*piece.across, columns + 1), y=np.linspace(*piece.down, rows + 1), z=np.abs(cells), zmin=0,
        zmax=scale, colorscale=[[0, with_opacity(color, 0.06)], [1, with_opacity(color, 1)]], showscale=False,
        customdata=cells, text=np.where(cells < 0, "–", "") if picture.signed else None,
        texttemplate="%{text}" if picture.signed else None, textfont={"size": 9},
        xgap=1 if picture.signed else 0, ygap=1 if picture.signed else 0,
        hovertemplate=f"{what}<br>{_held_by(picture, piece)}<extra></extra>")


def totals_figure(sums: Totals) -> go.Figure:
    """Bytes of each rank, one bar a rank, parted by kind."""
    figure = go.Figure()
    ranks = list(range(len(sums.ranks)))
    edge = {"color": GREY, "width": int(len(ranks) <= 16)}
    for kind, held in sums.held.items():
        figure.add_trace(go.Bar(x=ranks, y=list(held), name=kind,
                                marker={"color": KIND_SHADES[kind], "line": edge},
                                hovertext=[f"rank {rank}, {kind}: {size(one)}" for rank, one in enumerate(held)],
                                hoverinfo="text"))
    figure.update_layout(barmode="stack", height=340, margin={"l": 10, "r": 10, "t": 60, "b": 10}, bargap=0.2,
                         legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0,
                                 "traceorder": "normal"})
    figure.update_xaxes(title="rank", tickmode="linear" if len(ranks) <= 16 else "auto", fixedrange=True)
    figure.update_yaxes(tickformat="~s", ticksuffix="B", fixedrange=True)
    return figure
