"""Pairs α, B that describe published all-reduce tables at both ends, for rows that name the machine and no pair."""
from dataclasses import dataclass

from minitp.errors import ConfigError


@dataclass(frozen=True)
class Fit:
    """Latency, and bus bandwidth; `per_card`: what each network card moves instead, beyond one machine."""
    latency_s: float
    bytes_per_s: float
    per_card: bool
    source: str


NETWORK_CHAPTER = "fitted to all_reduce tables of stas00/ml-engineering, network chapter"
FITS = {
    ("a100", False): Fit(43e-6, 235e9, False, NETWORK_CHAPTER),
    ("h200", False): Fit(39e-6, 482e9, False, f"{NETWORK_CHAPTER}: NVLS adds up in the switch"),
    ("b200", False): Fit(40e-6, 845.67e9, False, f"{NETWORK_CHAPTER}: bus bandwidth of one machine at 16 GiB"),
    ("b200", True): Fit(370e-6, 37e9, True, f"{NETWORK_CHAPTER}: EFA, of 50 GB/s a card"),
}
"""(GPU, beyond one machine) → pair."""


def fit(machine: str, machines: int, ranks: int) -> Fit:
    """By the GPU that the name has in it; ConfigError where no table is known."""
    for (gpu, beyond), known in FITS.items():
        if gpu in machine.lower() and beyond == (machines > 1):
            return known
    raise ConfigError(f"no table of {ranks} ranks of {machine!r} is known: alpha_us and beta_GBps are needed")
