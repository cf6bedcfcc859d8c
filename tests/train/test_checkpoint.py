"""Training checkpoints: whole tensors whatever the cut, complete or not there, the one before where one is damaged."""
import json
import resource
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from minitp.checkpoint import open_checkpoint
from minitp.checkpoint.safetensors import read_manifest
from minitp.errors import ConfigError, NumericsError, SaveError
from minitp.placement import Placement
from minitp.train.checkpoint import checkpoints, save
from minitp.train.optimizer import AdamW
from minitp.train.resume import holding, latest, open_training
from minitp.weights import load_weights
from tests.families import FAMILIES, LLAMA
from tests.mpi_world import run_threads
from tests.train.ranks import drawn, physical, slices_of, weights_of

DTYPES = {"float32": np.float32, "float64": np.float64, "bf16": np.float32}


def advance(placement, rank, weights, optimizer, steps):
    """Steps whose gradient depends on the step, on the weights and on the index, not on the cut."""
    homes = placement.homes(rank)
    for step in steps:
        def piece(p, step=step):
            array, rows = homes[p.name]
            return drawn(p, step)[placement.slices(p, rank)] + 0.1 * weights[array.name][rows]
        optimizer.step(physical(placement, rank, piece, next(iter(weights.values())).dtype), 0.01 * (step + 1))


def pieces_of(placement, rank, weights, optimizer):
    held = {"weights": weights} | optimizer.state()
    return {f"{kind} {name}": piece.copy() for kind, arrays in held.items()
            for name, piece in slices_of(arrays, placement, rank).items()}


def trained(comm, run, family, embedding="vocab", dtype="float64", steps=(3,), layers=None, **options):
    """A run that saves after each of `steps`."""
    config = FAMILIES[family] if layers is None else replace(FAMILIES[family], layers=layers)
    placement = Placement(config, comm.size, embedding)
    weights = weights_of(placement, comm.rank, dtype=DTYPES[dtype])
    optimizer = AdamW(weights, bf16=dtype == "bf16")
    done = 0
    for step in steps:
        advance(placement, comm.rank, weights, optimizer, range(done, step))
        done = step
        save(run, step, placement, weights, optimizer, comm, state={"seed": 7, "at": step}, **options)
    advance(placement, comm.rank, weights, optimizer, range(done, done + 2))
    return pieces_of(placement, comm.rank, weights, optimizer)


def resumed(comm, run, family, embedding="vocab", dtype="float64"):
    placement, said = Placement(FAMILIES[family], comm.size, embedding), []
    checkpoint = latest(run, comm, said.append)
    weights = load_weights(checkpoint.model, placement, comm, dtype=DTYPES[dtype])
    optimizer = AdamW(weights, bf16=dtype == "bf16")
    checkpoint.restore(optimizer, placement, comm)
    assert (optimizer.steps, checkpoint.state) == (checkpoint.step, {"seed": 7, "at": checkpoint.step})
    advance(placement, comm.rank, weights, optimizer, range(checkpoint.step, 5))
    return pieces_of(placement, comm.rank, weights, optimizer), checkpoint.step, said


def wholes(results, placement):
    """The logical arrays of all ranks, put together; copies must agree."""
    whole = {}
    for rank, pieces in enumerate(results):
        for name, piece in pieces.items():
            parameter = placement.parameter(name.split(" ")[1])
            full = whole.setdefault(name, np.full(parameter.shape, np.nan))
            place = full[placement.slices(parameter, rank)]
            assert (np.isnan(place) | (place == piece)).all(), name
            place[...] = piece
    return whole


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("family", "dtype", "before", "after"), [
    ("llama", "float64", (2, "vocab"), (5, "hidden")), ("mqa", "bf16", (6, "hidden"), (3, "hidden")),
    ("gpt2", "float32", (3, "vocab"), (2, "hidden")), slow("llama", "bf16", (5, "vocab"), (1, "vocab")),
    slow("llama-tied", "float64", (3, "hidden"), (4, "vocab")), slow("gpt2", "bf16", (1, "vocab"), (7, "hidden")),
    slow("gpt2", "float64", (4, "vocab"), (4, "vocab"))])
