"""The units in which sources print: what a text such as "GiB (printed GB)" is worth.

A quantity is planned in bytes, seconds, FLOP, FLOP/s, bytes/s, tokens/s, device hours, a share of 1, or a count. Sizes,
rates, times and counts are read by the planner's one reader of units; a remark in brackets changes nothing, except
"(1e9)", which must agree.
"""
import re
from collections.abc import Callable

from minitp.errors import ConfigError
from minitp.plan import units
from minitp.plan.verify.case import CaseError
from minitp.trace.wording import plain

SHARES = {"percent": 0.01, "%": 0.01, "ratio": 1.0, "fraction": 1.0, "share": 1.0, "x": 1.0, "": 1.0}
PER_TOKEN = ("/token", "/tok")
WORKS = {"bytes": "B, kB, MB, GB, GiB", "seconds": "us, ms, s, h, days", "flop": "FLOP, TFLOP, 1e18 FLOP",
         "flop/s": "TFLOP/s, PFLOP/s", "bytes/s": "GB/s, Gb/s", "tokens/s": "tok/s, k tok/s",
         "device hours": "GPU h, M GPU h, GPU days", "share": "percent, ratio, x",
         "count": "params, 1e9 params, M tokens, GPUs", "bytes/parameter": "B/param"}
"""Dimension → units that work, as errors tell them."""

_COUNT = re.compile(r"(?:(?:1e([0-9]{1,2})|(Ki|Mi|Gi|Ti|m|[kKMGBT]))(?: |$))?(?:[A-Za-z][\w ./*-]*)?", re.ASCII)
_FLOP = re.compile(r"(?:1e([0-9]{1,2}) )?([kKMGTPE]?)FLOPs?", re.ASCII)
_PER_S = re.compile(r"(?:1e([0-9]{1,2}) )?([kKMGTPE]?)FLOP(?:/s|S|s|s/s)", re.ASCII)
_HOURS = re.compile(r"(?:([kKM]) )?[A-Za-z][A-Za-z0-9-]*[ -]?(h|hours|days)", re.ASCII)


def factor(unit: str, dimension: str, gb: float = 1e9) -> float:
    """What one `unit` is worth in the base unit of `dimension`. `gb`: what a plain "GB" is in this source (some tools
    print powers of 1024 so). CaseError where the unit is of something else, or isn't known."""
    base, remark = _apart(unit)
    value = _READERS[dimension](base)
    if value is None:
        raise CaseError(f"{plain(unit, 40)!r} is no unit of {dimension}; {WORKS[dimension]} are")
    if re.fullmatch("1e[0-9]{1,2}", remark) and float(remark) != value:
        raise CaseError(f"the unit {plain(unit, 40)!r} contradicts itself: 1 {base} is {value:g}")
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


def _one(parse: Callable[[str], float]) -> Callable[[str], float | None]:
    """What 1 of a unit is by one of the planner's readers; None where it is no unit of that kind."""
    def read(unit: str) -> float | None:
        try:
            return float(parse(f"1 {unit}")) if unit else None
        except ConfigError:
            return None
    return read


def _seconds(unit: str) -> float | None:
    for end in PER_TOKEN:
        unit = unit.removesuffix(end)
    return _one(units.parse_seconds)(unit)


def _flop(unit: str) -> float | None:
    return _operations(_FLOP.fullmatch(unit))


def _flop_per_s(unit: str) -> float | None:
    return _operations(_PER_S.fullmatch(unit))


def _operations(found: re.Match[str] | None) -> float | None:
    return float(f"1e{found[1] or 0}") * units.parse_flops(f"1 {found[2]}FLOP/s") if found else None


def _tokens_per_s(unit: str) -> float | None:
    prefix, _, word = unit.rpartition(" ")
    known = word in ("tok/s", "tokens/s", "token/s") and prefix in units.COUNTS
    return float(units.COUNTS[prefix]) if known else None


def _device_hours(unit: str) -> float | None:
    found = _HOURS.fullmatch(unit)
    if not found:
        return 1.0 if unit in ("h", "hours") else None
    return units.COUNTS[found[1] or ""] * (24.0 if found[2] == "days" else 1.0)


def _count(unit: str) -> float | None:
    if unit.startswith("multiples of") or not unit:
        return 1.0
    found = _COUNT.fullmatch(unit)
    if not found:
        return None
    if found[1]:
        return float(f"1e{found[1]}")
    prefix = found[2] or ""
    return float(units.parse_bytes(f"1 {prefix}B") if prefix.endswith("i") else 10**6 if prefix == "m"
                 else units.COUNTS[prefix])


def _bytes_per_parameter(unit: str) -> float | None:
    return 1.0 if unit in ("B/param", "bytes/param", "B/parameter", "bytes per parameter", "B", "bytes") else None


_READERS: dict[str, Callable[[str], float | None]] = {
    "bytes": _one(units.parse_bytes), "seconds": _seconds, "flop": _flop, "flop/s": _flop_per_s,
    "bytes/s": _one(units.parse_rate), "tokens/s": _tokens_per_s, "device hours": _device_hours, "share": SHARES.get,
    "count": _count, "bytes/parameter": _bytes_per_parameter}
DIMENSIONS = tuple(_READERS)
