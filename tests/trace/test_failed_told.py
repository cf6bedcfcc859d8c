"""What is said of a run that failed: by `trace show`, `export` and `check`, for people and for programs."""
import csv as csv_module
import io
import json

import pytest
from failed_runs import CALL, CALLS, EVENT, NASTY, small
from rich.console import Console

from minitp.commands.trace import check
from minitp.config import TINY
from minitp.placement import Placement
from minitp.trace import Timeline, Trace
from minitp.trace.check import reached
from minitp.trace.export import chrome, csv
from minitp.trace.failed import failed_line, waiting_lines
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.schema import Mark
from minitp.trace.show import show
from minitp.trace.summary import BY, arrivals, as_plain


def test_who_was_where():
    calls = [CALL._replace(rank=rank) for rank in (0, 2, 3)]
    trace = Trace.of([EVENT._replace(rank=rank) for rank in range(5)], unfinished=calls, run={"ranks": 6, "failed": ""})
    assert waiting_lines(trace) == [
        "Ranks 0, 2 and 3 were in all_reduce at mlp.down, call 1, for 50 ns.",
        "Ranks 1 and 4 were in no call; the last one was all_reduce at attention.o, call 0.",
        "Of rank 5 there is no recording."]
    clock, other = (EVENT._replace(site="trace.clock", plane="control", sequence=number) for number in (1, 2))
    trace = Trace.of([clock, other._replace(rank=1), EVENT._replace(rank=2), other._replace(rank=2)],
                     unfinished=calls[:1], run={"ranks": 3, "failed": ""})
    assert waiting_lines(trace)[1:] == ["Rank 1 was in no call; the last one was all_reduce at trace.clock, call 2.",
                                        "Rank 2 was in no call; the last one was all_reduce at attention.o, call 0."]
    trace = Trace.of([], [Mark(1, "decode", 3, None, 0, 100)], unfinished=calls, run={"ranks": 12, "failed": ""})
    assert waiting_lines(trace)[1:] == ["Rank 1 was in no call, and had been in none.",
                                        "Of ranks 4, 5, 6, 7, 8, 9, 10 and 11 there is no recording."]


def test_the_first_line_ends_in_one_mark():
    assert failed_line({"failed": "it broke."}) == "This run failed: it broke. What had ended until then is shown."
    assert failed_line({"failed": "x" * 400}).endswith("xxx… What had ended until then is shown.")


def test_what_failed_in_loading_has_nothing_to_be_checked_against(tmp_path, capsys):
    small().write(tmp_path / "run.json")
    assert check(tmp_path / "run.json") == 2
    said = capsys.readouterr()
    assert said.out.startswith("run.json: This run failed: it broke.") and "Rank 0 was in" in said.out
    assert said.err == ("run.json: it failed before its model was loaded, or in a script of its own: no closed form "
                        "foretells it.\n")


def test_a_message_that_never_ended_takes_no_sync_point_away():
    """Messages are numbered on their own: number 0 of them is not sync point 0."""
    met = [EVENT._replace(rank=rank) for rank in range(2)]
    assert [len(arrivals(Timeline.of(Trace.of(met, unfinished=[call])))) for call in (
        CALL._replace(op="send", peer=1, sequence=0), CALL._replace(sequence=0))] == [1, 0]


def test_what_tells_calls_apart_is_said():
    calls = [CALL, CALL._replace(rank=1, shape=(9,)), CALL._replace(rank=2)]
    assert waiting_lines(Trace.of([], unfinished=calls, run={"failed": ""})) == [
        "Ranks 0 and 2 were in all_reduce at mlp.down, call 1, of 1×8 float32, for 50 ns.",
        "Rank 1 was in all_reduce at mlp.down, call 1, of 9 float32, for 50 ns."]


def test_messages_have_two_ends():
    calls = [CALL._replace(op="send", peer=1), CALL._replace(rank=1, op="receive", peer=0, site="ring")]
    trace = Trace.of([], unfinished=calls, run={"failed": ""})
    assert waiting_lines(trace) == ["Rank 0 was in send to rank 1 at mlp.down, call 1, for 50 ns.",
                                    "Rank 1 was in receive from rank 0 at ring, call 1, for 50 ns."]


