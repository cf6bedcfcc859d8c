"""Every row of a time: what its numbers say comes to its seconds."""
import re
from dataclasses import replace

import pytest

from minitp.plan import catalogue
from minitp.plan.job import Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.rows import TimeRow
from minitp.plan.speed.decode import prefill, token
from minitp.plan.speed.step import training_step
from tests.plan.plan_models import GPT3, LLAMA31_405B, boxes

UNITS = {"TFLOP/s": "* 1e12", "TFLOP": "* 1e12", "GB/s": "* 1e9", "GB": "* 1e9", "B": "",
         "ms": "* 1e-3", "µs": "* 1e-6", "s": ""}
TRAINED = [
    (GPT3, Layout(tp=8, pp=8, dp=2), Training(batch=128, recompute="full")),
    (GPT3, Layout(tp=4, pp=4, dp=4, zero=2, sequence=True), Training(batch=64, recompute="selective")),
    (LLAMA31_405B, Layout(tp=8, dp=64, zero=3, sequence=True), Training(batch=128, seq=8192)),
    (LLAMA31_405B, Layout(tp=8, cp=4, pp=2, dp=8, zero=1), Training(batch=16, seq=131072)),
    ("mixtral-8x7b", Layout(tp=2, dp=8, ep=4, zero=3), Training(batch=32))]


def value(row: TimeRow) -> float:
    """The expression, without the remarks in it."""
    text = re.sub(r" \([a-z_]+, [^)]*\)", "", row.numbers).replace(",", "")
    for unit, factor in UNITS.items():
        text = re.sub(rf"(?<=\d) {re.escape(unit)}(?= |\)|$)", factor, text)
    text = text.replace("·", "*").replace("−", "-")
    assert re.fullmatch(r"[\d.e+*/() -]+", text), row.numbers
    return eval(text)                                                    # digits and signs alone


def check(rows: tuple[TimeRow, ...]) -> None:
    for row in rows:
        gross = value(replace(row, numbers=row.numbers.split(" − ")[0]))
        assert value(row) == pytest.approx(row.seconds, abs=2e-3 * gross), (row.term, row.numbers)
        assert (" − " in row.numbers) == ("beside the passes" in row.formula)


@pytest.mark.parametrize(("model", "layout", "job"), TRAINED)
@pytest.mark.parametrize("overlap", [False, True])
def test_numbers_of_a_step_come_to_its_seconds(model, layout, job, overlap):
    planned = catalogue.model(model) if isinstance(model, str) else model
    time = training_step(planned, layout, job, boxes(layout.devices), overlap=overlap)
    check(time.rows)
    told = [row for row in time.rows if "beside the passes" in row.note]
    assert bool(told) == bool(time.hidden) and all("beside the passes" in row.formula for row in told)


@pytest.mark.parametrize(("name", "layout"), [("llama-3.1-8b", Layout()), ("llama-3.1-405b", Layout(tp=8, pp=2, cp=2)),
                                              ("mixtral-8x7b", Layout(tp=2, dp=4, ep=4))])
def test_numbers_of_a_token_and_of_a_prompt_come_to_their_seconds(name, layout):
    model, job = catalogue.model(name), Inference(batch=8, prompt=2048)
    machine = catalogue.machine("8xh100-80", devices=layout.devices)
    check(token(model, layout, job, machine).rows)
    check(prefill(model, layout, job, machine).rows)
