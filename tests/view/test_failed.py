"""Runs that failed: the player's gate that never opens, and what no view makes of them."""
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.catalogue import machine
from minitp.plan.check import comparison
from minitp.plan.simulate import replay
from minitp.runs import title
from minitp.trace import Timeline, Trace
from minitp.trace.failed import failed_line
from minitp.trace.schema import Mark, Unfinished
from minitp.trace.summary import stragglers
from minitp.view.detail import detail
from minitp.view.ledger import Ledger
from minitp.view.passes import Passes
from minitp.view.question import question_of
from minitp.view.reading import PlayReader
from minitp.view.replay import can_replay, cutting
from minitp.view.steps import Steps
from minitp.view.text import caption, steps
from minitp.view.timeline import place_in_watch
from minitp.view.watch import play
from tests.view.failed_runs import RUNS, generation, hang, in_loading, nothing_at_all, training
from tests.view.test_hostile import EVIL, look_at_all, small, texts, times, words
from tests.view.timed_traces import all_reduces, event

RUN = {"world": "mpi", "cores": 64, "ranks": 3, "failed": "a rank is gone",
       "coordinates": [{"tp": rank} for rank in range(3)]}
SITE = "layers.0.mlp.down"


def lost(rank: int, sequence: int, enter: int, leave: int, **other) -> Unfinished:
    given = {"op": "all_reduce", "root": None, "peer": None, "site": SITE, "phase": "decode", "step": 1} | other
    return Unfinished(rank=rank, axis="tp", group=0, sequence=sequence, micro_batch=None, shape=(1, 1000),
                      dtype="float32", enter=enter, leave=leave, **given)


def met(sequence: int, enters, leave: int, **other) -> list:
    return [event(rank, sequence, enter, leave, site=SITE, **other) for rank, enter in enumerate(enters)
            if enter is not None]


def failed(events, unfinished, **header) -> Trace:
    """Read back from what would be in the file."""
    trace = Trace.of(events, [Mark(rank, "decode", 1, None, 0, 1000) for rank in range(3)], unfinished=unfinished,
                     run=RUN | header)
    return Trace.from_plain(json.loads(json.dumps(trace.to_plain())))


def read(trace: Trace) -> PlayReader:
    return PlayReader(play(trace))


@pytest.mark.parametrize("name", RUNS)
def test_real_runs_are_played_as_far_as_they_came(name):
    trace = RUNS[name]()
    made = play(trace)
    look_at_all(made)
    assert made["run"]["banner"] == [failed_line(trace.run)] and "failed" in made["run"]["title"]
    reader = PlayReader(made)
    shown = {(sync.op, sync.site) for k in map(int, made.get("never", {})) for sync in [reader.sync(k)]}
    assert shown == {(call.op, call.site) for call in trace.unfinished_rows()}
    for k in range(reader.n):
        assert detail(reader, k)["ranks"]
    assert not {str(card["sync"]) for card in made["tour"]} & set(made.get("never", {}))


def test_the_gate_fills_and_never_opens():
    reader = read(hang())
    sync = reader.sync(reader.n - 1)
    assert sync.never and sync.missing == (1,) and sync.present.tolist() == [True, False, True]
    assert sync.number == sync.of                                     # the last of its pass
    assert (sync.before, sync.after, sync.reason) == ("partial", "whole", "add")          # as where it ended once
    assert all(sync.waits[rank] == sync.leave[rank] - sync.enter[rank] > 20e6 for rank in (0, 2))
    said = [caption(reader, sync.index, phase) for phase in range(4)]
    assert said[1].startswith("Ranks 0 and 2 waited here for ") and said[1].endswith("stopped: rank 1 never came.")
    assert said[2] == "All-reduce: never, 2 of 3 arrived (float64, payload 32 B)."
    assert said[3] == "After: nothing came after. The run failed here."
    assert steps(reader, 1)[-1]["last"] == "–" and "never: the run failed" in steps(reader, 1)[-1]["state"]


