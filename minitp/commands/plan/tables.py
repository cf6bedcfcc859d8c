"""The tables that several verbs of `minitp plan` print: memory by its terms, time by its terms."""
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from minitp.plan import units
from minitp.plan.memory.terms import legend
from minitp.plan.rows import Row, TimeRow, total


def table(*heads: str, right: Sequence[int] = (), whole: Sequence[int] = (), title: str | None = None,
          caption: str | None = None) -> Table:
    """An empty one in the house's looks; `right`: the columns of numbers; `whole`: those that are never folded."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", title=title, caption=caption,
                 title_justify="left", caption_justify="left", title_style="bold", caption_style="dim")
    for n, head in enumerate(heads):
        made.add_column(head, justify="right" if n in right else "left", overflow="fold", vertical="top",
                        no_wrap=n in whole)
    return made


def memory_table(rows: Sequence[Row]) -> RenderableType:
    """Every term with its formula, the numbers put in and both units; what the letters mean, and who says so."""
    numbers = _footnotes(rows)
    made = table("term", "formula", "GB (GiB)", "by", right=(2, 3))
    for row in rows:
        made.add_row(f"{row.kind}: {row.term}" if row.term != row.kind else row.kind, _formula(row),
                     units.both(row.bytes), Text(str(numbers[row.source]), "dim"))
    made.add_row("all", "", units.both(total(rows)), "", style="bold")
    letters = "; ".join(f"{letter}: {meaning}" for letter, meaning in legend(rows).items())
    return Group(made, Text(f"{letters}; numbers alone: bytes, and how many arrays", "dim"), _sources(numbers))


def time_table(rows: Sequence[TimeRow]) -> RenderableType:
    """Every term of a time, and below what there is to say of some: a model, never measured."""
    numbers = _footnotes(rows)
    made = table("term (a model)", "formula", "time", "by", right=(2, 3))
    for row in rows:
        made.add_row(row.term, _formula(row), units.duration(row.seconds), Text(str(numbers[row.source]), "dim"))
    notes = [Text(f"{row.term}: {row.note}", "dim") for row in rows if row.note]
    return Group(made, *notes, _sources(numbers))


def _formula(row: Row | TimeRow) -> Text:
    return Text(f"{row.formula}\n{row.numbers}" if row.numbers else row.formula)


def _footnotes(rows: Iterable[Row | TimeRow]) -> dict[str, int]:
    """Sources, numbered as they come: a column of their texts would be wider than all the others."""
    return {source: number for number, source in enumerate(dict.fromkeys(row.source for row in rows), 1)}


def _sources(numbers: dict[str, int]) -> Text:
    return Text("by: " + "; ".join(f"[{number}] {source}" for source, number in numbers.items()), "dim")


def say(console: Console, *lines: Any) -> None:
    """Paragraphs, one after the other."""
    for line in lines:
        console.print(line)
