"""A run that stops and goes on, of real steps: the same losses, on the same number of ranks and on others."""
import numpy as np
import pytest

from minitp.generate import Generation, Request
from minitp.gradients import Gradients
from minitp.layers import VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.train.checkpoint import save
from minitp.train.optimizer import AdamW
from minitp.train.resume import latest
from minitp.train.schedule import Schedule
from minitp.train.step import Passes, split_batch, train_step
from minitp.weights import load_weights
from tests.families import FAMILIES, source_of
from tests.mpi_world import run_threads

DTYPES = {"float32": np.float32, "float64": np.float64, "bf16": np.float32}


def losses(comm, run, family, embedding="vocab", dtype="float64", until=6, save_at=None, resume=False, parts=1,
           **passes):
    """Losses of the steps from the start, or from the checkpoint, `until` a step; saved once on the way."""
    config = FAMILIES[family]
    placement = Placement(config, comm.size, embedding)
    checkpoint = latest(run, comm, print) if resume else None
    weights = load_weights(checkpoint.model if checkpoint else source_of(family), placement, comm, dtype=DTYPES[dtype])
    optimizer = AdamW(weights, arrays=comm.arrays, bf16=dtype == "bf16")
    if checkpoint:
        checkpoint.restore(optimizer, placement, comm)
    model, gradients = Transformer(config, placement, comm), Gradients(weights, comm.arrays)
    loss, schedule = VocabParallelCrossEntropy(comm, placement.vocab), Schedule(0.01, 10, warmup=3)
    found = []
    for at in range(checkpoint.step if checkpoint else 0, until):
        ids = np.random.default_rng([3, at]).integers(0, config.vocab, (4, 9))
        result = train_step(model, loss, weights, gradients, optimizer, split_batch(ids, parts, 4 * at),
                            schedule.rate(at), step=at, limit=1.0, passes=Passes(DTYPES[dtype], seed=5, **passes))
        found.append(result.loss)
        if at + 1 == save_at:
            save(run, save_at, placement, weights, optimizer, comm)
    return found


@pytest.mark.parametrize(("family", "dtype", "options"), [
    ("mqa", "float64", {"parts": 2, "dropout": 0.2}),
    pytest.param("gpt2", "bf16", {"recompute": "full"}, marks=pytest.mark.slow),
    pytest.param("llama", "float32", {}, marks=pytest.mark.slow)])
def test_the_same_ranks_go_on_bit_for_bit(tmp_path, family, dtype, options):
    """E09: moments, step count, rate, random state of dropout; and the masters behind bf16 weights."""
    unbroken = run_threads(losses, 3, run=tmp_path, family=family, dtype=dtype, **options)
    run_threads(losses, 3, run=tmp_path, family=family, dtype=dtype, until=4, save_at=3, **options)
    resumed = run_threads(losses, 3, run=tmp_path, family=family, dtype=dtype, resume=True, **options)
    assert unbroken[0] == unbroken[2]
    assert all(found == unbroken[0][3:] for found in resumed)


@pytest.mark.parametrize(("family", "before", "after"), [
    ("llama", (2, "vocab"), (4, "hidden")),
    pytest.param("mqa", (3, "hidden"), (1, "vocab"), marks=pytest.mark.slow)])
def test_other_ranks_and_another_cut_go_on_as_one_rank(tmp_path, family, before, after):
    """A54: through copied kv heads and ranks that hold none."""
    one = run_threads(losses, 1, run=tmp_path, family=family)[0]
    run_threads(losses, before[0], run=tmp_path, family=family, embedding=before[1], until=3, save_at=3)
    for found in run_threads(losses, after[0], run=tmp_path, family=family, embedding=after[1], resume=True):
        np.testing.assert_allclose(found, one[3:], rtol=1e-10)


def generated(comm, folder):
    from minitp.checkpoint import open_checkpoint
    source = open_checkpoint(folder)
    placement = Placement(source.config, comm.size)
    weights = load_weights(source, placement, comm)
    generation = Generation(Transformer(source.config, placement, comm), weights, Request(((1, 2, 3),), 5))
    for _ in generation:
        pass
    return generation.tokens[0]


def test_a_checkpoint_generates(tmp_path):
    run_threads(losses, 2, run=tmp_path, family="llama", until=2, save_at=2)
    tokens = run_threads(generated, 3, folder=str(tmp_path / "step-00000002"))
    assert len(tokens[0]) >= 5
    assert tokens[0] == tokens[2]
