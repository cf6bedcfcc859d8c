"""The table of `minitp compare`: a block of lines for each run, narrow enough for 80 columns."""
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitp.bench.measure import NOT_SPEED
from minitp.commands.train_display import COPIES
from minitp.trace.wording import count, duration, plain, size
from minitp.train.compare import PHASES, Row, mesh_name
from minitp.train.memory import KINDS

SHOWN = 6                              # losses of a run; of more steps the first and the last


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Title, table, and what its columns mean."""
    title = Text(plain(rows[0]["model"], 40), "bold")
    title.append("".join(f" · {part}" for part in described(rows[0])), "dim")
    console.print(title, table(rows), sep="\n")
    console.print()
    for note in notes(rows):
        console.print(Text(note, "dim"))


def described(row: Row) -> list[str]:
    """What all runs have in common."""
    parts = [f"{count(row['steps'], 'step')} of {row['batch']}×{row['tokens']} tokens", row["dtype"], row["world"]]
    if row["micro_batches"] > 1:
        parts.append(f"{row['micro_batches']} micro-batches")
    if row["recompute"] != "none":
        parts.append(f"recomputation: {row['recompute']}")
    if row["embedding"] != "vocab":
        parts.append(f"table cut along {row['embedding']}")
    if row["cut"] != "even":
        parts.append(f"{row['cut']} cut")
    return [*parts, plain(row["text"]["name"], 60)]


def table(rows: Sequence[Row]) -> Table:
    """A block of lines for each run, narrow enough for 80 columns."""
    made = Table(box=None, pad_edge=False, padding=(1, 1, 0, 0), header_style="bold")
    for head in ("mesh", "loss", "gradients\napart", "sync points\na step", "bytes\na step",
                 "held by the\nfullest rank", "time\na step"):
        made.add_column(head, no_wrap=True)
    for row in rows:
        sync_points = "\n".join(f"{row['sync_points_by_phase'][phase]:>2} {phase}" for phase in PHASES)
        made.add_row(mesh_name(row["mesh"]), losses(row["losses"]),
                     "reference" if row is rows[0] else number(row["max_gradient_difference"]),
                     sync_points, f"{size(row['payload'])}\n{size(row['bytes_per_rank'])} sent", held(row["memory"]),
                     duration(row["seconds_per_step"] * 1e9))
    return made


def losses(values: Sequence[float | None]) -> str:
    shown = ["not finite" if loss is None else f"{loss:.6f}" for loss in values]
    if len(shown) > SHOWN:
        shown = [*shown[:SHOWN - 2], "…", shown[-1]]
    return "\n".join(shown)


def held(memory: Row) -> str:
    return "\n".join(f"{size(memory[kind])} {kind}" for kind in KINDS)


def number(difference: float | None) -> str:
    return "not finite" if difference is None else f"{difference:.1e}" if difference else "0"


def notes(rows: Sequence[Row]) -> list[str]:
    """What the columns mean, and what they don't."""
    largest = number(max((row["max_gradient"] for row in rows if row["max_gradient"] is not None), default=None))
    steps = np.finfo(np.float64 if rows[0]["dtype"] == "float64" else np.float32)
    found = [f"gradients apart: any element's largest difference from one rank's, over all steps. The largest element "
             f"is {largest}, and {steps.dtype} rounds at {steps.eps:.1e} of a number.",
             "bytes: of the whole arrays that are summed or gathered, the same on every rank; sent: by a rank if each "
             "collective is a ring (a model, not measured)."]
    if any(row["sync_points_by_phase"]["optimizer"] > 1 for row in rows):
        found.append(f"optimizer: {' '.join(COPIES.split())}.")
    if rows[0]["world"] == "threads":
        found.append(f"time: {NOT_SPEED}.")
    return found
