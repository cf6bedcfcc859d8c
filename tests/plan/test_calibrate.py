"""Calibration: what is fitted to times of known α and β, what is written and read again, real ranks. No time is
asserted: machines differ."""
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.calibrate import (
    Calibration,
    Collective,
    beside,
    calibrate,
    caveat,
    machine_of,
    plausible,
    rank_numbers,
)
from minitp.plan.calibrate import machine_rates as calibrate_rates
from minitp.plan.calibrate import messages as calibrate_messages
from minitp.plan.calibrate.durations import Kind, durations
from minitp.plan.calibrate.error import Error
from minitp.plan.calibrate.messages import BETWEEN, OPS, SIZES, TESTS, Measured, SmallerGroups, collectives
from minitp.plan.catalogue import machine, write_machine
from minitp.plan.modeled import modeled, stated
from minitp.trace.file import Trace
from minitp.trace.schema import Event
from tests.mpi_world import run_threads
from tests.needs import missing
from tests.plan.calibration import ALPHA, BETA

FACTS = {"created": "2026-01-01T00:00:00+00:00", "world": "mpi", "ranks": 2, "hosts": 1, "cores": 2,
         "ranks_per_core": 1.0, "blas_threads": 1, "versions": {"mpi": 'MPICH "5"\n', "numpy": "2"}}
RATES = {name: {"alone": 2e10, "together": 1e10} for name in ("read", "copy", "float32", "float64")}


def a_collective(alpha: float, beta: float, noise=lambda _size: 1.0, op: str = "all_reduce", tests=TESTS) -> Collective:
    """As the calibration makes it of times alpha + n · beta, each times its noise, with quartiles around them."""
    def spread(size: int):
        quiet = (alpha + size * beta) * noise(size)
        return quiet, 1.1 * quiet, 1.3 * quiet

    made = Collective(op, 2, {size: spread(size) for size in sorted({*SIZES, *BETWEEN})}, None)
    return replace(made, error=Error.of((size, modeled_by(made, size), spread(size)[0]) for size in tests))


def modeled_by(collective: Collective, size: int) -> float:
    from minitp.plan.network.tables import interpolate
    return interpolate(collective.table, size)


def a_calibration(**facts) -> Calibration:
    messages = tuple((size, ALPHA + size * BETA) for size in SIZES)
    return Calibration(FACTS | facts, messages, tuple(a_collective(ALPHA, BETA, op=op) for op in OPS), RATES)


def test_known_times_give_their_pair_back():
    found = a_collective(7e-6, 3e-10)
    assert found.fit.seconds(0) == pytest.approx(7e-6)
    assert found.fit.seconds(2**20) == pytest.approx(7e-6 + 2**20 * 3e-10)
    assert found.fit.half_size == pytest.approx(7e-6 / 3e-10, rel=1e-6)
    assert found.fit_error.worst < 1e-6 and found.spread == pytest.approx(0.3)
    assert found.error.points == len(TESTS) and found.error.worst < 0.1       # a line in logarithms between powers of 2


@settings(max_examples=40)
@given(st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-8), st.integers(0, 2**32 - 1), st.floats(0, 0.1))
def test_noisy_times_give_nearly_their_pair_and_state_the_noise(alpha, beta, seed, most):
    draw = np.random.default_rng(seed)
    factors = {size: 1 + most * float(draw.uniform(-1, 1)) for size in (*SIZES, *BETWEEN, *TESTS)}
    found = a_collective(alpha, beta, factors.__getitem__)
    for size in SIZES:
        assert found.fit.seconds(size) == pytest.approx(alpha + size * beta, rel=4 * most + 1e-6)
    assert found.error.worst < 0.1 + 3 * most and found.error.median <= found.error.worst
    assert found.fit_error.worst_at in {*SIZES, *BETWEEN}


def test_an_error_is_relative_and_knows_where_it_is_worst():
    found = Error.of([(4, 1.0, 1.0), (16, 3.0, 2.0), (64, 8.0, 10.0), (256, 1.0, 0.0)])
    assert (found.worst, found.worst_at, found.median, found.points) == (0.5, 16, pytest.approx(0.2), 3)
    assert Error.of([]) is None and "at 16 B" in found.in_words()


