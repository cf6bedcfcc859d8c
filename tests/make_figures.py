"""Make the eight figures of "explain it tomorrow": `python -m tests.make_figures`. The app's own, as PNG.

Each has its caption and its words in `lessons/figures/README.md`, which is made here, too.
"""
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from PIL import Image

from minitp.config import TINY, ModelConfig
from minitp.lesson.pictures import PLAYER
from minitp.placement import Placement
from minitp.plan import catalogue
from minitp.runs import samples
from minitp.trace import Trace
from minitp.view import lab, plan_memory, plan_network, tensor
from minitp.view.cut_rows import description, rows
from minitp.view.cuts import Choice, place
from minitp.view.figures import cut_chain
from minitp.view.figures import plan_memory as memory_figures
from minitp.view.figures import plan_network as network_figures
from minitp.view.figures.lab import round_figure
from minitp.view.figures.shards import tensor_figure
from minitp.view.plan import Asked
from minitp.view.player.export import to_html
from minitp.view.watch import play
from tests.app.browser import launched
from tests.make_lessons import player_image, plotly_image

FOLDER = Path(__file__).parents[1] / "lessons" / "figures"
WIDTH = 800
RANKS = 4
_HEAD = """# Eight figures

Free to reuse, in slides, posts and lectures. They are made by the functions that draw the app's pages, from real runs
and from the planner: `python -m tests.make_figures`.
"""


@dataclass(frozen=True)
class Made:
    """A figure, or a player's frame; what it shows in words."""
    drawn: go.Figure | str
    alt: str


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    told = [_HEAD]
    with launched() as browser:
        for number, (name, caption, make) in enumerate(FIGURES, 1):
            made, file = make(), FOLDER / f"{number}_{name}.png"
            file.write_bytes(png(made.drawn, browser))
            told.append(f"## {number}. {caption}\n\n![{made.alt}]({file.name})\n")
    (FOLDER / "README.md").write_text("\n".join(told), "utf-8")
    print(f"{sum(file.stat().st_size for file in FOLDER.iterdir()):,} bytes in {FOLDER.name}")


def png(drawn: go.Figure | str, browser: Any) -> bytes:
    if isinstance(drawn, str):
        image = player_image(drawn, browser)
    else:
        drawn.update_layout(template="plotly_white")
        image = plotly_image(drawn.to_plotly_json() | {"layout": drawn.layout.to_plotly_json()}, browser)
    file = BytesIO()
    image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


# --- the eight -------------------------------------------------------------------------------------------------------

def chain(part: str, choice: Choice | None = None) -> Made:
    made = rows(place(TINY, RANKS, choice or Choice()), part)
    return Made(cut_chain.chain_figure(made, "#1B1F24"), description(made))


def column_then_row() -> Made:
    return chain("mlp")


def the_wrong_way() -> Made:
    return chain("mlp", Choice(gate_up="rows", down="columns"))


def heads() -> Made:
    return chain("attention")


def uneven_heads() -> Made:
    placement = Placement(smollm2(), RANKS)
    drawn = tensor.picture(placement, placement.parameter("layers.0.attention.q.weight"))
    return Made(tensor_figure(drawn), tensor.tensor_words(drawn))


def ring() -> Made:
    one = lab.run("all_reduce", "ring", lab.example("all_reduce", RANKS, RANKS))
    return Made(round_figure(one, 0), lab.round_alt(one, 0))


def one_sync() -> Made:
    trace = Trace.read(next(run.path for run in samples() if run.name == "tiny-4-ranks"))
    frame = f'<iframe class="{PLAYER}" srcdoc="{escape(to_html(play(trace), "token=3&sync=2&phase=3"))}" width="100%">'
    return Made(frame + "</iframe>", "The MLP of one layer of a small trained model on four ranks, for one token: each "
                "rank multiplies with its own shards of gate, up and down, its partial sum enters the gate when it "
                "arrives, the four terms are added, and every rank gets the same y.")


def latency() -> Made:
    found = plan_network.network(Asked(model="llama-2-70b", show="network"))
    return Made(network_figures.curve_figure(found), " ".join(plan_network.lines(found)))


def memory() -> Made:
    asked = replace(Asked(model="gpt-3-175b", task="train", machine="8xa100-80"), dp=8, zero=1)
    found = plan_memory.planned(asked)
    verdict = plan_memory.verdict_line(found)
    return Made(memory_figures.bars_figure(found), plan_memory.bars_alt(found, verdict))


def smollm2() -> ModelConfig:
    return catalogue.model("smollm2-135m").config


FIGURES: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    ("column_then_row", "Column, then row: one sync for two matrices", column_then_row),
    ("row_then_column", "Row, then column: right too, with two syncs", the_wrong_way),
    ("heads", "Heads are computed apart, then summed", heads),
    ("uneven_heads", "9 heads on 4 ranks: whole heads only", uneven_heads),
    ("one_sync_point", "One sync point of one token, with its true numbers", one_sync),
    ("ring", "What an all-reduce may do inside: a ring's first round", ring),
    ("latency", "What a sync costs: it waits, it doesn't carry", latency),
    ("memory", "What training holds: 175B on 64 cards of 80 GB, as TP8 × DP8 with ZeRO-1: too much", memory),
)


if __name__ == "__main__":
    main()
