"""The data files of published numbers: each row says who says so, and what is there is read."""
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from minitp.plan import published
from minitp.plan.published import dllama, gpt_fast, layer_times, nccl_fits, runs, sizes

FILES = sorted(Path(published.__file__).parent.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_row_says_who_says_so(path):
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    assert tables and all(row["source"].strip() for rows in tables.values() for row in rows)


def test_no_module_has_a_published_number_of_its_own():
    """All of them are read from files, and of each file all that the modules know of."""
    assert {path.stem for path in FILES} == {"dllama", "gpt_fast", "layer_times", "nccl_fits", "runs", "sizes"}
    assert len(layer_times.table()[1]) == 5 and len(nccl_fits.fits()) == 4
    assert gpt_fast.fit().all_reduce == pytest.approx(22e-6) and gpt_fast.fit().bandwidth == 1400e9
    assert 0.4 < runs.reached("LLaMA-7B").share < 0.5
    assert runs.reached("nobody's 9B") == (runs.USUAL, "usual for large runs")
    assert sum(chips * hours for chips, hours, _ in runs.segments("PaLM 540B")) == 8_404_992
    assert sizes.largest_layer(6.805e9).value == 131e6 and sizes.largest_layer(7e9) is None
    assert dllama.node("Raspberry Pi 5 of mine") == dllama.node("RasPi5")
    assert dllama.measured("RasPi4B", "llama-2-7b")[4].token == pytest.approx(0.494)


def test_another_layer_takes_as_much_longer_as_it_has_more_operations():
    measured, _ = layer_times.table()
    own, _, looked_up = layer_times.seconds("none", False, measured)
    half, _, planned = layer_times.seconds("none", False, replace(measured, tp=4))
    assert looked_up and not planned and half == pytest.approx(2 * own)
