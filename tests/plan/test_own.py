"""Planned = held, to the byte: what a rank of a real generation or training counts in its arrays, on 1 to 7 ranks."""
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import minitp
from minitp.cli import app
from minitp.config import TINY
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Placement
from minitp.plan import memory
from minitp.plan.formula import value
from minitp.plan.job import FLOAT32, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.memory import own
from minitp.plan.model import PlannedModel
from minitp.plan.rows import by_kind, total
from minitp.trace.file import Trace
from tests.families import FAMILIES
from tests.mpi_world import run_threads
from tests.plan.own_runs import check, generated, on_mpi

GENERATIONS = [
    ("llama", (1, 3, 7), {}), ("llama", (2,), {"dtype": "float64", "cut": "balanced"}),
    ("llama", (5,), {"prompts": [range(1, 23)], "max_tokens": 9}),                        # the context ends it
    ("llama", (2,), {"keep_logits": True}), ("llama", (3,), {"keep_logits": True, "max_tokens": 0}),
    ("llama-tied", (1, 3), {"gathered": False, "embedding": "hidden"}), ("mqa", (7,), {"max_tokens": 0}),
    ("gpt2", (1, 5), {"dtype": "float64"}), ("gpt2", (3,), {"gathered": False}), ("gpt2-gelu", (2,), {}),
    ("parallel", (3,), {"embedding": "hidden"})]


@pytest.mark.parametrize(("config", "ranks", "options"), GENERATIONS)
def test_a_generation_holds_what_was_planned(config, ranks, options):
    for n in ranks:
        check(run_threads(generated, n, config=config, **options))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("embedding", ["vocab", "hidden"])
def test_weights_are_all_numbers_of_the_placement(family, embedding):
    for ranks in (1, 2, 5):
        placement = Placement(FAMILIES[family], ranks, embedding)
        for rank in range(ranks):
            assert total(own.weights(placement, rank, "float64")) == 8 * placement.elements(rank)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_of_any_machine_has_the_same_states_and_cache(family):
    """Where it plans what minitp runs, one number for each: tensor parallelism in float32, sizes from the placement."""
    model = PlannedModel(FAMILIES[family])
    serving = Inference(batch=2, prompt=5, new=4, weights="float32", cache="float32")
    learning = Training(batch=4, seq=5, micro_batch=2, precision=FLOAT32)
    for tp in (1, 2, 5):
        for place, rows in memory.ranks(model, Layout(tp=tp), serving).items():
            mine = own.generation(model.placement(tp), place.tp, 2, 9)
            assert of_kinds(rows, "weights", "kv cache") == of_kinds(mine, "weights", "kv cache")
        for place, rows in memory.ranks(model, Layout(tp=tp), learning).items():
            mine = own.training(model.placement(tp), place.tp, 4, 5, 2)
            assert of_kinds(rows, "weights", "gradients", "optimizer") == of_kinds(mine, "weights", "gradients",
                                                                                   "optimizer")


def of_kinds(rows, *kinds) -> list[int]:
    return [by_kind(rows).get(kind, 0) for kind in kinds]


def test_each_row_says_how_its_bytes_come_about():
    """The numbers put into a formula come to the row's bytes; each names the module whose arrays they are."""
    placement = Placement(FAMILIES["llama"], 2)
    for row in own.training(placement, 1, 4, 6, 2, dtype="bf16", dropout=0.1) + own.generation(placement, 1, 2, 9):
        assert value(row.numbers.replace(",", ""), {}) == row.bytes
        module = row.source.removesuffix(".plan_pass").removesuffix(".KVCache").split(".")
        root = Path(minitp.__file__).parents[1].joinpath(*module)
        assert root.with_suffix(".py").exists(), row.source
    assert own.weights(placement, 1, "float32")[2].formula == "L · (2 · H_p · E · D + 2 · K_p · E · D) · s"


def test_what_can_not_be_is_refused():
    placement = Placement(FAMILIES["llama"], 2)
    for wrong, words in (({"rank": 2}, "rank 2 is not one of 0…1"), ({"dtype": "fp8"}, "bf16"),
                         ({"recompute": "some"}, "none, selective, full")):
        with pytest.raises(ConfigError, match=words):
            own.training(placement, **({"rank": 0, "batch": 1, "tokens": 1} | wrong))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, 2, 5])
