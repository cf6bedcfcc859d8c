"""Numbers in tables: what is counted, what is said, and that nothing from a file reaches the terminal raw."""
import io
import json

import pytest
from rich.console import Console
from trace_runs import body, on_threads

from minitp.errors import ConfigError
from minitp.trace import Event, Mark, Timeline, Trace
from minitp.trace.schema import CHECK
from minitp.trace.show import show
from minitp.trace.summary import BY, TAIL, as_plain, crowded, stragglers, summarize, total
from minitp.trace.wording import count, duration, kind_of_site, plain, share, size


def two_ranks():
    """Rank 1 comes 20 ns later to one all-reduce of each of 2 layers, and both to a control barrier."""
    events, marks = [], []
    for rank in range(2):
        at = 20 * rank
        for layer in range(2):
            begin = 100 * layer
            site = f"layers.{layer}.mlp.down"
            events.append(Event(rank, "tp", 0, layer, "data", "all_reduce", None, None, None, site, "add", "decode", 0,
                                None, None, "partial", "whole", (1, 1, 4), "float32", 16,
                                begin + 10 + at, begin + 50, None, None, None, None, False, ""))
        events.append(events[-1]._replace(sequence=2, plane="control", op="barrier", enter=200, leave=210))
        marks.append(Mark(rank, "decode", 0, None, 0, 220))
    return Trace.of(events, marks, run={"ranks": 2})


def printed(trace, width=120, **options):
    stream = io.StringIO()
    show(trace, console=Console(file=stream, width=width, highlight=False), **options)
    return stream.getvalue()


def test_known_numbers():
    timeline = Timeline.of(two_ranks())
    row, = summarize(timeline)
    assert (row.key, row.passes, row.sync_points, row.control, row.payload) == ("decode", 1, 2, 1, 32)
    assert (row.waiting, row.moving) == (40, 2 * (20 + 20) + 20)
    assert row.computing == 440 - row.waiting - row.moving
    assert total(timeline, rank=1).waiting == 0
    assert total(timeline, phases=["load"]).time == 0
    assert stragglers(timeline) == {0: 0, 1: 2}
    sites = summarize(timeline, "site")
    assert [(r.key, r.sync_points, r.control) for r in sites] == [("layers.*.mlp.down · all_reduce", 2, 0),
                                                                   ("layers.*.mlp.down · barrier", 0, 1), (TAIL, 0, 0)]
    assert sites[0].computing == (10 + 60) + (30 + 80)
    assert sum(r.time for r in sites) == row.time


@pytest.mark.parametrize("by", BY)
def test_every_grouping_has_the_same_sums(by):
    timeline = Timeline.of(on_threads(3, lambda comm: body(comm, seconds=0))[0])
    whole = total(timeline)
    rows = summarize(timeline, by)
    for part in ("computing", "waiting", "moving"):
        assert sum(getattr(row, part) for row in rows) == getattr(whole, part)
    if by != "rank":                                             # counts are one rank's
        assert sum(row.sync_points for row in rows) == whole.sync_points == 26
        assert sum(row.payload for row in rows) == whole.payload
    one_rank = [total(timeline, rank).time for rank in range(3)]
    assert sum(one_rank) == whole.time


def test_messages_are_counted_once():
    send = Event(0, "pp", 0, 0, "data", "send", None, 1, None, "stage.1", "hand over", "forward", 0, 1, None, "whole",
                 "whole", (4,), "float32", 16, 5, 9, None, None, None, 16, False, "")
    receive = send._replace(rank=1, op="receive", peer=0, wire=0)
    row, = summarize(Timeline.of(Trace.of([send, receive])))
    assert (row.sync_points, row.messages, row.payload, row.passes) == (0, 1, 16, 1)


def test_in_checked_mode_the_straggler_is_who_came_last_to_the_check():
    events = []
    for event in two_ranks():
        if event.plane == "data":                                # the check takes from 10 or 30 to 40, the sum to 50
            begin = event.enter // 100 * 100
            events += [event._replace(plane="control", op="all_gather", reason=CHECK, leave=begin + 40),
                       event._replace(enter=begin + 41 - event.rank)]
    assert stragglers(Timeline.of(Trace.of(events))) == {0: 0, 1: 2}
    assert stragglers(Timeline.of(Trace.of(e for e in events if e.plane == "data"))) == {0: 2, 1: 0}


