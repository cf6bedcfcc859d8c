"""Generation: batches equal to each prompt alone, limits that hold on all ranks, and a trace as foretold."""
from dataclasses import replace

import numpy as np
import pytest

from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.sampling import Sampling
from minitp.trace.predict import Expected, GenerationPlan, predict
from minitp.weights import RandomSource, load_weights
from tests.families import FAMILIES, FullSource, plain_forward, plain_weights, source_of
from tests.mpi_world import run_threads

PROMPTS = ((3,), (1, 4, 2), (0, 2, 4, 4, 1, 3, 0))                       # C33's lengths: 1, 3, 7


def events_of(comm) -> list[Expected]:
    """What was recorded of the planes data and sample, in the closed form's words."""
    return [Expected(**{name: getattr(e, name) for name in Expected._fields})
            for e in comm.recorder.events if e.plane != "control"]


def generated(comm, family="llama", embedding="vocab", load="slice", dtype="float64", **request):
    """A whole run, loading and all; the rank itself holds the recorded events against the closed form."""
    request["sampling"] = Sampling(**request.get("sampling", {}))
    config = FAMILIES[family]
    placement = Placement(config, comm.size, embedding)
    source = source_of(family) if load == "slice" or comm.rank == 0 else None
    weights = load_weights(source, placement, comm, mode=load, dtype=dtype)
    generation = Generation(Transformer(config, placement, comm), weights, Request(**request), dtype=dtype)
    steps = list(generation)
    plan = GenerationPlan(placement, load, dtype, len(generation.tokens), generation.passes, len(steps),
                          generation.request.gathered, generation.request.keep_logits,
                          generation.request.sampling.candidates(placement.vocab))
    recorded, foretold = events_of(comm), predict(plan)
    assert recorded == foretold, next(pair for pair in zip(recorded, foretold, strict=False) if pair[0] != pair[1])
    assert GenerationPlan.from_run(plan.to_run()) == plan
    return {"tokens": generation.tokens, "stops": generation.stops, "gaps": generation.gaps,
            "steps": [step.tokens for step in steps], "passes": generation.passes,
            "events": [event._asdict() for event in recorded],
            "logits": generation.kept_logits() if generation.request.keep_logits else None}


def greedy(family: str, prompt: tuple[int, ...], steps: int) -> tuple[list[int], np.ndarray]:
    """Decoded with the plain forward pass, everything computed anew for every token; and all logits at the end."""
    weights, ids = plain_weights(source_of(family)), list(prompt)
    for _ in range(steps):
        ids.append(int(plain_forward(FAMILIES[family], weights, np.array(ids))[-1].argmax()))
    return ids[len(prompt):], plain_forward(FAMILIES[family], weights, np.array(ids))


# --- batches ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("family", "embedding"), [("llama", "vocab"), ("gpt2", "hidden"), ("mqa", "hidden")])
@pytest.mark.parametrize("n", [1, 3])
def test_a_batch_of_unequal_prompts_is_each_alone(n, family, embedding):
    """C33, C35, C34: right-padded in one batch with a cache, every step of every row equals the row by itself, computed
    plainly; nothing that isn't padding is NaN."""
    truth = [greedy(family, prompt, 8) for prompt in PROMPTS]
    batch = run_threads(generated, n, family=family, embedding=embedding, prompts=PROMPTS, max_tokens=8,
                        keep_logits=True)
    for rank in batch:
        for row, (tokens, logits) in enumerate(truth):
            np.testing.assert_allclose(rank["logits"][row, :len(logits)], logits, rtol=0, atol=1e-10)
            assert np.isnan(rank["logits"][row, len(logits):]).all()
            assert rank["tokens"][row] == tokens and rank["gaps"][row] > 1e-6
    alone = run_threads(generated, n, family=family, embedding=embedding, prompts=PROMPTS[1:2], max_tokens=8,
                        keep_logits=True)[0]
    np.testing.assert_allclose(batch[0]["logits"][1, :11], alone["logits"], rtol=0, atol=1e-12)
    assert alone["logits"].shape == (11, FAMILIES[family].vocab)          # P + G rows, for one prompt


