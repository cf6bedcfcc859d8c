"""The benchmarks' rows have their fields and sane values, on threads and MPI. No time is asserted: machines differ."""
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from minitp import bench
from minitp.bench import loading
from minitp.bench.messages import OPS, SIZES
from minitp.bench.steps import Products
from minitp.config import TINY, ModelConfig
from minitp.errors import ConfigError
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.train.config import TrainConfig
from minitp.train.memory import KINDS
from minitp.weights import RandomSource, load_weights
from tests.mpi_world import run_threads, worlds

GPT = replace(TINY, name="gpt", norm="layer", activation="gelu_tanh", gated=False, rotary=None, kv_heads=8, tied=True,
              parallel_block=True)
COMMON = {"kind", "world", "ranks", "threads", "cores", "load", "note"}
STEP = COMMON | {"model", "dtype", "prompt", "weight_bytes", "tokens_per_second", "share_of_limit", "rounds",
                 "tokens_per_round", "sync_points", "waiting_share", "moving_share", "recording_us", "recording_share"}
SMALL_RUN = TrainConfig.from_dict({"train": {"batch": 3, "tokens": 8, "micro_batches": 2}})
WHERE = worlds(threads=(1, 2, 3), mpi=(2,))


def make(comm, config: ModelConfig = TINY, **options):
    placement = Placement(config, comm.size, **options)
    return Transformer(config, placement, comm), load_weights(RandomSource(config), placement, comm)


def every_benchmark(comm, file: str):
    """All rows of this rank, and how many events are in the caller's own trace."""
    model, weights = make(comm)
    before = len(comm.recorder.events)
    rows = {
        "decode": bench.decode(model, weights, prompt=4, tokens=2, rounds=5),
        "prefill": bench.prefill(model, weights, tokens=9, rounds=5),
        "collective": bench.collective(comm, sizes=(4, 64, 4096), calls=5),
        "recording": bench.recording(comm),
    }
    traced = {e.site for e in comm.recorder.events[before:] if e.plane != "control"}
    rows["train"] = bench.training(comm, SMALL_RUN, rounds=5)
    rows["load"] = bench.load(comm, lambda: RandomSource(TINY), files=lambda _source: Path(file))
    return {"rows": rows, "traced": sorted(traced)}


@pytest.fixture(params=WHERE, scope="module")
def measured(request, tmp_path_factory):
    world = request.param
    file = tmp_path_factory.mktemp("bench") / "model.bin"
    file.write_bytes(bytes(100_000))
    return world, world(every_benchmark, file=str(file))


def rows_of(measured, kind: str) -> list[dict]:
    """The rows, checked to be the same on all ranks where they say the same thing, and plain data."""
    _, results = measured
    rows = [result["rows"][kind] for result in results]
    for other in rows[1:]:
        for one, two in zip(rows[0], other, strict=True):
            assert {k: v for k, v in one.items() if k != "load"} == {k: v for k, v in two.items() if k != "load"}
    json.dumps(rows[0])
    return rows[0]


def no_speed(world) -> bool:
    return world.kind == "threads" and world.n > 1


@pytest.mark.parametrize(("kind", "unit", "rate"), [("decode", "token", "gigabytes_per_second"),
                                                    ("prefill", "pass", "gigaflops")])
def test_steps_stand_beside_their_limit(measured, kind, unit, rate):
    world, _ = measured
    [row] = rows_of(measured, kind)
    times = [f"ms_per_{unit}_min", f"ms_per_{unit}", f"ms_per_{unit}_max"]
    more = {"kv_cache_bytes"} if kind == "decode" else set()
    assert set(row) == STEP | more | {*times, f"limit_ms_per_{unit}", rate, f"limit_{rate}"}
    assert row["kind"] == kind and row["model"] == "tiny" and row["dtype"] == "float32" and row["rounds"] == 5
    assert row["ranks"] == world.n and row["world"] == world.kind
    assert 0 < row[times[0]] <= row[times[1]] <= row[times[2]] and row[f"limit_ms_per_{unit}"] > 0
    assert row["sync_points"] == 2 * TINY.layers + 2
    assert 0 < row["recording_us"] < 1000 and 0 < row["recording_share"] < 1
    assert (row["waiting_share"] is None) == (world.n == 1)
    assert world.n == 1 or 0 <= row["waiting_share"] <= 1
    if no_speed(world):
        assert row["tokens_per_second"] is row["share_of_limit"] is row[rate] is row[f"limit_{rate}"] is None
        assert "take MPI ranks" in row["note"]
    else:
        tokens = 1 if unit == "token" else 9
        assert row["tokens_per_second"] == pytest.approx(1e3 * tokens / row[f"ms_per_{unit}"])
        assert row["share_of_limit"] == pytest.approx(row[f"limit_ms_per_{unit}"] / row[f"ms_per_{unit}"])
        assert row[rate] > 0 and row["note"] == ""


def test_collectives_stand_beside_the_bare_call(measured):
    world, results = measured
    rows, [recording] = rows_of(measured, "collective"), rows_of(measured, "recording")
    assert [(row["op"], row["bytes"]) for row in rows] == [(op, size) for op in OPS for size in (4, 64, 4096)]
    for row in rows:
        assert set(row) == COMMON | {"op", "bytes", "calls", "median_us", "p10_us", "p90_us", "limit_median_us",
                                     "limit_p10_us", "limit_p90_us", "share_of_limit"}
        assert 0 < row["p10_us"] <= row["median_us"] <= row["p90_us"] and row["limit_median_us"] > 0
        assert (row["share_of_limit"] is None) == no_speed(world)
    assert set(recording) == COMMON | {"recording_us"} and recording["kind"] == "recording"
    assert all(result["traced"] == [] for result in results)              # the caller's trace stays its own


