"""What `minitp plan ask` prints: the list of questions, or answers with their numbers, tables and reasoning."""
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from minitp.commands.plan.tables import table
from minitp.errors import ConfigError
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import Answer, Question, Table, WhatIf, named
from minitp.plan.questions.symbols import explained


def answer(names: list[str], what_if: WhatIf, as_json: bool) -> None:
    """Ask each of `names`; without one, list what can be asked."""
    console = Console()
    asked = everything(what_if) if names == ["all"] else [named(QUESTIONS, name) for name in names]
    if not asked:
        list_questions(console, as_json)
    elif as_json:
        print(json.dumps([plain(question, question.ask(what_if), what_if) for question in asked], ensure_ascii=False))
    else:
        for question in asked:
            show(question, question.ask(what_if), console, what_if)


def everything(what_if: WhatIf) -> list[Question]:
    """All questions; with options those that depend on each of them. ConfigError where none does."""
    asked = [question for question in QUESTIONS if set(what_if.given) <= set(question.options)]
    if not asked:
        raise ConfigError(f"no question depends on all of {', '.join(what_if.given)}; each says what can be changed")
    return asked


def list_questions(console: Console, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"name": one.name, "text": one.text, "claims": one.claims, "options": one.options}
                          for one in QUESTIONS], ensure_ascii=False))
        return
    made = table("question", "what it asks")
    for question in QUESTIONS:
        made.add_row(Text(question.name, "bold"), Text(question.text))
    console.print(made)
    console.print()
    console.print(Text("minitp plan ask NAME answers one; options change what is asked, as in "
                       "`minitp plan ask terabyte-gpu --gpu-memory 512GB`.", "dim"))


def show(question: Question, found: Answer, console: Console, what_if: WhatIf | None = None) -> None:
    """One answer, asked with these values."""
    console.print(Text(question.title(what_if), "bold"))
    console.print(Text(found.short, "bold green"))
    for paragraph in found.paragraphs:
        console.print()
        console.print(Text(paragraph))
    for one in found.tables:
        console.print()
        console.print(Text(one.title, "bold"))
        for n, columns in enumerate(pieces(one, console.width)):
            console.print(*([""] if n else []), piece(one, columns, console.width), sep="\n")
    for line in found.reasoning:
        console.print()
        console.print(Text(line, "dim"))
    if short := explained(found):
        console.print()
        console.print(Text(f"Short: {short}.", "dim"))
    if found.sources:
        console.print()
        console.print(Text("Sources", "dim"))
        console.print(Padding(Text("\n".join(found.sources), "dim"), (0, 0, 0, 2)))
    if question.options:
        console.print(Text(f"What can be changed: {', '.join(OPTIONS[name] for name in question.options)}", "dim"))
    console.print()


GAP, LONG = 2, 32                           # characters between columns; of a cell that may be broken into lines


def pieces(one: Table, width: int) -> list[list[int]]:
    """The columns of a table in pieces that fit a line of `width`, each with the first column, so that no short cell
    and no word of a head is broken."""
    needs, found = [_need(one, n) + GAP for n in range(len(one.heads))], [[0]]
    for n in range(1, len(needs)):
        if len(found[-1]) > 1 and sum(needs[m] for m in found[-1]) + needs[n] > width:
            found.append([0])
        found[-1].append(n)
    return found


def piece(one: Table, columns: list[int], width: int) -> RichTable:
    """Those columns, the heads in as few lines as the width allows."""
    made = table(*(one.heads[n] for n in columns), right=[at for at, n in enumerate(columns) if n in one.right])
    for row in one.rows:
        made.add_row(*(Text(row[n]) for n in columns))
    left = width - sum(_need(one, n) + GAP for n in columns)
    for column, n in zip(made.columns, columns, strict=True):
        longest = max([len(one.heads[n]), *(len(row[n]) for row in one.rows)])
        column.width = min(longest, _need(one, n) + max(0, left))
        left -= column.width - _need(one, n)
    return made


def _need(one: Table, n: int) -> int:
    """Characters that a column takes at the least: its cells, where they aren't long, and the words of its head."""
    cells = (len(cell) if len(cell) <= LONG else max(LONG * 3 // 4, *map(len, cell.split())) for row in one.rows
             for cell in [row[n]])
    return max([*map(len, one.heads[n].split()), *cells])


OPTIONS = {"model": "--model", "machine": "--machine", "devices": "--gpus", "memory": "--gpu-memory",
           "link": "--link", "between": "--between", "tokens": "--tokens", "seq": "--seq", "batch": "--batch",
           "weights": "--weights"}
"""Fields of a what-if → the options that set them."""


def plain(question: Question, found: Answer, what_if: WhatIf | None = None) -> dict[str, Any]:
    return {"name": question.name, "question": question.title(what_if), "claims": question.claims, **asdict(found),
            "short_forms": explained(found)}
