"""The Timeline page's figures. Where all ranks are added up a bar has no hue; a lane has its rank's."""
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from minitp.trace.wording import STEP, duration
from minitp.view.colors import GREY, INK, rank_hue
from minitp.view.figures.style import laid_out, literal, marker, phase_marker, unit_for
from minitp.view.replay import Cutting
from minitp.view.timeline import COMPUTING, ENDLESS, ENDLESS_WORD, KINDS, MOVING, WAITING, Bars, Group

_PASSES = "passes"
_DASHES = ("solid", "dash", "dot", "dashdot")


MOST_NAMES = 40                    # passes whose names fit below their bars
_AXIS = {"token": "token (1: the prompt and its first token)", "pass": "pass"}


def overview_figure(groups: Sequence[Group], *, shares: bool = False, unit: str = "token", ink: str = INK["light"]
                    ) -> go.Figure:
    """One stacked bar per pass: time, mean over the ranks, or shares of it. In training, computing is parted by phase.
    """
    factor, scale = unit_for(max((group.time for group in groups), default=0))
    figure = go.Figure()
    phases = list(dict.fromkeys(map(_phase, groups)))
    looks = [(COMPUTING, phase, f"computing, {phase}", phase_marker(phase)) for phase in phases if unit == "pass"]
    looks += [(kind, "", KINDS[kind], marker(kind, GREY, ink)) for kind in (COMPUTING, WAITING, MOVING)[bool(looks):]]
    for kind, phase, name, look in looks:
        mine = [group for group in groups if phase in ("", _phase(group))]
        times = [getattr(group, KINDS[kind]) for group in mine]
        heights = [100 * t / (group.time or 1) if shares else t / factor for t, group in zip(times, mine, strict=True)]
        texts = [f"{literal(group.name)} {literal(group.word)}<br>{KINDS[kind]} {duration(t)} of {duration(group.time)}"
                 for t, group in zip(times, mine, strict=True)]
        numbers = [group.first + 1 for group in mine]
        figure.add_bar(x=numbers, y=heights, name=name, marker=look, hovertext=texts, hoverinfo="text",
                       customdata=numbers)
    laid_out(figure, 280, barmode="stack", legend=1 if unit == "token" else len(looks))
    _name_passes(figure, groups, unit)
    figure.update_yaxes(title="% of its time" if shares else f"{scale} per {unit}", rangemode="tozero")
    return figure


def _phase(group: Group) -> str:
    """A phase of a training step, or `other`."""
    return group.phase if group.phase in STEP else "other"


def _name_passes(figure: go.Figure, groups: Sequence[Group], unit: str, **place: int) -> None:
    """What stands below the bars: numbers, or in training names, as long as they fit."""
    figure.update_xaxes(title=_AXIS[unit], **place)
    if unit == "pass" and len(groups) <= MOST_NAMES:
        figure.update_xaxes(title=None, tickvals=[group.first + 1 for group in groups], tickangle=-60, automargin=True,
                            ticktext=[literal(group.name, 40) for group in groups], **place)


def lanes_figure(bars: Bars, texts: Sequence[str], *, ink: str = INK["light"]) -> go.Figure:
    """One lane per rank: computing solid in its hue, waiting hatched, moving in ink, what never ended outlined in red.
    customdata: the event's number. In training a lane above them has the passes."""
    figure = go.Figure()
    _add_lanes(figure, bars, texts, ink, *unit_for(_end(bars)))
    _add_blocks(figure, bars, ink, unit_for(_end(bars))[0])
    legend = 1 + bool(bars.blocks) * (1 + bool((bars.kind == ENDLESS).any()))
    laid_out(figure, 96 + 34 * (len(bars.lanes) + bool(bars.blocks)), barmode="overlay", legend=legend)
    _name_lanes(figure, bars.lanes, unit_for(_end(bars))[1], passes=bool(bars.blocks))
    return figure