def test_sizes_beside_a_jump_are_measured_next():
    smooth = {size: ALPHA + size * BETA for size in (*SIZES, *BETWEEN)}
    assert beside(smooth) == []
    jump = {size: seconds + (2e-5 if size > 8192 else 0) for size, seconds in smooth.items()}
    following = beside(jump)
    assert any(8192 < size < 16384 for size in following) and all(2048 < size < 65536 for size in following)
    assert all(size % 4 == 0 and size not in jump for size in following)
    assert beside({4: 0.0, **dict.fromkeys(SIZES[1:], 1e-5)}) == []
    assert beside({4: 1.0}) == [] and rank_numbers(2) == [2] and rank_numbers(12) == [2, 3, 4, 8, 12]


def test_a_time_far_above_that_of_a_larger_payload_is_left_out():
    lows = {4: 2.0, 16: 30.0, 64: 2.5, 256: 2.0, 1024: 9.0}
    times = {size: (low, low + 1, low + 2) for size, low in lows.items()}
    assert plausible(times) == {size: times[size] for size in (4, 64, 256, 1024)}      # a protocol may save a little
    assert list(plausible(dict(reversed(times.items())))) == [4, 64, 256, 1024] and plausible({}) == {}


def event(rank: int, sequence: int, op: str, enter: int, leave: int, **more) -> Event:
    given = {"root": None, "payload": 64, "plane": "data", "step": 1, "broken": False} | more
    return Event(rank, "tp", 0, sequence, given["plane"], op, given["root"], None, None, "a", "b", "calibrate",
                 given["step"], None, None, "", "", (16,), "float32", given["payload"], enter, leave, None, None, None,
                 None, given["broken"], "")


def test_a_collective_takes_from_the_last_arrival_to_the_last_result():
    trace = Trace.of([
        event(0, 0, "all_reduce", 100, 1000), event(0, 1, "broadcast", 2000, 2010, root=0),
        event(0, 2, "reduce", 3000, 3700, root=0), event(0, 3, "barrier", 4000, 9000, plane="control"),
        event(0, 4, "all_reduce", 9100, 9100, broken=True, payload=0),
        event(1, 0, "all_reduce", 600, 900), event(1, 1, "broadcast", 1500, 2100, root=0),
        event(1, 2, "reduce", 3200, 3210, root=0), event(1, 3, "barrier", 4000, 9000, plane="control"),
        event(1, 4, "all_reduce", 9100, 9100, broken=True, payload=0)])
    assert {kind: times.tolist() for kind, times in durations(trace).items()} == {
        Kind("all_reduce", 2, 64): [4e-7], Kind("broadcast", 2, 64): [1e-7], Kind("reduce", 2, 64): [5e-7]}
    assert durations(Trace.of([])) == {}


def test_times_with_a_lost_core_are_left_out_while_others_are_left():
    events = [event(rank, n, "all_reduce", 1000 * n, 1000 * n + 10 * (n + 1), step=n) for rank in (0, 1)
              for n in range(8)]
    trace = Trace.of(events)
    assert Measured(trace, np.array([False] * 8)).times()[Kind("all_reduce", 2, 64)] == pytest.approx(
        [1e-8 * n for n in range(2, 9)])                                          # step 0 warms up
    lost = np.array([False, True, False, True, False, False, False, True])
    assert Measured(trace, lost).times()[Kind("all_reduce", 2, 64)] == pytest.approx([3e-8, 5e-8, 6e-8, 7e-8])
    for n in (0, 1):                                                              # one undisturbed time is too few
        alone = Measured(trace, np.arange(8) != n)
        assert len(alone.times()[Kind("all_reduce", 2, 64)]) == 7
    low, middle, high = Measured(trace, lost).quartiles()[Kind("all_reduce", 2, 64)]
    assert low < middle < high


