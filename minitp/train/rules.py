"""What a setting may be: rules that check a value and say in words what would work."""
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any, Protocol, TypeVar, runtime_checkable

from minitp.errors import ConfigError
from minitp.trace.wording import plain

S = TypeVar("S")


@runtime_checkable
class Rule(Protocol):
    """`what` says what a value must be; `allows` gives the value as it is kept, or None where it is refused."""

    @property
    def what(self) -> str: ...

    def allows(self, value: Any) -> Any: ...


@dataclass(frozen=True)
class Whole:
    """A whole number between two, both included."""
    least: int = 0
    most: int = 2**53

    @property
    def what(self) -> str:
        return f"a whole number of at least {self.least:,}" + ("" if self.most == 2**53 else f", at most {self.most:,}")

    def allows(self, value: Any) -> Any:
        return value if type(value) is int and self.least <= value <= self.most else None


@dataclass(frozen=True)
class Number:
    """A finite number from `least` on (or above it), up to `most` (or below it)."""
    least: float
    most: float = float("inf")
    above: bool = False
    below: bool = False

    @property
    def what(self) -> str:
        begin = f"a number {'above' if self.above else 'of at least'} {self.least:g}"
        end = "" if self.most == float("inf") else f" and {'below' if self.below else 'at most'} {self.most:g}"
        return begin + end

    def allows(self, value: Any) -> Any:
        if type(value) not in (int, float) or not finite(value):
            return None
        low = value > self.least if self.above else value >= self.least
        return float(value) if low and (value < self.most if self.below else value <= self.most) else None


def finite(value: float) -> bool:
    """Whether a whole number or a float is a finite float: whole numbers may be too large for one."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True)
class OneOf:
    """One of some words."""
    words: tuple[str, ...]

    @property
    def what(self) -> str:
        return " or ".join(filter(None, (", ".join(self.words[:-1]), self.words[-1])))

    def allows(self, value: Any) -> Any:
        return value if value in self.words else None


@dataclass(frozen=True)
class Text:
    what: str = "a text"
    empty: bool = False

    def allows(self, value: Any) -> Any:
        usable = isinstance(value, str) and (value or self.empty) and "\0" not in value and is_unicode(value)
        return value if usable else None


def is_unicode(text: str) -> bool:
    """A file's name or an option in another encoding comes as half characters, which no file of settings can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class Flag:
    what: str = "true or false"

    def allows(self, value: Any) -> Any:
        return value if type(value) is bool else None


def setting(default: Any, rule: Rule) -> Any:
    """A field of a section of settings; a default of None: it may be left out."""
    return field(default=default, metadata={"rule": rule})


def checked(section: type[S], name: str, values: Mapping[str, Any]) -> S:
    """`section` made from `values`; ConfigError for a key that it hasn't, or a value that its rule refuses.

    A field called `from_` is the key `from`, which Python keeps for itself.
    """
    known: dict[str, Field] = {f.name.rstrip("_"): f for f in fields(section)}          # type: ignore[arg-type]
    kept = {}
    for key, value in values.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f", did you mean {near[0]}?" if near else ";"
            raise ConfigError(f"[{name}] has no setting {plain(key, 40)!r}{hint} it has {', '.join(known)}")
        kept[known[key].name] = allowed(known[key], name, value)
    return section(**kept)


def allowed(setting: Field, section: str, value: Any) -> Any:
    """`value` as it is kept. None stands for a setting that was left out, where it may be."""
    if value is None and setting.default is None and setting.default is not MISSING:
        return None
    rule = setting.metadata["rule"]
    kept = rule.allows(value)
    if kept is None:
        raise ConfigError(f"[{section}] {setting.name.rstrip('_')} must be {rule.what}, not {plain(repr(value), 60)}")
    return kept
