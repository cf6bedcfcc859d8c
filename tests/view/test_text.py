"""The picture in words says the numbers of the play, each once, and nothing else."""
import re
from pathlib import Path

import numpy as np
import pytest

import minitp
from minitp.trace import Trace
from minitp.trace.wording import duration, size
from minitp.view.text import caption, place, steps
from tests.trace.trace_runs import body, on_threads
from tests.view.view_runs import RUNS, read, run

every_run = pytest.mark.parametrize("name", RUNS)
TRACES = Path(minitp.__file__).parent / "view" / "traces"
TIME = r"[\d.,]+ (?:ns|µs|ms|s)\b"


def broken(trace: Trace, site: str) -> Trace:
    """The same trace as if the sums at `site` had been skipped."""
    plain = trace.to_plain()
    at = trace.words("site") == site
    plain["events"] = plain["events"] | {"broken": at.tolist(), "leave": np.where(
        at, trace.events["enter"], trace.events["leave"]).tolist()}
    return Trace.from_plain(plain)


@every_run
def test_captions_say_who_was_last_and_what_each_rank_waited(name):
    reader = read(run(**RUNS[name]))
    for k in range(reader.n):
        sync, arriving = reader.sync(k), caption(reader, k, 1)
        waits = {rank: ns for rank, ns in sync.waits.items() if ns}
        assert re.findall(rf"rank (\d+): ({TIME})", arriving) == [(str(r), duration(ns)) for r, ns in waits.items()]
        if reader.ranks == 1:
            assert arriving == "One rank alone: nobody to wait for."
        elif sync.op in ("scatter", "broadcast"):
            assert arriving.startswith("Data comes from rank 0;")
        else:
            assert arriving.startswith(f"Rank {sync.last} came last;") and sync.last not in waits


@every_run
def test_captions_say_the_computing_times_the_payload_and_the_true_sum(name):
    reader = read(run(**RUNS[name]))
    for k in range(reader.n):
        sync, slots = reader.sync(k), reader.slots(k)
        times = re.findall(TIME, caption(reader, k, 0))
        assert times == [duration(ns) for ns in sync.computing.values()]
        combining = caption(reader, k, 2)
        assert combining.count(f"payload {size(sync.payload)}") == 1
        if "y[0] = " in combining:
            terms, total = re.fullmatch(r".* y\[0\] = (.*) [=≈] (\S+)\.", combining).groups()
            shown = [float(term.strip("()").replace("−", "-")) for term in terms.split(" + ")]
            exact = [slots["first", rank].numbers[0, 0] for rank in range(reader.ranks)]
            decimals = max(len(text.partition(".")[2]) for text in [*terms.replace(")", "").split(" + "), total])
            digit = 0.5000001 * 10.0 ** -decimals                             # all are rounded to the same one
            np.testing.assert_allclose(shown, exact, rtol=0, atol=digit)
            result = slots["sum", -1].numbers[0, 0]
            assert float(total.replace("−", "-")) == pytest.approx(result, rel=0, abs=digit)
            assert digit < 0.006 * max(map(abs, [*exact, result])) or decimals >= 6


def test_every_sum_of_kept_arrays_has_its_equation():
    reader = read(run(**RUNS["uneven heads"]))
    sums = [k for k in range(reader.n) if reader.word("op", k) == "all_reduce"]
    assert len(sums) == 3 * 5 and all("y[0] = " in caption(reader, k, 2) for k in sums)


def test_captions_have_four_phases():
    reader = read(run(**RUNS["no values"]))
    assert len({caption(reader, 1, phase) for phase in range(4)}) == 4
    with pytest.raises(ValueError, match="phases 0 to 3"):
        caption(reader, 0, 4)


def test_a_broken_sync_waits_for_nobody_and_moves_nothing():
    reader = read(broken(run(**RUNS["uneven heads"]), "layers.1.mlp.down"))
    assert reader.run["broken"] == ["layers.1.mlp.down"]
    assert any("Broken on purpose at layers.1.mlp.down" in note for note in reader.run["notes"])
    k = reader.first_broken()
    assert reader.word("site", k) == "layers.1.mlp.down" and not any(reader.sync(k).waits.values())
    assert "no rank comes to this gate" in caption(reader, k, 1) and "is skipped" in caption(reader, k, 2)
    assert {("out", rank) for rank in range(5)} <= set(reader.slots(k)) and ("out", -1) not in reader.slots(k)
    assert steps(reader, reader.sync(k).pass_index)[4]["state"] == "partial → whole (broken: skipped)"


@every_run
def test_the_table_has_a_row_for_every_bead(name):
    reader = read(run(**RUNS[name]))
    for i, (first, count) in enumerate(zip(reader.play["passes"]["first"], reader.play["passes"]["count"],
                                           strict=True)):
        rows = steps(reader, i)
        assert [row["number"] for row in rows] == list(range(1, count + 1))
        for k, row in zip(range(first, first + count), rows, strict=True):
            sync = reader.sync(k)
            assert row["site"] == sync.site and sync.reason in row["what"] and row["payload"] == size(sync.payload)
            assert row["last"] == ("–" if reader.ranks == 1 else f"rank {sync.last}")
            assert row["state"] == f"{sync.before} → {sync.after}"
            assert place(reader, k).endswith(f"sync point {row['number']} of {count}")


def test_the_code_that_called_stands_beside_it():
    """Of a run that came with minitp: in tests the checks of shapes stand between a layer and its communicator."""
    reader = read(Trace.read(TRACES / "tiny-4-ranks.json.gz"))
    called = {sync.part: sync for sync in map(reader.sync, range(reader.n))}
    assert "all_gather" in called["embedding"].code and "all_gather" in called["head"].code
    assert all(sync.code and sync.caller.startswith("minitp/") for sync in called.values())


def test_a_run_without_minitp_sites_is_told_all_the_same():
    trace = on_threads(2, lambda comm: body(comm, tokens=1, seconds=0))[0]
    reader = read(trace)
    assert "layer 1 · MLP · sync point 5 of 6" in place(reader, reader.n - 2)
    assert "PASS" not in "".join(caption(reader, k, phase) for k in range(reader.n) for phase in range(4))