def test_the_description_is_read_again_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path))
    made = machine_of(a_calibration())
    write_machine(made, tmp_path / "this.toml")
    found = machine("this")
    assert found == made and found.measured == made.measured and found.levels[0].tables == made.levels[0].tables
    assert found.device.flops == made.device.flops and found.measured["versions"]["mpi"] == 'MPICH "5"'
    for size in (4, 2304, 3 * 4**7, 16 * 2**20):
        seconds, by = modeled(Kind("all_reduce", 2, size), found)
        assert by == "table" and seconds == pytest.approx(ALPHA + size * BETA, rel=0.1)
        assert modeled(Kind("all_reduce_max", 2, size), found)[0] == seconds      # a maximum moves what a sum does
    assert modeled(Kind("all_reduce", 3, 64), found)[1].startswith("α + nβ")
    assert modeled(Kind("all_reduce", 1, 64), found) == (None, "")
    assert stated(Kind("all_reduce", 2, 64), found).worst < 0.1 and stated(Kind("all_reduce", 3, 64), found) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["this.toml"]


@pytest.mark.parametrize(("text", "words"), [
    ('measured = 3', "table of texts"), ('measured = {a = {b = {c = {d = 1}}}}', "three deep"),
    ('measured = {a = nan}', "finite"), ('measured = {a = [1]}', "finite numbers only"),
    ('measured = {a = 2020-01-01}', "finite numbers only")])
def test_facts_of_a_foreign_file_are_refused(tmp_path, text, words):
    path = tmp_path / "theirs.toml"
    write_machine(machine_of(a_calibration()), path)
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line == "[machine.measured]")
    end = next(i for i, line in enumerate(lines) if line == "[[machine.level]]")
    path.write_text("\n".join([*lines[:start], text, *lines[end:]]))
    with pytest.raises(ConfigError, match=words):
        machine(path)


@pytest.mark.parametrize("errors", [
    3, {"all_reduce on 2": 3}, {"all_reduce on 2": {"median": "x", "worst": 1}},
    {"all_reduce on 2": {"median": -1.0, "worst": 1.0}}, {"all_reduce on 2": {"median": 1e9, "worst": 1.0}}, {}])
def test_an_error_that_cannot_be_is_none(errors):
    made = machine_of(a_calibration())
    assert stated(Kind("all_reduce", 2, 64), replace(made, measured={"errors": errors})) is None


def test_what_the_numbers_do_not_mean_is_said():
    assert caveat(a_calibration()) == ""
    assert "scheduler decides" in caveat(a_calibration(ranks=4, ranks_per_core=2.0))
    assert "how a model is split" in caveat(a_calibration(world="threads"))
    assert "one level" in caveat(a_calibration(hosts=2))
    assert not a_calibration().busy and a_calibration(load_before=1.5).busy


def a_few(comm, groups):
    """Every op on the first two of three ranks, and on all; ping-pong; rates."""
    found = []
    for ranks in (2, 3):
        part = groups.first(comm, ranks)
        measured = None if part is None else collectives(part, dict.fromkeys(OPS, (4, 20, 4096)), seconds=0, least=1)
        if measured is not None:
            found += [[*kind, *spread] for kind, spread in measured.quartiles().items()]
        calibrate_messages.meet_asleep(comm)
    return found, calibrate_messages.ping_pong(comm, (4, 64), seconds=0, least=2)


def test_every_op_runs_on_ranks_that_are_threads():
    groups = SmallerGroups()
    results = run_threads(lambda comm: a_few(comm, groups), 3)
    found, messages = results[0]
    assert sorted(row[:3] for row in found) == sorted([op, ranks, size] for op in OPS for ranks in (2, 3)
                                                      for size in (4, 20, 4096))
    assert all(0 < low <= middle <= high for *_, low, middle, high in found)
    assert [size for size, _ in messages] == [4, 64] and all(seconds > 0 for _, seconds in messages)
    assert all(other == [[], messages] for other in results[1:])


