"""Pairs α, B that describe published all-reduce tables at both ends, for rows that name the machine and no pair."""
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from minitp.errors import ConfigError
from minitp.plan.data_file import flag, read
from minitp.plan.units import parse_rate, parse_seconds

FILE = Path(__file__).parent / "nccl_fits.toml"


@dataclass(frozen=True)
class Fit:
    """Latency, and bus bandwidth; `per_card`: what each network card moves instead, beyond one machine."""
    latency_s: float
    bytes_per_s: float
    per_card: bool
    source: str


@cache
def fits() -> dict[tuple[str, bool], Fit]:
    """(GPU, beyond one machine) → pair."""
    found = {}
    for row in read(FILE, "fit")["fit"]:
        beyond = row.take("beyond", flag)
        found[row.text("gpu"), beyond] = Fit(row.take("latency", parse_seconds), row.take("bandwidth", parse_rate),
                                             beyond, row.source())
        row.done()
    return found


def fit(machine: str, machines: int, ranks: int) -> Fit:
    """By the GPU that the name has in it; ConfigError where no table is known."""
    for (gpu, beyond), known in fits().items():
        if gpu in machine.lower() and beyond == (machines > 1):
            return known
    raise ConfigError(f"no table of {ranks} ranks of {machine!r} is known: alpha_us and beta_GBps are needed")
