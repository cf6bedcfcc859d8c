"""Data files of the planner: TOML with arrays of tables, one table a row of the catalogue, checked strictly.

The same form is shipped, written by calibration and edited by hand. A key that isn't known, a value of the wrong kind
or a row without `source` is an error that names file and row: a number nobody can trace has no place in a plan.
"""
import tomllib
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from minitp.errors import ConfigError
from minitp.trace.wording import plain

Value = TypeVar("Value")
MOST_BYTES = 1 << 20
LONGEST = 4000                     # characters of a text
LONGEST_NAME = 100


NEEDED = object()
"""Stands for a default where there is none."""


class Entry:
    """One row as it is read: each value is taken by name once, and `done` refuses what nobody took."""

    def __init__(self, file: str, kind: str, number: int, values: dict[str, Any]):
        self.kind, self._values, self._taken = kind, values, set[str]()
        self.where = f"{file}: [[{kind}]] number {number}"
        name = values.get("name")
        if isinstance(name, str):
            self.where += f", {plain(name, 60)!r}"

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str, parse: Callable[[Any], Value], default: Any = NEEDED) -> Value:
        """The value of a key by its parser; the default where it isn't there, ConfigError where it must be."""
        self._taken.add(key)
        if key not in self._values:
            if default is NEEDED:
                raise self.error(f"{key} is missing")
            return default
        try:
            return parse(self._values[key])
        except (ConfigError, ValueError) as error:
            raise self.error(f"{key}: {error}") from None
        except (TypeError, OverflowError):
            raise self.error(f"{key} can't be {plain(repr(self._values[key]), 60)}") from None

    def text(self, key: str, default: Any = NEEDED) -> str:
        return self.take(key, _text, default)

    def source(self) -> str:
        """Who says so: never missing, never empty."""
        source = self.text("source")
        if not source:
            raise self.error("source is empty: say who says so, or that it is recalled and not checked")
        return source

    def over(self, base: "Entry | None") -> "Entry":
        """This row, with the values of another where it has none of its own."""
        inherited = {} if base is None else {key: value for key, value in base._values.items() if key != "name"}
        made = Entry("", self.kind, 0, {**inherited, **self._values})
        made.where, made._taken = self.where, set(self._taken)
        return made

    def tables(self, key: str) -> "list[Entry]":
        """The rows below this one, [[kind.key]]; none where there are none."""
        self._taken.add(key)
        return _entries(self.where, f"{self.kind}.{key}", self._values.get(key, []))

    def done(self) -> None:
        """ConfigError for a key that wasn't asked for."""
        for key in self._values:
            if key not in self._taken:
                near = get_close_matches(key, self._taken, 1)
                hint = f", did you mean {near[0]!r}?" if near else ";"
                raise self.error(f"unknown key {plain(key, 60)!r}{hint} there are {', '.join(sorted(self._taken))}")

    def error(self, message: str) -> ConfigError:
        return ConfigError(f"{self.where}: {message}")


def read(path: Path, *kinds: str) -> dict[str, list[Entry]]:
    """The rows of a file by kind; ConfigError for a file that can't be read, isn't TOML or has other tables."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{shown(path)} is no file: a description is one in TOML")
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{shown(path)} is longer than {MOST_BYTES:,} bytes: no description of machines or "
                              "models is")
        values = tomllib.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{shown(path)} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{shown(path)} is no TOML file: it isn't text in UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{shown(path)} is no TOML file: it is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{shown(path)} is no TOML file: {plain(error)}") from None
    unknown = [key for key in values if key not in kinds]
    if unknown:
        raise ConfigError(f"{shown(path)}: unknown table {plain(unknown[0], 60)!r}; there are "
                          + ", ".join(f"[[{kind}]]" for kind in kinds))
    return {kind: _entries(plain(path.name, 80), kind, values.get(kind, [])) for kind in kinds}


def named(entries: list[Entry]) -> Iterator[tuple[str, Entry]]:
    """Each row with its name; a name given twice is an error."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.text("name")
        if not name or name in seen:
            raise entry.error("the name is given twice" if name else "the name is empty")
        if len(name) > LONGEST_NAME:
            raise entry.error(f"the name has {len(name):,} characters, and {LONGEST_NAME} are the most")
        seen.add(name)
        yield name, entry


def whole(least: int = 1) -> Callable[[Any], int]:
    """A parser of whole numbers from `least` on."""
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 62:
            raise ValueError(f"must be a whole number of at least {least}, not {plain(repr(value), 60)}")
        return value
    return parse


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {plain(repr(value), 60)}")
    return value


def share(value: Any) -> float:
    """A parser of shares: above 0, up to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ValueError(f"must be a share between 0 and 1, not {plain(repr(value), 60)}")
    return float(value)


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of texts, not {plain(repr(value), 60)}")
    return tuple(map(_text, value))


def shown(path: Path) -> str:
    """A file's name as a message has it."""
    return plain(path, 200)


def unknown(what: str, name: str, there: list[str], also: str = "", *, part: str = "") -> ConfigError:
    """The error for a name that isn't there: near ones, and the part of `minitp plan catalogue` that lists all."""
    near = get_close_matches(name.lower(), there, 3, 0.5)
    hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ";"
    return ConfigError(f"no {what} {plain(name, 60)!r}{hint} `minitp plan catalogue {part or what + 's'}` lists all"
                       f"{also}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {plain(repr(value), 60)}")
    return plain(value, LONGEST)


def _entries(file: str, kind: str, values: Any) -> list[Entry]:
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise ConfigError(f"{file}: {kind} must be an array of tables, [[{kind}]]")
    return [Entry(file, kind, number + 1, row) for number, row in enumerate(values)]
