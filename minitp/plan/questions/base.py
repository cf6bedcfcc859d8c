"""What a question of `minitp plan ask` is made of, and what it may be asked with instead of its usual values.

An answer is computed each time: paragraphs with numbers in them, tables, and the reasoning behind both. It says which
claims of the source discussion it meets.
"""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from minitp.errors import ConfigError
from minitp.plan import catalogue, units
from minitp.plan.job import whole_number
from minitp.plan.links import Link
from minitp.plan.machine import Machine, check_devices
from minitp.plan.model import PlannedModel
from minitp.trace.wording import count, plain


@dataclass(frozen=True)
class WhatIf:
    """What to ask with in place of a question's own values; None: its own.

    model, machine, between, link  names of the catalogue (a model may be a config.json, a machine a description)
    memory    of a device, bytes            devices  how many in all
    tokens    of a training                 seq, batch, weights  of the job: tokens, sequences, a number type
    """
    model: str | None = None
    machine: str | None = None
    devices: int | None = None
    memory: int | None = None
    link: str | None = None
    between: str | None = None
    tokens: float | None = None
    seq: int | None = None
    batch: int | None = None
    weights: str | None = None

    def __post_init__(self):
        for name in ("devices", "seq", "batch"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        check_devices(self.devices or 1)

    @property
    def given(self) -> dict[str, Any]:
        """What was asked with, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def told(self) -> str:
        """What was asked with, in words."""
        words = {"memory": f"{units.both(self.memory or 0)} a device",
                 "tokens": f"{units.count(self.tokens or 0)} tokens",
                 "devices": count(self.devices or 0, "device"), "machine": f"on {self.machine}",
                 "model": f"model {self.model}", "link": f"link {self.link}", "weights": f"{self.weights} weights",
                 "seq": f"{self.seq or 0:,} tokens a sequence",
                 "batch": f"batch {self.batch or 0:,}", "between": f"{self.between} between machines"}
        return ", ".join(plain(words.get(name, str(value)), 60) for name, value in self.given.items())

    def the_model(self, usual: str) -> PlannedModel:
        """The model asked about."""
        return catalogue.model(self.model or usual)

    def the_machine(self, usual: str, devices: int | None = None, link: Link | None = None) -> Machine:
        """The machine asked about, with every what-if applied; `devices`: the question's own number of them; `link`:
        what its devices meet over instead of their own."""
        return catalogue.machine(self.machine or usual, devices=self.devices or devices, memory=self.memory,
                                 link=link or self.link, between=self.between)


@dataclass(frozen=True)
class Table:
    """Numbers side by side. `right`: the columns to set flush right."""
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ConfigError(f"the table {self.title!r} has {len(self.heads)} columns, a row has {len(row)}")


@dataclass(frozen=True)
class Answer:
    """short: the answer in a sentence. numbers: those that it rests on, by name, for tests, lessons and JSON."""
    short: str
    paragraphs: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    reasoning: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """name: what it is asked by. claims: ids of the source discussion's statements. options: fields of WhatIf that
    change the answer; any other is refused, as it would be passed over in silence. other: the text without the numbers
    of the usual values, where it has some."""
    name: str
    text: str
    answer: Callable[[WhatIf], Answer] = field(repr=False)
    claims: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    other: str = ""

    def title(self, what_if: WhatIf | None = None) -> str:
        """The question as it is asked with these values."""
        told = "" if what_if is None else what_if.told
        return f"{self.other or self.text} Asked with: {told}" if told else self.text

    def ask(self, what_if: WhatIf | None = None) -> Answer:
        """The answer with these values; ConfigError for one that has no part in it."""
        what_if = what_if or WhatIf()
        foreign = [name for name in what_if.given if name not in self.options]
        if foreign:
            can = ", ".join(self.options) or "nothing"
            raise ConfigError(f"the question {self.name!r} doesn't depend on {', '.join(foreign)}; what can be changed "
                              f"in it: {can}")
        return self.answer(what_if)


def named(questions: Sequence[Question], name: str) -> Question:
    """The question of that name; ConfigError with near names."""
    from difflib import get_close_matches
    by_name = {question.name: question for question in questions}
    if name not in by_name:
        near = get_close_matches(name, by_name, n=3, cutoff=0.4)
        hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ";"
        raise ConfigError(f"there is no question {plain(name, 60)!r}{hint} `minitp plan ask` lists all of them")
    return by_name[name]


def only(what_if: WhatIf, *names: str) -> WhatIf:
    """The what-if with only these fields, for a part of an answer that the others have no part in."""
    return replace(WhatIf(), **{name: value for name, value in what_if.given.items() if name in names})
