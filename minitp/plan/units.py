"""Bytes, rates, times and counts as text, read and written. Nothing else in the planner parses a unit.

GB is 10⁹ bytes and GiB 2³⁰, always: most tables that seem to be 7 % off print one and mean the other. A small b is a
bit, eight to the byte; where a text leaves open which is meant it is refused, not guessed.
"""
import re
from decimal import Decimal
from math import isfinite
from typing import Any

from minitp.errors import ConfigError
from minitp.trace.wording import duration as short_duration
from minitp.trace.wording import plain

PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
"""Prefix → how many factors of 1000, or of 1024 with an i behind it."""
COUNTS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12, "P": 10**15}
TIMES = {unit: Decimal(seconds) for unit, seconds in (
    ("ns", "1e-9"), ("us", "1e-6"), ("µs", "1e-6"), ("μs", "1e-6"), ("ms", "1e-3"), ("s", "1"), ("sec", "1"),
    ("min", "60"), ("h", "3600"), ("hour", "3600"), ("hours", "3600"), ("d", "86400"), ("day", "86400"),
    ("days", "86400"), ("year", "31557600"), ("years", "31557600"))}
MOST = 10**30
"""Above this nothing is meant that the planner could plan; a text with a huge exponent ends here."""

_NUMBER = re.compile(r"([0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,3})?)\s{0,3}([^\s0-9.].{0,20})?", re.ASCII)
_BYTES = re.compile(r"(?:([kmgtpe])(i?))?(b|bytes?)", re.ASCII | re.IGNORECASE)
_RATE = re.compile(r"([kKMGTPE]?)(i?)(B|b|bit|Bytes?|bytes?)(/s|ps)", re.ASCII)
_BITS = re.compile(r"[kKMGTPE]i?(b|bits?)", re.ASCII)
_FLOPS = re.compile(r"([kKMGTPE]?)(?:FLOP/s|FLOPS|FLOPs)", re.ASCII)


def parse_bytes(text: Any) -> int:
    """"80 GB" → 80,000,000,000; "80 GiB" → 85,899,345,920; a plain number is bytes. ConfigError with what works."""
    rule = "write a number and B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024): 80GB, 80 GiB"
    number, unit = _split(text, "size in bytes", rule)
    if _BITS.fullmatch(unit):
        raise _bad(text, "size in bytes", f"a small b is a bit; {rule}")
    found = _BYTES.fullmatch(unit or "B")
    if not found:
        raise _bad(text, "size in bytes", rule)
    return _whole(number * _factor(found[1], found[2] or ""), text)


def parse_rate(text: Any) -> float:
    """"25 GB/s" → 25e9, "200 Gb/s" and "200 Gbps" → 25e9 (bits); a plain number is bytes per second."""
    rule = "write bytes as 25GB/s or 25 GiB/s, bits as 200Gb/s or 200 Gbit/s"
    number, unit = _split(text, "rate", rule)
    found = _RATE.fullmatch(unit or "B/s")
    if not found:
        raise _bad(text, "rate", rule)
    bits = found[3] in ("b", "bit")
    return float(number * _factor(found[1], found[2]) / (8 if bits else 1))


def parse_seconds(text: Any) -> float:
    """"5us", "1.5 ms", "34 days" → seconds; a plain number is seconds."""
    rule = f"write a number and one of {', '.join(TIMES)}: 5us, 34 days"
    number, unit = _split(text, "time", rule)
    if (unit or "s") not in TIMES:
        raise _bad(text, "time", rule)
    return float(number * TIMES[unit or "s"])


def parse_count(text: Any) -> int:
    """"300e9", "300B", "1.5T" → a whole number (of tokens, parameters): here B is a billion."""
    rule = "write a whole number, or one with k, M, B (10⁹), T (10¹²): 300e9, 300B, 1.5T"
    number, unit = _split(text, "count", rule)
    if unit not in COUNTS:
        raise _bad(text, "count", rule)
    exact = number * COUNTS[unit]
    if exact != int(exact):
        raise _bad(text, "count", f"that is no whole number; {rule}")
    return int(exact)


