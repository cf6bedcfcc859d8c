"""The tables that several verbs of `minitp plan` print: memory by its terms, time by its terms."""
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitp.plan import units
from minitp.plan.rows import Row, TimeRow, total


def table(*heads: str, right: Sequence[int] = ()) -> Table:
    """An empty one in the house's looks; `right`: the columns of numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, head in enumerate(heads):
        made.add_column(head, justify="right" if n in right else "left", overflow="fold", vertical="top")
    return made


def memory_table(rows: Sequence[Row], *, sources: bool = True) -> Table:
    """Every term with its formula, the numbers put in, both units and its source."""
    made = table("term", "formula", "GB", "GiB", *(["source"] if sources else []), right=(2, 3))
    for row in rows:
        made.add_row(f"{row.kind}: {row.term}" if row.term != row.kind else row.kind,
                     Text(f"{row.formula}\n{row.numbers}" if row.numbers else row.formula),
                     f"{row.gb:,.3f}", f"{row.gib:,.3f}", *([Text(row.source, "dim")] if sources else []))
    held = total(rows)
    made.add_row("all", "", f"{held / 1e9:,.3f}", f"{held / 2**30:,.3f}", *([""] if sources else []), style="bold")
    return made


def time_table(rows: Iterable[TimeRow], *, sources: bool = True) -> Table:
    """Every term of a time: a model, never measured."""
    made = table("term (a model)", "formula", "time", *(["source"] if sources else []), right=(2,))
    for row in rows:
        made.add_row(row.term, Text(f"{row.formula}\n{row.numbers}" if row.numbers else row.formula),
                     units.duration(row.seconds), *([Text(row.source, "dim")] if sources else []))
    return made


def say(console: Console, *lines: Any) -> None:
    """Paragraphs, one after the other."""
    for line in lines:
        console.print(line)