def test_of_many_only_some_are_named():
    calls = [CALL._replace(rank=rank, site=f"{NASTY}{rank}") for rank in range(100)]
    lines = waiting_lines(Trace.of([], unfinished=calls, run={"failed": ""}))
    assert len(lines) == 13 and lines[-1] == "… and 88 more." and all(line.isprintable() for line in lines)
    (line,) = waiting_lines(Trace.of([], unfinished=[CALL._replace(rank=rank) for rank in range(100)],
                                     run={"failed": ""}))
    assert "14, 15 and 84 more were in" in line


def printed(trace, **options):
    stream = io.StringIO()
    show(trace, console=Console(file=stream, width=120, highlight=False), **options)
    return stream.getvalue()


def test_the_summary_says_it_first_and_what_it_leaves_out():
    head, _, tables = printed(small()).partition("per phase")
    assert "This run failed: it broke." in head and "Rank 0 was in all_reduce at mlp.down, call 1" in head
    assert "The time in 2 calls that never ended is in none of these numbers." in tables
    assert "look for the rank" in tables and "the slowest rank" not in tables
    assert "failed" not in printed(Trace.of([EVENT])) and "never ended" not in printed(Trace.of([EVENT]))


def test_a_run_whose_ranks_are_all_in_one_call_was_not_stuck():
    calls = [CALL._replace(rank=rank) for rank in range(4)]
    assert "on its way, and not stuck" in printed(small(calls=calls))
    for changes in ({"site": "elsewhere"}, {"shape": (9,)}, {"dtype": "float64"}, {"rank": 2}):
        assert "look for the rank" in printed(small(calls=[*calls[:3], calls[3]._replace(**changes)]))
    assert "look for the rank" in printed(small(calls=[call._replace(op="send", peer=0) for call in calls]))


@pytest.mark.parametrize("trace", [small(), small(calls=()), Trace.of([], unfinished=CALLS, run={"failed": NASTY}),
                                   Trace.of([EVENT._replace(rank=3)], unfinished=CALLS, run={"failed": "x"})])
@pytest.mark.parametrize("by", [None, *BY])
def test_uneven_ranks_and_no_events_have_all_views(trace, by):
    assert "This run failed" in printed(trace, by=by)
    plain = as_plain(Timeline.of(trace))
    assert json.loads(json.dumps(plain)) == plain and len(plain["unfinished"]) == len(trace.unfinished["rank"])


def test_hostile_words_reach_no_terminal():
    calls = [CALL._replace(op=NASTY, site=NASTY, axis=NASTY, phase=NASTY, dtype=NASTY)]
    text = printed(Trace.of([], unfinished=calls, run={"failed": NASTY}))
    assert not set(text) & set("\x1b\x07\ud800\u202e") and "[red]" in text


def test_chrome_has_a_slice_for_each_call():
    made = json.loads(json.dumps(chrome(small())))["traceEvents"]
    first, second = [one for one in made if one.get("cat") == "never ended"]
    assert (first["name"], first["tid"], first["ts"], first["dur"]) == ("all_reduce (never ended)", 0, 0.04, 0.05)
    assert first["args"]["site"] == "mlp.down" and second["tid"] == 2
    assert [one["name"] for one in made if one.get("cat") == "compute"] == [
        "begin of decode → attention.o", "attention.o → mlp.down", "mlp.down → end of decode"]
    assert {one["args"]["name"] for one in made if one["name"] == "thread_name"} == {"rank 0", "rank 2"}
    assert made[0]["args"]["name"] == "minitp (this run failed)"


def test_csv_has_a_row_without_a_leave_for_each_call():
    stream = io.StringIO()
    csv(small(), stream)
    ended, lost, _ = csv_module.DictReader(stream.getvalue().splitlines())
    assert ended["op"] == "all_reduce" and ended["leave"] == "30"
    assert lost["op"] == "all_reduce (never ended)"
    assert (lost["site"], lost["shape"], lost["enter"]) == ("mlp.down", "1x8", "40")
    assert {lost[name] for name in ("leave", "payload", "plane", "waiting", "moving")} == {""}


