"""Runs compared: real ones of the tiny model with their logits, and traces by their tokens."""
from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.placement import Placement
from minitp.trace import Timeline
from minitp.view import compare as view
from minitp.view import question
from minitp.view.compare import Run
from minitp.view.figures.compare import memory_figure, times_figure
from minitp.view.rerun import LONGEST, RANKS, rerun
from tests.view.timed_traces import all_reduces


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return rerun("ab", 3)


@pytest.fixture
def own(runs) -> list[Run]:
    return deepcopy(runs)


def test_every_number_of_ranks_gives_the_same(runs):
    entries = view.compare(list(reversed(runs)))
    assert [entry.ranks for entry in entries] == list(RANKS)
    assert all(entry.differs == -1 and entry.tokens == entries[0].tokens for entry in entries)
    assert len(entries[0].tokens) == 3
    assert entries[0].logits == 0 and all(0 < entry.logits < 1e-4 for entry in entries[1:])
    assert {entry.sync_points for entry in entries} == {6}
    said = view.verdict(entries)
    assert "The same 3 tokens on 1, 2, 3, 4, 8 ranks." in said
    assert f"differ by {max(entry.logits for entry in entries):.2g} at most" in said


def test_memory_is_that_of_the_placement(runs):
    for entry in view.compare(runs):
        held = [Placement(TINY, entry.ranks).elements(rank) * 4 for rank in range(entry.ranks)]
        assert entry.memory == (min(held), max(held))


def test_threads_are_no_speed(runs):
    entries = view.compare(runs)
    assert [entry.is_speed for entry in entries] == [True, False, False, False, False]
    assert "not how fast it is" in view.why_slower(entries)[0]
    assert times_figure(entries).layout.yaxis.title.text.startswith("%")
    assert len(memory_figure(entries).data[0].x) == len(RANKS)


def test_another_token_is_found(own):
    own[2].timeline.trace.run["tokens"][1] += 1
    entries = view.compare(own)
    assert [entry.differs for entry in entries] == [-1, -1, 1, -1, -1]
    assert "on 3 ranks gives another token at place 1" in view.verdict(entries)


def test_traces_have_no_logits(runs):
    entries = view.compare([Run(run.name, run.timeline) for run in runs])
    assert all(entry.logits is None for entry in entries)
    assert "Logits are not kept in a trace" in view.verdict(entries)
    assert "One run alone" in view.verdict(entries[:1])


def test_time_per_token_is_the_wall_clock():
    """Two tokens of 2 syncs: 30 + 5 + 30 + 5 ns each, of which rank 0 waits 20 twice."""
    timeline = Timeline.of(all_reduces([[10, 30]] * 4, [5] * 4, per_pass=2))
    entry, = view.compare([Run("one", timeline)])
    assert (entry.time, entry.computing, entry.waiting, entry.moving) == (70, 40, 20, 10)
    assert entry.differs is None and entry.memory is None and entry.tokens == []


def entry_of(ranks, time, *, cores=8, crowded=False, blas=1, computing=None):
    computing = time if computing is None else computing
    return view.Entry(f"run {ranks}", ranks, "mpi", cores, crowded, [1], -1, None, (100 // ranks, 1000 // ranks), 6,
                      time, computing, 0.0, time - computing, blas)


def test_why_it_may_be_slower():
    entries = [entry_of(1, 8e6, blas=4), entry_of(2, 4e6), entry_of(16, 16e6, crowded=True, computing=6e6)]
    crowd, two, sixteen, memory = view.why_slower(entries)
    assert "16 ranks shared 8 cores" in crowd
    assert "On 2 ranks a token takes 4 ms, 2 times as fast as on 1 rank: 0 % of it is waiting" in two
    assert "an even split" not in two
    assert "2 times as long as on 1 rank" in sixteen
    assert "A rank computes 6 ms of it; an even split would be 500 µs, but 4 BLAS threads had shared" in sixteen
    assert "1,000 B of weights on the fullest rank of 1, 62 B of 16" in memory


def test_runs_of_one_question_are_a_group(runs):
    headers = {run.name: run.timeline.trace.run for run in runs}
    other = deepcopy(headers["tiny on 2"]) | {"prompts": [9]}
    strange = {"no header": {}, "wrong": {"generation": 3, "model": [], "prompts": 1, "tokens": 1, "ranks": "x"}}
    assert question.groups(headers | {"other": other} | strange) == [[f"tiny on {n}" for n in RANKS]]


def test_of_several_runs_on_as_many_ranks_the_newest(runs):
    one = runs[1].timeline.trace.run
    headers = {"old": one | {"created": "2026-01-01"}, "new": one | {"created": "2026-02-01"},
               "mpi": one | {"created": "2025-01-01", "world": "mpi"}}
    assert question.newest(["old", "new", "mpi"], headers) == ["new", "mpi"]
    headers["new"] = headers["new"] | {"generation": headers["new"]["generation"] | {"broken": ["embedding"]}}
    assert question.newest(["old", "new", "mpi"], headers) == ["old", "mpi"]
    assert question.newest(["new"], headers) == ["new"]


@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_the_first_difference(one, other):
    place = view.first_difference(one, other)
    assert (place == -1) == (one == other) and place == view.first_difference(other, one)
    if place >= 0:
        assert one[:place] == other[:place] and one[place:place + 1] != other[place:place + 1]


@pytest.mark.parametrize("tokens, flat", [([1, 2], [1, 2]), ([[1], [2, 3]], [1, 2, 3]), ("text", []), (None, []),
                                          ([1, "x"], []), ([[True]], [])])
def test_tokens_of_a_header(tokens, flat):
    trace = all_reduces([[1]], [1])
    trace.run["tokens"] = tokens
    assert view.tokens_of(trace) == flat


def test_the_prompt_is_checked():
    with pytest.raises(ConfigError, match="prompt is empty"):
        rerun("", ranks=[1])
    with pytest.raises(ConfigError, match=f"at most {LONGEST} bytes, and this one has {LONGEST + 2}"):
        rerun("é" * (LONGEST // 2 + 1), ranks=[1])
    run, = rerun("x" * LONGEST, max_tokens=1, ranks=[1])
    assert len(run.timeline.trace.run["prompts"]) == LONGEST and np.isfinite(run.logits).all()
