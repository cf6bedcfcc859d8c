"""Bytes of weights, gradients and optimizer under ZeRO: against the paper's tables, and hard cases G09 and G10."""
import csv
from math import ceil
from pathlib import Path

import pytest

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.plan.job import FLOAT32, MIXED, MIXED_FP32_GRADIENTS, PURE_BF16, Inference, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.memory import own, rows
from minitp.plan.memory.capacity import most
from minitp.plan.memory.states import bare
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Kind, by_kind, total
from tests.plan.plan_models import gpt

STATES: tuple[Kind, ...] = ("weights", "gradients", "optimizer")
CASES = Path(__file__).parent / "cases" / "planner_cases.csv"


def cases(start: str) -> list[dict[str, str]]:
    with CASES.open(newline="") as file:
        return [{**row, **dict(pair.split("=") for pair in row["inputs"].split(";"))}
                for row in csv.DictReader(file) if row["case_id"].startswith(start)]


def test_zero_table_1():
    tried = cases("zero_t1_")
    for case in tried:
        planned = total(bare(int(float(case["params"])), zero=int(case["zero_stage"]), d=int(case["dp"])))
        assert planned / 1e9 == pytest.approx(float(case["published_value"]), rel=float(case["tolerance"]))
    assert len(tried) > 20


def test_zero_table_2_theory():
    tried = cases("zero_t2_theory_")
    for case in tried:
        memory = int(float(case["gpu_mem_gb"]) * 1e9)
        how = {"zero": int(case["zero_stage"]), "d": int(case["dp"]), "tp": int(case["tp"])}
        largest = most(lambda n, memory=memory, how=how: total(bare(n, **how)) <= memory)
        assert largest / 1e9 == pytest.approx(float(case["published_value"]), rel=float(case["tolerance"]))
    assert len(tried) == 10


@pytest.mark.parametrize("precision", [MIXED, FLOAT32])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("d", [1, 3, 4])
def test_g09_every_term_a_row(precision, zero, d):
    """N = 1e6 over 1, 3 and 4 ranks: bytes a parameter, cut or not, rounded up to whole numbers where it is."""
    held = {row.term: row for row in bare(1_000_000, zero=zero, d=d, precision=precision)}
    third = ceil(1_000_000 / d)
    for term, each, stage in (("weights", precision.weights, 3), ("gradients", precision.gradients, 2),
                              ("master weights", precision.master, 1), ("first moment", 4, 1), ("second moment", 4, 1)):
        if not each:                                                    # float32: the weights are the master copy
            assert term not in held
            continue
        cut = zero >= stage and d > 1
        assert held[term].bytes == each * (third if cut else 1_000_000)
        assert held[term].formula == (f"{each:g} · ⌈N/d⌉" if cut else f"{each:g} · N")
        assert held[term].numbers == f"{each:g} · " + (f"⌈1,000,000/{d}⌉" if cut else "1,000,000")


@pytest.mark.parametrize(("precision", "bytes_each"), [(MIXED, 16), (MIXED_FP32_GRADIENTS, 18), (FLOAT32, 16),
                                                       (PURE_BF16, 8)])
def test_g10_the_choice_is_visible(precision, bytes_each):
    """At DP = 4: 2 for weights, 2 or 4 for gradients, 4 for the master copy, 4 and 4 for the moments."""
    model = gpt(4, 64, 4, vocab=100)
    planned = rows(model, Layout(dp=4), Training(batch=4, precision=precision), Place(0, 0, 0, 0))
    states = [row for row in planned if row.kind in STATES]
    assert total(states) == bytes_each * model.parameters
    assert by_kind(states)["gradients"] == precision.gradients * model.parameters
    checkpoint = sum(size for kind, size in by_kind(states).items() if kind != "gradients")
    assert checkpoint == (bytes_each - precision.gradients) * model.parameters            # 14: what a checkpoint saves


@pytest.mark.parametrize("embedding", ["vocab", "hidden"])
@pytest.mark.parametrize("tp", [1, 2, 3, 4, 5])
def test_g09_as_minitp_s_own_runs_hold(tp, embedding):
    """The plan of any machine and that of minitp's own runs, which are tested against arrays, agree to the byte."""
    model = PlannedModel(TINY)
    layout = Layout(tp=tp, embedding=embedding)
    placement = model.placement(tp, embedding)
    generated = Inference(batch=3, prompt=10, new=6, weights="float32", cache="float32")
    for rank in range(tp):
        place = Place(rank, 0, 0, 0)
        held = by_kind(own.training(placement, rank, 2, 16))
        planned = by_kind(rows(model, layout, Training(batch=2, seq=16, micro_batch=2, precision=FLOAT32), place))
        assert [planned[kind] for kind in STATES] == [held[kind] for kind in STATES]
        cache = by_kind(own.generation(placement, rank, 3, 16)).get("kv cache")
        assert by_kind(rows(model, layout, generated, place)).get("kv cache") == cache


@pytest.mark.parametrize("d", [1, 4, 64])
def test_zero_1_with_float32_gradients(d):
    """(6 + 12/d) P: Megatron's distributed optimizer, on a whole model."""
    model = gpt(4, 64, 4, vocab=100)
    job = Training(batch=64, precision=MIXED_FP32_GRADIENTS)
    held = by_kind(rows(model, Layout(dp=d, zero=1), job, Place(0, 0, 0, 0)))
    states = held["weights"] + held["gradients"] + held["optimizer"]
    assert states == 6 * model.parameters + 12 * ceil(model.parameters / d)


def test_states_of_nothing_are_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        bare(0)
    with pytest.raises(ConfigError, match="stage"):
        bare(10, zero=4)
