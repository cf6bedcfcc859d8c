"""On a GPU: the model equals NumPy's, and a collective never reads what a kernel has not yet written.

    pip install 'minitp[cuda12]'        # or cuda13, by the driver
    pytest -m gpu tests/gpu
"""
import numpy as np
import pytest

from minitp.arrays import CupyArrays, choose_arrays
from minitp.comm import Communicator, Partial
from minitp.context import KVCache, plan_pass
from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import load_weights
from tests.fake_device import HostOnlyTransport
from tests.families import FAMILIES, plain_forward, plain_weights, source_of
from tests.mpi_world import run_threads
from tests.test_model import IDS, positions_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _a_gpu():
    try:
        CupyArrays()
    except ConfigError as error:
        pytest.skip(f"no GPU to compute with: {error}")


def gpu_group(comm: Communicator) -> Communicator:
    """One GPU for all ranks that are threads; each with a stream of its own, so that nothing is ordered by chance."""
    return Communicator(HostOnlyTransport(comm.transport.shared, comm.rank), arrays=CupyArrays(), checked=True)


def passes(comm, family, embedding, dtype):
    group = gpu_group(comm)
    arrays, config = group.arrays, FAMILIES[family]
    with arrays.xp.cuda.Stream(non_blocking=True):
        placement = Placement(config, group.size, embedding)
        source = source_of(family) if comm.rank == 0 else None
        weights = load_weights(source, placement, group, mode="scatter", dtype=dtype)
        model, cache = Transformer(config, placement, group), KVCache(2, 7, dtype, arrays)
        ctx = plan_pass(config, positions_of(IDS), dtype=dtype, arrays=arrays)
        whole = model.forward(IDS, weights, ctx)
        shard = model.forward(IDS, weights, ctx, gathered=False)
        assert arrays.is_device(whole.array) and whole.array.dtype == dtype
        steps = []
        for start, stop in ((0, 4), (4, 5), (5, 7)):
            part = IDS[:, start:stop]
            ctx = plan_pass(config, positions_of(part, start), dtype=dtype, arrays=arrays, cache=cache)
            steps.append(arrays.to_host(model.forward(part, weights, ctx).array))
        return arrays.to_host(whole.array), np.concatenate(steps, 1), arrays.to_host(shard.array)


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-10), ("float32", 2e-4)])
@pytest.mark.parametrize(("family", "embedding"), [(name, cut) for name in FAMILIES for cut in ("vocab", "hidden")])
@pytest.mark.parametrize("n", [1, 3])
def test_the_model_on_a_gpu_is_the_plain_one(n, family, embedding, dtype, bound):
    """Also on ranks that hold no heads: empty products, empty gathers, empty copies."""
    weights = plain_weights(source_of(family))
    truth = np.array([plain_forward(FAMILIES[family], weights, ids) for ids in IDS])
    ranks = run_threads(passes, n, family=family, embedding=embedding, dtype=dtype)
    for whole, steps, _ in ranks:
        np.testing.assert_allclose(whole, truth, rtol=0, atol=bound)
        np.testing.assert_allclose(steps, truth, rtol=0, atol=bound)
    np.testing.assert_allclose(np.concatenate([rank[2] for rank in ranks], -1), truth, rtol=0, atol=bound)


def test_generation_on_a_gpu_gives_the_tokens_of_the_host():
    def generated(comm, gathered):
        made = []
        for group in (comm, gpu_group(comm)):
            placement = Placement(FAMILIES["llama"], group.size)
            weights = load_weights(source_of("llama"), placement, group, dtype=np.float64)
            model = Transformer(FAMILIES["llama"], placement, group)
            request = Request(((3,), (1, 4, 2)), 8, gathered=gathered)
            generation = Generation(model, weights, request, dtype=np.float64, arrays=group.arrays)
            made.append(run(generation))
            assert min(generation.gaps) > 1e-6
        return made

    for gathered in (True, False):
        for on_host, on_gpu in run_threads(generated, 3, gathered=gathered):
            assert on_host == on_gpu


def summed(comm, times):
    """B17: matmul, then all-reduce at once, on a stream of this rank's own that nothing else waits for."""
    group = gpu_group(comm)
    xp, wrong = group.arrays.xp, 0
    rng = np.random.default_rng(comm.rank)
    a, b = rng.integers(-8, 8, (2, 256, 256)).astype(np.float32)          # whole numbers: sums are exact in any order
    mine = a @ b
    total = comm.all_reduce(Partial(mine.copy(), comm), site="s", reason="what NumPy says")
    with xp.cuda.Stream(non_blocking=True):
        on_a, on_b = group.arrays.from_host(a), group.arrays.from_host(b)
        for i in range(times):
            for _ in range(4):                                            # keeps the stream busy while the host goes on
                product = on_a @ on_b
            got = group.all_reduce(Partial(product * float(i % 3 + 1), group), site="s", reason="r")
            wrong += not np.array_equal(group.arrays.to_host(got), total * (i % 3 + 1))
    return wrong


def test_a_thousand_sums_right_behind_their_kernels():
    assert run_threads(summed, 2, times=1000) == [0, 0]


def test_staging_goes_through_pinned_memory():
    arrays = choose_arrays("cupy")
    for host in (np.arange(12.0).reshape(3, 4), np.array(2.5), np.ones((2, 0), np.float32), np.arange(6)[::2]):
        device = arrays.from_host(host)
        back = arrays.to_host(device)
        assert back.dtype == host.dtype and back.shape == host.shape and np.array_equal(back, host)
        if back.size:
            pointer = arrays.xp.cuda.runtime.pointerGetAttributes(back.ctypes.data)
            assert pointer.type == 1                                      # cudaMemoryTypeHost: page-locked
    source = np.zeros(1 << 20)
    device = arrays.from_host(source)
    source += 1                                                           # the copy was complete: this isn't in it
    assert not arrays.to_host(device).any()
    columns = arrays.from_host(np.arange(12.0).reshape(3, 4)).T
    assert np.array_equal(arrays.to_host(columns), np.arange(12.0).reshape(3, 4).T)
