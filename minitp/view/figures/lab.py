"""The lab's figures: one round as columns of ranks, what they hold above and below, messages as arrows in ink between.

A cell is one number. Its fill says whose it is: stripes in the hues of the ranks whose terms are in it; gray once a sum
has all of them. A partial sum is dashed, a piece solid, an empty place dotted. What goes, and what has come, has an
edge of ink.
"""
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from minitp.plan.links import Link
from minitp.trace.wording import duration, size
from minitp.view.colors import GREY, INK, rank_hue, with_opacity
from minitp.view.figures.style import laid_out
from minitp.view.lab import SUMS, Cell, Play, number_text, pieces_text
from minitp.view.lab_cost import PAYLOADS, binary, curves

CELL, HEAD, CAPTION, ARROWS, EDGE = 22, 30, 22, 84, 6      # px
LEFT, RIGHT = 0.07, 0.93                                   # of a rank's column
MOST_ROWS = 16                                             # of a rank; more are counted
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def round_figure(play: Play, round: int, *, ink: str = INK["light"]) -> go.Figure:
    """Round `round` (from 0): before it, its messages, after it."""
    shown, rows = play.rounds[round], min(play.rows, MOST_ROWS)
    block = rows * CELL + (CELL if play.rows > MOST_ROWS else 0)
    above = HEAD + CAPTION
    below = above + block + ARROWS + CAPTION
    given = {(m.source, piece) for m in shown.messages for piece in m.pieces}
    taken = {(m.target, piece) for m in shown.messages for piece in m.pieces}
    figure = go.Figure()
    drawing = _Drawing(figure, play, ink)
    for rank in range(play.ranks):
        drawing.head(rank)
        drawing.lane(rank, shown.before[rank], above, rows, given)
        drawing.lane(rank, shown.after[rank], below, rows, taken)
    for top, words in ((above, "before"), (below, "after")):
        figure.add_annotation(x=0, y=top - CAPTION / 2, text=f"{words} round {round + 1}", showarrow=False,
                              xanchor="left", font={"size": 12, "color": ink})
    drawing.finish()
    for message in shown.messages:
        _arrow(figure, message.source, message.target, above + block + 4, below - CAPTION - 2, ink)
    figure.add_trace(_hover(play, round, above + block, below - CAPTION))
    figure.update_layout(height=below + block + EDGE, margin={"l": 0, "r": 0, "t": 0, "b": 0}, showlegend=False,
                         dragmode=False, barmode="overlay", hoverlabel={"align": "left"})
    figure.update_xaxes(visible=False, range=[0, play.ranks], fixedrange=True)
    figure.update_yaxes(visible=False, range=[below + block + EDGE, 0], fixedrange=True)
    return figure


class _Drawing:
    """Collects rectangles by look, so that a figure has a trace per look and not a shape per cell."""

    def __init__(self, figure: go.Figure, play: Play, ink: str):
        self.figure, self.play, self.ink = figure, play, ink
        self.fills: dict[str, list[tuple[float, float, float]]] = {}               # color → (left, right, top)
        self.edges: dict[tuple[str, float, str], list[tuple[float, float, float]]] = {}
        self.texts: list[tuple[float, float, str]] = []

    def head(self, rank: int) -> None:
        self.figure.add_annotation(x=rank + 0.5, y=HEAD / 2, showarrow=False, font={"size": 13, "color": self.ink},
                                   text=f"rank {rank}" if self.play.ranks <= 6 else str(rank))
        self.figure.add_shape(type="rect", x0=rank + LEFT, x1=rank + RIGHT, y0=HEAD - 5, y1=HEAD - 1,
                              fillcolor=rank_hue(rank), line={"width": 0})

    def lane(self, rank: int, cells: Sequence[Cell], top: float, rows: int, marked: set[tuple[int, int]]) -> None:
        """What a rank holds, from `top` down; places it holds nothing of are dotted."""
        left, right = rank + LEFT, rank + RIGHT
        filled = {cell.row for cell in cells}
        for row in range(rows):
            if row not in filled and self.play.op != "all_to_all":
                self._edge((left, right, top + row * CELL), GREY, 1, "dot")
        for cell in cells[:rows] if self.play.op == "all_to_all" else cells:
            self._cell(rank, cell, (left, right, top + cell.row * CELL), (rank, cell.piece) in marked)
        if len(cells) > rows:
            self.texts.append((rank + 0.5, top + (rows + 0.5) * CELL, f"+{len(cells) - rows}"))

    def _cell(self, rank: int, cell: Cell, box: tuple[float, float, float], marked: bool) -> None:
        left, right, top = box
        summed = self.play.op in SUMS and len(cell.terms) == self.play.ranks
        hues = [with_opacity(GREY, 0.3)] if summed else [with_opacity(rank_hue(r), 0.38) for r in cell.terms]
        for i, color in enumerate(hues):
            step = (right - left) / len(hues)
            self.fills.setdefault(color, []).append((left + i * step, left + (i + 1) * step, top))
        if marked:
            self._edge(box, self.ink, 2.5, "solid")
        elif summed:
            self._edge(box, GREY, 1, "solid")
        else:
            hue = rank_hue(rank if self.play.op in SUMS else cell.terms[0])
            self._edge(box, hue, 1.5, "dash" if self.play.op in SUMS else "solid")
        text = number_text(cell.number)
        self.texts.append(((left + right) / 2, top + CELL / 2, f"<b>{text}</b>" if marked else text))

    def _edge(self, box: tuple[float, float, float], color: str, width: float, dash: str) -> None:
        self.edges.setdefault((color, width, dash), []).append(box)

    def finish(self) -> None:
        """Fills first, then edges (ink last, over its neighbors), then numbers."""
        for color, boxes in self.fills.items():
            self.figure.add_trace(go.Bar(
                x=[(left + right) / 2 for left, right, _ in boxes], width=[right - left for left, right, _ in boxes],
                base=[top + 2 for *_, top in boxes], y=[CELL - 4] * len(boxes), hoverinfo="skip",
                marker={"color": color, "line": {"width": 0}}))
        for (color, width, dash), boxes in sorted(self.edges.items(), key=lambda entry: entry[0][1]):
            x, y = zip(*(corner for box in boxes for corner in _corners(box)), strict=True)
            self.figure.add_trace(go.Scatter(x=x, y=y, mode="lines", hoverinfo="skip",
                                             line={"color": color, "width": width, "dash": dash}))
        if self.texts:
            x, y, text = zip(*self.texts, strict=True)
            small = self.play.ranks > 6
            self.figure.add_trace(go.Scatter(x=x, y=y, text=text, mode="text", hoverinfo="skip",
                                             textfont={"size": 11 if small else 13, "color": self.ink}))


