"""The trace of a run that failed: its file, its rows of several ranks joined, and what is said of it."""
import json
import sys
import time

import numpy as np
import pytest
from broken_files import put
from failed_runs import CALL, EVENT, NASTY, small
from hypothesis import given, settings
from hypothesis import strategies as st

import minitp
from minitp.comm import Partial
from minitp.errors import FileFormatError
from minitp.trace import Timeline, Trace
from minitp.trace.failed import (
    _without_folders,
    failed_line,
    is_failed,
    joined_so_far,
    recorded_so_far,
    waiting_lines,
)
from minitp.trace.merge import joined, pack
from minitp.trace.recorder import Recorder
from minitp.trace.schema import CHECK, Unfinished


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_round_trip(tmp_path, name):
    trace = small()
    trace.write(tmp_path / name)
    again = Trace.read(tmp_path / name)
    assert again.unfinished_rows() == trace.unfinished_rows() and again.to_plain() == trace.to_plain()
    assert again.ranks == [0, 2] and again.words("site", "unfinished").tolist() == ["mlp.down"] * 2


def test_a_trace_without_such_calls_has_no_table_of_them():
    plain = small(calls=()).to_plain()
    assert "unfinished" not in plain and Trace.from_plain(plain).unfinished_rows() == []


words, numbers = st.sampled_from(["tp", "dp", "all_reduce", "send", "a", "b", NASTY]), st.integers(0, 2**40)
maybe = st.none() | st.integers(0, 9)


@st.composite
def calls(draw, rank):
    enter = draw(numbers)
    return Unfinished(rank, draw(words), draw(st.integers(0, 9)), draw(numbers), draw(words), draw(maybe), draw(maybe),
                      draw(words), draw(words), draw(maybe), draw(maybe),
                      tuple(draw(st.lists(st.integers(0, 9), max_size=3))), draw(words), enter, enter + draw(numbers))


@given(st.data())
@settings(max_examples=40)
def test_joined_ranks_keep_every_call(data):
    """Words and shapes are numbered anew: rank by rank they begin at 0, in the whole file they don't."""
    of_rank = [data.draw(st.lists(calls(rank), max_size=3)) for rank in range(3)]
    parts = [Trace.of([EVENT._replace(rank=rank, site=data.draw(words))], unfinished=rows, run={"ranks": 3})
             for rank, rows in enumerate(of_rank)]
    trace = Trace.join(parts, {"ranks": 3}, {})
    assert trace.unfinished_rows() == [row for rows in of_rank for row in rows]
    assert Trace.from_plain(json.loads(json.dumps(trace.to_plain()))).unfinished_rows() == trace.unfinished_rows()


def recorder(rank, *, events=(), lost=(), marks=()):
    made = Recorder(rank)
    made.events, made.unfinished, made.marks = list(events), list(lost), list(marks)
    return made


def test_times_of_calls_are_since_the_run_began_too():
    begin = 10**15                                             # a machine that has been up for days
    first = recorder(0, events=[EVENT._replace(enter=begin, leave=begin + 5)])
    second = recorder(1, lost=[CALL._replace(rank=1, enter=begin + 7, leave=begin + 9)])
    trace = joined([pack(first), pack(second)], None, {"ranks": 2})
    assert [(event.enter, event.leave) for event in trace] == [(0, 5)]
    assert [(call.enter, call.leave) for call in trace.unfinished_rows()] == [(7, 9)]


def test_a_rank_that_says_nothing_any_more_and_one_that_recorded_nothing():
    trace = joined([None, pack(recorder(1)), pack(recorder(2, lost=[CALL._replace(rank=2)]))], None, {"ranks": 3})
    assert trace.ranks == [2] and trace.run["ranks"] == 3 and "hosts" not in trace.run
    assert Trace.from_plain(json.loads(json.dumps(trace.to_plain()))).ranks == [2]
    assert "hosts" in joined([pack(recorder(0)), pack(recorder(1, events=[EVENT._replace(rank=1)]))], None,
                             {"ranks": 2}).run