def test_left_padding_is_not_needed_and_rows_do_not_see_each_other():
    """The same row, first, last or repeated in a batch, beside long rows or short ones: the same logits."""
    one = run_threads(generated, 2, prompts=PROMPTS[:1], max_tokens=10, keep_logits=True)[0]["logits"]
    for prompts, at in ((PROMPTS[::-1], 2), ((PROMPTS[0], PROMPTS[0]), 1), ((PROMPTS[2], PROMPTS[0], PROMPTS[2]), 1)):
        many = run_threads(generated, 2, prompts=prompts, max_tokens=10, keep_logits=True)[0]["logits"]
        np.testing.assert_allclose(many[at, :len(one)], one, rtol=0, atol=1e-12)


def test_a_row_that_has_stopped_waits_without_changing_the_others():
    """Rows stop at an end token at different steps; the rest go on as if alone."""
    free = run_threads(generated, 2, prompts=PROMPTS, max_tokens=9)[0]["tokens"]
    ends = (free[0][2], free[1][4])
    for rank in run_threads(generated, 3, prompts=PROMPTS, max_tokens=9, end_tokens=ends, keep_logits=True):
        stopped_at = []
        for row, tokens in enumerate(free):
            cut = next((i + 1 for i, token in enumerate(tokens) if token in ends), 9)
            stopped_at.append(cut)
            assert rank["tokens"][row] == tokens[:cut]
            assert rank["stops"][row] == ("end token" if tokens[cut - 1] in ends else "length")
            logits = greedy("llama", PROMPTS[row], cut)[1]
            np.testing.assert_allclose(rank["logits"][row, :len(logits)], logits, rtol=0, atol=1e-10)
        assert len(set(stopped_at)) > 1, "this case proves nothing"
        rows = list(zip(free, stopped_at, strict=True))
        for i, step in enumerate(rank["steps"]):
            assert step == [tokens[i] if i < cut else None for tokens, cut in rows]


# --- limits ----------------------------------------------------------------------------------------------------------

FULL = FAMILIES["llama"].positions                                       # 24


@pytest.mark.parametrize(("length", "asked", "given", "stop"), [
    (FULL - 1, 5, 1, "context"), (FULL - 3, 5, 3, "context"), (FULL - 3, 3, 3, "length"), (FULL, 5, 0, "context"),
    (FULL, 0, 0, "length"), (3, 0, 0, "length"), (1, 1, 1, "length"), (1, 10_000_000, FULL - 1, "context")])
def test_prompt_and_new_tokens_never_exceed_the_context(length, asked, given, stop):
    """C31, C32: prompts of max - 1 and max tokens, and a generation that reaches the end in its middle."""
    prompt = tuple(i % 5 for i in range(length))
    truth, logits = greedy("llama", prompt, given)
    for rank in run_threads(generated, 2, prompts=(prompt,), max_tokens=asked, keep_logits=True):
        assert rank["tokens"] == [truth] and rank["stops"] == [stop]
        np.testing.assert_allclose(rank["logits"], logits, rtol=0, atol=1e-10)
        assert rank["passes"] == [["prefill", length]] + [["decode", 1]] * given       # one more, for the last's logits
    for rank in run_threads(generated, 1, prompts=(prompt,), max_tokens=asked, gathered=False):
        assert rank["tokens"] == [truth] and len(rank["passes"]) == max(given, 1)
        assert sum(event["plane"] == "sample" for event in rank["events"]) == given