# --- held against the closed form ----------------------------------------------------------------------------------

PLAN = GenerationPlan(Placement(TINY, 3), "slice", "float32", 1, [("prefill", 5), ("decode", 1)], 2)
FORETOLD = predict(PLAN)


def ended(counts, *, calls=True, change=lambda rank, events: events):
    """The trace of a generation of which rank r has counts[r] collectives, and waits in the next."""
    events, lost = [], []
    for rank, number in enumerate(counts):
        for n, one in enumerate(change(rank, FORETOLD[:number])):
            events.append(EVENT._replace(rank=rank, sequence=n, enter=n, leave=n, **one._asdict()))
        if calls and number < len(FORETOLD):
            lost.append(CALL._replace(rank=rank, sequence=number, op=FORETOLD[number].op, site=FORETOLD[number].site))
    return Trace.of(events, unfinished=lost, run={"ranks": len(counts), "failed": "it broke", **PLAN.to_run()})


def checked(trace, tmp_path, capsys):
    trace.write(tmp_path / "run.json")
    code = check(tmp_path / "run.json")
    return code, capsys.readouterr().out


def test_up_to_there_a_failed_run_is_as_foretold(tmp_path, capsys):
    code, out = checked(ended([4, 3, 3]), tmp_path, capsys)
    assert code == 1 and "run.json: This run failed: it broke." in out
    assert f"Rank 0 was in {FORETOLD[4].op} at {FORETOLD[4].site}, call 4" in out
    assert f"3 to 4 of the {len(FORETOLD)} collectives of its passes had ended on each of 3 ranks, and are as" in out
    assert "differs" not in out and "lacks" not in out


def test_a_rank_without_any_has_none(tmp_path, capsys):
    assert f"0 to 2 of the {len(FORETOLD)} collectives" in checked(ended([2, 2, 0]), tmp_path, capsys)[1]
    assert f": 0 of the {len(FORETOLD)} collectives" in checked(ended([0, 0, 0]), tmp_path, capsys)[1]


def test_all_of_them_may_be_there(tmp_path, capsys):
    code, out = checked(ended([len(FORETOLD)] * 3), tmp_path, capsys)
    assert code == 1 and f": {len(FORETOLD)} of the {len(FORETOLD)} collectives of its passes had ended" in out


def test_what_the_header_does_not_tell_of_is_said(tmp_path, capsys):
    trace = ended([8, 7, 7])
    trace.run["generation"]["passes"] = [["prefill", 5]]
    code, out = checked(trace, tmp_path, capsys)
    assert code == 1 and "6 of the 6 collectives of its passes" in out and "2 more are of a pass that" in out


@pytest.mark.parametrize("change, says", [
    (lambda rank, events: events[:1] + events[2:], f"rank 0 lacks {FORETOLD[1].op} at {FORETOLD[1].site}"),
    (lambda rank, events: [events[0]._replace(payload=1), *events[1:]] if rank == 2 else events,
     "payload is 1, on rank"),
    (lambda rank, events: [events[0], *events] if rank == 1 else events, "is not on rank 0")])
def test_what_is_wrong_before_is_said(change, says, tmp_path, capsys):
    code, out = checked(ended([5, 4, 4], change=change), tmp_path, capsys)
    assert code == 1 and "This run failed" in out and "differs from the closed form" in out and says in out
    assert out.count("lacks") <= 1


def test_a_run_that_ended_well_must_have_all(tmp_path, capsys):
    trace = ended([4, 4, 4], calls=False)
    del trace.run["failed"]
    code, out = checked(trace, tmp_path, capsys)
    assert code == 1 and "rank 0 lacks" in out and "failed" not in out


def test_how_far_the_ranks_had_come():
    trace = Trace.of([EVENT._replace(rank=rank, sequence=n) for rank in (1, 2) for n in range(2 + rank)]
                     + [EVENT._replace(rank=2, plane="control")], run={"ranks": 3})
    assert [reached(trace, predicted) for predicted in (9, 4, 3, 0)] == [(0, 4, 0), (0, 4, 0), (0, 3, 1), (0, 0, 4)]