def test_a_call_that_ended_while_its_rank_was_asked_is_no_unfinished_one():
    """Out of time is not stuck: the rank goes on while its recording is packed."""
    of_event = {name: getattr(EVENT, name) for name in Unfinished._fields}
    same, check = Unfinished(**of_event), EVENT._replace(sequence=8, reason=CHECK, plane="control")
    trace = joined([pack(recorder(0, events=[EVENT, check], lost=[same, same._replace(sequence=8)]))], None,
                   {"ranks": 1})
    assert [call.sequence for call in trace.unfinished_rows()] == [8]         # of this one the check alone has ended


class Moving(Recorder):
    """A rank that goes on: right after `looks` of the lists of its recording have been looked at, its pass ends and the
    next one has begun."""

    def __init__(self, looks):
        super().__init__()
        self.looks, self.passes, self.about = looks, 0, lambda: {"passes": self.passes}
        self._go_on()

    def _go_on(self):
        if self.passes:
            self._mark.__exit__(None, None, None)
        self.passes += 1
        self._mark = self.mark("decode", self.passes)
        self._mark.__enter__()
        now = time.perf_counter_ns()
        self.events.append(EVENT._replace(sequence=self.passes, step=self.passes, enter=now, leave=now))

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name in ("values", "events", "marks", "_open", "unfinished") and sys._getframe(1).f_code.co_name in (
                "pack", "marks_so_far"):
            found, self.looks = list(found), self.looks - 1
            if self.looks == 0:
                self._go_on()
        return found


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_a_rank_that_goes_on_while_its_recording_is_packed_has_each_pass_once_and_no_event_outside(looks):
    moving = Moving(looks)
    trace = joined([pack(moving, cut_off=True)], None, {"ranks": 1})
    marks, events = trace.mark_rows(), list(trace)
    assert moving.passes == 2 and len({mark.step for mark in marks}) == len(marks) >= len(events) >= 1
    assert trace.run["passes"] >= len(events)                  # the header foretells them all
    assert all(sum(mark.enter <= event.enter and event.leave <= mark.leave and mark.step == event.step
                   for mark in marks) == 1 for event in events)


def test_the_header_is_of_the_rank_that_was_furthest():
    """Ranks that go on while they are asked, one after the other, tell of more and more passes."""
    parts = []
    for rank, events in enumerate((1, 3, 2)):
        one = recorder(rank, events=[EVENT._replace(rank=rank, sequence=n) for n in range(events)])
        one.about = lambda passes=events: {"passes": passes}
        parts.append(pack(one, cut_off=True))
    assert joined(parts, None, {"ranks": 3}).run["passes"] == 3


def test_a_header_that_can_not_be_told_costs_no_events():
    def about():
        raise IndexError("the run was broken off in the middle of this")
    one = recorder(0, events=[EVENT])
    one.about = about
    assert len(joined([pack(one, cut_off=True)], None, {"ranks": 1})) == 1


def test_a_call_that_is_noted_twice_is_there_once():
    """By who asks the rank while it waits, by a second one who asks, and once the call has failed."""
    lost = [CALL, CALL._replace(sequence=9), CALL._replace(leave=95), CALL._replace(leave=99)]
    trace = joined([pack(recorder(0, lost=lost))], None, {"ranks": 1})
    assert [(call.sequence, call.leave - call.enter) for call in trace.unfinished_rows()] == [(1, 50), (9, 50)]


def test_nothing_recorded_is_no_trace():
    def main(group):
        return joined_so_far(group, [None, recorded_so_far(group)], "it broke")
    assert minitp.launch(main, 2) == [None, None]


def test_of_an_error_folders_are_left_out_and_its_length_has_an_end():
    def main(group):
        total(group)
        return joined_so_far(group, [recorded_so_far(group)], "no file /home/me/secret/run.txt " + "x" * 10**5)
    (trace,) = minitp.launch(main, 1)
    assert trace.run["failed"].startswith("no file run.txt x") and len(trace.run["failed"]) == 2000


@pytest.mark.parametrize("error, kept", [
    ("no '/home/John Smith/my files/run.txt'", "no 'run.txt'"), ("file:///home/me/run.txt: gone", "run.txt: gone"),
    (r"'C:\\Users\\A B\\run.txt'", "'run.txt'"), ("read /srv//me/a to /home/you/b", "read a to b"),
    ("https://pypi.org/simple runs/tiny 5 GB/s '/'", "https://pypi.org/simple runs/tiny 5 GB/s '/'")])