def test_a_full_row_waits_in_a_batch():
    """One prompt fills the context, one stops at it, one goes on: none disturbs another, and none leaves the table."""
    prompts = (tuple(i % 5 for i in range(FULL)), tuple(i % 3 for i in range(FULL - 2)), (3, 1))
    for family in ("llama", "gpt2"):
        for rank in run_threads(generated, 2, family=family, prompts=prompts, max_tokens=6, keep_logits=True):
            assert rank["stops"] == ["context", "context", "length"]
            for row, (prompt, given) in enumerate(zip(prompts, (0, 2, 6), strict=True)):
                tokens, logits = greedy(family, prompt, given)
                assert rank["tokens"][row] == tokens
                np.testing.assert_allclose(rank["logits"][row, :len(logits)], logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("asked", "message"), [
    ({"prompts": ()}, "the prompt is empty"), ({"prompts": ((),)}, "the prompt is empty"),
    ({"prompts": ((1, 2), ())}, "the prompt is empty"),
    ({"prompts": ((1,),), "max_tokens": -1}, "--max-tokens must be 0 or more"),
    ({"prompts": ((1, 23),)}, "token id 23 is not in the vocabulary of 23: ids run from 0 to 22"),
    ({"prompts": ((-1,),)}, "token id -1"),
    ({"prompts": ((1,) * (FULL + 1),)}, "the prompt has 25 tokens and the model's context holds 24"),
    ({"prompts": ((1,), (1,) * (10 * FULL))}, "the prompt has 240 tokens"),
    ({"prompts": ((1,),), "gathered": False, "keep_logits": True}, "gather them"),
    ({"prompts": ((1,),), "gathered": False, "sampling": {"temperature": 1.0, "top_p": 0.5}}, "needs top-k as well")])
def test_what_a_model_can_not_do_is_refused_on_all_ranks_alike(asked, message):
    """C31, C32: before any rank computes or sends."""
    def refused(comm):
        model = Transformer(FAMILIES["llama"], Placement(FAMILIES["llama"], comm.size), comm)
        request = Request(**asked | {"sampling": Sampling(**asked.get("sampling", {}))})
        with pytest.raises(ConfigError, match=message) as caught:
            Generation(model, {}, request)
        assert comm.recorder.events == []
        return str(caught.value)

    assert len(set(run_threads(refused, 3))) == 1


# --- the trace, and the same tokens everywhere -----------------------------------------------------------------------

RUNS = [
    ("llama", "vocab", {"dtype": "float32"}), ("llama", "hidden", {"gathered": False}),
    ("llama-tied", "hidden", {"gathered": False, "sampling": {"temperature": 1.0, "top_k": 3, "seed": 4}}),
    ("llama-tied", "vocab", {"gathered": False, "sampling": {"temperature": 1.0, "seed": 5}}),
    ("gpt2", "hidden", {"keep_logits": True}), ("gpt2", "vocab", {"sampling": {"temperature": 2.0, "top_p": 0.9}}),
    ("mqa", "hidden", {}), ("mqa", "vocab", {"gathered": False}),
    ("parallel", "vocab", {"gathered": False}), ("parallel", "hidden", {"keep_logits": True})]


@pytest.mark.parametrize(("family", "embedding", "request_"), RUNS)
def test_what_is_recorded_is_what_was_foretold(family, embedding, request_):
    """Count, order, states, shapes, dtype and payload of every event; one rank makes as many as several, and the tokens
    are the same. (Each rank compares; see `generated`.)"""
    load = "slice" if embedding == "vocab" else "scatter"
    runs = {n: run_threads(generated, n, family=family, embedding=embedding, load=load, prompts=PROMPTS, max_tokens=2,
                           **request_) for n in (1, 4)}
    for n, ranks in runs.items():
        for rank in ranks:
            assert rank["tokens"] == runs[1][0]["tokens"] and rank["stops"] == ["length"] * 3
            assert rank["events"] == ranks[0]["events"]                   # the payload too is the same on every rank
            assert called(rank["events"]) == called(runs[1][0]["events"])
        layers, parallel = FAMILIES[family].layers, FAMILIES[family].parallel_block
        a_pass = [e["plane"] for e in ranks[0]["events"] if (e["phase"], e["step"]) == ("decode", 1)]
        reduced = request_.get("gathered", True) or (family == "llama-tied" and embedding == "hidden")
        assert a_pass.count("data") == layers * (1 if parallel else 2) + 1 + reduced
        assert a_pass.count("sample") == (not request_.get("gathered", True))
        loads = [e for e in ranks[0]["events"] if e["phase"] == "load"]
        assert len(loads) == (len(Placement(FAMILIES[family], n).parameters) if load == "scatter" else 0)


