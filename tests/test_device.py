"""The whole model on device arrays, without a device: nothing converted unasked, nothing but host arrays sent."""
import ast
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import minitp
from minitp.arrays import CupyArrays
from minitp.comm import Communicator, Partial, concatenate
from minitp.context import KVCache, plan_pass
from minitp.cut import Cut
from minitp.generate import Generation, Request
from minitp.gradients import Gradients
from minitp.layers import VocabParallelCrossEntropy
from minitp.layers.mlp import activate
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.sampling import Sampling
from minitp.train.optimizer import AdamW
from minitp.train.step import Passes, split_batch, train_step
from minitp.weights import load_weights
from tests.fake_device import FakeArrays, FakeDeviceArray, FakeModule, HostOnlyTransport
from tests.families import FAMILIES, source_of
from tests.mpi_world import run_threads
from tests.test_model import IDS, positions_of

LAYOUTS = [(name, embedding) for name in FAMILIES for embedding in ("vocab", "hidden")]
PROMPTS = ((3,), (1, 4, 2), (0, 2, 4, 4, 1, 3, 0))


def device_group(comm: Communicator) -> Communicator:
    return Communicator(HostOnlyTransport(comm.transport.shared, comm.rank), arrays=FakeArrays(), checked=True)


def passes(group: Communicator, family: str, embedding: str, load: str) -> list[np.ndarray]:
    """Logits at once, of the last rows, as shards, and with a cache, on the arrays of the group."""
    arrays, config = group.arrays, FAMILIES[family]
    placement = Placement(config, group.size, embedding)
    source = source_of(family) if load == "slice" or group.rank == 0 else None
    weights = load_weights(source, placement, group, mode=load, dtype=np.float64)
    model, found, cache = Transformer(config, placement, group), [], KVCache(2, 7, np.float64, arrays)
    for ids, start, last, kept in ((IDS, 0, None, None), (IDS, 0, np.array([6, 2]), None), (IDS[:, :4], 0, None, cache),
                                   (IDS[:, 4:5], 4, None, cache), (IDS[:, 5:], 5, None, cache)):
        ctx = plan_pass(config, positions_of(ids, start), dtype=np.float64, arrays=arrays, last=last, cache=kept)
        found += [model.forward(ids, weights, ctx, gathered=gathered).array for gathered in (True, False)]
    return found


def both(comm, family, embedding, load):
    device = device_group(comm)
    found = passes(device, family, embedding, load)
    assert all(isinstance(array, FakeDeviceArray) for array in found)
    for on_device, on_host in zip(found, passes(comm, family, embedding, load), strict=True):
        assert np.array_equal(device.arrays.to_host(on_device), on_host)          # the same operations, bit for bit
    assert [event[:12] for event in device.recorder.events] == [event[:12] for event in comm.recorder.events]


@pytest.mark.parametrize(("family", "embedding"), LAYOUTS)
def test_the_model_is_the_same_on_a_device(family, embedding):
    """Of three ranks one holds no heads in the smallest model; weights sliced, and scattered."""
    run_threads(both, 3 if family == "gpt2-gelu" else 2, family=family, embedding=embedding,
                load="scatter" if embedding == "hidden" else "slice")


def trained(comm, family, embedding):
    """Two steps, of two micro-batches each, on the host and on the device: losses, norms and weights equal."""
    found, config = [], FAMILIES[family]
    windows = np.random.default_rng(1).integers(0, config.vocab, (2, 3, 6))
    for group in (comm, device_group(comm)):
        placement = Placement(config, group.size, embedding)
        weights = load_weights(source_of(family), placement, group, dtype=np.float64)
        model, loss = Transformer(config, placement, group), VocabParallelCrossEntropy(group, placement.vocab, 0.1)
        gradients, optimizer = Gradients(weights, group.arrays), AdamW(weights, arrays=group.arrays)
        results = [train_step(model, loss, weights, gradients, optimizer, split_batch(window, 2), 0.01, step=step,
                              limit=1.0, passes=Passes(np.float64, "full", 0.1, arrays=group.arrays))
                   for step, window in enumerate(windows)]
        results = [replace(result, activations=0) for result in results]         # the stand-in's views know no base
        found.append([results, {name: w if group is comm else group.arrays.to_host(w) for name, w in weights.items()}])
    np.testing.assert_equal(found[0], found[1])


@pytest.mark.parametrize(("family", "embedding"), LAYOUTS[::3])
def test_training_is_the_same_on_a_device(family, embedding):
    run_threads(trained, 3, family=family, embedding=embedding)


