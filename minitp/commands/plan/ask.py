"""What `minitp plan ask` prints: the list of questions, or answers with their numbers, tables and reasoning."""
import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from minitp.commands.plan.tables import table
from minitp.errors import ConfigError
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import Answer, Question, WhatIf, named
from minitp.plan.questions.symbols import explained


def answer(names: list[str], what_if: WhatIf, as_json: bool) -> None:
    """Ask each of `names`; without one, list what can be asked."""
    console = Console()
    asked = everything(what_if) if names == ["all"] else [named(QUESTIONS, name) for name in names]
    if not asked:
        list_questions(console, as_json)
    elif as_json:
        print(json.dumps([plain(question, question.ask(what_if)) for question in asked], ensure_ascii=False))
    else:
        for question in asked:
            show(question, question.ask(what_if), console)


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


def show(question: Question, found: Answer, console: Console) -> None:
    """One answer."""
    console.print(Text(question.text, "bold"))
    console.print(Text(found.short, "bold green"))
    for paragraph in found.paragraphs:
        console.print()
        console.print(Text(paragraph))
    for one in found.tables:
        console.print()
        console.print(Text(one.title, "bold"))
        made = table(*one.heads, right=one.right)
        for row in one.rows:
            made.add_row(*(Text(cell) for cell in row))
        console.print(made)
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


OPTIONS = {"model": "--model", "machine": "--machine", "devices": "--gpus", "memory": "--gpu-memory",
           "link": "--link", "between": "--between", "tokens": "--tokens", "seq": "--seq", "batch": "--batch",
           "weights": "--weights"}
"""Fields of a what-if → the options that set them."""


def plain(question: Question, found: Answer) -> dict[str, Any]:
    return {"name": question.name, "question": question.text, "claims": question.claims, **asdict(found),
            "short_forms": explained(found)}
