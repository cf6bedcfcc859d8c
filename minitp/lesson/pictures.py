"""Pictures in a lesson: the app's own figures, each with its words. A script prints the words alone.

A figure is made only where somebody sees it, so a script needs no Plotly.
"""
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minitp.config import ModelConfig
from minitp.lesson.stage import in_notebook
from minitp.trace.file import Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOTLY = "application/vnd.plotly.v1+json"
PLAYER = "minitp-player"                 # the class of the frame that holds an exported player


def picture(draw: "Callable[[], go.Figure]", alt: str) -> None:
    """Show what `draw` makes, and below it what it shows in words."""
    if in_notebook():
        figure = draw().update_layout(template="plotly_white")     # legible where a page is white, and printed
        _display({PLOTLY: json.loads(figure.to_json())}, alt)
    print(f"Picture: {alt}")


def chain(config: ModelConfig, ranks: int, part: str) -> None:
    """The arrays, products and syncs of one part of a model, top to bottom: embedding, attention, mlp or head."""
    from minitp.view.cut_rows import rows
    from minitp.view.cuts import place
    from minitp.view.figures.cut_chain import chain_figure, description
    made = rows(place(config, ranks), part)
    picture(lambda: chain_figure(made), description(made))


def watch(trace: Trace, alt: str, at: str = "") -> None:
    """The Watch page's player with a trace, ready to be played from `at` on: token=3&sync=0&phase=3, as in the page's
    address."""
    if in_notebook():
        from html import escape

        from minitp.view.player.export import to_html
        from minitp.view.watch import play
        page = escape(to_html(play(trace), at))
        frame = (f'<iframe class="{PLAYER}" title="{escape(alt)}" srcdoc="{page}" width="100%" height="860" '
                 'style="border: 0"></iframe>')
        _display({"text/html": frame}, alt)
    print(f"Picture: {alt}")


def links(model: str, machine: str = "8xa100-80") -> None:
    """What all sync points of one token of a model of the catalogue cost on each link, bare: the app's figure."""
    from minitp.plan.units import duration
    from minitp.view.plan import Asked
    from minitp.view.plan_network import network

    def draw() -> "go.Figure":
        from minitp.view.figures.plan_network import links_figure
        return links_figure(found)

    found = network(Asked(model=model, machine=machine))
    best: dict[tuple[str, int], float] = {}
    for row in found.links:
        key = row.link, row.ranks
        best[key] = min(row.token_s, best.get(key, row.token_s))
    told = "; ".join(f"{link}, {ranks} ranks: {duration(seconds)}" for (link, ranks), seconds in best.items())
    picture(draw, f"All {found.syncs} sync points of a token of {model} on each link, times on one scale. {told}. "
                  "A model, not measured.")


def memory(**asked: Any) -> None:
    """What fills each kind of rank of a plan, under the line of its device. `asked`: as minitp.view.plan.Asked."""
    from minitp.view.plan import Asked
    from minitp.view.plan_memory import bars_alt, planned, verdict_line

    def draw() -> "go.Figure":
        from minitp.view.figures.plan_memory import bars_figure
        return bars_figure(found)

    found = planned(Asked(**asked))
    picture(draw, bars_alt(found, verdict_line(found)))


def _display(data: dict[str, Any], alt: str) -> None:
    from IPython.display import display
    display(data | {"text/plain": alt}, raw=True, metadata={kind: {"alt": alt} for kind in data})