def test_runs_on_mpi_hold_what_was_planned(mpi, n):
    for rank in mpi(n, on_mpi):
        check(rank)


# --- what a trace's header tells -------------------------------------------------------------------------------------


def recorded(tmp_path, *words: str) -> dict:
    """The header of the trace that a command line leaves."""
    file = tmp_path / "t.json"
    result = CliRunner().invoke(app, [*words, "--ranks", "3", "--world", "threads", "--trace", str(file)],
                                catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return Trace.read(file).run


@pytest.mark.parametrize("words", [["--dtype", "bf16", "--micro-batches", "2", "--recompute", "full"],
                                   pytest.param(["--dropout", "0.1", "--trace-steps", "-1"], marks=pytest.mark.slow)])
def test_a_training_trace_tells_what_was_held_and_it_was_planned(tmp_path, monkeypatch, words):
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("some words to learn from\n" * 40)
    run = recorded(tmp_path, "train", "--text", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run"), "--steps",
                   "2", "--batch", "3", "--tokens", "9", "--save-every", "0", "--set", "run.evaluate_batches=1", *words)
    assert [own.held(rows) for rows in own.of_trace(run)] == own.held_in_trace(run)
    assert own.held_in_trace(run)[0].keys() == {"weights", "gradients", "optimizer", "activations"}
    other = json.loads(json.dumps(run))
    other["training"]["segments"][0]["micro_batches"][0][1] += 1
    assert [own.held(rows) for rows in own.of_trace(other)] != own.held_in_trace(run)


@pytest.mark.parametrize("words", [["--max-tokens", "4"], ["--logits", "l.npy", "--max-tokens", "2"],
                                   ["--sharded-logits", "--dtype", "float64", "--max-tokens", "2"]])
def test_a_generation_trace_tells_what_was_held_and_it_was_planned(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    run = recorded(tmp_path, "generate", "-m", "tiny", *words, "some words")
    assert [own.held(rows) for rows in own.of_trace(run)] == own.held_in_trace(run)
    assert own.held_in_trace(run)[2].keys() == {"weights", "kv cache", "logits"}
    del run["generation"]["slots"]                       # ended by its length, which is what is assumed
    assert [own.held(rows) for rows in own.of_trace(run)] == own.held_in_trace(run)


@pytest.mark.parametrize("memory", [[], [{"weights": -1}], [{"hopes": 1}], [3], "much", [{"weights": 1.5}]])
def test_a_strangers_header_is_refused(memory):
    run = {"ranks": 1, "memory": memory}
    with pytest.raises(FileFormatError):
        own.held_in_trace(run)
    for header in ({}, {"generation": {}}, {"training": {}}, run):
        with pytest.raises(FileFormatError):
            own.of_trace(header)
    assert own.held_in_trace({"ranks": 1}) is None


def test_a_header_that_says_half_is_refused():
    plan = {"model": TINY.to_dict(), "placement": {"ranks": 2, "embedding": "vocab", "cut": "even"},
            "generation": {"load": "slice", "dtype": "float32", "batch": 1, "passes": [["prefill", 3]], "choices": 1,
                           "gathered": True, "every_row": False, "candidates": 2}}
    assert len(own.of_trace(plan)) == 2
    for wrong in ({"slots": -1}, {"slots": "9"}, {"passes": []}):
        with pytest.raises(FileFormatError):
            own.of_trace(plan | {"generation": plan["generation"] | wrong})
    training = {"load": "slice", "dtype": "float32", "recompute": "none", "segments": [], "settings": {"dropout": "x"}}
    with pytest.raises(FileFormatError):
        own.of_trace({key: plan[key] for key in ("model", "placement")} | {"training": training})


def test_a_smaller_cache_than_the_positions_would_be_seen():
    """The comparison above tells one slot, one kv head and one sequence from another."""
    placement = Placement(FAMILIES["llama"], 2)
    one = own.held(own.generation(placement, 0, 2, 9))
    assert one != own.held(own.generation(placement, 0, 2, 10)) != own.held(own.generation(placement, 0, 3, 9))
    assert one != own.held(own.generation(Placement(replace(FAMILIES["llama"], kv_heads=9), 2), 0, 2, 9))
