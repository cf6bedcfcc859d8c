"""The whole model's gradients: equal to one rank's, to another program's, and whatever way the passes are laid."""
from functools import cache
from pathlib import Path
from shutil import copy

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from minitp.checkpoint import open_checkpoint
from minitp.comm import Communicator
from minitp.gradients import Gradients
from minitp.placement import Placement
from minitp.saved import Saved
from tests.families import FAMILIES, source_of
from tests.gradients.finite import Split, assembled, batch, unchecked
from tests.gradients.frozen import Frozen, config_of, frozen, part_of
from tests.mpi_world import run_threads

MODELS = Path(__file__).parents[1] / "reference" / "models"
LAYOUTS = [(family, embedding) for family in FAMILIES for embedding in ("vocab", "hidden")]
QUICK = [(2 + (i * 3) % 7, *layout) for i, layout in enumerate(LAYOUTS)]
IN_FLIGHT = ("one after the other", "both forward, then back in order", "both forward, last one back first")


def gradients(comm: Communicator, family: str, embedding: str = "vocab", order: str = IN_FLIGHT[0],
              batches: int = 2, **options) -> dict:
    """This rank's gradients of two micro-batches (3 sequences and 2, unequal numbers of targets), and the loss."""
    split = Split(comm, FAMILIES[family], embedding, source=source_of(family), **options)
    return trained_pass(split, [batch(split.config, b, 5 + b, seed=b) for b in (3, 2)[:batches]], order)


def trained_pass(split: Split, data: list, order: str = IN_FLIGHT[0]) -> dict:
    store, total, waiting, tokens = Gradients(split.weights), 0.0, [], sum(int((t >= 0).sum()) for _, t in data)

    def back(ctx) -> None:
        split.model.backward(split.loss.backward_input(1 / tokens, ctx), split.weights, ctx, store)

    for first, (ids, targets) in zip((0, 3), data, strict=False):
        ctx = split.context(Saved(), ids, first)
        logits = split.model.forward(ids, split.weights, ctx, gathered=False)
        total += split.loss.forward(logits, targets, ctx).total
        waiting.append(ctx)
        if order == IN_FLIGHT[0]:
            back(waiting.pop())
    for ctx in waiting if order == IN_FLIGHT[1] else waiting[::-1]:
        back(ctx)
    return {"pieces": split.pieces(store), "loss": total / tokens,
            "events": [f"{e.op} {e.site}" for e in split.comm.recorder.events if e.site.startswith("gradients")]}


def whole(ranks: list[dict], family: str, embedding: str = "vocab", cut: str = "even") -> dict[str, np.ndarray]:
    assert len({rank["loss"] for rank in ranks}) == 1, "the loss: the ranks part ways"
    placement = Placement(FAMILIES[family], len(ranks), embedding, cut)
    return assembled([rank["pieces"] for rank in ranks], placement) | {"loss": np.array(ranks[0]["loss"])}


@cache
def alone(family: str, dropout: float = 0.0) -> dict[str, np.ndarray]:
    return whole(run_threads(gradients, 1, family=family, dropout=dropout), family)


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], within: float = 1e-10) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=within, err_msg=name)


@pytest.mark.parametrize(("n", "family", "embedding"), QUICK)
def test_as_on_one_rank(n, family, embedding):
    """A50: each parameter's, row biases and norms among them; replicas are the same bits on all ranks."""
    same(whole(run_threads(gradients, n, family=family, embedding=embedding), family, embedding), alone(family))


@pytest.mark.slow
@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize(("family", "embedding"), LAYOUTS)
def test_as_on_one_rank_in_every_layout(n, family, embedding):
    cut = "balanced" if n % 3 == 2 else "even"
    ranks = run_threads(gradients, n, family=family, embedding=embedding, cut=cut)
    same(whole(ranks, family, embedding, cut), alone(family))


@pytest.mark.parametrize(("n", "family", "recompute"), [
    (4, "llama", "none"), (4, "llama", "full"), (3, "gpt2", "selective"), (1, "llama-tied", "selective")])
