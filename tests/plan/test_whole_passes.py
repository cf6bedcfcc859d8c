"""Tokens decoded while calibrating: what a layer takes beside its products, and the stated error of a token."""
from dataclasses import replace

import pytest

from minitp.plan.calibrate import machine_of, whole_passes
from minitp.plan.modeled import TOKEN, stated_for
from tests.mpi_world import run_threads
from tests.plan.test_calibrate import a_calibration


def test_what_a_pass_takes_beside_its_products_goes_into_the_model_of_a_token(monkeypatch):
    """Decoded for real; the description's token is as long as its parts, and its error is stated from these tokens."""
    for name in ("TOKENS", "FEW_TOKENS"):
        monkeypatch.setattr(whole_passes, name, 3)
    monkeypatch.setattr(whole_passes, "LARGE", (32, 1, 64, 64))
    (beside, traces), (other, nothing) = run_threads(
        lambda comm: (whole_passes.overhead(comm), whole_passes.tokens(comm)), 2)
    traces = tuple(traces)
    assert beside == other and not nothing and beside["layer_s"] + beside["pass_s"] > 0 and len(traces) == 2
    made = machine_of(replace(a_calibration(), overhead=beside, tokens=traces))
    error = stated_for(TOKEN, 2, made)
    tokens = [one for _, one in whole_passes.told(traces, made)]
    assert [one.count for one in tokens] == [2, 2] and not any(one.lower_bound for one in tokens)
    assert error.worst == pytest.approx(max(abs(one.ratio - 1) for one in tokens)) and tokens[0].stated == error
    assert tokens[0].modeled_overhead_s == pytest.approx(2 * beside["layer_s"] + beside["pass_s"])
    assert whole_passes.told(traces, machine_of(a_calibration()))[0][1].lower_bound


@pytest.mark.parametrize("overhead", [3, {"layer_s": 1.0}, {"layer_s": -1.0, "pass_s": 0.0},
                                      {"layer_s": "x", "pass_s": 1}, {"layer_s": True, "pass_s": 1.0}])
def test_an_overhead_that_cannot_be_is_none(overhead):
    assert whole_passes.known_overhead({"overhead": overhead}) is None and whole_passes.known_overhead({}) is None
