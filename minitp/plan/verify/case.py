"""One row of a file of published values, and the file's reader.

Every text comes from outside: numbers are read by one small grammar, and what can't be read is said with its line.
"""
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from minitp.errors import ConfigError
from minitp.plan import units
from minitp.trace.wording import plain

REQUIRED = ("case_id", "kind", "quantity", "inputs", "published_value", "unit", "tolerance")
OPTIONAL = ("source", "model", "note")
KINDS = ("formula", "known_disagreement", "catalogue", "measured")
MOST_BYTES = 64 * 2**20
MOST, MOST_PARTS = 10**15, 1024

_NUMBER = re.compile(r"([+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?)(?:/([0-9]{1,20}))?(.*)", re.DOTALL)
_WHEN = re.compile(r"(.+?)\s+if\s+([a-z_]+)\s*(>=|<=|>|<|==|=)\s*(\S+)")


class CaseError(ConfigError):
    """A row that can't be judged: what is wrong with it, and what would work."""


def ambiguous(what: str, work: str) -> CaseError:
    """Neither the inputs nor the row's name tell which of several values is meant."""
    return CaseError(f"ambiguous: {what}? Neither the inputs nor the row's name tell: {work}")


def number(text: str, what: str = "a value") -> float:
    """"1e6", "250k", "4GiB", "1/3", "50%", "64 TPUv4", "2048 tok" → the number; CaseError otherwise.

    What stands behind a blank and is no unit is a remark. "7B" is seven billion; bytes are never written so.
    """
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        raise CaseError(f"{what} is {plain(text, 40)!r}, which doesn't begin with a number")
    value, divisor, rest = float(found[1]), float(found[2] or 1), found[3]
    worth = _worth(rest.strip())
    if worth is None and not rest.startswith(" "):
        raise CaseError(f"{what} is {plain(text, 40)!r}: {plain(rest.strip(), 20)!r} is no unit; a blank goes before a "
                        "remark")
    if not divisor:
        raise CaseError(f"{what} is {plain(text, 40)!r}, a fraction of nothing")
    value = value / divisor * (1.0 if worth is None else worth)
    if not isfinite(value):
        raise CaseError(f"{what} is {plain(text, 40)!r}, which is not finite")
    return value


def _worth(unit: str) -> float | None:
    """What stands behind a number: a percent, a count (k, M, B, T) or bytes; None where it is none of these."""
    if unit == "%":
        return 0.01
    if unit in units.COUNTS:
        return float(units.COUNTS[unit])
    try:
        return float(units.parse_bytes(f"1 {unit}"))
    except ConfigError:
        return None