def two_lanes_figure(measured: tuple[Bars, Sequence[str]], modeled: tuple[Bars, Sequence[str]], link: str, *,
                     ink: str = INK["light"]) -> go.Figure:
    """The same pass twice, on one scale of time: as it was measured, and as the model of a link would have it."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes="all", vertical_spacing=0.14,
                           subplot_titles=("measured", f"model: {literal(link)}"))
    scale = unit_for(max(_end(measured[0]), _end(modeled[0])))
    for row, (bars, texts) in enumerate((measured, modeled), start=1):
        _add_lanes(figure, bars, texts, ink, *scale, row=row, col=1)
    laid_out(figure, 150 + 60 * len(measured[0].lanes), barmode="overlay")
    _name_lanes(figure, measured[0].lanes, scale[1])
    figure.update_xaxes(title=None, row=1)
    return figure


def _end(bars: Bars) -> float:
    return float((bars.start + bars.length).max(initial=0))


def _add_lanes(figure: go.Figure, bars: Bars, texts: Sequence[str], ink: str, factor: float, unit: str,
               **place: int) -> None:
    named = set() if place.get("row", 1) == 1 else set(range(len(KINDS) + 1))
    for rank in bars.lanes:
        for kind, word in enumerate((*KINDS, ENDLESS_WORD)):
            mine = ((bars.rank == rank) & (bars.kind == kind)).nonzero()[0]
            if not len(mine):
                continue
            label = {"text": [word] * len(mine), "textposition": "inside", "insidetextanchor": "middle",
                     "insidetextfont": {"color": ink, "weight": 700}, "textangle": 0} if kind == ENDLESS else {}
            figure.add_trace(go.Bar(
                orientation="h", y=[f"rank {rank}"] * len(mine), base=(bars.start[mine] / factor).tolist(),
                x=(bars.length[mine] / factor).tolist(), marker=marker(kind, rank_hue(rank), ink), width=0.8,
                name=word, legendgroup=word, showlegend=kind not in named, hoverinfo="text",
                hovertext=[literal(texts[i]) for i in mine], customdata=bars.event[mine].tolist(), **label), **place)
            named.add(kind)


def _add_blocks(figure: go.Figure, bars: Bars, ink: str, factor: float) -> None:
    """The passes above the ranks, each phase in its gray."""
    for phase in dict.fromkeys(block.phase for block in bars.blocks):
        mine = [block for block in bars.blocks if block.phase == phase]
        figure.add_bar(orientation="h", y=[_PASSES] * len(mine), base=[block.start / factor for block in mine],
                       x=[block.length / factor for block in mine], marker=phase_marker(phase), width=0.8,
                       name=literal(phase, 20) or "other", hoverinfo="text",
                       text=[literal(block.label, 40) for block in mine], textposition="inside",
                       insidetextanchor="middle", insidetextfont={"color": ink}, textangle=0,
                       hovertext=[f"{literal(block.name)}: {duration(block.length)}" for block in mine])


def _name_lanes(figure: go.Figure, lanes: Sequence[int], unit: str, *, passes: bool = False) -> None:
    names = [*(f"rank {rank}" for rank in reversed(lanes)), *([_PASSES] if passes else [])]
    figure.update_yaxes(categoryorder="array", categoryarray=names, range=[-0.6, len(names) - 0.4])
    figure.update_xaxes(title=f"{unit} since the first of these began")


def panels_figure(measured: Sequence[Group], modeled: Sequence[Group], link: str, *, unit: str = "token",
                  ink: str = INK["light"]) -> go.Figure:
    """Time per pass, measured above and modeled below, on the same scale and never in one bar."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes="all", shared_yaxes="all", vertical_spacing=0.16,
                           subplot_titles=("measured", f"model: {literal(link)}"))
    factor, scale = unit_for(max((group.time for group in (*measured, *modeled)), default=0))
    for row, groups in enumerate((measured, modeled), start=1):
        for kind, word in enumerate(KINDS):
            times = [getattr(group, word) for group in groups]
            texts = [f"{'model' if row == 2 else 'measured'}: {literal(group.name)}<br>{word} {duration(t)} of "
                     f"{duration(group.time)}" for t, group in zip(times, groups, strict=True)]
            figure.add_trace(go.Bar(x=[group.first + 1 for group in groups], y=[t / factor for t in times], name=word,
                                    marker=marker(kind, GREY, ink), legendgroup=word, showlegend=row == 1,
                                    hovertext=texts, hoverinfo="text"), row=row, col=1)
    laid_out(figure, 440, barmode="stack")
    _name_passes(figure, measured, unit, row=2)
    figure.update_yaxes(title=f"{scale} per {unit}", matches="y", rangemode="tozero")
    return figure


def cutting_figure(found: Cutting, *, ink: str = INK["light"]) -> go.Figure:
    """A curve per link over the number of ranks, its minimum marked; both axes logarithmic. All of it is a model."""
    factor, unit = unit_for(max(max(curve.seconds) for curve in found.curves) * 1e9)
    figure, ranks = go.Figure(), range(1, len(found.curves[0].seconds) + 1)
    for number, curve in enumerate(found.curves):
        times = [s * 1e9 / factor for s in curve.seconds]
        sizes = [11 if p == curve.best else 0 for p in ranks]
        texts = [f"model, {literal(curve.link.name)}: {p} ranks, {duration(s * 1e9)} per {found.unit}"
                 for p, s in zip(ranks, curve.seconds, strict=True)]
        figure.add_scatter(x=list(ranks), y=times, mode="lines+markers", name=literal(curve.link.name),
                           line={"color": ink, "dash": _DASHES[number % len(_DASHES)], "width": 2},
                           marker={"size": sizes, "color": ink, "symbol": "diamond"}, hovertext=texts, hoverinfo="text")
    laid_out(figure, 400, legend=4)
    figure.update_xaxes(type="log", title="ranks", tickvals=[2**k for k in range(len(ranks).bit_length())])
    figure.update_yaxes(type="log", dtick="D2", tickformat="~r", title=f"{unit} per {found.unit} (model)")
    return figure