def generations(comm, family, request):
    """A generation on the host and one on the device, equal; and what of the latter passed the doors."""
    made, config = [], FAMILIES[family]
    for group in (comm, device_group(comm)):
        placement = Placement(config, group.size)
        weights = load_weights(source_of(family), placement, group, dtype=np.float64)
        loaded = getattr(group.arrays, "from_host_count", 0)
        generation = Generation(Transformer(config, placement, group), weights, Request(PROMPTS, 3, **request),
                                dtype=np.float64, arrays=group.arrays)
        steps = list(generation)
        kept = generation.kept_logits() if generation.request.keep_logits else None
        made.append((generation.tokens, generation.gaps, kept))
    np.testing.assert_equal(made[0], made[1])
    collectives = [event.plane for event in group.recorder.events].count("data")
    return {"to_host": group.arrays.to_host_count - collectives, "steps": len(steps), "passes": len(generation.passes),
            "from_host": group.arrays.from_host_count - collectives - loaded}


@pytest.mark.parametrize(("family", "request_"), [
    ("llama", {"keep_logits": True}), ("llama", {}), ("gpt2", {"gathered": False}), ("mqa", {"gathered": False}),
    ("parallel", {"sampling": Sampling(1.0, top_p=0.8, seed=1)}),
    ("llama-tied", {"gathered": False, "sampling": Sampling(1.0, 3, seed=1)})])
def test_generation_is_the_same_on_a_device(family, request_):
    """And what passes the doors is known: each collective's array out and in; the logits of each choice, and of each
    pass where they are kept, out; a few small tables per pass in (angles, mask, slots, ids). No layer asks for a
    number, and the winners' exchange stays on the host."""
    for counts in run_threads(generations, 2, family=family, request=request_):
        assert counts["to_host"] == counts["steps"] + counts["passes"] * request_.get("keep_logits", False)
        assert 3 * counts["passes"] <= counts["from_host"] <= 8 * counts["passes"]


def moved(comm):
    """Every collective with device arrays in: device arrays out, right, and only host arrays at the transport."""
    group, cut = device_group(comm), Cut(5, comm.size)
    device, own = group.arrays.from_host, slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
    x, why = np.arange(10.0).reshape(2, 5), {"site": "s", "reason": "r"}

    def partial(scale=1.0):
        return Partial(device(x * scale * (comm.rank + 1)), group)

    total = x * sum(range(1, comm.size + 1))
    pieces = [(slice(0, 2), slice(cut.of(r).start, cut.of(r).stop)) for r in range(comm.size)]
    on_root = comm.rank == 0
    checks = {
        "all_reduce": (group.all_reduce(partial(), **why), total),
        "of a view": (group.all_reduce(partial()[1:].reshape(5), **why), total[1]),
        "of a sum": (group.all_reduce(partial() + partial(2.0) * 0.5, **why), 2 * total),
        "of a product": (group.all_reduce(partial() @ device(np.eye(5) * 3), **why), 3 * total),
        "side by side": (group.all_reduce(concatenate([partial(), partial()]), **why), np.concatenate([total] * 2, 1)),
        "reduce_scatter": (group.reduce_scatter(partial(), axis=1, cut=cut, **why), total[:, own]),
        "all_gather": (group.all_gather(device(x[:, own]), axis=1, cut=cut, **why), x),
        "all_to_all": (group.all_to_all(device(x[:, own]), axis=1, cut=cut, to_axis=0, to_cut=Cut(2, comm.size), **why),
                       x[Cut(2, comm.size).of(comm.rank).start:Cut(2, comm.size).of(comm.rank).stop]),
        "scatter": (group.scatter(device(x) if on_root else None, pieces=pieces, shape=(2, 5), dtype=np.float64, axis=1,
                                  **why), x[:, own]),
        "broadcast": (group.broadcast(device(x) if on_root else None, shape=(2, 5), dtype=np.float64, **why), x)}
    for op, result in (("reduce", group.reduce(partial(), **why)),
                       ("gather", group.gather(device(x[:, own]), axis=1, cut=cut, **why))):
        assert (result is None) is not on_root
        if on_root:
            checks[op] = (result, total if op == "reduce" else x)
    for name, (result, truth) in checks.items():
        assert isinstance(result, FakeDeviceArray), name
        np.testing.assert_array_equal(group.arrays.to_host(result), truth, err_msg=name)
    before = group.arrays.from_host_count, group.arrays.to_host_count
    assert group.share({"a": [1, "é"]} if on_root else None, **why) == {"a": [1, "é"]}
    assert group.on_root(lambda: [comm.rank], **why) == [0]
    assert (group.arrays.from_host_count, group.arrays.to_host_count) == before, "a control message took a detour"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_collectives_return_the_kind_they_got(n):
    run_threads(moved, n)


