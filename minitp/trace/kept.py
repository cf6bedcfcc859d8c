"""The arrays of a trace file: checked as if a stranger had sent them, joined over the ranks, and looked up.

What is kept of an array, and in which words, says `minitp.trace.schema`.
"""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.errors import FileFormatError
from minitp.trace.columns import Table, encode, from_lists, is_shape, renumber, to_lists
from minitp.trace.schema import WORDS
from minitp.trace.values import FIRST, token

if TYPE_CHECKING:
    from minitp.trace.file import Trace


@dataclass(frozen=True)
class KeptArray:
    """What a trace holds of one array.

    shape   of the array (of its token `row` alone, where that is a number)
    cells   (rows, columns) float64: its numbers, its leading axes as rows; or, not `whole`, the largest magnitude of
            each block of `block` = (rows, columns) numbers. NaN where a number wasn't finite; (0, 0) where it is empty
    token   the row of `cells` that a picture shows: of a batch of prompts, the first one's last token
    first   the exact first numbers of that row, up to four; of maxima, as far as the trace has them
    """
    shape: tuple[int, ...]
    whole: bool
    cells: np.ndarray
    block: tuple[int, int]
    token: np.ndarray
    first: tuple[float, ...]
    row: int | None = None

    @classmethod
    def of(cls, plain: Mapping[str, Any], row: int = -1) -> "KeptArray":
        """From what `is_kept` has approved; `row`: which token of the first sequence is shown, -1: the last one."""
        shape, whole = tuple(plain["shape"]), "data" in plain
        block = (1, 1) if whole else _block(plain["block"])
        cells = np.array(plain["data" if whole else "maxima"], float)            # None becomes NaN
        cells = cells.reshape(-1, -(-shape[-1] // block[1]) if shape else 1) if cells.size else cells.reshape(0, 0)
        several = whole and len(shape) > 1 and cells.size > 0
        shown = cells[token(row, shape[-2]) if several else -1] if cells.size else cells.reshape(0)
        first = shown[:FIRST] if whole else np.array(plain.get("first", []), float)
        return cls(shape, whole, cells, block, shown, tuple(first.tolist()), plain.get("row"))


def _block(block: int | list[int]) -> tuple[int, int]:
    return (1, block) if isinstance(block, int) else (block[0], block[1])


@dataclass(frozen=True)
class ArrayTable:
    """The section `arrays` or `weights`: columns as the events have them, and what is kept of each array."""
    fields: tuple[str, ...]
    columns: Table
    kept: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, fields: tuple[str, ...], rows: Iterable[tuple[tuple, dict[str, Any]]], strings: dict[str, int]
           ) -> "ArrayTable":
        """From (the columns' entries, what is kept) per array; words that are new are added to `strings`."""
        rows = list(rows)
        return cls(fields, encode([of for of, _ in rows], fields, strings, {}), [kept for _, kept in rows])

    @classmethod
    def checked(cls, given: Any, name: str, fields: tuple[str, ...], strings: int, ranks: int) -> "ArrayTable":
        """From a file; absent, it is empty."""
        if given is None:
            return cls.of(fields, (), {})
        if isinstance(given, dict) and isinstance(given.get("rank"), list):
            given = {"micro_batch": [None] * len(given["rank"])} | given          # older files have no such column
        columns = from_lists(given, name, (*fields, "array"), strings, 0, free=("array",))
        kept = given["array"]
        wrong = next((i for i, array in enumerate(kept) if array is None or not is_kept(array)), None)
        if wrong is not None:
            raise FileFormatError(f"`{name}.array`, entry {wrong}: it must be {KEPT_RULE}")
        if (columns["rank"] >= ranks).any():
            raise FileFormatError(f"`{name}`, entry {int(np.argmax(columns['rank'] >= ranks))}: its rank must be below "
                                  f"run.ranks = {ranks}")
        return cls(fields, columns, kept)

    @classmethod
    def join(cls, tables: Sequence["ArrayTable"], words: Sequence[Mapping[int, int]]) -> "ArrayTable":
        """The tables of several ranks as one; words[i] renumbers the words of table i.

        What a rank has as the first rank has it is left out: an array that is whole on every rank is there once.
        """
        seen: dict[tuple, dict[str, Any]] = {}
        columns = {name: np.concatenate([renumber(table.columns, w, {})[name]
                                         for table, w in zip(tables, words, strict=True)]) for name in tables[0].fields}
        kept = [array for table in tables for array in table.kept]
        keys = zip(*(columns[name].tolist() for name in tables[0].fields if name != "rank"), strict=True)
        stays = [seen.setdefault(key, array) is array or seen[key] != array
                 for key, array in zip(keys, kept, strict=True)]
        return cls(tables[0].fields, {name: column[np.array(stays, bool)] for name, column in columns.items()},
                   [array for array, stay in zip(kept, stays, strict=True) if stay])

    def __len__(self) -> int:
        return len(self.kept)

    def to_plain(self) -> dict[str, list]:
        return {**to_lists(self.columns), "array": self.kept}

    @cached_property
    def _numbers(self) -> dict[tuple, dict[int, int]]:
        """What the other columns say → rank → number of the entry."""
        found: dict[tuple, dict[int, int]] = {}
        ranks = self.columns["rank"].tolist()
        others = (self.columns[name].tolist() for name in self.fields if name != "rank")
        for number, (rank, *key) in enumerate(zip(ranks, *others, strict=True)):
            found.setdefault(tuple(key), {}).setdefault(rank, number)
        return found

    def find(self, rank: int, wanted: Sequence[Any], word: Mapping[str, int], row: int = -1) -> KeptArray | None:
        """The array of `rank`, or that of the first rank that has one: what is the same is kept once."""
        names = [name for name in self.fields if name != "rank"]
        key = tuple(word.get(value, -2) if name in WORDS else -1 if value is None else value
                    for name, value in zip(names, wanted, strict=True))
        of_ranks = self._numbers.get(key)
        return None if of_ranks is None else KeptArray.of(self.kept[of_ranks.get(rank, min(of_ranks.values()))], row)


KEPT_RULE = "{shape, data}, or {shape, block, maxima, first}, and as many numbers as they say"


def checked_values(values: Any, events: int) -> list[dict[str, Any]]:
    """The section `values` of a file."""
    if not isinstance(values, list):
        raise FileFormatError("`values` must be a list")
    for number, value in enumerate(values):
        if not (isinstance(value, dict) and _is_event(value.get("event"), events)
                and (value.get("after_of") is None or _is_event(value["after_of"], events))
                and all(value.get(key) is None or is_kept(value[key]) for key in ("before", "after"))):
            raise FileFormatError(f"`values`, entry {number}: it must be {{event, before, after}}, the number of an "
                                  f"event and two arrays, each null or {KEPT_RULE}")
    return values


def _is_event(number: Any, events: int) -> bool:
    return type(number) is int and 0 <= number < events


def is_kept(array: Any) -> bool:
    """Whether this is what `minitp.trace.values` makes of an array."""
    if not isinstance(array, dict) or not is_shape(array.get("shape")):
        return False
    if array.get("row") is not None and not (type(array["row"]) is int and 0 <= array["row"] <= 2**53):
        return False
    shape, size = array["shape"], prod(array["shape"])
    if "data" in array:
        return _are_numbers(array["data"], size)
    first = array.get("first", [])
    if not shape or not size or not isinstance(first, list) or not _are_numbers(first, min(len(first), FIRST)):
        return False
    block = array.get("block")
    if isinstance(block, list):
        if len(block) != 2 or len(shape) != 2 or not all(type(n) is int and n >= 1 for n in block):
            return False
        return _are_numbers(array.get("maxima"), prod(-(-n // b) for n, b in zip(shape, block, strict=True)))
    return (type(block) is int and block >= 1
            and _are_numbers(array.get("maxima"), size // shape[-1] * -(-shape[-1] // block)))


def _are_numbers(data: Any, size: int) -> bool:
    if not isinstance(data, list) or len(data) != size:
        return False
    types = set(map(type, data))
    return types <= {int, float, type(None)} and (int not in types or all(abs(n) <= 2**64 for n in data
                                                                          if type(n) is int))


def named_tokens(trace: "Trace") -> list[int]:
    """The ids of the tokens that a picture may name: those read, the targets, any rank's best."""
    names = [trace.strings.index(name) for name in ("best_ids", "id", "targets") if name in trace.strings]
    kept = (trace.arrays.kept[i] for i in np.flatnonzero(np.isin(trace.arrays.columns["name"], names)))
    return sorted({int(token) for array in kept for token in array.get("data", [])
                   if token is not None and token >= 0})


def once(values: Iterable[dict[str, Any]], sync: np.ndarray) -> list[dict[str, Any]]:
    """The values with what a collective gave to every rank kept once: `after_of` is the event that has it."""
    first: dict[int, dict[str, Any]] = {}
    made = []
    for value in values:
        if value["after"] is not None:
            source = first.setdefault(int(sync[value["event"]]), value)
            if source is not value and source["after"] == value["after"]:
                value = {"event": value["event"], "before": value["before"], "after_of": source["event"]}
        made.append(value)
    return made
