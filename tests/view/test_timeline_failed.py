"""The Timeline's lanes of a run that failed: what never ended is drawn to the edge, in its pass, and said in words."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitp
from minitp.comm import Partial
from minitp.lesson import pictures
from minitp.lesson.attempt import attempt
from minitp.trace import Mark, Timeline, Trace
from minitp.trace.schema import Unfinished
from minitp.view import timeline as view
from minitp.view.colors import RED
from minitp.view.figures.timeline import lanes_figure
from minitp.view.passes import Passes
from tests.view.timed_traces import all_reduces, event

CALL = Unfinished(0, "tp", 0, 9, "all_reduce", None, None, "mlp.down", "decode", 2, None, (1, 8), "float32", 100, 10**9)


def failed(trace, *calls, marks=()):
    """The same run, with calls that never ended, and the marks that they lie in."""
    return Trace.of(list(trace), [*trace.mark_rows(), *marks], unfinished=calls,
                    run={**trace.run, "ranks": 3, "failed": "it broke"})


def two_tokens(*calls, marks=()):
    """Decode 1 and 2, of one sync each: 0 to 40 ns and 40 to 80 ns, on 3 ranks."""
    return Passes(Timeline.of(failed(all_reduces([[30, 30, 30]] * 2, [10, 10], per_pass=1), *calls, marks=marks)))


def endless(bars):
    chosen = bars.kind == view.ENDLESS
    return list(zip(bars.rank[chosen].tolist(), bars.start[chosen].tolist(),
                    (bars.start + bars.length)[chosen].tolist(), strict=True))


def test_to_the_edge_however_long_they_were():
    passes = two_tokens(CALL, CALL._replace(rank=2, enter=90, leave=95))
    bars = view.detail(passes, 0, 1)
    assert endless(bars) == [(0, 100, 142), (2, 90, 142)]                # the last 30 % of the picture are theirs
    assert bars.notes == ["Outlined in red is what never ended: it is drawn to the edge, however long it was."]
    assert view.hover_texts(passes, bars)[-2:] == [
        "rank 0 was in all_reduce at mlp.down, call 9, for 1 s: it never ended",
        "rank 2 was in all_reduce at mlp.down, call 9, for 5 ns: it never ended"]


def test_a_run_that_ended_well_has_none():
    bars = view.detail(two_tokens(), 0, 1)
    assert not endless(bars) and not bars.notes


def test_in_its_own_pass_or_in_the_last_one():
    late = CALL._replace(rank=1, step=3)                                 # of decode 3 nothing has ended
    passes = two_tokens(CALL, late)
    assert [len(endless(view.detail(passes, *shown))) for shown in ((0, 0), (1, 1), (0, 1))] == [0, 2, 2]
    early = two_tokens(CALL._replace(step=1))
    assert [len(endless(view.detail(early, *shown))) for shown in ((0, 0), (1, 1))] == [1, 0]


def test_what_a_rank_computes_for_a_pass_that_is_cut_off():
    marks = [Mark(rank, "decode", 3, None, 80, 10**9) for rank in (0, 1)]
    bars = view.detail(two_tokens(CALL._replace(step=3), marks=marks), 1, 1)
    computing = bars.kind == view.COMPUTING
    assert {(rank, start) for rank, start in zip(bars.rank[computing].tolist(), bars.start[computing].tolist(),
                                                 strict=True)} == {(0, 0), (1, 0), (2, 0), (0, 40), (1, 40)}
    assert bars.start[computing].max() + bars.begin == 80
    hover = view.hover_texts(two_tokens(CALL._replace(step=3), marks=marks), bars)
    assert "rank 0 computes 20 ns until all_reduce at mlp.down" in hover
    assert any(text.startswith("rank 1 computes 1 s until its pass ends") for text in hover)


def test_the_end_of_a_rank_that_is_stopped_is_nobodys_time():
    """Its mark ends with the run, a second later: that must not make the picture a second long."""
    mark = Mark(0, "decode", 2, None, 85, 10**9 + 500)
    bars = view.detail(two_tokens(CALL, marks=[mark]), 0, 1)
    assert (bars.start + bars.length).max() < 200


def test_who_goes_on_after_the_error_is_drawn_so():
    calls = [CALL._replace(enter=85, leave=90), CALL._replace(sequence=10)]
    assert endless(view.detail(two_tokens(*calls), 0, 1)) == [(0, 85, 90), (0, 100, 142)]


@pytest.mark.parametrize("phase", ["load", "run"])
def test_nothing_had_ended(phase):
    marks = [Mark(rank, phase, None, None, 10 * rank, 10**9) for rank in range(3)]
    calls = [CALL._replace(rank=rank, phase=phase, step=None) for rank in (0, 2)]
    passes = Passes(Timeline.of(failed(Trace.of([]), *calls, marks=marks)))
    bars = view.detail(passes, 0, -1)
    assert not passes.work and [bar[:2] for bar in endless(bars)] == [(0, 100), (2, 100)]
    assert bars.lanes == [0, 1, 2] and (bars.kind == view.COMPUTING).sum() == 3
    assert lanes_figure(bars, view.hover_texts(passes, bars)) is not None


def test_a_loading_that_never_ended_is_shown_with_what_had_ended_of_it():
    loaded = [event(rank, 0, 10, 20, phase="load", step=None) for rank in range(3)]
    passes = Passes(Timeline.of(failed(Trace.of(loaded), CALL._replace(phase="load", step=None))))
    bars = view.detail(passes, 0, -1)
    assert endless(bars)[0][0] == 0 and (bars.kind == view.MOVING).sum() == 3


def test_the_figure_names_them_and_outlines_them_in_red():
    passes = two_tokens(CALL, CALL._replace(rank=2))
    bars = view.detail(passes, 0, 1)
    figure = lanes_figure(bars, view.hover_texts(passes, bars))
    first, second = [one for one in figure.data if one.name == "never ended"]
    assert first.marker.line.color == RED and first.marker.pattern.shape == "/" and first.text == ("never ended",)
    assert (first.showlegend, second.showlegend) == (True, False)
    assert all(number < 0 for one in (first, second) for number in one.customdata)
    assert view.hover_texts(passes, bars)[-1] in second.hovertext


def test_a_strangers_words_stay_words():
    nasty = "<a href='javascript:alert(1)'>x</a> %{y}"
    passes = two_tokens(CALL._replace(op=nasty, site=nasty, phase=nasty))
    bars = view.detail(passes, 0, 1)
    shown = lanes_figure(bars, view.hover_texts(passes, bars)).to_json()
    assert "&lt;a href" in shown and "<a href" not in shown


def test_more_than_a_chart_can_take_are_not_drawn():
    calls = [CALL._replace(rank=n % 3, sequence=n, enter=100 + n, leave=200 + n) for n in range(6000)]
    bars = view.detail(two_tokens(*calls), 0, 1)
    assert 0 < len(endless(bars)) < 1000 and len(bars) <= view.MOST_BARS


@given(st.data())
@settings(max_examples=40)
def test_bars_of_a_lane_never_overlap(data):
    syncs, ranks = data.draw(st.integers(0, 3)), 3
    times = st.integers(0, 50)
    own = [[data.draw(times) for _ in range(ranks)] for _ in range(syncs)]
    trace = all_reduces(own, [data.draw(times) for _ in own], per_pass=2) if own else Trace.of([])
    now = {rank: max((one.leave for one in trace if one.rank == rank), default=0) for rank in range(ranks)}
    calls, marks = [], []
    for rank in data.draw(st.sets(st.sampled_from(range(ranks)), min_size=1)):
        enter = now[rank] + data.draw(times)
        leave = enter + data.draw(times)
        calls.append(CALL._replace(rank=rank, step=data.draw(st.sampled_from([1, 2, 7])), enter=enter, leave=leave))
        marks.append(Mark(rank, "decode", calls[-1].step, None, now[rank], leave + data.draw(times)))
    passes = Passes(Timeline.of(failed(Trace.of(list(trace), trace.mark_rows(), run={"ranks": ranks}), *calls,
                                       marks=marks)))
    for first in range(max(len(passes.work), 1)):
        bars = view.detail(passes, first, len(passes.work) - 1)
        for rank in bars.lanes:
            mine = bars.rank == rank
            order = np.lexsort((bars.length[mine], bars.start[mine]))
            start, end = bars.start[mine][order], (bars.start + bars.length)[mine][order]
            assert (start >= 0).all() and (end >= start).all() and (start[1:] >= end[:-1]).all()
    shown = endless(view.detail(passes, 0, len(passes.work) - 1))
    assert len(shown) == len(calls) and len({end for *_, end in shown}) == 1


# --- in a lesson -----------------------------------------------------------------------------------------------


def sum_up(tp):
    tp.all_reduce(Partial(np.ones(2), tp), site="mlp.down", reason="test")


def leaves(tp):
    sum_up(tp)
    if tp.rank != 1:
        sum_up(tp)


def test_an_attempt_has_its_trace_and_a_picture(capsys):
    hang = attempt(leaves, 3, deadline=0.5)
    assert hang.run is None and hang.late and [call.rank for call in hang.trace.unfinished_rows()] == [0, 2]
    assert hang.trace.run["command"] == [] and "the trace" not in hang.error
    pictures.timeline(hang)
    words = capsys.readouterr().out
    assert ("rank 0 met the others in all_reduce at mlp.down. Outlined in red is what never ended, drawn to the edge. "
            "Ranks 0") in words
    assert "Rank 1 was in no call; the last one was all_reduce at mlp.down, call 0." in words


def test_an_attempt_that_ends_well_has_the_trace_of_its_run(capsys):
    done = attempt(sum_up, 2)
    assert done.trace is done.run.trace
    pictures.timeline(done)
    assert capsys.readouterr().out.endswith("rank 0 met the others in all_reduce at mlp.down.\n")


def test_where_nothing_was_recorded_there_is_no_picture(capsys):
    def main(tp):
        raise minitp.errors.ConfigError("not so")

    refused = attempt(main, 2)
    assert refused.trace is None
    pictures.timeline(refused)
    pictures.timeline(attempt(lambda tp: tp.rank, 2))
    assert capsys.readouterr().out.count("No timeline") == 2


def test_a_recording_that_was_spoilt_hides_no_error():
    def main(tp):
        tp.recorder.marks.append("not a mark")
        raise ValueError("mine")

    assert attempt(main, 2).error.startswith("ValueError: mine")
