"""Whatever a stranger writes into a trace that can be read at all: the play is made, small, and text stays text."""
import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import FileFormatError
from minitp.trace import Event, Mark, Trace
from minitp.view.player.export import to_html
from minitp.view.reading import PlayReader
from minitp.view.source import line_of
from minitp.view.text import caption, place, steps
from minitp.view.watch import play
from tests.view.view_runs import RUNS, run

EVIL = "<img src=x onerror=alert(1)></script><!-- &amp; \u2028\u0000\ud800 " + "W" * 10_000
texts = st.one_of(st.just(EVIL), st.text(max_size=40), st.sampled_from(["", "layers.0.mlp.down", "all_reduce"]))
single = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(allow_nan=False), texts)
plain = st.recursive(single, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
                     max_leaves=8)
KEYS = ("model", "placement", "generation", "prompts", "prompt_pieces", "tokens", "pieces", "words", "text", "cores",
        "ranks_per_core", "world", "id", "created", "title", "broken", "hosts", "versions")
SIZES = ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab", "positions")


def look_at_all(made: dict) -> None:
    """Every sentence of a play, its HTML, and its size."""
    json.dumps(made, allow_nan=False)
    reader = PlayReader(made)
    for k in range(reader.n):
        sync, _ = reader.sync(k), reader.slots(k)
        assert (np.diff([sync.begin, sync.enter, sync.ready, sync.leave], axis=0) >= 0).all()
        for phase in range(4):
            assert len(caption(reader, k, phase)) < 3000
        assert len(place(reader, k)) < 400
    for i in range(len(made["passes"]["first"])):
        steps(reader, i)
    page = to_html(made)
    data = page[page.index('id="play">') + len('id="play">'):page.index("</script>", page.index('id="play">'))]
    assert json.loads(data) == made and not set("<>&") & set(data) and data.isascii()
    assert "<img src=x" not in page and max(map(len, made["strings"]), default=0) <= 200


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), plain), st.sampled_from(["no values", "uneven heads"]))
def test_any_header_makes_a_play(header, name):
    trace = run(**RUNS[name])
    try:
        hostile = Trace.from_plain(trace.to_plain() | {"run": trace.run | header | {"ranks": trace.run["ranks"]}})
    except FileFormatError:
        return
    look_at_all(play(hostile, count=1))


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.sampled_from(SIZES), st.integers(1, 2**60)), st.sampled_from([1, 4, 7, 2**20]))
def test_a_model_of_any_size_is_never_built(sizes, ranks):
    trace = run(**RUNS["no values"])
    header = trace.run | {"ranks": max(ranks, 4), "model": trace.run["model"] | sizes,
                          "placement": trace.run["placement"] | {"ranks": max(ranks, 4)}}
    look_at_all(play(Trace.from_plain(trace.to_plain() | {"run": header, "clock": {}}), count=1))


words = st.sampled_from(["all_reduce", "all_gather", "scatter", "broadcast", "gather", "reduce", "send", "receive",
                         "barrier", "", EVIL])
small = st.integers(0, 3)
times = st.integers(0, 2**53 - 1)


@st.composite
def events(draw):
    enter, leave = sorted((draw(times), draw(times)))
    root, peer, step = (draw(st.none() | small) for _ in range(3))
    plane, shape = draw(st.sampled_from(["data", "sample", "control"])), tuple(draw(st.lists(times, max_size=3)))
    return Event(draw(small), draw(texts), draw(small), draw(small), plane, draw(words), root, peer, None, draw(texts),
                 draw(texts), draw(texts), step, None, None, draw(texts), draw(texts), shape, draw(texts), draw(times),
                 enter, leave, None, None, None, None, draw(st.booleans()), draw(texts))


@settings(max_examples=25, deadline=None)
@given(st.lists(events(), max_size=8), st.lists(st.tuples(small, texts, small, times, times), max_size=4), small)
def test_any_events_make_a_play(rows, marks, ranks):
    kept = [Mark(rank, phase, step, None, *sorted((a, b))) for rank, phase, step, a, b in marks]
    trace = Trace.of(rows, kept)
    trace.run["ranks"] += ranks
    look_at_all(play(Trace.from_plain(json.loads(json.dumps(trace.to_plain())))))


def test_a_trace_with_no_event_at_all():
    made = play(Trace.of([]))
    look_at_all(made)
    assert made["tour"] == [] and "nothing to watch" in made["run"]["notes"][0]


def test_values_that_say_something_else_than_the_events():
    plain = run(**RUNS["uneven heads"]).to_plain()
    odd = [{"shape": [2, 3], "data": [None, 1e308, -1e308, 0, 1, 2]}, {"shape": [0, 4], "data": []}, None,
           {"shape": [], "data": [1.5]}, {"shape": [7], "block": 3, "maxima": [1, None, 2.5]}]
    values = [{"event": value["event"], "before": odd[i % 5], "after": odd[(i + 2) % 5]}
              for i, value in enumerate(plain["values"])]
    made = play(Trace.from_plain(plain | {"values": values}))
    look_at_all(made)
    assert any("not finite" in note for note in made["run"]["notes"])


def test_weights_and_words_without_end():
    trace = run(**RUNS["uneven heads"])
    plain = trace.to_plain()
    vast = {"shape": [2**50, 10], "block": [2**50, 10], "maxima": [1], "first": [1]}
    weights = plain["weights"] | {"array": [vast for _ in plain["weights"]["array"]]}
    header = trace.run | {"prompts": [list(range(100_000))], "tokens": [list(range(100_000))]}
    shapes = plain["shapes"] + [[9] * 32] * 9999
    made = play(Trace.from_plain(plain | {"weights": weights, "run": header, "shapes": shapes}))
    look_at_all(made)
    assert len(json.dumps(made)) < 1_000_000 and len(made["prompt"]) == 2000
    assert any("the last 2,000 of 100,000 tokens" in note for note in made["run"]["notes"])


def test_a_pass_of_minutes_is_told_in_larger_ticks():
    events = [Event(0, "tp", 0, k, "data", "all_reduce", None, None, None, "s", "r", "load", None, None, None,
                    "partial", "whole", (1,), "float32", 4, k * 10**11, k * 10**11 + 7 * 10**10, None, None, None, None,
                    False, "") for k in range(3)]
    made = play(Trace.of(events))
    reader = PlayReader(made)
    assert made["passes"]["tick"] == [1000]
    assert [int(reader.sync(k).leave[0]) for k in range(3)] == [k * 10**11 + 7 * 10**10 for k in range(3)]


def test_only_lines_of_minitp_itself_are_quoted():
    assert line_of("minitp/view/source.py:1").startswith('"""The line of code')
    for caller in ("minitp/../../../etc/passwd:1", "/etc/passwd:1", "minitp/view/source.py:999999", "minitp/none.py:1",
                   "minitp/view/source.py:0", "minitp/view/source.py:1\n", EVIL, "", "tests/view/test_watch.py:1"):
        assert line_of(caller) == ""
