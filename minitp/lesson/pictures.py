"""Pictures in a lesson: the app's own figures, each with its words. A script prints the words alone.

A figure is made only where somebody sees it, so a script needs no Plotly.
"""
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minitp.config import ModelConfig
from minitp.lesson.runs import Run
from minitp.lesson.stage import in_notebook
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count, plain

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from minitp.plan.links import Link
    from minitp.view.lab import Play
    from minitp.view.lines import Lines
    from minitp.view.plan import Asked
    from minitp.view.plan_network import Network


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


def collective_round(play: "Play", round: int) -> None:
    """One round of a collective that `minitp.view.lab` has run: what each rank holds before and after it."""
    from minitp.view.figures.lab import round_figure
    from minitp.view.lab import round_alt
    picture(lambda: round_figure(play, round), round_alt(play, round))


def parameter(placement: Placement, name: str, trace: Trace | None = None) -> None:
    """One parameter of a model, every rank's piece of it in the rank's hue; of what several hold, each has a stripe.

    With a trace its numbers as that has kept them; without one the words also say how it is cut.
    """
    from minitp.view.figures.shards import tensor_figure, tensor_words
    from minitp.view.shards import sentence
    from minitp.view.tensor import kept_pieces
    from minitp.view.tensor import picture as tensor
    wanted = placement.parameter(name)
    drawn = tensor(placement, wanted, kept_pieces(trace, placement, wanted) if trace is not None else None)
    words = tensor_words(drawn)
    picture(lambda: tensor_figure(drawn), words if trace is not None else f"{words} {sentence(placement, wanted)}")


def bytes_per_rank(placement: Placement, item_bytes: int = 4) -> None:
    """The weights of each rank in bytes, parted by kind."""
    from minitp.view.figures.shards import totals_figure
    from minitp.view.shards import totals
    sums = totals(placement, item_bytes)
    picture(lambda: totals_figure(sums), f"Bytes of each rank, a bar each, parted by kind. {sums.sentence()}")


def lanes(trace: Trace, phase: str, step: int, alt: str) -> None:
    """One pass of a recorded run, a lane for each rank: computing, waiting and moving."""
    from minitp.trace.timeline import Timeline
    from minitp.view.passes import Passes
    from minitp.view.timeline import detail

    def draw() -> "go.Figure":
        from minitp.view.figures.timeline import lanes_figure
        passes = Passes(Timeline.of(trace))
        index = next(at for at, row in enumerate(passes.work) if (row.phase, row.step) == (phase, step))
        bars = detail(passes, index, index)
        return lanes_figure(bars, [""] * len(bars))
    picture(draw, alt)


def payloads(found: "Network", alt: str) -> None:
    """What a collective takes at every payload, and where a job's sync points lie: a model."""
    def draw() -> "go.Figure":
        from minitp.view.figures.plan_network import curve_figure
        return curve_figure(found)
    picture(draw, alt)


def held(arrays: Sequence[tuple[str, str, int, Sequence[range]]]) -> None:
    """What each rank holds of some arrays, a row for each: its name, what is cut, how many of these there are, and each
    rank's part of them. Where all have all it is whole."""
    from minitp.comm.states import WHOLE, shard
    from minitp.view.cut_rows import Row
    rows, words = [], []
    for name, unit, size, parts in arrays:
        whole = all(len(part) == size for part in parts)
        spans = tuple((part.start / size, part.stop / size) for part in parts)
        rows.append(Row("array", name, f"{size} {unit}", WHOLE if whole else shard(0), spans))
        told = ", ".join(f"rank {rank} {f'{part.start}–{part.stop - 1}' if part else 'none'}"
                         for rank, part in enumerate(parts))
        words.append(f"{name}: {'all on every rank' if whole else f'of {size} {unit} {told}'}")

    def draw() -> "go.Figure":
        from minitp.view.figures.cut_chain import chain_figure
        return chain_figure(rows)
    picture(draw, "; ".join(words) + ".")


def one_round(play: "Play", round: int) -> None:
    """A round of a collective built from messages: what each rank holds before and after it."""
    from minitp.view.lab import round_alt

    def draw() -> "go.Figure":
        from minitp.view.figures.lab import round_figure
        return round_figure(play, round)
    picture(draw, round_alt(play, round))


def costs(op: str, ranks: int, link: "Link", chosen: str, payload: int) -> None:
    """Time by payload for each algorithm of a collective: a model. `chosen` is drawn in ink, `payload` marked."""
    from minitp.view.lab_cost import verdict

    def draw() -> "go.Figure":
        from minitp.view.figures.lab import cost_figure
        return cost_figure(op, ranks, link, chosen, payload)
    picture(draw, f"Time by payload of {op.replace('_', '-')} by each algorithm, {chosen} in ink. "
                  f"{verdict(op, ranks, link)}")


def lines(found: "Lines") -> None:
    """Bytes against something else, a line for each way."""
    def draw() -> "go.Figure":
        from minitp.view.figures.lines import lines_figure
        return lines_figure(found)
    picture(draw, found.words)


def growing(asked: "Asked") -> None:
    """What of a plan's memory grows with the parameters, what with the sequences, and what with both."""
    from minitp.view.plan_memory import growing as grown
    from minitp.view.plan_memory import growth_line, planned
    found = grown(planned(asked), asked.wider, asked.more)

    def draw() -> "go.Figure":
        from minitp.view.figures.plan_memory import growing_figure
        return growing_figure(found)
    picture(draw, f"Stacked bars of memory: {', '.join(bar.name for bar in found.bars)}. {growth_line(found)}")


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