def test_a_run_goes_on_the_same_on_any_number_of_ranks(tmp_path, family, dtype, before, after):
    """Weights, moments, master weights and step count, bit for bit: A22, A54, E06, E09, of copied kv heads too."""
    unbroken = run_threads(trained, before[0], run=tmp_path, family=family, embedding=before[1], dtype=dtype)
    results = run_threads(resumed, after[0], run=tmp_path, family=family, embedding=after[1], dtype=dtype)
    assert all(step == 3 and not said for _, step, said in results)
    ours = wholes([pieces for pieces, *_ in results], Placement(FAMILIES[family], *after))
    for name, true in wholes(unbroken, Placement(FAMILIES[family], *before)).items():
        assert np.array_equal(ours[name], true), name


@pytest.mark.mpi
def test_processes_write_what_threads_write(tmp_path, mpi):
    mpi(3, trained, run=str(tmp_path / "mpi"), family="llama")
    run_threads(trained, 2, run=tmp_path / "threads", family="llama", embedding="hidden")
    for name in ("model.safetensors", "optimizer.safetensors", "config.json"):
        assert (tmp_path / "mpi/step-00000003" / name).read_bytes() == (
            tmp_path / "threads/step-00000003" / name).read_bytes()


def test_a_checkpoint_is_a_model_folder_of_whole_tensors(tmp_path):
    def extra(folder):
        (folder / "tokenizer.json").write_text("{}")
    run_threads(trained, 3, run=tmp_path, family="llama", extra=extra)
    folder = tmp_path / "step-00000003"
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "model.safetensors", "optimizer.safetensors",
                                                        "tokenizer.json", "training.json"]
    assert open_checkpoint(folder).config == replace(LLAMA, name="step-00000003")
    held = {name: entry.shape for name, entry in read_manifest(folder / "optimizer.safetensors").tensors.items()}
    assert held == {f"{kind}.{p.name}": p.shape for kind in "mv" for p in Placement(LLAMA, 1).parameters}
    facts = json.loads((folder / "training.json").read_text())
    assert facts["placement"] == {"ranks": 3, "embedding": "vocab", "cut": "even"}
    assert set(facts["files"]) == {p.name for p in folder.iterdir()} - {"training.json"}


def events(comm, run):
    trained(comm, run, "llama")
    return [(e.plane, e.phase, e.step, e.op, e.site) for e in comm.recorder.events]


def test_what_comes_together_is_on_record_and_no_sync_point(tmp_path):
    """One gather per cut tensor, as control messages of the phase checkpoint; nothing for what rank 0 has whole."""
    found = run_threads(events, 3, run=tmp_path)[1]
    assert {tuple(e[:3]) for e in found} == {("control", "checkpoint", 3)}
    cut = sum(p.cut_axis is not None for p in Placement(LLAMA, 3).parameters)
    assert [e[3] for e in found].count("gather") == 3 * cut


WIDE = replace(LLAMA, hidden=1024, layers=8)


def peak(comm, run):
    placement = Placement(WIDE, comm.size)
    weights = weights_of(placement, comm.rank)
    optimizer = AdamW(weights)
    tracemalloc.start()
    try:
        save(run, 1, placement, weights, optimizer, comm)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_one_parameter_at_a_time_is_held(tmp_path):
    """Beside what is trained, a few times the largest tensor and what is known of each; never the model."""
    sizes = [p.size * 8 for p in Placement(WIDE, 1).parameters]
    most = run_threads(peak, 1, run=tmp_path)[0]
    assert most < 6 * max(sizes) + 5_000 * len(sizes)
    assert most < sum(sizes) / 2


