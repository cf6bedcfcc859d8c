"""What published trainings reached, where a table of hours is to be met by 6PT at a share of the peak."""
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.plan import catalogue


class Reached(NamedTuple):
    """Share of the peak by 6PT over the whole run, tokens trained, and who says so."""
    share: float
    tokens: float
    why: str


USUAL = 0.40
"""Share of the peak by 6PT that large runs reach, all in all (Llama 2: 38 to 43 %; Llama 3.1 405B: 35 %)."""
LLAMA_1 = ("llama-7b", "llama-13b", "llama-33b", "llama-65b")
TOKENS = {"llama-7b": 1.0e12, "llama-13b": 1.0e12, "llama-33b": 1.4e12, "llama-65b": 1.4e12,
          "llama-2-7b": 2e12, "llama-2-13b": 2e12, "llama-2-70b": 2e12,
          "llama-3.1-8b": 15e12, "llama-3.1-70b": 15e12, "llama-3.1-405b": 15.6e12}
"""Touvron et al. 2023, table 2; the same, Llama 2, table 1; model card of Llama 3.1, and the paper for 405B."""
SEGMENTS = {"palm-540b": ((6144, 1200.0), (3072, 336.0))}
"""Chips and hours of the stretches of a run (Chowdhery et al. 2022, appendix B)."""


def reached(name: str) -> Reached:
    """What a model's run reached; the usual share where nothing is known of it."""
    key = _key(name)
    if key not in LLAMA_1:
        return Reached(USUAL, TOKENS.get(key, 0.0), "usual for large runs")
    largest = catalogue.run("llama-65b")               # all four were trained by the same code; they reached 44 to 51 %
    rate = largest.published["tokens_per_s_gpu"]
    share = 6 * largest.model.parameters * rate / largest.machine.device.peak("bf16")
    return Reached(share, TOKENS[key], f"LLaMA-65B's {rate:g} tokens/s a GPU")


def segments(name: str) -> tuple[tuple[int, float], ...]:
    """Of a published run; ConfigError where none are known."""
    key = _key(name)
    if key not in SEGMENTS:
        raise ConfigError(f"no run of {name!r} is known in chips and hours; there is one of {', '.join(SEGMENTS)}")
    return SEGMENTS[key]


def _key(name: str) -> str:
    key = "-".join(name.strip().lower().split())
    return key.replace("llama-1-", "llama-")
