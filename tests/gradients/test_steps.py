"""Steps of training: equal to another program's, on any number of ranks, however the batch is laid out."""
import json
from functools import cache
from math import inf
from weakref import ref

import numpy as np
import pytest

from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.errors import ConfigError
from minitp.gradients import Gradients
from minitp.layers import IGNORED, VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.train.optimizer import AdamW
from minitp.train.schedule import Schedule
from minitp.train.step import MicroBatch, Passes, accumulate, split_batch, train_step
from minitp.weights import load_weights
from tests.families import FAMILIES, FullSource
from tests.gradients.finite import assembled, unchecked
from tests.gradients.frozen import NAMES, Frozen, config_of, frozen, part_of
from tests.mpi_world import run_threads


class Learning:
    """One rank's model with its optimizer."""

    def __init__(self, comm: Communicator, source, embedding: str = "vocab", dtype="float64", smoothing: float = 0.0,
                 **optimizer):
        self.comm, self.placement = comm, Placement(source.config, comm.size, embedding)
        self.weights = load_weights(source, self.placement, comm, dtype=np.dtype(dtype))
        self.model = Transformer(source.config, self.placement, comm)
        self.loss = VocabParallelCrossEntropy(comm, self.placement.vocab, smoothing)
        self.gradients, self.optimizer = Gradients(self.weights), AdamW(self.weights, **optimizer)
        self.passes, self.steps = Passes(np.dtype(dtype)), 0

    def step(self, batch: list[MicroBatch], rate: float, limit: float = inf):
        """The first step with shapes checked, which takes most of a small one's time."""
        with unchecked(self.steps > 0):
            done = train_step(self.model, self.loss, self.weights, self.gradients, self.optimizer, batch, rate,
                              step=self.steps, limit=limit, passes=self.passes)
        self.steps += 1
        return done

    def pieces(self, arrays=None) -> dict[str, np.ndarray]:
        arrays = self.weights if arrays is None else arrays
        return {name: arrays[array.name][rows]
                for name, (array, rows) in self.placement.homes(self.comm.rank).items()}


def micro_batches(ids: np.ndarray, targets: np.ndarray, parts: int) -> list[MicroBatch]:
    rows = np.array_split(np.arange(len(ids)), parts)
    return [MicroBatch(ids[own], targets[own], tuple(map(int, own))) for own in rows]


# --- another program's steps ----------------------------------------------------------------------------------------

def frozen_steps(comm: Communicator, name: str, embedding: str, parts: int) -> dict:
    told, data = json.loads(str(frozen()["optimizer"])), {
        key: frozen()[f"{name}/steps/{key}"] for key in ("ids", "targets", "rates", "max_norm")}
    learning = Learning(comm, Frozen(name), embedding, smoothing=told["smoothing"], betas=tuple(told["betas"]),
                        eps=told["eps"], decay=told["decay"])
    done = [learning.step(micro_batches(ids, targets, parts), float(rate), float(data["max_norm"]))
            for ids, targets, rate in zip(data["ids"], data["targets"], data["rates"], strict=True)]
    return {"pieces": learning.pieces(), "losses": [d.loss for d in done], "norms": [d.norm for d in done]}


@pytest.mark.parametrize(("n", "embedding", "parts"), [(1, "vocab", 1), (4, "hidden", 3), (5, "vocab", 2)])
@pytest.mark.parametrize("name", NAMES)
def test_clipped_steps_of_adamw_are_another_programs(name, n, embedding, parts):
    ranks = run_threads(frozen_steps, n, name=name, embedding=embedding, parts=parts)
    for rank in ranks:
        np.testing.assert_allclose(rank["losses"], frozen()[f"{name}/steps/losses"], rtol=1e-11)
        np.testing.assert_allclose(rank["norms"], frozen()[f"{name}/steps/norms"], rtol=1e-11)
    weights = assembled([rank["pieces"] for rank in ranks], Placement(config_of(name), n, embedding))
    assert weights.keys() == part_of(name, "trained").keys()
    for parameter, expected in part_of(name, "trained").items():
        nothing = name == "gpt2" and parameter.endswith("k.bias")   # its gradient is rounding, which Adam makes more of
        np.testing.assert_allclose(weights[parameter], expected, rtol=0, atol=1e-8 if nothing else 1e-11,
                                   err_msg=parameter)


# --- fifty steps ----------------------------------------------------------------------------------------------------

STEPS = 50
SOURCES = {name: FullSource(config, seed=5, scale=0.6) for name, config in FAMILIES.items()}