def _corners(box: tuple[float, float, float]) -> Iterable[tuple[float | None, float | None]]:
    left, right, top = box
    low, high = top + 2, top + CELL - 2
    return ((left, low), (right, low), (right, high), (left, high), (left, low), (None, None))


def _arrow(figure: go.Figure, source: int, target: int, top: float, bottom: float, ink: str) -> None:
    """From one column to another: what is sent leaves below and arrives above."""
    figure.add_annotation(x=target + 0.5, y=bottom, ax=source + 0.5, ay=top, xref="x", yref="y", axref="x", ayref="y",
                          text="", showarrow=True, arrowhead=2, arrowsize=1, arrowwidth=1.8, arrowcolor=ink)


def _hover(play: Play, round: int, top: float, bottom: float) -> go.Scatter:
    """Invisible points on the arrows that say what goes."""
    messages = play.rounds[round].messages
    places = [(0.5 + m.source + share * (m.target - m.source), top + share * (bottom - top), m)
              for m in messages for share in (0.25, 0.5, 0.75)]
    texts = [f"rank {m.source} → rank {m.target}<br>{pieces_text(play, m.pieces)}, {size(m.bytes)}<br>"
             f"{', '.join(map(number_text, m.numbers[:8]))}{', …' if m.elements > 8 else ''}" for *_, m in places]
    return go.Scatter(x=[x for x, *_ in places], y=[y for _, y, _ in places], mode="markers", hovertext=texts,
                      hoverinfo="text", marker={"size": 16, "opacity": 0})


def cost_figure(op: str, ranks: int, link: Link, chosen: str, payload: int, *, ink: str = INK["light"]) -> go.Figure:
    """Time by payload for each algorithm, both on logarithmic scales: a model. The chosen one in ink."""
    figure = go.Figure()
    for i, (name, times) in enumerate(curves(op, ranks, link).items()):
        look: dict[str, Any] = {"color": ink, "width": 3} if name == chosen else {
            "color": GREY, "width": 1.8, "dash": _DASHES[i % len(_DASHES)]}
        figure.add_scatter(x=list(PAYLOADS), y=times, name=name, mode="lines", line=look,
                           hovertext=[f"{name}: {duration(1e9 * t)} (model)" for t in times], hoverinfo="text")
    figure.add_vline(x=payload, line={"color": GREY, "width": 1, "dash": "dot"})
    laid_out(figure, 320, hovermode="x")
    ticks = PAYLOADS[2::5]
    figure.update_xaxes(type="log", tickangle=0, tickvals=list(ticks), ticktext=[binary(n) for n in ticks])
    decades = [10.0**k for k in range(-6, 4)]
    figure.update_yaxes(type="log", title="time (model) by payload", tickvals=decades,
                        ticktext=[duration(1e9 * t) for t in decades])
    return figure


def legend(play: Play) -> str:
    """How to read the picture of a round."""
    if play.op in SUMS:
        cells = ("A cell is one number, striped in the hues of the ranks whose terms are in it: dashed while the sum "
                 "is partial, gray when all terms are in")
    elif play.op == "scatter":
        cells = "A cell is one number, in the hue of the rank that it is for"
    else:
        cells = "A cell is one number, in the hue of the rank that brought it"
    return cells + ". Dotted: not here. An edge of ink: what goes in this round, and what has come."