def test_who_had_come_and_who_had_not():
    reader = read(failed(met(0, (0, 10, 20), 30), [lost(0, 1, 40, 900), lost(2, 1, 60, 950)]))
    assert [reader.sync(k).never for k in range(2)] == [False, True]
    assert reader.sync(1).failed == ("Ranks 0 and 2 waited here for 890 ns, until the run was stopped: rank 1 never "
                                     "came.")
    assert reader.sync(0).failed == "" and reader.sync(0).last == 2


def test_a_rank_that_did_not_answer_any_more_may_have_come():
    trace = failed(met(0, (0, None, 20), 30), [lost(0, 1, 40, 900), lost(2, 1, 60, 950)],
                   coordinates=[{"tp": rank} for rank in range(3)])
    trace.marks = {name: column[trace.marks["rank"] != 1] for name, column in trace.marks.items()}
    reader = read(trace)
    assert reader.sync(1).failed.endswith("of rank 1 there is no recording.")


def test_a_call_that_ended_on_some_ranks_had_all_ranks():
    ended = met(1, (40, None, 50), 70)
    reader = read(failed(met(0, (0, 10, 20), 30) + ended, [lost(1, 1, 60, 900), lost(0, 2, 80, 900)]))
    half, never = reader.sync(1), reader.sync(2)
    assert not half.never and half.present.all() and never.never
    assert half.failed == "All ranks came, but rank 1 had no result yet when the run was stopped."
    assert half.waits == {0: 20, 1: 0, 2: 10}                         # until the last of the three, as ever
    assert caption(reader, 1, 3).endswith(half.failed) and caption(reader, 1, 1) == (
        "Rank 1 came last; nothing starts before. Waiting: rank 0: 20 ns, rank 2: 10 ns.")
    assert never.failed.endswith("rank 2 never came, rank 1 was in the all-reduce at layers.0.mlp.down.")
    assert stragglers(Timeline.of(failed(met(0, (0, 10, 20), 30) + ended, [lost(1, 1, 60, 900)]))) == {0: 0, 1: 0, 2: 1}


def test_ranks_that_met_for_different_things_are_at_two_gates():
    reader = read(RUNS["at two places"]())
    assert {(reader.sync(k).site, reader.sync(k).missing) for k in range(2)} == {
        ("embedding", (1,)), ("head", (0, 2))}
    assert reader.sync(0).failed.endswith(("rank 1 was in the all-reduce at head.",
                                           "ranks 0 and 2 were in the all-reduce at embedding."))


def test_of_a_message_its_other_end_is_missing():
    trace = failed(met(0, (0, 10, 20), 30), [lost(2, 0, 40, 900, op="receive", peer=1, site="pipeline.forward")])
    assert read(trace).sync(1).missing == (1,)


def test_ranks_that_nobody_tells_of_are_those_seen():
    ended, calls = met(0, (0, 10, 20), 30), [lost(0, 1, 40, 900)]
    for told in (None, [], 7, [1, {}], [{"tp": [0]}] * 9, [{"dp": rank} for rank in range(3)]):
        assert read(failed(ended, calls, coordinates=told)).sync(1).missing == (1, 2)


def test_what_ended_is_where_it_is_without_what_did_not():
    trace = generation()
    ended = Trace(trace.run, trace.clock, trace.strings, trace.shapes, trace.events, trace.marks, trace.values,
                  trace.arrays, trace.weights)
    with_, without = Steps.of(Timeline.of(trace)), Steps.of(Timeline.of(ended))
    whole = ~with_.lost.any(axis=1)
    assert np.array_equal(with_.cell[whole], without.cell[:whole.sum()])
    for number in with_.cell[whole][:, 0].tolist():
        assert place_in_watch(with_, number) == place_in_watch(without, number)


def test_a_call_that_never_ended_has_its_place_in_watch():
    trace = hang()
    steps = Steps.of(Timeline.of(trace))
    assert [place_in_watch(steps, -2 - call) for call in range(3)] == [(1, 0), (1, 0), (0, 0)]    # there are two calls


