"""A trace in memory and as a file: written whole or not at all, read as if a stranger had sent it.

The format is described in `minitp.trace.schema`.
"""
import gzip
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from minitp.errors import FileFormatError
from minitp.files import replacing
from minitp.trace.columns import (
    LARGEST,
    Table,
    encode,
    from_lists,
    renumber,
    row_columns,
    shapes_of,
    strings_of,
    to_lists,
)
from minitp.trace.kept import ArrayTable, KeptArray, checked_values
from minitp.trace.schema import FORMAT, VERSION, WORDS, Event, Inner, Mark, Unfinished, Weight
from minitp.trace.text import MAX_BYTES, MAX_DEPTH, loaded, parsed, text_of, unpacked

MAX_RANKS = 1 << 20


class Trace:
    """What one run recorded, on all ranks.

    run, clock      the header: plain data
    strings, shapes what the columns of words, and `shape`, give by number
    events, marks   {column: NumPy array}, the fields of `Event` and `Mark`; -1 stands for None
    unfinished      the same of `Unfinished`: the calls that never gave a rank their result
    values          [{event, before, after or after_of}]; `value(event)` gives its arrays
    arrays, weights tables of the arrays inside the layers, and of the weights: see `array` and `weight`
    """

    def __init__(self, run: dict[str, Any], clock: dict[str, Any], strings: list[str], shapes: list[tuple[int, ...]],
                 events: Table, marks: Table, values: list[dict[str, Any]] | None = None,
                 arrays: ArrayTable | None = None, weights: ArrayTable | None = None,
                 unfinished: Table | None = None):
        self.run, self.clock, self.strings, self.shapes = run, clock, strings, shapes
        self.events, self.marks, self.values = events, marks, values or []
        self.arrays = arrays if arrays is not None else ArrayTable.of(Inner._fields, (), {})
        self.weights = weights if weights is not None else ArrayTable.of(Weight._fields, (), {})
        self.unfinished = unfinished if unfinished is not None else encode((), Unfinished._fields, {}, {})

    @classmethod
    def of(cls, events: Iterable[Event], marks: Iterable[Mark] = (), *, run: dict[str, Any] | None = None,
           clock: dict[str, Any] | None = None, values: list[dict[str, Any]] | None = None,
           arrays: Iterable[tuple[Inner, dict[str, Any]]] = (),
           weights: Iterable[tuple[Weight, dict[str, Any]]] = (),
           unfinished: Iterable[Unfinished] = ()) -> "Trace":
        """A trace of these events and marks; `run["ranks"]` is counted where it isn't given."""
        strings: dict[str, int] = {}
        shapes: dict[tuple[int, ...], int] = {}
        event_table = encode(events, Event._fields, strings, shapes)
        mark_table = encode(marks, Mark._fields, strings, shapes)
        array_table = ArrayTable.of(Inner._fields, arrays, strings)
        weight_table = ArrayTable.of(Weight._fields, weights, strings)
        lost = encode(unfinished, Unfinished._fields, strings, shapes)
        ranks = 1 + max(int(table["rank"].max(initial=0)) for table in (event_table, mark_table, lost))
        return cls({"ranks": ranks} | (run or {}), clock or {}, list(strings), list(shapes), event_table, mark_table,
                   values, array_table, weight_table, lost)

    @classmethod
    def join(cls, traces: Sequence["Trace"], run: dict[str, Any], clock: dict[str, Any]) -> "Trace":
        """The traces of several ranks as one, in the order given; their times must be on one clock already."""
        strings: dict[str, int] = {}
        shapes: dict[tuple[int, ...], int] = {}
        tables: list[tuple[Table, ...]] = []
        values, start, words_of = [], 0, []
        for trace in traces:
            words = {i: strings.setdefault(word, len(strings)) for i, word in enumerate(trace.strings)}
            words_of.append(words)
            sizes = {i: shapes.setdefault(shape, len(shapes)) for i, shape in enumerate(trace.shapes)}
            tables.append(tuple(renumber(table, words, sizes) for table in (trace.events, trace.marks,
                                                                            trace.unfinished)))
            values += [value | {"event": value["event"] + start} for value in trace.values]
            start += len(trace)
        events, marks, lost = ({name: np.concatenate([of_rank[i][name] for of_rank in tables]) for name in fields}
                               for i, fields in enumerate((Event._fields, Mark._fields, Unfinished._fields)))
        arrays, weights = (ArrayTable.join([getattr(trace, name) for trace in traces], words_of)
                           for name in ("arrays", "weights"))
        return cls(run, clock, list(strings), list(shapes), events, marks, values, arrays, weights, lost)

    # --- reading it ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.events["rank"])

    def __iter__(self) -> Iterator[Event]:
        return map(Event._make, zip(*row_columns(self.events, self.strings, self.shapes), strict=True))

    def event(self, number: int) -> Event:
        """One event; `list(trace)` is quicker for all of them."""
        one = {name: column[number:number + 1] for name, column in self.events.items()}
        return Event._make(column[0] for column in row_columns(one, self.strings, self.shapes))

    def mark_rows(self) -> list[Mark]:
        return list(map(Mark._make, zip(*row_columns(self.marks, self.strings, self.shapes), strict=True)))

    def unfinished_rows(self) -> list[Unfinished]:
        return list(map(Unfinished._make, zip(*row_columns(self.unfinished, self.strings, self.shapes), strict=True)))

    @property
    def ranks(self) -> list[int]:
        """The ranks that recorded anything."""
        return np.unique(np.concatenate([table["rank"] for table in (self.events, self.marks, self.unfinished)])
                         ).tolist()

    def words(self, column: str, table: str = "events") -> np.ndarray:
        """A column of words, as words (an array of objects); `table` is events, marks, unfinished, arrays, weights."""
        found = getattr(self, table)
        return np.array([*self.strings, ""], object)[getattr(found, "columns", found)[column]]

    def where(self, **wanted: Any) -> np.ndarray:
        """Which events have these values, as booleans: trace.where(rank=0, plane="data", step=3)."""
        chosen = np.ones(len(self), bool)
        for name, value in wanted.items():
            if name in WORDS:
                value = self.strings.index(value) if value in self.strings else -2
            elif name == "shape":
                value = self.shapes.index(value) if value in self.shapes else -2
            chosen &= self.events[name] == (-1 if value is None else value)
        return chosen

    @cached_property
    def _word(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.strings)}

    @cached_property
    def _values(self) -> dict[int, dict[str, Any]]:
        return {value["event"]: value for value in self.values}

    @property
    def row(self) -> int:
        """Which token of the first prompt is shown of its pass: the last; -1 where the header has no prompts."""
        prompts = self.run.get("prompts")
        first = prompts[0] if isinstance(prompts, list) and prompts and isinstance(prompts[0], list) else prompts
        return len(first) - 1 if isinstance(first, list) else -1

    def value(self, event: int) -> tuple[KeptArray | None, KeptArray | None]:
        """What event number `event` took and what it gave; None where nothing was kept."""
        value = self._values.get(event, {})
        source = value if value.get("after_of") is None else self._values.get(value["after_of"], {})
        before, after = (None if kept is None else KeptArray.of(kept, self.row)
                         for kept in (value.get("before"), source.get("after")))
        return before, after

    def array(self, rank: int, phase: str, step: int | None, site: str, name: str,
              micro_batch: int | None = None) -> KeptArray | None:
        """An array inside a layer: trace.array(0, "decode", 3, "layers.0.mlp", "h"); None where it wasn't kept."""
        return self.arrays.find(rank, (phase, step, site, name, micro_batch), self._word)

    def weight(self, rank: int, name: str) -> KeptArray | None:
        """The part of the parameter `name` that `rank` holds."""
        return self.weights.find(rank, (name,), self._word, row=0)

    # --- as a file ----------------------------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """What the file holds, as plain data."""
        plain = {"format": FORMAT, "version": VERSION, "run": self.run, "clock": self.clock, "strings": self.strings,
                 "shapes": [list(shape) for shape in self.shapes], "events": to_lists(self.events),
                 "marks": to_lists(self.marks)}
        return (plain | ({"unfinished": to_lists(self.unfinished)} if len(self.unfinished["rank"]) else {})
                | ({"values": self.values} if self.values else {})
                | {name: table.to_plain() for name, table in (("arrays", self.arrays), ("weights", self.weights))
                   if len(table)})

    def write(self, path: str | os.PathLike) -> None:
        """Write the file, gzipped where its name ends in .gz; whole, or not at all."""
        path = Path(path)
        data = self.to_bytes(zipped=path.suffix == ".gz")
        with replacing(path) as file:
            file.write(data)

    def to_bytes(self, *, zipped: bool = False) -> bytes:
        """What `write` writes."""
        data = text_of(self.to_plain()).encode()
        return gzip.compress(data, 6, mtime=0) if zipped else data

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Trace":
        """A trace file, checked in full; FileFormatError where it breaks a rule of the format."""
        try:
            return cls.from_plain(parsed(loaded(Path(path))))
        except FileFormatError as error:
            raise FileFormatError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, data: bytes, most: int = MAX_BYTES) -> "Trace":
        """The same for the bytes of such a file, which may hold at most `most` bytes of text when unpacked."""
        return cls.from_plain(parsed(unpacked(io.BytesIO(data), most)))

    @classmethod
    def from_plain(cls, plain: Any) -> "Trace":
        """The inverse of `to_plain`, for data from anywhere."""
        _check_header(plain)
        strings, shapes = strings_of(plain["strings"]), shapes_of(plain["shapes"])
        events = from_lists(plain["events"], "events", Event._fields, len(strings), len(shapes))
        marks = from_lists(plain["marks"], "marks", Mark._fields, len(strings), len(shapes))
        lost = from_lists(plain.get("unfinished", {name: [] for name in Unfinished._fields}), "unfinished",
                          Unfinished._fields, len(strings), len(shapes))
        for name, table in (("events", events), ("marks", marks), ("unfinished", lost)):
            _check_rows(name, table, plain["run"]["ranks"])
        values = checked_values(plain.get("values", []), len(events["rank"]))
        arrays, weights = (ArrayTable.checked(plain.get(name), name, fields, len(strings), plain["run"]["ranks"])
                           for name, fields in (("arrays", Inner._fields), ("weights", Weight._fields)))
        return cls(plain["run"], plain["clock"], strings, shapes, events, marks, values, arrays, weights, lost)