def parse_flops(text: Any) -> float:
    """"312 TFLOP/s" → 312e12; a plain number is FLOP per second."""
    rule = "write a number and GFLOP/s, TFLOP/s or PFLOP/s: 312 TFLOP/s"
    number, unit = _split(text, "computing rate", rule)
    found = _FLOPS.fullmatch(unit or "FLOP/s")
    if not found:
        raise _bad(text, "computing rate", rule)
    return float(number * _factor(found[1], ""))


def both(size: float) -> str:
    """Bytes in units of 1000 and of 1024: "349.2 GB (325.2 GiB)". Below 1,000 bytes the count itself."""
    if abs(size) < 1000:
        return f"{size:,.0f} B"
    power = _power(size, 1)
    prefix = "kMGTPE"[power - 1]
    binary = prefix.upper() + "iB"
    digits = 1 if abs(size) >= 10 * 1000**power else 2
    return f"{size / 1000**power:,.{digits}f} {prefix}B ({size / 1024**power:,.{digits}f} {binary})"


def duration(seconds: float) -> str:
    """"22 µs", "1.5 ms", "12.3 min", "34 days": three digits and the unit in which one thinks of it."""
    if not isfinite(seconds):
        return "never"
    for factor, unit, most in ((60.0, "min", 100.0), (3600.0, "hours", 48.0), (86400.0, "days", 1000.0)):
        if seconds < 100:
            return short_duration(1e9 * seconds)
        if seconds < most * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{_three(seconds / float(TIMES['years']))} years"


def seconds_in(seconds: float) -> str:
    """"16.33 ms", "6.172 s": four digits, of minutes and hours all the seconds, to be put into a formula."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:,.4g} {unit}" if seconds < 9999.5 else f"{seconds:,.0f} s"
    return f"{seconds * 1e6:.4g} µs"


def rate(bytes_per_s: float) -> str:
    """"25 GB/s": three digits, powers of 1000."""
    return f"{_short(bytes_per_s, 'kMGTPE')}B/s"


def flops(per_s: float) -> str:
    """"312 TFLOP/s"."""
    return f"{_short(per_s, 'kMGTPE')}FLOP/s"


def count(number: float) -> str:
    """Parameters or tokens: "405.9 B" is a billion as in the names of models; below a million all digits."""
    if abs(number) < 10**6:
        return f"{number:,.0f}"
    for factor, letter in ((10**6, "M"), (10**9, "B")):
        if abs(number) < 999.95 * factor:
            return f"{number / factor:.1f} {letter}"
    return f"{number / 10**12:,.1f} T"


def percent(share: float) -> str:
    """A share of 1 in percent, with two digits at the least: "0.52 %", "43 %", "100 %"."""
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def _split(text: Any, what: str, rule: str) -> tuple[Decimal, str]:
    """The number, exactly, and what stands behind it."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise _bad(text, what, rule)
    if not isinstance(text, str):
        if not 0 <= text <= MOST:                                     # NaN fails too
            raise _bad(text, what, f"it must be 0 or more, and finite; {rule}")
        return Decimal(str(text)), ""
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        raise _bad(text, what, rule)
    number = Decimal(found[1])
    if number > MOST:
        raise _bad(text, what, f"that is more than there is; {rule}")
    return number, (found[2] or "").strip()


def _factor(prefix: str | None, binary: str | None) -> int:
    return (1024 if binary else 1000) ** PREFIXES[(prefix or "").lower()]


def _whole(number: Decimal, text: object) -> int:
    if number > MOST:
        raise _bad(text, "size in bytes", "that is more than there is")
    return int(number.to_integral_value())


def _power(size: float, least: int) -> int:
    """The power of 1000 in whose unit a size is read; one that would round up to 1,000 goes a unit further."""
    power = least
    while power < 6 and abs(size) >= 999.95 * 1000**power:
        power += 1
    return power


def _short(number: float, prefixes: str) -> str:
    power = 0
    while power < len(prefixes) and abs(number) >= 999.5 * 1000**power:
        power += 1
    scaled = number / 1000**power
    return f"{_three(scaled)} {prefixes[power - 1] if power else ''}"


def _three(number: float) -> str:
    return f"{number:.3g}" if abs(number) < 999.5 else f"{number:,.0f}"


def _bad(text: object, what: str, rule: str) -> ConfigError:
    return ConfigError(f"{plain(text, 60)!r} is no {what}: {rule}")