def test_of_a_long_run_the_end_is_shown():
    own = [[7, 5, 3]] * 9_000
    trace = all_reduces(own, [10] * len(own), per_pass=9, site=SITE)
    end = int(trace.events["leave"].max())
    calls = [lost(rank, 9_000, end + 5, end + 9, step=1001) for rank in (0, 2)]
    trace = Trace.of(list(trace), trace.mark_rows(), unfinished=calls, run=RUN)
    made = play(trace)
    window = made["run"]["window"]
    assert window["first"] + window["count"] == window["of"] == 1_001 and window["first"] > 0
    assert len(json.dumps(made)) < 1_000_000 and [int(k) for k in made["never"]] == [len(made["syncs"]["pass"]) - 1]
    assert "The run failed at the last sync points" in made["run"]["notes"][0]
    assert "Where the run failed is behind" in play(trace, first=0, count=5)["run"]["notes"][0]


def test_nothing_at_all_has_a_banner_and_no_picture():
    made = play(nothing_at_all())
    assert made["syncs"]["pass"] == [] and made["run"]["banner"] and "nothing to watch" in made["run"]["notes"][0]


def test_the_tour_stops_where_the_run_had_come():
    made = play(generation())
    assert made["tour"] and {made["syncs"]["pass"][card["sync"]] for card in made["tour"]} == {0}


def test_what_failed_is_text():
    trace = failed([], [lost(0, 0, 0, 5, op=EVIL, site=EVIL)], failed=EVIL)
    made = play(trace)
    look_at_all(made)
    assert all(len(line) < 600 and line.isprintable() for line in made["run"]["banner"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.builds(
    lambda rank, group, number, op, end, site, phase, step, shape, dtype, span: Unfinished(
        rank, "tp", group, number, op, end, end, site, phase, step, None, tuple(shape), dtype, *sorted(span)),
    small, small, small, words, st.none() | small, texts, texts, st.none() | small, st.lists(times, max_size=3), texts,
    st.tuples(times, times)), max_size=6), texts)
def test_any_unfinished_calls_make_a_play(calls, why):
    look_at_all(play(failed(met(0, (0, 10, 20), 30), calls, failed=why, ranks=4)))


def test_many_unfinished_calls_fit_a_page():
    calls = [lost(rank, number, 40, 900) for rank in range(3) for number in range(1000)]
    made = play(failed(met(0, (0, 10, 20), 30), calls))
    assert len(made["never"]) == 64 and len(json.dumps(made["never"])) < 40_000


# --- what no view makes of it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [hang, generation, training])
def test_it_is_not_replayed_compared_or_held_against_a_prediction(make):
    trace = make()
    passes = Passes(Timeline.of(trace))
    assert "This run failed" in can_replay(passes) and cutting(passes) is None
    with pytest.raises(ConfigError, match=r"this run failed.* no whole run to replay"):
        replay(trace, machine("8xa100-80"))
    with pytest.raises(ConfigError, match=r"this run failed.* no whole run to hold against a prediction"):
        comparison(trace, machine("8xa100-80"))
    assert question_of(trace.run) is None and title(trace.run).endswith("failed")


def test_the_ledger_holds_the_beginning_against_the_closed_form():
    found = Ledger.of(Timeline.of(generation()))
    assert found.verdict.endswith("when the run failed. These are as the closed form says, in order, with shape, "
                                  "dtype, states and bytes.")
    assert {line.same for line in found.lines} == {True, None}
    wrong = generation().to_plain()
    wrong["events"]["payload"][2] += 1
    found = Ledger.of(Timeline.of(Trace.from_plain(wrong)))
    assert found.verdict.startswith("What this run recorded until it failed is not what the closed form says: ")


def test_the_ledger_of_a_training_step_that_was_cut_off():
    found = Ledger.of(Timeline.of(training()))
    assert "when the run failed" in found.verdict
    assert [item.same(found.failed) for item in found.bill] == [None] * 4      # of three micro-batches one had begun
    assert [item.same(False) for item in found.bill] == [False] * 4


def test_the_ledger_of_no_event():
    for make in (in_loading, nothing_at_all):
        found = Ledger.of(Timeline.of(make()))
        assert found.waiting == "There is no time in passes: none had begun." and found.per_site == ([], "")
