"""What published trainings reached and ran on, where a table's rows name the model and not these (runs.toml)."""
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.data_file import Entry, flag, read, texts, whole
from minitp.plan.machine import Device

FILE = Path(__file__).parent / "runs.toml"
USUAL = 0.40
"""Share of the peak by 6PT that large runs reach, all in all (Llama 2: 38 to 43 %; Llama 3.1 405B: 35 %)."""


class Reached(NamedTuple):
    """Share of the peak by 6PT over the whole run, and who says so."""
    share: float
    why: str


class Family(NamedTuple):
    """Runs of the same people: words that name them, their device (None: several), whether whole layers were computed
    again."""
    words: tuple[str, ...]
    device: Device | None
    recomputed: bool
    source: str


def reached(name: str) -> Reached:
    """What a model's run reached; the usual share where nothing is known of it."""
    row = next((row for row in _rows()["trained"] if row.text("model") == _key(name)), None)
    if row is None:
        return Reached(USUAL, "usual for large runs")
    run = row.take("rate_of", catalogue.run)           # trained by the same code; the sizes of LLaMA reached 44 to 51 %
    rate = run.published["tokens_per_s_gpu"]
    share = 6 * run.model.parameters * rate / run.machine.device.peak("bf16")
    return Reached(share, f"the {rate:g} tokens/s a GPU of {run.name}")


def segments(name: str) -> tuple[tuple[int, int, str], ...]:
    """Chips, hours and source of the stretches of a published run; ConfigError where none are known."""
    rows = _rows()["stretch"]
    found = tuple((row.take("chips", whole()), row.take("hours", whole()), row.source())
                  for row in rows if row.text("model") == _key(name))
    if not found:
        known = ", ".join(sorted({row.text("model") for row in rows}))
        raise ConfigError(f"no run of {name!r} is known in chips and hours; there is one of {known}")
    return found


def family(*names: str) -> Family | None:
    """The family that a model or source belongs to; None where none is known."""
    told = " ".join(names).lower()
    return next((one for one in _families() if any(word in told for word in one.words)), None)


@cache
def _families() -> tuple[Family, ...]:
    return tuple(Family(row.take("words", texts), row.take("device", catalogue.device, None),
                        row.take("recomputed", flag, False), row.source()) for row in _rows()["family"])


@cache
def _rows() -> dict[str, list[Entry]]:
    return read(FILE, "trained", "stretch", "family")


def _key(name: str) -> str:
    key = "-".join(name.strip().lower().split())
    return key.replace("llama-1-", "llama-")
