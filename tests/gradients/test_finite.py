"""Every layer and every composed module against finite differences, through the collectives, at odd sizes.

A comparison with one rank can't find what both share (a residual dropped in backward, a wrong scale): this can.
"""
from dataclasses import replace

import pytest

from minitp.layers import attention
from minitp.placement import Placement
from tests.families import FAMILIES
from tests.gradients.finite import differences, programs, wrong
from tests.mpi_world import run_threads

LAYERS = ["column", "row", "up", "boundary", "norm", "attention", "mlp", "embedding", "head", "loss"]
QUICK = [("llama", 2, "hidden"), ("llama", 5, "vocab"), ("llama-tied", 4, "hidden"), ("mqa", 5, "hidden"),
         ("mqa", 3, "vocab"), ("gpt2-gelu", 3, "hidden"), ("gpt2-gelu", 1, "vocab"), ("parallel", 3, "vocab"),
         ("llama", 1, "vocab")]


def check(n: int, family: str, embedding: str = "vocab", **options) -> None:
    config = FAMILIES[family]
    ranks = run_threads(differences, n, deadline=200, config=config.to_dict(), embedding=embedding, **options)
    assert wrong(ranks, Placement(config, n, embedding, options.get("cut", "even"))) == []


@pytest.mark.parametrize(("family", "n", "embedding"), QUICK)
def test_every_part_of_a_model(family, n, embedding):
    """Along random directions, one for x and one for each parameter: 9 heads in 3 groups, heads and rows of nothing."""
    check(n, family, embedding)


@pytest.mark.parametrize(("family", "n"), [("mqa", 2), ("gpt2-gelu", 2)])
def test_every_entry_of_every_layer(family, n):
    """A direction sums over an array; where two errors in it cancel, single entries don't."""
    check(n, family, names=LAYERS, every=30)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("number", "family"), list(enumerate(FAMILIES)))
def test_every_part_of_every_family(number, family, n):
    """Both embeddings and both cuts, in turn."""
    check(n, family, ("vocab", "hidden")[(n + number) % 2], cut="balanced" if n % 2 else "even", every=12)


@pytest.mark.parametrize("n", [1, 4])
def test_queries_that_attend_in_pieces(n, monkeypatch):
    """A long prompt's backward adds the pieces' gradients of keys and values up."""
    monkeypatch.setattr(attention, "QUERIES", 2)
    check(n, "llama", names=["attention"])
    check(n, "parallel", names=["attention"], recompute="selective", dropout=0.3)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize(("n", "vocab"), [(1, 7), (2, 7), (4, 7), (5, 3)])
def test_the_loss(n, vocab, smoothing):
    """A17: an odd vocabulary, a rank without any of it; at every logit."""
    config = replace(FAMILIES["mqa"], vocab=vocab)
    ranks = run_threads(differences, n, config=config.to_dict(), names=["loss"], smoothing=smoothing, every=70)
    assert wrong(ranks, Placement(config, n)) == []


@pytest.mark.parametrize(("family", "n", "recompute"), [
    ("llama", 4, "none"), ("llama", 2, "full"), ("gpt2-gelu", 3, "selective"), ("parallel", 2, "full")])
def test_with_dropout_and_recomputation(family, n, recompute):
    """A mask that is drawn by where it belongs is a constant: forward and backward, and a second forward, meet the
    same one."""
    check(n, family, names=["attention", "model"], dropout=0.4, recompute=recompute)


def test_the_check_sees_every_parameter():
    """Each is part of the whole model's slopes, and of one layer's."""
    for config in FAMILIES.values():
        names = [p.name for p in Placement(config, 1).parameters]
        made = programs(config)
        for those, among in (([made["model"]], names), ([made[layer] for layer in LAYERS], [
                name for name in names if not name.startswith(("layers.1.", "positions.")) and "_norm" not in name])):
            assert all(any(name.startswith(site + ".") for program in those for site in program.sites)
                       for name in among)


@pytest.mark.parametrize("n", [2, 4])
def test_the_scale_of_f_and_g(n):
    """A49: between enter and leave each rank multiplies by its own number; the ratio to the slope measured is exactly 1
    at any p: not p (f on top of a whole gradient) and not 1/p (an average)."""
    check(n, "llama", names=["boundary", "mlp"], every=60)