@dataclass
class Inputs:
    """`key=value;…` of a row, read when asked for; `used` collects the keys that a formula asked for, `open` those
    whose condition is being read."""
    texts: dict[str, str]
    used: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, text: str) -> "Inputs":
        """CaseError for a part without `=` and for a key that comes twice."""
        texts: dict[str, str] = {}
        for part in filter(None, map(str.strip, text.split(";"))):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or not key or not value:
                raise CaseError(f"the input {plain(part, 40)!r} isn't of the form key=value")
            if key in texts:
                raise CaseError(f"the input {plain(key, 40)!r} is given twice")
            texts[key] = value
        return cls(texts)

    def __contains__(self, key: str) -> bool:
        return key in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def has(self, *keys: str) -> bool:
        return all(key in self.texts for key in keys)

    def text(self, key: str, default: str = "") -> str:
        self.used.add(key)
        return self.texts.get(key, default)

    def number(self, *keys: str, default: float | None = None) -> float:
        """The first of `keys` that is given, 0 or more; CaseError where none is and there is no default."""
        for key in keys:
            if key in self.texts:
                self.used.add(key)
                return self._number(key)
        if default is None:
            raise CaseError(f"the input {' or '.join(keys)} is missing")
        return default

    def positive(self, *keys: str, default: float | None = None) -> float:
        """The same, above 0: what is divided by."""
        value = self.number(*keys, default=default)
        if not value > 0:
            raise CaseError(f"{' or '.join(keys)} must be above 0, got {value:g}")
        return value

    def share(self, *keys: str, default: float | None = None) -> float:
        """The same, above 0 and up to 1: a part of a peak or of a memory."""
        value = self.positive(*keys, default=default)
        if value > 1:
            raise CaseError(f"{' or '.join(keys)} is a share of 1 or less (or {value:g}%), got {value:g}")
        return value

    def whole(self, *keys: str, default: int | None = None) -> int:
        """The same, a whole number of 1 or more: degrees and counts."""
        value = self.number(*keys, default=default)
        if value != int(value) or not 1 <= value <= MOST:
            raise CaseError(f"{' or '.join(keys)} must be a whole number of 1 or more, got {value:g}")
        return int(value)

    def degree(self, key: str, default: int = 1) -> int:
        """The same, of something that is counted through: tp, pp, layers, heads."""
        value = self.whole(key, default=default)
        if value > MOST_PARTS:
            raise CaseError(f"{key} is {value:,}; cases are planned up to {MOST_PARTS:,}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        text = self.text(key, "1" if default else "0").lower()
        if text not in ("0", "1", "true", "false", "yes", "no"):
            raise CaseError(f"{key} is 0 or 1, got {plain(text, 20)!r}")
        return text in ("1", "true", "yes")

    def _number(self, key: str) -> float:
        text = self.texts[key]
        if found := _WHEN.fullmatch(text.strip()):             # "22 if tp>1": the value holds on a condition, else 0
            if key in self.open:
                raise CaseError(f"the condition of {plain(key, 40)} goes in a circle: {plain(text, 60)!r}")
            self.open.add(key)
            try:
                text = found[1] if self._holds(found[2], found[3], found[4]) else "0"
            finally:
                self.open.discard(key)
        value = number(text, key)
        if value < 0:
            raise CaseError(f"{key} must be 0 or more, got {value:g}")
        return value

    def _holds(self, key: str, relation: str, bound: str) -> bool:
        value, limit = self.number(key, default=1), number(bound, key)
        return {">": value > limit, "<": value < limit, ">=": value >= limit, "<=": value <= limit,
                "=": value == limit, "==": value == limit}[relation]


@dataclass(frozen=True)
class Case:
    """A published value: what was printed, in which unit, for which inputs.

    tolerance   relative to the published value; None where a measured row has none
    """
    line: int
    id: str
    kind: str
    source: str
    model: str
    quantity: str
    inputs: Inputs
    published: float
    unit: str
    tolerance: float | None
    note: str = ""

    assumed: list[str] = field(default_factory=list, compare=False)
    """What decided and isn't an input: told with the outcome."""

    def says(self, *words: str) -> bool:
        """Whether the row's id has one of these as a word (or words, joined by _ ), or its scheme, case or variant.

        Some tables' rows differ in nothing but the row's name: "optimizer offloaded", "full recompute". What the id
        decides is kept in `assumed`.
        """
        told = next((word for word in words if any(_has(self.inputs.text(key), word) for key in NAMING)), None)
        if told is None and (word := next((word for word in words if _has(self.id, word)), None)):
            self.assume(f"{word.replace('_', ' ')} (from the row's name)")
        return told is not None or any(_has(self.id, word) for word in words)

    def assume(self, what: str) -> None:
        """Notes what no input tells and the outcome depends on, once."""
        if what not in self.assumed:
            self.assumed.append(what)

    def fresh(self) -> "Case":
        """The same row, of which nothing was read or assumed yet."""
        return replace(self, inputs=Inputs(dict(self.inputs.texts)), assumed=[])


def _has(text: str, word: str) -> bool:
    return f"_{word}_" in "_" + re.sub(r"[^a-z0-9]+", "_", text.lower()) + "_"


NAMING = ("scheme", "case", "variant")
"""Inputs in which a row may say by name which of its table's rows it is."""


@dataclass(frozen=True)
class Unreadable:
    """A row that is no case: it counts as a miss, the others are judged."""
    line: int
    id: str
    reason: str


def read_cases(path: Path) -> list[Case | Unreadable]:
    """Every row of a CSV file in the columns above. ConfigError where the file as a whole is none."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path} has more than {MOST_BYTES // 2**20} MiB: that is no file of cases")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} isn't text in UTF-8: a CSV file of cases is needed") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror or error}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        check_header(path, header)
        return [_row(header, cells, reader.line_num) for cells in reader if any(map(str.strip, cells))] or _none(path)
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: {error}") from None


def _none(path: Path) -> list[Case | Unreadable]:
    raise ConfigError(f"{path} has a header and no case below it")


def check_header(path: Path, header: list[str]) -> None:
    """ConfigError for a file without the columns, or with one of them twice."""
    if not any(header):
        raise ConfigError(f"{path} is empty: a CSV file with the columns {', '.join(REQUIRED)} is needed")
    missing = [name for name in REQUIRED if name not in header]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if missing or twice:
        what = f"lacks the column(s) {', '.join(missing)}" if missing else f"has the column(s) {', '.join(twice)} twice"
        raise ConfigError(f"{path} {what}; a file of cases has {', '.join(REQUIRED)}, and may have "
                          f"{', '.join(OPTIONAL)}")


def _row(header: list[str], cells: list[str], line: int) -> Case | Unreadable:
    values = dict(zip(header, map(str.strip, cells), strict=False))
    name = plain(values.get("case_id", ""), 80) or f"line {line}"
    try:
        if len(cells) != len(header):
            raise CaseError(f"it has {len(cells)} cells, the header {len(header)}: a comma or quote too many or few?")
        if not values["case_id"]:
            raise CaseError("it has no case_id")
        if values["kind"] not in KINDS:
            raise CaseError(f"the kind {plain(values['kind'], 40)!r} isn't known; there are {', '.join(KINDS)}")
        return Case(line, name, values["kind"], values.get("source", ""), values.get("model", ""), values["quantity"],
                    Inputs.parse(values["inputs"]), _cell(values, "published_value"), values["unit"],
                    _tolerance(values), values.get("note", ""))
    except CaseError as error:
        return Unreadable(line, name, str(error))


def _cell(values: dict[str, str], column: str) -> float:
    try:
        value = float(values[column])
    except ValueError:
        raise CaseError(f"{column} is {plain(values[column], 40)!r}, which is no number") from None
    if not isfinite(value):
        raise CaseError(f"{column} is {values[column]!r}, which is not finite")
    return value


def _tolerance(values: dict[str, str]) -> float | None:
    if not values["tolerance"] and values["kind"] == "measured":
        return None
    tolerance = _cell(values, "tolerance")
    if tolerance < 0:
        raise CaseError(f"the tolerance is {tolerance:g}; it must be 0 or more")
    return tolerance