def many_steps(comm: Communicator, family: str, dtype: str, embedding: str = "vocab", steps: int = STEPS) -> dict:
    learning = Learning(comm, SOURCES[family], embedding, dtype)
    schedule, rng, losses = Schedule(0.01, steps, warmup=5, floor=0.001), np.random.default_rng(8), []
    for step in range(steps):
        windows = rng.integers(learning.model.config.vocab, size=(4, 6))
        windows[:, 1::2] = windows[:, :1]                        # something to learn
        losses.append(learning.step(split_batch(windows, 1 + step % 3, 4 * step), schedule.rate(step), 1.0).loss)
    return {"losses": losses, "pieces": learning.pieces()}


@cache
def alone(family: str, dtype: str, steps: int) -> dict:
    return run_threads(many_steps, 1, family=family, dtype=dtype, steps=steps)[0]


def check_steps(ranks: list[dict], family: str, dtype: str, embedding: str, steps: int = STEPS) -> None:
    """Losses as on one rank; and all that ranks hold together is the same bits on them (A13, A34)."""
    expected = alone(family, dtype, steps)["losses"]
    assert expected[-1] < expected[0] - 0.2, "nothing is learned, so nothing is proven"
    for rank in ranks:
        np.testing.assert_allclose(rank["losses"], expected, rtol=0, atol=1e-9 if dtype == "float64" else 1e-4)
        assert rank["losses"] == ranks[0]["losses"]
    assembled([rank["pieces"] for rank in ranks], Placement(FAMILIES[family], len(ranks), embedding))


@pytest.mark.parametrize(("family", "n", "dtype", "embedding"), [
    ("llama", 2, "float64", "vocab"), ("gpt2-gelu", 3, "float32", "hidden")])
def test_fifty_steps_as_on_one_rank(family, n, dtype, embedding):
    check_steps(run_threads(many_steps, n, family=family, dtype=dtype, embedding=embedding), family, dtype, embedding)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dtype"), [(5, "float64"), (8, "float32")])
@pytest.mark.parametrize("family", FAMILIES)
def test_fifty_steps_of_every_family(family, n, dtype):
    embedding = "hidden" if n % 2 else "vocab"
    check_steps(run_threads(many_steps, n, family=family, dtype=dtype, embedding=embedding), family, dtype, embedding)


# --- one step, laid out in many ways --------------------------------------------------------------------------------

EIGHT = np.random.default_rng(2).integers(FAMILIES["llama"].vocab, size=(8, 6))
SOME = np.where(np.random.default_rng(3).random((8, 5)) < np.linspace(0, 0.9, 8)[:, None], IGNORED, EIGHT[:, 1:])


def one_step(comm: Communicator, parts: int, optimizer: str, family: str = "llama") -> dict:
    learning = Learning(comm, SOURCES[family])
    learning.passes = Passes(np.dtype("float64"), dropout=0.2)           # a sequence's mask goes with it
    batch = micro_batches(EIGHT[:, :-1], SOME, parts)
    if optimizer == "adamw":
        return {"loss": learning.step(batch, 0.01).loss, "pieces": learning.pieces()}
    sums, _ = accumulate(learning.model, learning.loss, learning.weights, learning.gradients, batch,
                         passes=learning.passes)
    pieces, gradients = learning.pieces(), learning.pieces(learning.gradients)
    return {"loss": sums.total / sums.tokens, "pieces": {name: w - gradients[name] for name, w in pieces.items()},
            "sizes": [len(part.ids) for part in batch]}


@pytest.mark.parametrize(("optimizer", "within"), [("sgd", 1e-13), ("adamw", 1e-8)])
def test_accumulation_does_not_change_a_step(optimizer, within):
    """E02: 1, 2, 4, 8 micro-batches; E15: 8 = 3 + 3 + 2. Their targets that count differ in number: each token has the
    same weight, not each micro-batch. Adam divides by |g|, so where g is near 0 it makes more of its last bits."""
    placement = Placement(FAMILIES["llama"], 3)                          # a cut without copies: nothing is owed
    assert not placement.kv_copied
    found = {}
    for parts in (1, 2, 3, 4, 8) if optimizer == "sgd" else (1, 3, 8):
        with unchecked(parts > 1):
            ranks = run_threads(one_step, 3, parts=parts, optimizer=optimizer)
        found[parts] = assembled([rank["pieces"] for rank in ranks], placement) | {"loss": np.array(ranks[0]["loss"])}
        assert parts != 3 or ranks[0].get("sizes", [3, 3, 2]) == [3, 3, 2]
        for name, array in found[1].items():
            np.testing.assert_allclose(found[parts][name], array, rtol=0, atol=within, err_msg=f"{name}, {parts} parts")


