"""The Timeline page's numbers: totals, bars, the straggler in words; nothing of a stranger's trace breaks a picture."""
import numpy as np
import pytest

from minitp.trace import Timeline, Trace
from minitp.trace.schema import Mark
from minitp.trace.summary import stragglers, summarize, total, working_phases
from minitp.view import text
from minitp.view import timeline as view
from minitp.view.figures.timeline import lanes_figure, overview_figure, panels_figure
from minitp.view.passes import Passes
from minitp.view.reading import PlayReader
from minitp.view.steps import Steps
from minitp.view.watch import play
from tests.app.long_runs import long_run
from tests.app.real_runs import tiny_run
from tests.view.timed_traces import RUN, all_reduces, event


@pytest.fixture(scope="module")
def real() -> Passes:
    """The tiny model on 3 thread ranks in checked mode, loaded by scatter."""
    return Passes(Timeline.of(tiny_run("--load", "scatter", ranks=3)))


@pytest.fixture(scope="module")
def long() -> Passes:
    return Passes(Timeline.of(long_run(4, 30)))


def test_a_pass_has_the_times_of_the_summary(real):
    rows = summarize(real.timeline, "token", phases=working_phases(real.timeline))
    assert [f"{row.phase} {row.step}" if row.step is not None else row.phase for row in real.rows] == [
        row.key for row in rows]
    for mine, row in zip(real.rows, rows, strict=True):
        assert mine.sync_points == row.sync_points
        for kind in view.KINDS:
            assert getattr(mine, kind) == pytest.approx(getattr(row, kind) / 3, abs=1)


def test_loading_is_no_token(real):
    assert real.rows[0].phase == "load" and [row.name for row in real.work] == [
        "prompt → first token", "token 2", "token 3"]
    assert [row.number for row in real.work] == [1, 2, 3]
    assert all(row.begin < row.end for row in real.rows)


def test_bars_of_a_token_are_its_times_and_do_not_overlap(real):
    bars = view.detail(real, 1, 1)
    for kind, word in enumerate(view.KINDS):
        assert bars.length[bars.kind == kind].sum() == pytest.approx(getattr(real.work[1], word) * 3, abs=1)
    for rank in bars.lanes:
        mine = bars.rank == rank
        order = np.argsort(bars.start[mine], kind="stable")
        start, end = bars.start[mine][order], (bars.start + bars.length)[mine][order]
        assert (start[1:] >= end[:-1]).all() and start[0] >= 0


def test_every_bar_says_who_what_and_where(real):
    bars = view.detail(real, 0, len(real.work) - 1)
    texts = view.hover_texts(real, bars)
    assert len(texts) == len(bars) and all(text.startswith("rank ") for text in texts)
    wait = int(np.flatnonzero(bars.kind == view.WAITING)[0])
    last = real.timeline.sync_of(int(bars.event[wait])).last_rank
    assert "waits" in texts[wait] and texts[wait].endswith(f"rank {last} came last")


def test_as_many_tokens_as_fit(long):
    count = view.fits(long, 1)
    assert 1 < count < 30
    assert len(view.detail(long, 1, count)) <= view.MOST_BARS and not view.detail(long, 1, count).notes


def test_more_bars_than_a_chart_can_take_are_thinned_with_a_note(long):
    bars = view.detail(long, 0, 29)
    assert len(bars) == view.MOST_BARS
    assert f"{view.MOST_BARS:,} of " in bars.notes[0] and "left out" in bars.notes[0]
    whole = Passes(long.timeline)
    assert view.share_line(whole) == view.share_line(long)             # the numbers count all of them


def test_more_ranks_than_lanes_are_said():
    ranks = view.MOST_LANES + 3
    passes = Passes(Timeline.of(all_reduces([[10] * ranks], [5])))
    bars = view.detail(passes, 0, 0)
    assert len(bars.lanes) == view.MOST_LANES and bars.notes == ["The first 32 of 35 ranks are drawn."]


