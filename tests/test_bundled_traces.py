"""The traces that come with minitp: small enough, true to the closed form, and holding what the pictures need."""
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import minitp
from minitp.trace import Trace, compare
from minitp.trace.kept import named_tokens
from minitp.trace.predict import GenerationPlan, TrainingPlan, plan_from_run, predict
from tests.make_bundled_traces import FOLDER, MOST_BYTES, RUNS, dullest


@cache
def bundled(name: str) -> Trace:
    return Trace.read(FOLDER / f"{name}.json.gz")


@pytest.fixture(params=[name for name, (verb, *_) in RUNS.items() if verb == "generate"])
def trace(request):
    return bundled(request.param)


def test_they_are_small_enough_to_come_along():
    files = sorted(FOLDER.glob("*"))
    assert [file.name for file in files] == sorted(f"{name}.json.gz" for name in RUNS)
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("name", RUNS)
def test_the_lines_of_code_they_name_are_those_that_called(name):
    """A click shows that line: where the code has moved since, the traces are made anew."""
    call = re.compile(r"\.(all_reduce|all_reduce_max|all_gather|reduce_scatter|scatter|gather|broadcast|leave|"
                      r"enter_backward|on_root|share|barrier|send|receive)\(")
    for caller in sorted(set(bundled(name).words("caller"))):
        file, line = caller.rsplit(":", 1)
        assert call.search((Path(minitp.__file__).parents[1] / file).read_text().splitlines()[int(line) - 1]), caller


def test_they_are_as_the_closed_form_says(trace):
    plan = GenerationPlan.from_run(trace.run)
    assert compare(trace, predict(plan)) == [] and not plan.broken and trace.run["world"] == "mpi"
    assert plan.gathered and not trace.events["broken"].any()


def test_they_hold_what_a_picture_of_each_pass_needs(trace):
    """Every rank's numbers of every layer and pass, and nothing that is all but zero."""
    plan = GenerationPlan.from_run(trace.run)
    placement, config = plan.placement, plan.placement.config
    assert dullest(trace) == ""
    for step, (phase, _) in enumerate(plan.passes):
        for rank in range(placement.ranks):
            for layer in range(config.layers):
                at = f"layers.{layer}"
                scores = trace.array(rank, phase, step, f"{at}.attention", "scores")
                assert scores.shape == (len(placement.heads.of(rank)), trace.row + 1 + step) and scores.whole
                shapes = {name: trace.array(rank, phase, step, f"{at}.mlp", name).shape for name in ("gate", "up", "h")}
                assert set(shapes.values()) == {(len(placement.ffn.of(rank)),)}
                assert trace.array(rank, phase, step, f"{at}.mlp_norm", "x").shape == (config.hidden,)
    for event in np.flatnonzero(trace.words("op") == "all_reduce").tolist():
        before, after = trace.value(event)
        assert before.shape[-1] == after.shape[-1] == config.hidden and len(before.first) == len(after.first) == 4
    for parameter in placement.parameters:
        for rank in range(placement.ranks):
            if len(parameter.shape) == 2:
                assert trace.weight(rank, parameter.name).shape == placement.shape(parameter, rank)


def test_their_words_are_there(trace):
    assert len(trace.run["prompt_pieces"][0]) == len(trace.run["prompts"]) == trace.row + 1
    assert len(trace.run["pieces"][0]) == len(trace.run["tokens"])
    named = {str(token) for token in named_tokens(trace)}
    assert set(trace.run["words"]) == named >= set(map(str, trace.run["tokens"]))
    assert not [word for word in trace.strings if word.startswith("/")]


def test_the_tiny_ones_words_are_its_tokens_bytes_and_can_be_read():
    """A byte that is no letter is told by its number, not by a mark that stands for any."""
    trace = bundled("tiny-4-ranks")
    for word, token in zip(trace.run["pieces"][0], trace.run["tokens"], strict=True):
        assert word.isprintable() and word in (chr(token), f"\\x{token:02x}") and "\ufffd" not in word


def test_the_tiny_one_is_whole_and_moves_in_every_way():
    trace = bundled("tiny-4-ranks")
    data = trace.words("plane") == "data"
    assert set(trace.words("op")[data]) == {"scatter", "broadcast", "all_gather", "all_reduce"}
    assert trace.run["placement"] == {"ranks": 4, "embedding": "hidden", "cut": "even"}
    kept = [*trace.arrays.kept, *trace.weights.kept, *(v["before"] for v in trace.values if v["before"])]
    assert all("data" in array for array in kept)


def test_the_training_is_two_steps_as_the_closed_form_says_with_its_numbers():
    """What is added up and the weights are whole; of gradients and moments there are at least blocks."""
    trace = bundled("tiny-training-4-ranks")
    plan = plan_from_run(trace.run)
    assert isinstance(plan, TrainingPlan) and compare(trace, predict(plan)) == [] and trace.run["world"] == "mpi"
    assert [(part.first, part.count) for part in plan.segments] == [(0, 2)] and len(trace.run["losses"]) == 2
    assert {"forward", "backward", "optimizer"} <= set(trace.words("phase")) and dullest(trace) == ""
    of_passes = np.flatnonzero(trace.words("phase", "arrays") != "optimizer")    # gradients are maxima by block
    kept = [*(trace.arrays.kept[i] for i in of_passes), *trace.weights.kept,
            *(v["before"] for v in trace.values if v["before"])]
    assert kept and all("data" in array for array in kept)
    assert {"h", "dh", "dquery", "gradient", "targets"} <= set(trace.words("name", "arrays"))


def test_smollm2_s_is_a_sentence():
    trace = bundled("smollm2-3-ranks")
    assert trace.run["text"] == " can perform calculations. It's a tool that helps"
    assert trace.where(rank=0, phase="decode", step=1, plane="data").sum() == 62