def _check_header(plain: Any) -> None:
    """That this is a trace of a version we can read, with all its parts."""
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise FileFormatError(f'this is JSON but no trace: a trace says "format": "{FORMAT}"')
    version = plain.get("version")
    if type(version) is not int or version != VERSION:
        newer = type(version) is int and version > VERSION
        raise FileFormatError(f"version {str(version)[:40]!r} of the trace format is not known; this minitp reads "
                              f"version {VERSION}" + (": update minitp" if newer else ""))
    missing = [key for key in ("run", "clock", "strings", "shapes", "events", "marks") if key not in plain]
    if missing:
        raise FileFormatError(f"it lacks {', '.join(f'`{key}`' for key in missing)}")
    for key in ("run", "clock"):
        if not isinstance(plain[key], dict):
            raise FileFormatError(f"`{key}` must be an object")
        if not _shallow(plain[key]):
            raise FileFormatError(f"the lists and objects in `{key}` lie more than {MAX_DEPTH} deep in one another")
    ranks = plain["run"].get("ranks")
    if type(ranks) is not int or not 1 <= ranks <= MAX_RANKS:
        raise FileFormatError(f"`run.ranks` must be a whole number from 1 to {MAX_RANKS:,}, not {str(ranks)[:40]!r}")
    for key in ("offset_ns", "error_ns"):
        numbers = plain["clock"].get(key, [0] * ranks)
        if not isinstance(numbers, list) or len(numbers) != ranks or not all(
                type(n) is int and abs(n) <= LARGEST for n in numbers):
            raise FileFormatError(f"`clock.{key}` must be a list of {ranks} whole numbers, one for each rank")


def _shallow(data: Any) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level if isinstance(outer, (dict, list))
                 for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return True
    return False


def _check_rows(name: str, table: Table, ranks: int) -> None:
    """What the columns must satisfy together."""
    for wrong, rule in ((table["rank"] >= ranks, f"its rank must be below run.ranks = {ranks}"),
                        (table["leave"] < table["enter"], "it leaves before it enters")):
        if wrong.any():
            raise FileFormatError(f"`{name}`, entry {int(np.argmax(wrong))}: {rule}")

