"""What a trace says of a link that was made slower than the machine's own (minitp.comm.delayed)."""
from collections.abc import Collection
from typing import Any

from minitp.trace.wording import duration

_LONGEST = 3600.0                  # seconds of a delay that is told


def emulated_part(delays: Collection[float]) -> dict[str, Any]:
    """The header's `emulated`, of the seconds by which the ranks' messages were held up; empty where none was."""
    return {"emulated": {"delay": [min(delays), max(delays)]}} if any(delays) else {}


def emulated_line(run: dict[str, Any]) -> str:
    """The sentence that views of such a run's times show; "" where the link was the machine's own.

    Emulated link: each collective and message was held up by 5 ms. These are not the machine's own times.
    """
    told = run.get("emulated")
    if not isinstance(told, dict):
        return ""
    delays, by = told.get("delay"), "on purpose"
    if isinstance(delays, list) and len(delays) == 2 and all(map(_is_delay, delays)):
        least, most = (duration(delay * 1e9) for delay in sorted(delays))
        by = f"by {most}" if least == most else f"by up to {most}"
    return f"Emulated link: each collective and message was held up {by}. These are not the machine's own times."


def _is_delay(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LONGEST
