"""The units in which sources print: what a text such as "GiB (printed GB)" is worth.

A quantity is planned in bytes, seconds, FLOP, FLOP/s, bytes/s, tokens/s, device hours, a share of 1, or a count. GB is
10⁹ bytes and GiB 2³⁰ as everywhere; a remark in brackets changes nothing, except "(1e9)", which must agree.
"""
import re

from minitp.plan.verify.case import CaseError
from minitp.trace.wording import plain

PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
         "hours": 3600.0, "days": 86400.0, "day": 86400.0, "d": 86400.0, "ms/token": 1e-3, "ms/tok": 1e-3}
SHARES = {"percent": 0.01, "%": 0.01, "ratio": 1.0, "fraction": 1.0, "x": 1.0, "": 1.0}
COUNTS = {**PREFIXES, **BINARY, "B": 1e9, "m": 1e6}

_SIZE = re.compile(r"([kKMGTPE]?|[KMGTP]i)(?:B|bytes?)")
_FLOP = re.compile(r"(?:1e([0-9]{1,2}) )?([kKMGTPEZ]?)FLOP(s?)(/s|S)?")
_RATE = re.compile(r"([kKMGTPE]?|[KMGTP]i)B(?:/s|ps)")
_HOURS = re.compile(r"(?:([kKM]) )?([A-Za-z][A-Za-z0-9-]*)[ -]?(h|hours|days)", re.ASCII)
_COUNT = re.compile(r"(?:(?:1e([0-9]{1,2})|(Ki|Mi|Gi|Ti|[kKMGBT]))(?: |$))?(?:[A-Za-z][\w ./*-]*)?", re.ASCII)

DIMENSIONS = ("bytes", "seconds", "flop", "flop/s", "bytes/s", "tokens/s", "device hours", "share", "count",
              "bytes/parameter")


def factor(unit: str, dimension: str, gb: float = 1e9) -> float:
    """What one `unit` is worth in the base unit of `dimension`. `gb`: what a plain "GB" is in this source (some tools
    print powers of 1024 so). CaseError where the unit is of something else, or isn't known."""
    base, remark = _apart(unit)
    value = _READERS[dimension](base)
    if value is None:
        raise CaseError(f"the unit {plain(unit, 40)!r} is none of {dimension}")
    if remark.startswith("1e") and float(remark) != value:
        raise CaseError(f"the unit {plain(unit, 40)!r} contradicts itself")
    if base == "GB" and not remark:
        return gb
    return value


def _apart(unit: str) -> tuple[str, str]:
    """"GiB (printed GB)" → GiB, "printed GB"."""
    if found := re.fullmatch(r"([^()]*)\((.*)\)", unit.strip()):
        base, remark = found[1].strip(), found[2].strip()
        if re.fullmatch(r"1e[0-9]{1,2}", remark) or base:
            return base, remark
    return unit.strip(), ""


def _bytes(unit: str) -> float | None:
    found = _SIZE.fullmatch(unit)
    return {**PREFIXES, **BINARY}[found[1]] if found else None


def _seconds(unit: str) -> float | None:
    return TIMES.get(unit)


def _flop(unit: str) -> float | None:
    found = _FLOP.fullmatch(unit)
    return float(f"1e{found[1] or 0}") * PREFIXES[found[2]] if found and not found[4] else None


def _flop_per_s(unit: str) -> float | None:
    found = _FLOP.fullmatch(unit)
    return float(f"1e{found[1] or 0}") * PREFIXES[found[2]] if found and (found[4] or found[3]) else None


def _bytes_per_s(unit: str) -> float | None:
    found = _RATE.fullmatch(unit)
    return {**PREFIXES, **BINARY}[found[1]] if found else None


def _tokens_per_s(unit: str) -> float | None:
    return {"tok/s": 1.0, "tokens/s": 1.0, "token/s": 1.0, "k tok/s": 1e3}.get(unit)


def _device_hours(unit: str) -> float | None:
    found = _HOURS.fullmatch(unit)
    if not found and unit not in ("h", "hours"):
        return None
    if not found:
        return 1.0
    return (PREFIXES[found[1]] if found[1] else 1.0) * (24.0 if found[3] == "days" else 1.0)


def _share(unit: str) -> float | None:
    return SHARES.get(unit)


def _count(unit: str) -> float | None:
    if unit.startswith("multiples of") or not unit:
        return 1.0
    found = _COUNT.fullmatch(unit)
    if not found:
        return None
    return float(f"1e{found[1]}") if found[1] else COUNTS[found[2] or ""]


def _bytes_per_parameter(unit: str) -> float | None:
    return 1.0 if unit in ("B/param", "bytes/param", "B/parameter", "bytes per parameter", "B", "bytes") else None


_READERS = {"bytes": _bytes, "seconds": _seconds, "flop": _flop, "flop/s": _flop_per_s, "bytes/s": _bytes_per_s,
            "tokens/s": _tokens_per_s, "device hours": _device_hours, "share": _share, "count": _count,
            "bytes/parameter": _bytes_per_parameter}
