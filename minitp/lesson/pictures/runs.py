"""Pictures of what ran: the rounds of a collective, who waited for whom, the Watch page's player."""
from typing import TYPE_CHECKING

from minitp.lesson.attempt import Attempt
from minitp.lesson.pictures.shown import PLAYER, display, picture
from minitp.lesson.runs import Run, met_by_first
from minitp.lesson.stage import in_notebook
from minitp.trace.failed import waiting_lines
from minitp.trace.file import Trace
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, plain
from minitp.view.passes import Passes

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from minitp.view.lab import Play

_AS_HIGH_AS_ITS_SCENE = ("const page = this.contentDocument; new ResizeObserver(() => "
                         "this.style.height = page.documentElement.scrollHeight + 'px').observe(page.body)")
"""What a frame does once it is loaded: its scene grows when it knows its width."""


def collective_round(play: "Play", round: int) -> None:
    """One round of a collective that `minitp.view.lab` has run: what each rank holds before and after it."""
    from minitp.view.lab import round_alt

    def draw() -> "go.Figure":
        from minitp.view.figures.lab import round_figure
        return round_figure(play, round)
    picture(draw, round_alt(play, round))


def lanes(trace: Trace, phase: str, step: int, alt: str) -> None:
    """One pass of a recorded run, a lane for each rank: computing, waiting and moving."""
    passes = Passes(Timeline.of(trace))
    index = next(at for at, row in enumerate(passes.work) if (row.phase, row.step) == (phase, step))
    _lanes(passes, index, index, alt)


def timeline(run: Run | Attempt) -> None:
    """Who computed, waited and moved data when: the Timeline page's lanes, one for each rank, of a whole run; of one
    that failed, up to there."""
    if run.trace is None:
        print("No timeline: the run has no trace.")
        return
    trace, passes = run.trace, Passes(Timeline.of(run.trace))
    lost = waiting_lines(trace)
    if not passes.work and not lost:
        print("No timeline: the ranks didn't talk to each other.")
        return
    met = ", ".join(dict.fromkeys(f"{event.op} at {event.site}" for event in met_by_first(trace)))
    alt = (f"A lane over time for each of {count(trace.run['ranks'], 'rank')}: computing in the rank's color, waiting "
           f"hatched, moving dark{f'; rank 0 met the others in {plain(met)}' * bool(met)}.")
    if lost:
        alt = " ".join([f"{alt} Outlined in red is what never ended, drawn to the edge.", *lost])
    _lanes(passes, 0, len(passes.work) - 1, alt)


def _lanes(passes: Passes, first: int, last: int, alt: str) -> None:
    def draw() -> "go.Figure":
        from minitp.view.figures.timeline import lanes_figure
        from minitp.view.timeline import Bars, detail, hover_texts
        bars = Bars(**detail(passes, first, last)._asdict() | {"blocks": []})          # it is all one pass
        return lanes_figure(bars, hover_texts(passes, bars))
    picture(draw, alt)


def watch(trace: Trace, alt: str, at: str = "") -> None:
    """The Watch page's player with a trace, ready to be played from `at` on: token=3&sync=0&phase=3, as in the page's
    address."""
    if in_notebook():
        from html import escape

        from minitp.view.player.export import to_html
        from minitp.view.watch import play
        page = escape(to_html(play(trace), at))
        frame = (f'<iframe class="{PLAYER}" title="{escape(alt)}" srcdoc="{page}" width="100%" height="860" '
                 f'style="border: 0" onload="{_AS_HIGH_AS_ITS_SCENE}"></iframe>')
        display({"text/html": frame}, alt)
    print(f"Picture: {alt}")