def test_two_micro_batches_in_flight(n, family, recompute):
    """Nothing is kept in a layer, so a pass may wait for its backward while another runs. With dropout, whose masks
    depend neither on the number of ranks nor on what is computed again."""
    for order in IN_FLIGHT:
        with unchecked(order != IN_FLIGHT[0]):
            found = run_threads(gradients, n, family=family, order=order, recompute=recompute, dropout=0.3)
        same(whole(found, family), alone(family, dropout=0.3), 1e-11)


def test_copies_are_summed_once_a_step_and_only_where_there_are_any():
    for n, events in ((3, []), (2, ["all_reduce gradients.copies"]), (5, ["all_reduce gradients.copies"])):
        assert [rank["events"] for rank in run_threads(gradients, n, family="llama")] == [events] * n


def test_a_dropped_out_model_is_another_one():
    """Else the tests with dropout would prove nothing."""
    assert abs(alone("llama", dropout=0.3)["loss"] - alone("llama")["loss"]) > 1e-2


# --- against other programs -------------------------------------------------------------------------------------------

def of_frozen(comm: Communicator, name: str, embedding: str) -> dict:
    split = Split(comm, config_of(name), embedding, source=Frozen(name))
    data = [(frozen()[f"{name}/ids"], frozen()[f"{name}/targets"])]
    found = trained_pass(split, data)
    split.loss = type(split.loss)(comm, split.placement.vocab, 0.0)
    return found | {"plain": trained_pass(split, data)["loss"], "tokens": int((data[0][1] >= 0).sum())}


@pytest.mark.parametrize(("n", "embedding"), [(1, "vocab"), (4, "hidden"), (5, "vocab")])
@pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2"])
def test_as_an_independent_autograd_has_them(name, n, embedding):
    ranks = run_threads(of_frozen, n, name=name, embedding=embedding)
    found = assembled([rank["pieces"] for rank in ranks], Placement(config_of(name), n, embedding))
    same(found, part_of(name, "gradient"), 1e-11)
    for rank in ranks:
        for kind, loss in (("loss_smoothed", rank["loss"]), ("loss", rank["plain"])):
            np.testing.assert_allclose(loss * rank["tokens"], frozen()[f"{name}/{kind}"], rtol=1e-13)


@pytest.mark.parametrize(("name", "n", "embedding"), [
    ("llama-untied", 4, "vocab"), ("qwen2-like", 4, "hidden"), ("gpt2", 3, "vocab")])
def test_as_another_library_has_them_in_its_own_file_layout(name, n, embedding, tmp_path):
    """Its gradients are read as if they were its weights: transposed, fused and renamed as the format wants it."""
    copy(MODELS / name / "config.json", tmp_path)
    tensors = {key: np.ascontiguousarray(value) for key, value in np.load(MODELS / name / "gradients.npz").items()}
    assert tensors.keys() == load_file(MODELS / name / "model.safetensors").keys()
    save_file(tensors, tmp_path / "model.safetensors")
    expected, checkpoint, seen = open_checkpoint(tmp_path), open_checkpoint(MODELS / name), np.load(
        MODELS / name / "expected.npz")

    def pieces(comm):
        split = Split(comm, checkpoint.config, embedding, source=checkpoint, smoothing=0.0)
        ids = seen["ids"]
        return trained_pass(split, [(ids[:, :-1], ids[:, 1:])])

    ranks = run_threads(pieces, n)
    placement = Placement(checkpoint.config, n, embedding)
    found = assembled([rank["pieces"] for rank in ranks], placement)
    for parameter in placement.parameters:
        whole_of_it = tuple(slice(0, size) for size in parameter.shape)
        np.testing.assert_allclose(found[parameter.name], expected.read(parameter, whole_of_it, np.float64), rtol=0,
                                   atol=1e-9, err_msg=parameter.name)
    np.testing.assert_allclose(ranks[0]["loss"], seen["loss"], rtol=1e-12)
