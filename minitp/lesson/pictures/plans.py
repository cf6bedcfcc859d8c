"""Pictures of the planner: a model, not measured."""
from typing import TYPE_CHECKING, Any

from minitp.lesson.pictures.shown import picture

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from minitp.plan.links import Link
    from minitp.view.lines import Lines
    from minitp.view.plan import Asked
    from minitp.view.plan_network import Network


def payloads(found: "Network", alt: str) -> None:
    """What a collective takes at every payload, and where a job's sync points lie: a model."""
    def draw() -> "go.Figure":
        from minitp.view.figures.plan_network import curve_figure
        return curve_figure(found)
    picture(draw, alt)


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


def memory(**asked: Any) -> None:
    """What fills each kind of rank of a plan, under the line of its device. `asked`: as minitp.view.plan.Asked."""
    from minitp.view.plan import Asked
    from minitp.view.plan_memory import bars_alt, planned, verdict_line

    def draw() -> "go.Figure":
        from minitp.view.figures.plan_memory import bars_figure
        return bars_figure(found)

    found = planned(Asked(**asked))
    picture(draw, bars_alt(found, verdict_line(found)))


def growing(asked: "Asked") -> None:
    """What of a plan's memory grows with the parameters, what with the sequences, and what with both."""
    from minitp.view.plan_memory import growing as grown
    from minitp.view.plan_memory import growth_line, planned
    found = grown(planned(asked), asked.wider, asked.more)

    def draw() -> "go.Figure":
        from minitp.view.figures.plan_memory import growing_figure
        return growing_figure(found)
    picture(draw, f"Stacked bars of memory: {', '.join(bar.name for bar in found.bars)}. {growth_line(found)}")
