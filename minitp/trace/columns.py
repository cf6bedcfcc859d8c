"""Rows to columns and back: tables of whole numbers, with words and shapes kept once and referred to by number.

In memory a column is a NumPy array of int64 in which -1 stands for null; `broken` is one of booleans. What comes from
a file is checked here, entry by entry: a message names the table, the column and the entry.
"""
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from minitp.errors import FileFormatError
from minitp.trace.schema import MAY_BE_NULL, WORDS

Table = dict[str, np.ndarray]
LARGEST = 2**53 - 1                # the largest whole number that JSON carries exactly everywhere; ns: 104 days


def encode(rows: Iterable[tuple], fields: tuple[str, ...], strings: dict[str, int],
           shapes: dict[tuple[int, ...], int]) -> Table:
    """The columns of `rows`; words and shapes that are new are added to `strings` and `shapes`."""
    rows = list(rows)
    table = {}
    for name, column in zip(fields, zip(*rows, strict=True) if rows else [()] * len(fields), strict=True):
        numbers: Iterable[int] = column
        if name in WORDS:
            numbers = [strings.setdefault(word, len(strings)) for word in column]
        elif name == "shape":
            numbers = [shapes.setdefault(tuple(shape), len(shapes)) for shape in column]
        elif name in MAY_BE_NULL:
            numbers = [-1 if number is None else number for number in column]
        table[name] = np.array(numbers, bool if name == "broken" else np.int64)
    return table


def to_lists(table: Table) -> dict[str, list]:
    """The columns as a file has them: null for -1."""
    return {name: [None if n < 0 else n for n in column.tolist()] if name in MAY_BE_NULL else column.tolist()
            for name, column in table.items()}


def row_columns(table: Table, strings: list[str], shapes: list[tuple[int, ...]]) -> list[list]:
    """The columns with words and shapes put back in: zipped, they are the rows."""
    lists = to_lists(table)
    for name, column in lists.items():
        if name in WORDS:
            lists[name] = [strings[number] for number in column]
        elif name == "shape":
            lists[name] = [shapes[number] for number in column]
    return list(lists.values())


def from_lists(given: Any, table: str, fields: tuple[str, ...], strings: int, shapes: int,
               free: tuple[str, ...] = ()) -> Table:
    """The columns of a file, checked; columns that minitp doesn't know are ignored, but must have the same length.

    The columns `free` must be there too; what they hold is the caller's to check.
    """
    if not isinstance(given, dict) or not all(isinstance(column, list) for column in given.values()):
        raise FileFormatError(f"`{table}` must be an object of lists, one per column")
    missing = [name for name in fields if name not in given]
    if missing:
        raise FileFormatError(f"`{table}` lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: version 1 "
                              f"of the format has all of {', '.join(fields)}")
    lengths = {name: len(column) for name, column in given.items()}
    if len(set(lengths.values())) > 1:
        name = next(name for name, length in lengths.items() if length != lengths[fields[0]])
        raise FileFormatError(f"the columns of `{table}` must have one length: `{fields[0]}` has "
                              f"{lengths[fields[0]]:,} entries, {name[:40]!r} {lengths[name]:,}")
    return {name: _column(given[name], table, name, strings, shapes) for name in fields if name not in free}


def _column(given: list, table: str, name: str, strings: int, shapes: int) -> np.ndarray:
    if name == "broken":
        _check_types(given, (bool,), table, name, "true or false")
        return np.array(given, bool)
    null = name in MAY_BE_NULL
    top, of = ((strings - 1, "of `strings`") if name in WORDS else
               (shapes - 1, "of `shapes`") if name == "shape" else (LARGEST, "small enough for JSON"))
    rule = f"a whole number {of}, 0…{top}" + " or null" * null
    _check_types(given, (int, type(None)) if null else (int,), table, name, rule)
    try:
        column = np.array([-1 if n is None else n for n in given] if null else given, np.int64)
    except OverflowError:
        column = np.array([0 if n is None or 0 <= n <= top else -2 for n in given], np.int64)
    wrong = (column > top) | (column < 0)
    if null:
        wrong &= np.array([n is not None for n in given], bool)
    if wrong.any():
        entry = int(np.argmax(wrong))
        raise FileFormatError(f"`{table}.{name}`, entry {entry}, is {str(given[entry])[:40]}: it must be {rule}")
    return column


def _check_types(given: list, types: tuple[type, ...], table: str, name: str, rule: str) -> None:
    if not set(map(type, given)) <= set(types):
        entry = next(i for i, n in enumerate(given) if type(n) not in types)
        raise FileFormatError(f"`{table}.{name}`, entry {entry}, is {str(given[entry])[:40]!r}: it must be {rule}")


def strings_of(given: Any) -> list[str]:
    """The list `strings` of a file."""
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise FileFormatError("`strings` must be a list of strings")
    return given


def shapes_of(given: Any) -> list[tuple[int, ...]]:
    """The list `shapes` of a file."""
    if not isinstance(given, list) or not all(is_shape(shape) for shape in given):
        raise FileFormatError(f"`shapes` must be a list of lists of at most 32 whole numbers, each 0…{LARGEST}")
    return [tuple(shape) for shape in given]


def is_shape(given: Any) -> bool:
    return (isinstance(given, list) and len(given) <= 32
            and all(type(n) is int and 0 <= n <= LARGEST for n in given))


def renumber(table: Table, strings: Mapping[int, int], shapes: Mapping[int, int]) -> Table:
    """The same table where word i is now word strings[i], and shape i shape shapes[i]: for joining tables."""
    maps = {True: np.array([strings[i] for i in range(len(strings))], np.int64),
            False: np.array([shapes[i] for i in range(len(shapes))], np.int64)}
    return {name: maps[name in WORDS][column] if name in WORDS or name == "shape" else column
            for name, column in table.items()}
