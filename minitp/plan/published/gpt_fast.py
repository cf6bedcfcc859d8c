"""gpt-fast's table of decoding speeds (README of meta-pytorch/gpt-fast): what a GPU reads for a token, and how fast.

Its rows tell tokens/s and a bandwidth; their quotient is the bytes that it counts: matrices over tp, and what every GPU
reads whole. For its Llama-2 rows that is embedding and head, for Llama-3.1 the head alone.
"""
from functools import cache
from pathlib import Path
from typing import NamedTuple

from minitp.plan.data_file import read as read_file
from minitp.plan.model import PlannedModel
from minitp.plan.units import parse_rate, parse_seconds

FILE = Path(__file__).parent / "gpt_fast.toml"


class Fit(NamedTuple):
    """Bytes/s that its bf16 kernels reach on an A100-80, and seconds of an all-reduce inside its CUDA graphs."""
    bandwidth: float
    all_reduce: float
    source: str


@cache
def fit() -> Fit:
    (row,) = read_file(FILE, "fit")["fit"]
    return Fit(row.take("bandwidth", parse_rate), row.take("all_reduce", parse_seconds), row.source())


def tables(model: PlannedModel) -> int:
    """Numbers of embedding and head."""
    return 2 * model.config.vocab * model.config.hidden


def replicated(model: PlannedModel, name: str) -> int:
    """Of those, what its count takes to be read by every GPU."""
    llama_2 = name.lower().replace(" ", "-").startswith("llama-2")
    return tables(model) if llama_2 else tables(model) // 2


def read(model: PlannedModel, name: str, tp: int, width: float) -> float:
    """Bytes that each of tp GPUs reads for a token: (P − 2Vh)·w/tp and the tables. Of experts only those visited."""
    return ((model.active_parameters - tables(model)) / tp + replicated(model, name)) * width


def token_seconds(model: PlannedModel, name: str, tp: int, width: float, bandwidth: float, alpha: float) -> float:
    """bytes/BW + 2L·α: two all-reduces a layer, at their latency. α counts for tp > 1."""
    return read(model, name, tp, width) / bandwidth + (2 * model.config.layers * alpha if tp > 1 else 0.0)