def called(events: list[dict]) -> list[tuple]:
    return [(e["op"], e["site"], e["phase"], e["step"], e["before"], e["after"]) for e in events]


def test_a_trace_that_is_not_foretold_is_told_apart():
    """The comparison above would see a wrong count, order, shape or payload."""
    placement = Placement(FAMILIES["llama"], 3)
    plan = GenerationPlan(placement, "slice", "float64", 3, [("prefill", 7), ("decode", 1)], 2)
    for other in (replace(plan, batch=2), replace(plan, dtype="float32"), replace(plan, load="scatter"),
                  replace(plan, gathered=False), replace(plan, every_row=True), replace(plan, passes=plan.passes[:1]),
                  replace(plan, placement=Placement(FAMILIES["llama"], 3, "hidden")),
                  replace(plan, placement=Placement(FAMILIES["parallel"], 3))):
        assert predict(other) != predict(plan)
    sharded = replace(plan, gathered=False)
    assert predict(replace(sharded, candidates=4)) != predict(sharded)
    assert predict(replace(sharded, placement=Placement(FAMILIES["llama"], 2))) != predict(sharded)


def test_float32_is_close_to_float64():
    """D14: over 20 layers the error grows about as √depth: no coherent drift, no loss that a layer adds by itself."""
    config = replace(FAMILIES["llama"], layers=20, hidden=32)
    source = FullSource(config, scale=0.7)

    class Residuals:
        def __init__(self):
            self.x = []

        def save(self, site, arrays, ctx):
            if site.endswith("attention_norm"):
                self.x.append(np.array(arrays["x"], np.float64))

    def residuals(comm, dtype):
        placement, seen = Placement(config, comm.size), Residuals()
        weights = load_weights(source, placement, comm, dtype=dtype)
        model = Transformer(config, placement, comm)
        run(Generation(model, weights, Request(PROMPTS[2:], 1), dtype=dtype, observer=seen))
        return seen.x

    exact = run_threads(residuals, 1, dtype="float64")[0]
    single = run_threads(residuals, 2, dtype="float32")[0]
    error = np.array([np.sqrt(((a - b) ** 2).mean() / (a ** 2).mean()) for a, b in zip(exact, single, strict=True)])
    assert len(error) == 20 and error[0] < 1e-7
    assert error[-1] < 5e-6 and error[-1] < 4 * np.sqrt(20) * max(error[1], 5e-8)
    bias = np.array([(b - a).mean() / np.sqrt((a ** 2).mean()) for a, b in zip(exact, single, strict=True)])
    assert np.abs(bias).max() < 2e-6


def test_a_generation_runs_once():
    """Begun anew it would go on from its prompts alone, with the tokens of the first time."""
    def twice(comm):
        config = FAMILIES["mqa"]
        placement = Placement(config, comm.size)
        generation = Generation(Transformer(config, placement, comm), load_weights(source_of("mqa"), placement, comm),
                                Request(PROMPTS, 2))
        next(iter(generation))
        with pytest.raises(ConfigError, match="run already"):
            run(generation)

    run_threads(twice, 2)


def test_random_weights_generate_the_same_at_any_number_of_ranks():
    """A45 through the model: 50 tokens at temperature 1."""
    config = replace(FAMILIES["llama"], positions=64, layers=1)

    def tokens(comm, gathered):
        placement = Placement(config, comm.size)
        weights = load_weights(RandomSource(config, 1), placement, comm, dtype=np.float64)
        request = Request(((1, 2, 3),), 50, Sampling(1.0, seed=12), gathered=gathered)
        return run(Generation(Transformer(config, placement, comm), weights, request, dtype=np.float64))

    alone = run_threads(tokens, 1, gathered=True)[0]
    assert len(alone[0]) == 50 and len(set(alone[0])) > 8
    for gathered in (True, False):
        assert run_threads(tokens, 4, gathered=gathered) == [alone] * 4