def test_the_overview_joins_tokens_where_they_are_too_many():
    own = [[10, 20]] * 4000
    passes = Passes(Timeline.of(all_reduces(own, [5] * 4000, per_pass=1)))
    groups, note = view.overview(passes.work)
    assert len(groups) * 3 <= view.MOST_BARS and "mean of 3 tokens" in note
    assert (groups[0].first, groups[0].last, groups[-1].last) == (0, 2, 3999)
    assert groups[7].waiting == pytest.approx(5) and groups[7].computing == pytest.approx(15)


def test_the_straggler_in_words():
    """Rank 2 comes last 3 times of 4, 12 µs after the others; rank 0 once, 90 µs after them."""
    own = [[10_000, 10_000, 22_000]] * 3 + [[100_000, 10_000, 10_000]]
    timeline = Timeline.of(all_reduces(own, [1000] * 4))
    rows = view.came_last(timeline)
    assert rows == [view.Straggler(2, 3, 12_000.0), view.Straggler(0, 1, 90_000.0)]
    line = view.straggler_line(rows)
    assert line.startswith("Rank 2 came last at 75 % of the sync points; the others waited 12 µs for it on average.")
    assert "Rank 0 came last less often (25 %) but cost the others more: 90 µs" in line


def test_the_straggler_is_counted_as_the_summary_counts(real):
    counted = {row.rank: row.times for row in view.came_last(real.timeline)}
    assert counted == {rank: n for rank, n in stragglers(real.timeline).items() if n}


def test_one_rank_waits_for_nobody():
    timeline = Timeline.of(all_reduces([[10]] * 3, [5] * 3))
    assert "No rank waited" in view.straggler_line(view.came_last(timeline))
    assert total(timeline).waiting == 0


def test_a_click_finds_its_place_in_watch(real):
    steps = Steps.of(real.timeline)
    chosen = int(np.flatnonzero(real.trace.where(rank=1, plane="data", phase="decode", step=2))[0])
    number, sync = view.place_in_watch(steps, chosen)
    assert number == 3 and sync == 0                               # the first data event of that token
    assert chosen in steps.cell[steps.passes.first[number] + sync]
    assert view.place_in_watch(steps, chosen + 1) == (3, 1)
    assert view.place_in_watch(steps, -5) == (0, 0)


def test_words_of_a_stranger_stay_words():
    nasty = "<a href='javascript:alert(1)'>x</a> %{y}"
    trace = all_reduces([[10, 20]], [5], site=nasty, phase=nasty, op=nasty)
    passes = Passes(Timeline.of(trace))
    bars = view.detail(passes, 0, 0)
    for figure in (lanes_figure(bars, view.hover_texts(passes, bars)),
                   overview_figure(view.overview(passes.work)[0])):
        shown = figure.to_json()
        assert "&lt;a href" in shown and "<a href" not in shown and "hovertemplate" not in str(figure.data)


@pytest.mark.parametrize("trace", [
    Trace.of([]),
    Trace.of([], [Mark(0, "decode", 1, None, 0, 10)]),
    Trace.of([event(0, 0, 5, 9, plane="control")], run=RUN),
    Trace.of([event(0, 0, 5, 9, step=None, phase="")], run=RUN),
    Trace.of([event(3, 0, 5, 5)], run=RUN)])
def test_odd_traces_have_a_picture_or_none(trace):
    passes = Passes(Timeline.of(trace))
    groups, note = view.overview(passes.work)
    assert overview_figure(groups) is not None and not note
    if passes.work:
        bars = view.detail(passes, 0, 0)
        assert lanes_figure(bars, view.hover_texts(passes, bars)) is not None


def test_charts_stay_below_the_limit(long):
    groups, _ = view.overview(long.work)
    bars = view.detail(long, 0, 29)
    for figure in (overview_figure(groups), panels_figure(groups, groups, "a link"),
                   lanes_figure(bars, view.hover_texts(long, bars))):
        assert sum(len(trace.x) for trace in figure.data) <= view.MOST_BARS


def test_addresses_and_words_are_those_of_watch(real):
    """`token` in an address is the number of a pass, on both pages; the words are one function's."""
    reader = PlayReader(play(real.trace))
    for row in real.rows:
        assert text.pass_name(reader, row.number).startswith(row.name)
        assert view.place_in_watch(Steps.of(real.timeline), int(np.flatnonzero(real.of_event == row.number)[0]))[
            0] == row.number