@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh"])
def test_activations_are_the_same_on_a_device(kind):
    x = np.linspace(-5, 5, 41, dtype=np.float32)
    arrays = FakeArrays()
    y = activate(arrays.from_host(x), kind, arrays.xp)
    assert y.dtype == np.float32 and np.array_equal(arrays.to_host(y), activate(x, kind, np))


# --- the stand-in itself, and CuPy -----------------------------------------------------------------------------------

def test_the_stand_in_refuses_what_cupy_refuses():
    """Otherwise the tests above prove nothing."""
    host, device = np.ones(3), FakeArrays().from_host(np.ones(3))
    ids = np.array([0, 2])
    for slip in (lambda: np.asarray(device), lambda: np.exp(device), lambda: np.concatenate([device, device]),
                 lambda: host + device, lambda: device + host, lambda: device @ host, lambda: np.float64(2) * device,
                 lambda: device[ids], lambda: device.__setitem__(ids, 0.0), lambda: device.__setitem__(slice(3), host),
                 lambda: host.__setitem__(slice(3), device), lambda: host[device], lambda: float(device[0]),
                 lambda: bool(device[0] > 0), lambda: list(device), lambda: FakeModule.exp(host),
                 lambda: FakeModule.where(host > 0, device, 0.0), lambda: np.ascontiguousarray(device)):
        with pytest.raises(TypeError):
            slip()
    with pytest.raises(AttributeError):
        FakeModule.tensordot                                              # noqa: B018  (nothing that isn't listed)
    assert np.isnan(FakeArrays().to_host(FakeModule.empty(2, np.float32))).all()


def names_of_xp() -> set[str]:
    """Every `xp.name` and `….xp.name` in minitp's sources."""
    found = set()
    for path in Path(minitp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                owner = node.value
                if (isinstance(owner, ast.Name) and owner.id == "xp") or (
                        isinstance(owner, ast.Attribute) and owner.attr == "xp"):
                    found.add(node.attr)
    return found


DOORS = {"cuda", "array"}                                                # what CupyArrays alone asks of CuPy


def test_every_function_of_xp_is_in_the_stand_in():
    names = names_of_xp()
    assert {"exp", "where", "concatenate", "empty"} <= names
    assert {name for name in names - DOORS if not hasattr(FakeModule, name)} == set()


def test_every_function_of_xp_is_in_cupy():
    """CuPy can be imported without a GPU (and is not there in most test environments)."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'minitp[cuda12]' checks its names")
    assert {name for name in names_of_xp() if not hasattr(cupy, name)} == set()
    used = [name for name in vars(FakeDeviceArray) if not name.startswith("_")]
    assert {name for name in used if not hasattr(cupy.ndarray, name)} == set()
    for name in ("get_current_stream", "Device", "is_available"):
        assert hasattr(cupy.cuda, name)


class Stream:
    """A stream whose copies happen when someone waits for it, and not before."""

    def __init__(self):
        self.pending = []

    def synchronize(self):
        while self.pending:
            self.pending.pop(0)()


class LazyArray(FakeDeviceArray):
    """An array that a kernel still in the stream will fill."""
    __slots__ = ()

    def reshape(self, *shape):
        return lazy(self._memory.reshape(*shape))

    def get(self, stream, out, blocking):
        assert out.shape == self.shape and out.flags.c_contiguous and not blocking
        stream.pending.append(lambda: np.copyto(out, self._memory))


def lazy(memory: np.ndarray) -> LazyArray:
    made = object.__new__(LazyArray)
    made._memory = memory
    return made


def test_to_host_waits_for_the_stream():
    """B17, as far as it goes without a GPU: the kernel that fills an array, and the copy, end before MPI reads."""
    stream = Stream()
    arrays = object.__new__(CupyArrays)
    arrays.xp = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream),
                                ascontiguousarray=lambda a: lazy(np.ascontiguousarray(a._memory)))
    arrays._pinned = lambda shape, dtype: np.full(shape, np.nan, dtype)
    for memory in (np.arange(12.0).reshape(3, 4), np.arange(12.0).reshape(3, 4).T[1:], np.array(5.0), np.ones((2, 0))):
        array = lazy(np.full(memory.shape, np.nan))
        if memory.flags.c_contiguous:
            stream.pending.append(lambda array=array, memory=memory: np.copyto(array._memory, memory))
        else:
            array._memory = memory
        host = arrays.to_host(array)
        assert np.array_equal(host, memory) and host.shape == memory.shape
        stream.pending.clear()