def test_a_batch_is_split_as_evenly_as_it_goes():
    """E15, and what can't be is refused."""
    parts = split_batch(EIGHT, 3, first_sequence=40)
    assert [part.ids.shape for part in parts] == [(3, 5), (3, 5), (2, 5)] and parts[2].sequences == (46, 47)
    assert np.array_equal(np.concatenate([part.targets for part in parts]), EIGHT[:, 1:])
    with pytest.raises(ConfigError, match="8 sequences can't be split into 9"):
        split_batch(EIGHT, 9)


def test_a_step_without_a_target_that_counts():
    """Nothing counts on purpose: a loss of 0 over 0 tokens, no gradient, and no division by zero."""
    def step(comm):
        learning = Learning(comm, SOURCES["llama"], decay=0.0)
        before = {name: piece.copy() for name, piece in learning.pieces().items()}
        done = learning.step([MicroBatch(EIGHT[:, :-1], np.full((8, 5), IGNORED), tuple(range(8)))], 0.1)
        assert all(np.array_equal(piece, before[name]) for name, piece in learning.pieces().items())
        return done.loss, done.tokens, done.norm, done.skipped

    with np.errstate(all="raise"):
        assert run_threads(step, 2) == [[0.0, 0, 0.0, False]] * 2


# --- tied tables ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "embedding"), [(3, "hidden"), (4, "vocab")])
def test_a_tied_table_is_one_array_with_one_state(n, embedding):
    """A52: after two steps of AdamW it is what an untied pair becomes whose two gradients are added before the step."""
    def steps(comm, tied):
        config = ModelConfig.from_dict(FAMILIES["llama-tied"].to_dict() | {"tied": tied})
        learning = Learning(comm, Source(SOURCES["llama-tied"], config), embedding)
        rng = np.random.default_rng(1)
        for number in range(2):
            batch = split_batch(rng.integers(config.vocab, size=(3, 6)), 2)
            learning.gradients.zero()
            if tied:
                learning.step(batch, 0.05)
                assert not any("head" in name for arrays in (learning.weights, learning.optimizer.m) for name in arrays)
            else:                                                        # by hand, on one rank
                accumulate(learning.model, learning.loss, learning.weights, learning.gradients, batch,
                           passes=learning.passes)
                both = learning.gradients["embedding.weight"] + learning.gradients["head.weight"]
                for name in ("embedding.weight", "head.weight"):
                    learning.gradients[name][...] = both
                learning.optimizer.step(learning.gradients, 0.05)
                assert np.array_equal(learning.weights["embedding.weight"], learning.weights["head.weight"]), number
        return learning.pieces()

    pair = run_threads(lambda comm: steps(comm, tied=False), 1)[0]
    config = FAMILIES["llama-tied"]
    tied = assembled(run_threads(lambda comm: steps(comm, tied=True), n), Placement(config, n, embedding))
    assert sum(array.size for array in tied.values()) == sum(p.size for p in Placement(config, 1).parameters)
    for name, array in tied.items():
        np.testing.assert_allclose(array, pair[name], rtol=0, atol=1e-9, err_msg=name)


class Source:
    """A source's weights for a model whose head is a table of its own, equal to the embedding's."""

    def __init__(self, source: FullSource, config: ModelConfig):
        self.source, self.config = source, config

    def read(self, parameter, slices, dtype=np.float64):
        table = Placement(self.source.config, 1).parameter("embedding.weight")
        whole = self.source.whole(table if parameter.name == "head.weight" else parameter)
        return np.array(whole[slices], dtype)


# --- memory ---------------------------------------------------------------------------------------------------------

def kept_gradients(comm: Communicator) -> list[bool]:
    """Whether the logits' gradient of a micro-batch is still in memory when the next one's loss begins."""
    learning, alive, made = Learning(comm, FullSource(FAMILIES["llama"])), [], []

    class Watched(VocabParallelCrossEntropy):
        def forward(self, logits, targets, ctx):
            alive.append(any(reference() is not None for reference in made))
            return super().forward(logits, targets, ctx)

        def backward_input(self, scale, ctx):
            dz = super().backward_input(scale, ctx)
            made.append(ref(dz))
            return dz

    ids = np.arange(12).reshape(3, 4) % FAMILIES["llama"].vocab
    with unchecked():
        accumulate(learning.model, Watched(comm, learning.placement.vocab), learning.weights, learning.gradients,
                   micro_batches(ids, ids, 3), passes=learning.passes)
    return alive


def test_the_gradient_of_a_micro_batch_s_logits_is_gone_before_the_next_loss():
    assert run_threads(kept_gradients, 1) == [[False, False, False]]
