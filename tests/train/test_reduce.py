"""What ranks owe each other before a step: copies summed once, the norm of the whole model, clipping, skipping."""
import numpy as np
import pytest

from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.placement import Placement
from minitp.train.reduce import clip, global_norm, owned, sum_copies
from tests.fake_device import FakeArrays, HostOnlyTransport
from tests.families import FAMILIES
from tests.mpi_world import run_threads, worlds
from tests.train.ranks import drawn, gradients_of, slices_of

LAYOUTS = [(name, embedding) for name in FAMILIES for embedding in ("vocab", "hidden")]


def reduced(comm, family, embedding, dtype="float64"):
    placement = Placement(FAMILIES[family], comm.size, embedding)
    gradients = gradients_of(placement, comm.rank, dtype=dtype)
    sum_copies(gradients, placement, comm)
    norm = global_norm(gradients, placement, comm)
    for name, piece in slices_of(gradients, placement, comm.rank).items():
        parameter = placement.parameter(name)
        np.testing.assert_allclose(piece, drawn(parameter, 1)[placement.slices(parameter, comm.rank)], atol=1e-5 if
                                   dtype == "float32" else 1e-12, err_msg=name)
    events = [[e.op, e.site, list(e.shape), e.dtype, e.before, e.after]
              for e in comm.recorder.events if e.plane == "data"]
    return norm, events, gradients


@pytest.mark.parametrize("world", worlds(mpi=(3,)))
def test_copies_are_summed_once_and_every_element_is_counted_once(world):
    """Two all-reduces of a closed form, and the norm of the one gradient that there is, on any number of ranks."""
    for family, embedding in LAYOUTS if world.kind == "threads" else [("llama", "hidden")]:
        placement = Placement(FAMILIES[family], world.n, embedding)
        true = sum((drawn(p, 1) ** 2).sum() for p in placement.parameters) ** 0.5
        copies = sum(p.size for p in placement.parameters if p.gradient == "partial")
        expected = [["all_reduce", "gradients.copies", [copies], "float64", "partial", "whole"]] * bool(copies)
        expected += [["all_reduce", "gradients.norm", [1], "float64", "partial", "whole"]]
        for norm, events, _ in world(reduced, family=family, embedding=embedding):
            assert norm == pytest.approx(true, rel=1e-12)
            assert events == expected


def test_the_norm_is_float64_whatever_the_gradient_is():
    norms = [norm for norm, *_ in run_threads(reduced, 4, family="llama", embedding="vocab", dtype="float32")]
    true = sum((drawn(p, 1).astype(np.float32).astype(float) ** 2).sum()
               for p in Placement(FAMILIES["llama"], 4).parameters) ** 0.5
    assert norms == pytest.approx([true] * 4, rel=1e-6)


@pytest.mark.parametrize(("family", "embedding"), LAYOUTS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_every_element_has_one_owner(family, embedding, ranks):
    placement = Placement(FAMILIES[family], ranks, embedding)
    for parameter in placement.parameters:
        counts = np.zeros(parameter.shape, int)
        for rank in range(ranks):
            counts[placement.slices(parameter, rank)][owned(parameter, placement, rank)] += 1
        assert (counts == 1).all(), parameter.name


def three_and_four(comm):
    """A40, A41: local norms 3 and 4 are 5 in all; the update, not only the number, has the limit's length."""
    placement = Placement(FAMILIES["gpt2"], comm.size)
    gradients = {name: np.zeros_like(g) for name, g in gradients_of(placement, comm.rank).items()}
    gradients["layers.0.mlp.up.weight"][0, 0] = 3.0 + comm.rank
    before = {name: g.copy() for name, g in gradients.items()}
    norm = global_norm(gradients, placement, comm)
    factor = clip(gradients, norm, 1.0)
    return norm, factor, sum(((before[n] * factor - gradients[n]) ** 2).sum() for n in before), \
        sum((g ** 2).sum() for g in gradients.values())


def test_clipping_shortens_the_update():
    results = run_threads(three_and_four, 2)
    assert [(norm, factor, wrong) for norm, factor, wrong, _ in results] == [(5.0, 0.2, 0.0)] * 2
    assert sum(squares for *_, squares in results) ** 0.5 == pytest.approx(1.0)


@pytest.mark.parametrize("limit", [10.0, float("inf")])
def test_a_short_gradient_is_left_as_it_is(limit):
    gradients = {"w": np.array([3.0, 4.0])}
    assert clip(gradients, 5.0, limit) == 1.0
    assert gradients["w"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_of_nothing_is_refused(limit):
    with pytest.raises(ConfigError, match="above 0"):
        clip({}, 1.0, limit)


def poisoned(comm, family, where, value):
    placement = Placement(FAMILIES[family], comm.size)
    gradients = gradients_of(placement, comm.rank)
    if comm.rank == 2:
        gradients[where].reshape(-1)[-1] = value
    sum_copies(gradients, placement, comm)
    return global_norm(gradients, placement, comm)


@pytest.mark.parametrize("where", ["layers.1.mlp.down.weight", "norm.weight", "layers.1.attention.qkv.weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_seen_by_all(where, value):
    """E18: on one rank only, in its shard, its copy of a whole one, its copy of a kv head."""
    assert not np.isfinite(run_threads(poisoned, 4, family="llama", where=where, value=value)).any()


def on_both(comm, family, embedding):
    host = reduced(comm, family, embedding)
    device = Communicator(HostOnlyTransport(comm.transport.shared, comm.rank), arrays=FakeArrays(), checked=True)
    placement, arrays = Placement(FAMILIES[family], comm.size, embedding), device.arrays
    gradients = {name: arrays.from_host(g) for name, g in gradients_of(placement, comm.rank).items()}
    sum_copies(gradients, placement, device)
    norm = global_norm(gradients, placement, device)
    assert norm == host[0]
    assert clip(gradients, norm, 0.5) == clip(host[2], norm, 0.5)
    for name, gradient in gradients.items():
        assert np.array_equal(arrays.to_host(gradient), host[2][name])


@pytest.mark.parametrize(("family", "embedding"), LAYOUTS)
def test_the_same_on_a_device(family, embedding):
    run_threads(on_both, 3, family=family, embedding=embedding)