def test_what_is_not_there_is_refused():
    timeline = Timeline.of(two_ranks())
    with pytest.raises(ConfigError, match="phase, token, step, site"):
        summarize(timeline, "color")
    with pytest.raises(ConfigError, match="rank 7 is not in this trace; it holds 0, 1"):
        summarize(timeline, rank=7)


@pytest.mark.parametrize("cores, told", [(2, True), (0, False), (-5, False), (10**300, False), (True, False),
                                         ("2", False), (None, False)])
def test_cores_that_no_machine_has_make_no_crowd(cores, told):
    trace = two_ranks()
    trace.run |= {"cores": cores, "ranks_per_core": 1.5}
    assert crowded(trace) is told


def test_the_default_view():
    trace = on_threads(3, body)[0]
    trace.run |= {"cores": 2, "ranks_per_core": 1.5}
    text = printed(trace)
    assert "toy on 3 ranks" in text and "layers 2 · hidden 16" in text
    assert "3 ranks share 2 cores: waits show the scheduler" in text
    assert "layers.*.mlp.down" in text and "of the time in prefill and decode was waiting" in text
    assert "Last to arrive: rank 1" in text and "the same 6 sync points" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "share" not in printed(two_ranks()).split("per phase")[0]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("rank", [None, 1])
def test_all_views_print(by, rank):
    assert "rank 1 alone" in printed(two_ranks(), by=by, rank=rank) or rank is None


def test_hostile_words_reach_no_terminal():
    bad = "[red]\x1b[2J\x07\ud800\n\u202e<b>" + "x" * 500
    event = next(iter(two_ranks()))._replace(site=bad, reason=bad, phase=bad, op=bad, plane=bad)
    run = {"ranks": 2, "model": {"name": bad, "hidden": [bad]}, "mesh": {bad: bad}, "versions": {bad: bad},
           "world": bad, "cores": "many", "hosts": bad, "blas_threads": [bad], "created": bad, "ranks_per_core": 2}
    trace = Trace.of([event], [Mark(0, bad, 0, None, 0, 220)], run=run)
    for by in (None, *BY):
        text = printed(trace, by=by)
        assert not set(text) & set("\x1b\x07\ud800\u202e")
        assert "[red]" in text or by == "rank"
        text.encode()


def test_empty_and_one_rank():
    assert "0 % of the time" in printed(Trace.of([]))
    assert "nobody to wait for" in printed(on_threads(1, lambda comm: body(comm, 1, seconds=0))[0])


def test_plain_data():
    plain = as_plain(Timeline.of(two_ranks()))
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain["by"]) == set(BY) and plain["total"]["waiting"] == 40
    parts = plain["total"]
    assert sum(parts[f"{part}_share"] for part in ("computing", "waiting", "moving")) == pytest.approx(1)


def test_wording():
    assert [size(n) for n in (0, 9999, 10_000, 2_304_000, 10**9, 5 * 10**15)] == [
        "0 B", "9,999 B", "10 kB", "2.3 MB", "1 GB", "5,000 TB"]
    assert [duration(n) for n in (0, 999, 1000, 12_345, 2.5e6, 999_600_000, 3e9)] == [
        "0 ns", "999 ns", "1 µs", "12.3 µs", "2.5 ms", "1 s", "3 s"]
    assert [share(n, 1000) for n in (0, 1, 5, 10, 995, 1000)] == ["0 %", "<1 %", "<1 %", "1 %", "100 %", "100 %"]
    assert kind_of_site("layers.12.mlp.down") == "layers.*.mlp.down" and kind_of_site("h.0") == "h.*"
    assert kind_of_site("w2.b1") == "w2.b1"
    assert [count(n, noun) for n, noun in ((1, "rank"), (2, "pass"))] == ["1 rank", "2 passes"]
    assert plain("a" * 200, 10) == "a" * 9 + "…"
