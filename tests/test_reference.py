"""minitp against another implementation: the frozen logits of small checkpoints of each family (tests/reference)."""
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from minitp.checkpoint import open_checkpoint
from minitp.context import plan_pass
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import load_weights
from tests.mpi_world import run_threads

MODELS = Path(__file__).parent / "reference" / "models"
NAMES = sorted(path.name for path in MODELS.iterdir())
PADDED = ["gpt2", "llama-untied"]


class Remembered:
    """Reads each parameter once, whole, for all ranks of all tests: on 2 and 5 ranks, to save their time."""

    def __init__(self, name):
        self.checkpoint, self.held = open_checkpoint(MODELS / name), {}
        self.config = self.checkpoint.config

    def read(self, parameter, slices, dtype):
        if parameter.name not in self.held:
            whole = tuple(slice(0, size) for size in parameter.shape)
            self.held[parameter.name] = self.checkpoint.read(parameter, whole, dtype)
        return self.held[parameter.name][slices]


remembered = cache(Remembered)


def opened(comm, name, embedding):
    checkpoint = open_checkpoint(MODELS / name) if comm.size in (1, 3) else remembered(name)
    placement = Placement(checkpoint.config, comm.size, embedding)
    return Transformer(checkpoint.config, placement, comm), load_weights(checkpoint, placement, comm, dtype=np.float64)


def logits(comm, name, embedding, ids):
    model, weights = opened(comm, name, embedding)
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return model.forward(ids, weights, plan_pass(model.config, positions, dtype=np.float64)).array


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_logits_are_the_references(n, name):
    expected = np.load(MODELS / name / "expected.npz")
    for rank in run_threads(logits, n, name=name, embedding="vocab" if n % 3 else "hidden", ids=expected["ids"]):
        np.testing.assert_allclose(rank, expected["logits"], rtol=0, atol=1e-9)


def decoded(comm, name, embedding, prompts, steps):
    model, weights = opened(comm, name, embedding)
    generation = Generation(model, weights, Request(prompts, steps, keep_logits=True), dtype=np.float64)
    run(generation)
    return generation.tokens, generation.kept_logits(), generation.gaps


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize(("n", "embedding"), [(1, "vocab"), (3, "hidden")])
def test_a_padded_batch_decodes_as_the_reference_does_each_prompt_alone(name, n, embedding):
    """C33, C35: prompts of 1, 3 and 7 tokens in one batch with a cache; the logits of every step, not tokens alone."""
    expected = np.load(MODELS / name / "expected.npz")
    lengths, steps = expected["padded_lengths"].tolist(), expected["greedy_ids"].shape[1]
    prompts = tuple(tuple(row[:length].tolist()) for row, length in zip(expected["padded_ids"], lengths, strict=True))
    for tokens, kept, gaps in run_threads(decoded, n, name=name, embedding=embedding, prompts=prompts, steps=steps):
        assert tokens == expected["greedy_ids"].tolist()
        np.testing.assert_allclose(gaps, expected["greedy_gap"].min(axis=1), atol=1e-9)
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(kept[row, :length], expected["padded_logits"][row, :length], rtol=0, atol=1e-9)
            np.testing.assert_allclose(kept[row, length - 1:length - 1 + steps], expected["greedy_logits"][row], rtol=0,
                                       atol=1e-9)