def test_rates_are_the_same_on_every_rank(monkeypatch):
    for name in ("LEAST", "MOST"):
        monkeypatch.setattr(calibrate_rates, name, 2**20)
    monkeypatch.setattr(calibrate_rates, "WIDE", 64)
    one, two = run_threads(lambda comm: calibrate_rates.rates(comm, seconds=0, quick=True), 2)
    assert one == two and set(one) == {"read", "copy", "float32", "float64"}
    assert all(rate > 0 for both in one.values() for rate in both.values())


def test_one_rank_has_nobody_to_send_to():
    with pytest.raises(ConfigError, match="--ranks 2"):
        run_threads(lambda comm: calibrate(comm, SmallerGroups()), 1)


def test_a_name_that_is_no_file_s_or_another_machine_s_is_refused(monkeypatch, tmp_path):
    from minitp.commands.plan.calibrate import _place
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path / "machines"))
    for name, words in [("../x", "can't be called"), ("a b", "can't be called"), ("", "can't be called"),
                        ("4xh100", "already")]:
        with pytest.raises(ConfigError, match=words):
            _place(name)
    assert _place("this") == tmp_path / "machines" / "this.toml"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MINITP_MACHINES", str(tmp_path / "file" / "x"))
    from minitp.errors import SaveError
    with pytest.raises(SaveError, match="MINITP_MACHINES"):
        _place("this")


def test_a_description_of_ranks_with_cores_outlives_one_of_ranks_that_take_turns(tmp_path):
    from minitp.commands.plan.calibrate import _write
    path = tmp_path / "this.toml"
    assert _write(a_calibration(), "this", path) == (str(path), [])
    before = path.read_bytes()
    for worse, name in (({"ranks": 3, "ranks_per_core": 1.5}, "this-3-ranks"),
                        ({"world": "threads"}, "this-2-threads")):
        where, changes = _write(a_calibration(**worse), "this", path)
        assert where == str(tmp_path / f"{name}.toml") and "stays as it was" in changes[0]
        assert path.read_bytes() == before and machine(where).name == name
    rates = {name: {"alone": 4e10, "together": 3e10} for name in RATES}
    faster = replace(a_calibration(created="2026-02-02"), rates=rates)
    where, [changes] = _write(faster, "this", path)
    assert where == str(path) and "10 GB/s, now 30 GB/s" in changes and "2026-01-01T00:00" in changes
    other = replace(faster, collectives=tuple(replace(one, ranks=4) for one in faster.collectives))
    assert "tables for 2 ranks are gone" in _write(other, "this", path)[1][1]
    path.write_text("nonsense")
    assert _write(faster, "this", path) == (str(path), [])


def run(tmp_path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "minitp", "plan", *words], capture_output=True, text=True, timeout=100,
                          env=os.environ | {"MINITP_MACHINES": str(tmp_path), "COLUMNS": "160"})


@pytest.mark.mpi
@pytest.mark.slow
def test_calibrate_then_check_with_mpi(tmp_path):
    from minitp.launcher.mpiexec import no_mpi
    if no_mpi():
        missing("MPI")
    done = run(tmp_path, "calibrate", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["op"] for row in found["collectives"]] == list(OPS) and found["facts"]["world"] == "mpi"
    assert all(row["latency_s"] >= 0 and 0 < row["table_error"]["points"] <= len(TESTS) for row in found["collectives"])
    trace = tmp_path / "run.json.gz"
    made = subprocess.run([sys.executable, "-m", "minitp", "generate", "-m", "tiny", "-n", "2", "--trace", str(trace),
                           "--max-tokens", "4", "--tokens", "1,5,9"], capture_output=True, text=True, timeout=100)
    assert made.returncode == 0, made.stderr
    checked = run(tmp_path, "check", str(trace), "--json")
    assert checked.returncode == 0, checked.stderr
    rows = json.loads(checked.stdout)["collectives"]
    assert rows and all(row["exact"] and row["by"] == "table" and row["ratio"] > 0 for row in rows)
    now = run(tmp_path, "check", "--collectives", "--seconds", "1")
    assert now.returncode == 0 and "all-reduces of 4 B to 16 MiB" in now.stdout