def test_whatever_path_it_is_folders_are_left_out(error, kept):
    def main(group):
        total(group)
        return joined_so_far(group, [recorded_so_far(group)], error)
    (trace,) = minitp.launch(main, 1)
    assert trace.run["failed"] == kept


def test_a_folder_that_this_process_works_in_may_have_blanks(tmp_path, monkeypatch):
    folder = tmp_path / "my own files"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert _without_folders(f"no {folder}/deeper/run.txt") == "no run.txt"
    folder.rmdir()                                             # where it works is gone
    assert _without_folders("no /a/b") == "no b"


def total(group):
    return group.all_reduce(Partial(np.ones(2), group), site="mlp.down", reason="test")


@given(ranks=st.integers(2, 4), data=st.data())
@settings(max_examples=12)
def test_every_rank_has_what_ended_and_the_call_it_was_in(ranks, data):
    bad, steps = data.draw(st.integers(0, ranks - 1)), data.draw(st.integers(0, 3))
    kept = []

    def main(group):
        with group.recorder.mark("run"):
            for step in range(steps + 1):
                if (group.rank, step) == (bad, steps):
                    raise ValueError("it broke")
                total(group)

    with pytest.raises(ValueError):
        minitp.launch(main, ranks, rescued=lambda trace: str(kept.append(trace)))
    (trace,) = kept
    assert [(event.rank, event.sequence) for event in trace] == [(rank, n) for rank in range(ranks)
                                                                 for n in range(steps)]
    others = [rank for rank in range(ranks) if rank != bad]
    assert [(call.rank, call.sequence) for call in trace.unfinished_rows()] == [(rank, steps) for rank in others]
    spans = Timeline.of(trace).spans
    for call in trace.unfinished_rows():                       # what it waited is nobody's computing
        assert any(span.rank == call.rank and span.leave == call.enter for span in spans)
        assert not any(span.rank == call.rank and span.enter < call.leave and span.leave > call.enter for span in spans)


# --- a stranger's file -------------------------------------------------------------------------------------------


BROKEN = {
    "a list": (put("unfinished", []), "`unfinished` must be an object of lists"),
    "null": (put("unfinished", None), "`unfinished` must be an object of lists"),
    "columns that are none": (put("unfinished/rank", 3), "object of lists"),
    "no column": (lambda plain: plain["unfinished"].pop("peer"), "lacks the column peer"),
    "lengths": (put("unfinished/site", [0]), "must have one length"),
    "a rank too many": (put("unfinished/rank/1", 4), "`unfinished`, entry 1: its rank must be below"),
    "it leaves before it enters": (put("unfinished/leave/0", 39), "`unfinished`, entry 0: it leaves before"),
    "no leave": (put("unfinished/leave/0", None), "`unfinished.leave`, entry 0"),
    "a word of another file": (put("unfinished/site/0", 99), "of `strings`"),
    "a shape of another file": (put("unfinished/shape/0", 99), "of `shapes`"),
    "a word": (put("unfinished/sequence/0", "1"), "whole number"),
    "true": (put("unfinished/enter/0", True), "whole number"),
    "a huge number": (put("unfinished/enter/0", 10**30), "`unfinished.enter`, entry 0"),
    "minus one for null": (put("unfinished/peer/0", -1), "or null"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_tables_are_refused(case, tmp_path):
    change, says = BROKEN[case]
    plain = json.loads(json.dumps(small().to_plain()))
    change(plain)
    (tmp_path / "run.json").write_text(json.dumps(plain))
    with pytest.raises(FileFormatError, match=says):
        Trace.read(tmp_path / "run.json")


@pytest.mark.parametrize("failed", [None, 3, True, ["it broke"], {"why": "it broke"}])
def test_an_error_that_is_no_text_is_none(failed):
    trace = small(failed=failed)
    assert not is_failed(trace.run) and failed_line(trace.run) == "" and waiting_lines(trace) == []


@pytest.mark.parametrize("error", [NASTY * 10_000, "", "\n\n", "a\nb."])
def test_whatever_the_error_it_is_one_line(error):
    line = failed_line({"failed": error})
    assert line.startswith("This run failed: ") and len(line) < 400 and line.isprintable()
    assert failed_line({"failed": "a\n  b."}) == "This run failed: a b. What had ended until then is shown."

