"""Sizes that other tools printed of a model, where they aren't what its parameters add up to (sizes.toml)."""
from functools import cache
from math import isclose
from pathlib import Path
from typing import NamedTuple

from minitp.plan.data_file import Entry, read
from minitp.plan.job import bytes_of
from minitp.plan.units import parse_bytes, parse_count

FILE = Path(__file__).parent / "sizes.toml"
SAME = 1e-3
"""Relative: within this a number of parameters is the same model's, printed with fewer digits."""


class Size(NamedTuple):
    """A printed size, and who printed it."""
    value: float
    source: str


def loaded(model: str, params: float, width: float) -> Size | None:
    """Bytes of a model at `width` bytes a number, as accelerate printed them; None where nothing is known."""
    for row in _rows()["loaded"]:
        same = isclose(params, row.take("params", parse_count), rel_tol=SAME)
        if same and row.text("model") == model.strip().lower():
            each = bytes_of(row.text("weights"))
            return Size(row.take("size", parse_bytes) * width / each, row.source())
    return None


def largest_layer(params: float) -> Size | None:
    """Parameters of the largest layer of a model of `params`, as DeepSpeed printed them."""
    for row in _rows()["largest"]:
        if isclose(params, row.take("params", parse_count), rel_tol=SAME):
            return Size(row.take("layer", parse_count), row.source())
    return None


@cache
def _rows() -> dict[str, list[Entry]]:
    return read(FILE, "loaded", "largest")