def test_loading_says_what_each_rank_keeps(measured):
    world, _ = measured
    rows = rows_of(measured, "load")
    placement = Placement(TINY, world.n)
    assert [row["rank"] for row in rows] == list(range(world.n))
    for rank, row in enumerate(rows):
        assert set(row) == COMMON | {
            "rank", "model", "dtype", "mode", "first_token_s", "open_s", "first_load_s", "load_s", "load_s_min",
            "load_s_max", "limit_s", "rounds", "shard_bytes", "bytes_per_second", "share_of_limit", "peak_rss_bytes",
            "private_bytes", "private_clean_bytes", "private_dirty_bytes", "private_over_shard_mib"}
        assert row["shard_bytes"] == 4 * placement.elements(rank)
        assert 0 < row["open_s"] + row["first_load_s"] < row["first_token_s"] < 600 and row["limit_s"] > 0
        assert 10e6 < row["private_dirty_bytes"] < row["peak_rss_bytes"] * 1.1
        if no_speed(world):
            assert row["private_bytes"] is row["bytes_per_second"] is None and "can't be told per rank" in row["note"]
        else:
            assert row["private_bytes"] == row["private_clean_bytes"] + row["private_dirty_bytes"]
            assert row["private_over_shard_mib"] * 2**20 == pytest.approx(row["private_bytes"] - row["shard_bytes"])


def test_training_says_what_each_rank_holds_and_takes(measured):
    world, _ = measured
    rows = rows_of(measured, "train")
    placement = Placement(TINY, world.n)
    assert [row["rank"] for row in rows] == list(range(world.n))
    for rank, row in enumerate(rows):
        weights = 4 * placement.elements(rank)
        assert (row["weights_bytes"], row["gradients_bytes"], row["optimizer_bytes"]) == (weights, weights, 2 * weights)
        assert row["activations_bytes"] > 2 * 8 * TINY.hidden * 4 * 2 * TINY.layers
        assert row["held_bytes"] == sum(row[f"{kind}_bytes"] for kind in KINDS)
        assert row["baseline_bytes"] > 10e6 and row["step_s"] > 0
        if no_speed(world):
            assert row["explained_share"] is None and "can't be told per rank" in row["note"]
            assert "tokens_per_second" not in row
        else:
            explained = row["baseline_bytes"] + row["held_bytes"]
            assert row["explained_share"] == pytest.approx(explained / row["private_peak_bytes"])
            assert row["tokens_per_second"] == pytest.approx(3 * 8 / row["step_s"])


@pytest.mark.slow
@pytest.mark.mpi
def test_what_is_held_explains_the_memory_that_training_takes():
    """A model of 13 million weights on two ranks, in a process of its own: within 10 %."""
    settings = '[model]\nfamily = "llama"\nhidden = 512\nlayers = 6\nheads = 8\n[train]\nbatch = 4\ntokens = 256\n'
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.toml").write_text(settings)
        done = subprocess.run([sys.executable, "-m", "minitp", "bench", "train", "--ranks", "2", "--world", "mpi",
                               "--rounds", "5", "--config", str(Path(folder) / "run.toml")], capture_output=True,
                              text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2 and all(0.9 < row["explained_share"] < 1.1 for row in rows)


@pytest.mark.parametrize(("config", "embedding"), [(TINY, "vocab"), (GPT, "vocab"), (GPT, "hidden")])
def test_the_limit_is_every_product_of_the_model_and_no_other(config, embedding):
    """Each weight matrix once; of the tables, the one that the head multiplies."""
    def sizes(comm):
        model, weights = make(comm, config, embedding=embedding)
        return Products(model, weights, 3, np.float32), {name: w for name, w in weights.items() if w.ndim == 2}

    for products, matrices in run_threads(lambda comm: [sizes(comm)], 1)[0]:
        multiplied = {name: w for name, w in matrices.items()
                      if "positions" not in name and (config.tied or name != "embedding.weight")}
        assert products.nbytes == sum(w.nbytes for w in multiplied.values())
        head = config.vocab * config.hidden
        assert products.operations == 2 * (3 * (products.nbytes // 4 - head) + head)
        products.run()


def test_what_cannot_be_measured_is_refused():
    def refused(comm):
        model, weights = make(comm)
        for call, words in [
                (lambda: bench.decode(model, weights, rounds=4), "at least 5"),
                (lambda: bench.decode(model, weights, prompt=200, tokens=10), "holds 256"),
                (lambda: bench.prefill(model, weights, tokens=257), "holds 256"),
                (lambda: bench.collective(comm, sizes=(6,)), "multiples of 4"),
                (lambda: bench.collective(comm, ops=("reduce",)), "can't measure reduce")]:
            with pytest.raises(ConfigError, match=words):
                call()
        return True

    assert run_threads(refused, 1) == [True]
    assert SIZES[0] == 4 and SIZES[-1] == 16 * 2**20


def test_a_plain_read_takes_the_files_again_until_it_has_the_shard_s_bytes(tmp_path):
    with pytest.raises(ConfigError, match="no file to read"):
        loading._sequential(tmp_path, 10)
    (tmp_path / "a.safetensors").write_bytes(bytes(3000))
    (tmp_path / "config.json").write_text("{}")
    loading._sequential(tmp_path, 10_000)()


def test_time_counts_from_the_start_of_the_process_or_of_the_job():
    import time
    assert 0 < loading._since(None) < 24 * 3600
    assert 9 < loading._since(time.time() - 10) < 20