def test_the_last_ones_are_kept_and_only_those(tmp_path):
    (tmp_path / "step-00000000").mkdir()                                   # not ours: never removed
    run_threads(trained, 2, run=tmp_path, family="mqa", steps=(1, 2, 3), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000000", "step-00000002", "step-00000003"]
    assert [p.name for p in checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]


# --- folders that can't be written ------------------------------------------------------------------------------------

@contextmanager
def files_of_at_most(size):
    """The system refuses to let a file grow beyond it, as a full disk does: in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def saves_badly(comm, run, message):
    with pytest.raises(SaveError, match=message):
        trained(comm, run, "llama", steps=(1,))


@pytest.mark.parametrize("size", [100, 10_000, 20_000])
def test_a_full_disk_leaves_the_last_one_and_no_rank_waiting(tmp_path, size):
    """It fills up at the first byte, within the model, within the optimizer's state."""
    run_threads(trained, 1, run=tmp_path, family="mqa", steps=(0,))
    with files_of_at_most(size):
        run_threads(saves_badly, 3, run=tmp_path, message="can't be written.*step-00000000 is still there")
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000"]
    open_training(tmp_path / "step-00000000")


def saves_on_a_full_disk(comm, run):
    with files_of_at_most(10_000):
        saves_badly(comm, run, "can't be written.*no checkpoint yet")


@pytest.mark.mpi
def test_no_process_waits_for_one_whose_disk_is_full(tmp_path, mpi):
    mpi(3, saves_on_a_full_disk, run=str(tmp_path / "run"))
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_can_not_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    run_threads(saves_badly, 2, run=tmp_path / "file", message="Not a directory.*no checkpoint yet")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("ours", [True, False])
def test_nothing_is_written_over(tmp_path, ours):
    folder = tmp_path / "step-00000001"
    if ours:
        run_threads(trained, 1, run=tmp_path, family="mqa", steps=(1,))
    else:
        folder.mkdir()
        (folder / "thesis.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    run_threads(saves_badly, 2, run=tmp_path, message="a checkpoint of that step" if ours else "something else")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def unstorable(comm, run):
    with pytest.raises(ConfigError, match=r"no family of config.json|GPT-2 has learned"):
        trained(comm, run, "parallel", steps=(1,))


def test_a_model_without_such_a_folder_is_refused_by_all_ranks(tmp_path):
    run_threads(unstorable, 3, run=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def saves_spoilt(comm, run, dtype):
    """The last rank's part of one matrix holds an infinity."""
    placement = Placement(LLAMA, comm.size)
    weights = weights_of(placement, comm.rank, dtype=DTYPES[dtype])
    array, rows = placement.homes(comm.rank)["layers.0.mlp.down.weight"]
    if comm.rank == comm.size - 1:
        weights[array.name][rows][0, -1] = np.inf
    with pytest.raises(NumericsError, match=r"layers.0.mlp.down.weight isn't finite.*no checkpoint"):
        save(run, 4, placement, weights, AdamW(weights, bf16=dtype == "bf16"), comm, keep=1)


@pytest.mark.parametrize("dtype", ["float64", "bf16"])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, dtype):
    run_threads(trained, 2, run=tmp_path, family="llama", dtype=dtype)
    run_threads(saves_spoilt, 3, run=tmp_path, dtype=dtype)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000003"]
    open_training(tmp_path / "step-00000003")


def fails_to_add(comm, run):
    def extra(folder):
        raise ConfigError("no tokenizer to be had")
    with pytest.raises(ConfigError, match="no tokenizer"):
        trained(comm, run, "mqa", extra=extra)


def test_what_else_fails_leaves_nothing_either(tmp_path):
    run_threads(fails_to_add, 3, run=tmp_path)
    assert list(tmp_path.iterdir()) == []


def held(comm, run):
    said = []
    with holding(run, comm, said.append):
        if comm.rank == 0:
            waits = []
            with pytest.raises(SaveError, match="another run is at work"):
                run_threads(lambda other: holding(run, other, waits.append, wait=0.1).__enter__(), 2)
            assert len(waits) == 1 and "another run is at work in" in waits[0]
        comm.barrier(site="test", reason="let go together")
    with holding(run, comm, said.append, wait=5):
        assert not said


def test_one_run_at_a_time_works_in_a_folder(tmp_path):
    run_threads(held, 2, run=tmp_path / "new")


# --- another run ------------------------------------------------------------------------------------------------------

def restores(comm, run, family, dtype, message):
    placement = Placement(FAMILIES[family], comm.size)
    weights = weights_of(placement, comm.rank, dtype=DTYPES[dtype])
    with pytest.raises(ConfigError, match=message):
        latest(run, comm, print).restore(AdamW(weights, bf16=dtype == "bf16"), placement, comm)


@pytest.mark.parametrize(("family", "dtype", "message"), [
    ("mqa", "bf16", "trained in float32, and this run computes in bf16"), ("mqa", "float64", "computes in float64"),
    ("llama", "float32", "another model: hidden was 6, here it is 10")])
def test_a_run_goes_on_as_what_it_was(tmp_path, family, dtype, message):
    run_threads(trained, 2, run=tmp_path, family="mqa", dtype="float32")
    run_threads(restores, 2, run=tmp_path, family=family, dtype=dtype, message=message)
