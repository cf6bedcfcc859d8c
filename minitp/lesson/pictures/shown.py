"""A picture where somebody sees it, and its words everywhere."""
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minitp.lesson.stage import in_notebook

if TYPE_CHECKING:
    import plotly.graph_objects as go

PLOTLY = "application/vnd.plotly.v1+json"
PLAYER = "minitp-player"                 # the class of the frame that holds an exported player


def picture(draw: "Callable[[], go.Figure]", alt: str) -> None:
    """Show what `draw` makes, and below it what it shows in words."""
    if in_notebook():
        figure = draw().update_layout(template="plotly_white")     # legible where a page is white, and printed
        display({PLOTLY: json.loads(figure.to_json())}, alt)
    print(f"Picture: {alt}")


def display(data: dict[str, Any], alt: str) -> None:
    """Show data by its kind, with `alt` for who can't see it."""
    from IPython.display import display as show
    show(data | {"text/plain": alt}, raw=True, metadata={kind: {"alt": alt} for kind in data})
