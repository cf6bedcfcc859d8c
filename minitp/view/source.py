"""The line of code that called a collective, as the installed minitp has it."""
import re
from functools import cache
from pathlib import Path

import minitp
from minitp.trace.wording import plain

_CALLER = re.compile(r"minitp/((?:[a-z_0-9]{1,40}/){0,4}[a-z_0-9]{1,40}\.py):(\d{1,6})")


def line_of(caller: str) -> str:
    """The text of `minitp/layers/boundary.py:26`; "" where that is no line of minitp's own code.

    `caller` may be a stranger's: no path leads out of the package, as it can hold no dots but the one of ".py".
    """
    found = _CALLER.fullmatch(caller)
    if found is None:
        return ""
    lines, number = _lines(found[1]), int(found[2])
    return plain(lines[number - 1], 160) if 1 <= number <= len(lines) else ""


@cache
def _lines(name: str) -> tuple[str, ...]:
    try:
        return tuple((Path(minitp.__file__).parent / name).read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return ()
