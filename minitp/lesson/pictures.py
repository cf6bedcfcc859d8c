"""Pictures in a lesson: the app's own figures, each with its words. A script prints the words alone.

A figure is made only where somebody sees it, so a script needs no Plotly.
"""
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minitp.config import ModelConfig
from minitp.lesson.runs import Run
from minitp.lesson.stage import in_notebook
from minitp.trace.file import Trace
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, plain

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


def timeline(run: Run) -> None:
    """Who computed, waited and moved data when: the Timeline page's lanes, one for each rank."""
    from minitp.view.passes import Passes
    from minitp.view.timeline import detail, hover_texts
    passes = Passes(Timeline.of(run.trace))
    if not passes.work:
        print("No timeline: the ranks didn't talk to each other.")
        return
    bars = detail(passes, 0, len(passes.work) - 1)
    met = ", ".join(dict.fromkeys(f"{event.op} at {event.site}" for event in run.events))

    def draw() -> "go.Figure":
        from minitp.view.figures.timeline import lanes_figure
        return lanes_figure(bars, hover_texts(passes, bars))

    picture(draw, f"a lane over time for each of {count(run.ranks, 'rank')}: computing in the rank's color, waiting "
                  f"hatched, moving dark; rank 0 met the others in {plain(met)}.")


def _display(data: dict[str, Any], alt: str) -> None:
    from IPython.display import display
    display(data | {"text/plain": alt}, raw=True, metadata={kind: {"alt": alt} for kind in data})
