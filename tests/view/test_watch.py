"""The play of a run: its totals, waits, states and numbers are those of the trace."""
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.trace import Timeline, Trace
from minitp.view.passes import Passes
from minitp.view.steps import Steps
from minitp.view.watch import play
from tests.app.long_runs import long_run
from tests.families import FAMILIES, plain_weights, source_of
from tests.trace.trace_runs import body, on_threads
from tests.view.view_runs import RUNS, read, run

every_run = pytest.mark.parametrize("name", RUNS)


def silu(x):
    return x / (1 + np.exp(-x))


@every_run
def test_totals_are_the_sums_of_the_events(name):
    trace = run(**RUNS[name])
    reader, timeline = read(trace), Timeline.of(trace)
    data = trace.words("plane") != "control"
    syncs = [reader.sync(k) for k in range(reader.n)]
    assert sum(len(s.waits) for s in syncs) == data.sum()
    assert sum(sum(s.waits.values()) for s in syncs) == timeline.waiting[data].sum()
    assert sum(sum(s.moving.values()) for s in syncs) == timeline.moving[data].sum()
    assert sum(s.payload for s in syncs) == trace.events["payload"][data & (trace.events["rank"] == 0)].sum()
    before = [span for span in timeline.spans if span.before >= 0 and data[span.before]]
    assert sum(sum(s.computing.values()) for s in syncs) == sum(span.leave - span.enter for span in before)


@every_run
def test_every_rank_arrives_once_at_every_sync(name):
    trace = run(**RUNS[name])
    reader, steps = read(trace), Steps.of(Timeline.of(trace))
    assert reader.n == len(steps) == (trace.words("plane")[trace.events["rank"] == 0] != "control").sum()
    shown = steps.cell[steps.cell >= 0]
    assert sorted(shown.tolist()) == np.flatnonzero(trace.words("plane") != "control").tolist()
    for k in range(reader.n):
        sync = reader.sync(k)
        assert sync.present.all() and list(sync.waits) == list(range(trace.run["ranks"]))
        assert {trace.strings[i] for i in trace.events["site"][steps.cell[k]].tolist()} == {sync.site}
        assert (np.diff([sync.begin, sync.enter, sync.ready, sync.leave], axis=0) >= 0).all()


def test_waits_follow_the_rule_of_the_kind():
    reader = read(run(**RUNS["uneven heads"]))
    seen = set()
    for k in range(reader.n):
        sync = reader.sync(k)
        seen.add(sync.op)
        if sync.op in ("all_reduce", "all_gather"):
            until = sync.enter.max()
            assert sync.waits[sync.last] == 0 and sync.enter[sync.last] == until
        else:
            until = sync.enter[sync.root]
            assert sync.waits[sync.root] == 0 and sync.root == 0
        assert list(sync.waits.values()) == np.clip(until - sync.enter, 0, sync.leave - sync.enter).tolist()
    assert seen == {"all_reduce", "all_gather", "scatter", "broadcast"}


def test_the_slow_rank_is_the_last_one():
    trace = on_threads(3, body)[0]
    reader = read(trace)
    sums = [reader.sync(k) for k in range(reader.n) if reader.word("op", k) == "all_reduce"]
    assert len(sums) == 4 * 5 and {sync.last for sync in sums} == {1}
    assert reader.play["run"]["model"]["layers"] == 2 and reader.play["weights"] == []
    assert {reader.word("part", k) for k in range(reader.n)} == {"load", "embedding", "attention", "mlp", "head"}


@every_run
def test_passes_hold_the_syncs_of_their_phase_and_step(name):
    options = RUNS[name]
    reader = read(run(**options))
    passes = reader.play["passes"]
    told = [reader.pass_words(i)[:2] for i in range(len(passes["first"]))]
    assert told == [("load", -1)] * (options.get("load") == "scatter") + [("prefill", 0), ("decode", 1), ("decode", 2)]
    assert passes["first"] == np.cumsum([0, *passes["count"][:-1]]).tolist() and sum(passes["count"]) == reader.n
    assert all(begin <= end for begin, end in zip(passes["begin"], passes["end"], strict=True))
    last = max(reader.sync(reader.n - 1).leave)
    assert last <= passes["end"][-1] - passes["begin"][-1]


# --- states and numbers ---------------------------------------------------------------------------------------------

@every_run
def test_a_row_cut_ends_in_a_sum_and_a_column_cut_in_concatenation(name):
    reader = read(run(**RUNS[name]))
    sums = joins = 0
    for k in range(reader.n):
        sync, slots = reader.sync(k), reader.slots(k)
        if sync.op == "all_reduce":
            assert (sync.before, sync.after) == ("partial", "whole")
        if sync.op == "all_gather":
            assert sync.before.startswith("shard") and sync.after == "whole"
        pieces = [slots[key].numbers for key in sorted(slots) if key[0] == "in"]
        out = slots.get(("out", -1))
        if sync.part == "load" or out is None or not out.exact:
            continue
        if sync.op == "all_reduce":
            sums += 1
            np.testing.assert_allclose(np.sum(pieces, axis=0), out.numbers, rtol=1e-4, atol=1e-4)
            first = np.sum([slots["first", r].numbers for r in range(reader.ranks)], axis=0)
            np.testing.assert_allclose(first, slots["sum", -1].numbers, rtol=1e-4, atol=1e-4)
        elif sync.op == "all_gather":
            joins += 1
            np.testing.assert_array_equal(np.concatenate(pieces, axis=1), out.numbers)
    if RUNS[name].get("values", True):
        assert sums and (joins or reader.play["run"]["embedding"] == "hidden" or not reader.play["run"]["gathered"])
    else:
        assert not any(reader.slots(k) for k in range(reader.n)) and reader.play["run"]["values"] == "none"


@pytest.mark.parametrize("name", ["uneven heads", "columns", "parallel", "batch"])
def test_the_residual_stream_goes_on_from_sync_to_sync(name):
    reader = read(run(**RUNS[name]))
    stream = None
    for k in range(reader.n):
        sync, slots = reader.sync(k), reader.slots(k)
        if sync.part == "embedding":
            stream = None
        if sync.part in ("attention", "mlp", "block"):
            residual, following = slots["residual", -1].numbers, slots["next", -1].numbers
            if stream is not None:
                np.testing.assert_array_equal(residual, stream)
            if reader.model["norm"] == "rms":                          # no bias of the projections
                np.testing.assert_allclose(residual + slots["out", -1].numbers, following, rtol=1e-4, atol=1e-4)
            stream = following


def test_inner_arrays_have_the_ranks_own_shapes():
    reader = read(run(**RUNS["uneven heads"]))
    attention = next(k for k in range(reader.n) if reader.word("part", k) == "attention")
    slots = reader.slots(attention)
    for rank, heads in enumerate((2, 2, 2, 2, 1)):
        assert slots["q", rank].shape == slots["heads", rank].shape == (heads, 2)
        assert slots["scores", rank].shape == (heads, 4)
        np.testing.assert_allclose(slots["scores", rank].numbers.sum(axis=1), 1, atol=1e-4)
    assert [slots["q", r].axis for r in (0, 4)] == ["heads 0–1 of 9", "head 8 of 9"]
    mlp = reader.slots(attention + 1)
    assert [mlp["h", rank].axis for rank in (0, 1)] == ["columns 0–2 of 11", "columns 3–4 of 11"]
    gate, up, h = (mlp[name, 0].numbers for name in ("gate", "up", "h"))
    np.testing.assert_allclose(silu(gate) * up, h, rtol=1e-4, atol=1e-5)


def test_ranks_without_heads_are_there_with_nothing():
    reader = read(run(**RUNS["ranks without heads"]))
    attention = next(k for k in range(reader.n) if reader.word("part", k) == "attention")
    assert ("q", 3) in reader.slots(attention) and ("q", 4) not in reader.slots(attention)
    assert not reader.slots(attention)["in", 4].numbers.any()
    entry = next(e for e in reader.play["weights"] if e["name"] == "layers.*.attention.qkv.weight" and e["rank"] == 4)
    assert entry["shape"][0] == 0 and entry["parts"][0]["at"][0] == [16, 16]


def test_the_activation_before_and_after_the_sum():
    reader = read(run(**RUNS["uneven heads"]))
    for k in range(reader.n):
        slots = reader.slots(k)
        if ("act", -1) in slots:
            terms = np.array([slots["first", rank].numbers[0, 0] for rank in range(5)], float)
            wanted = [*silu(terms), silu(terms).sum(), silu(terms.sum())]
            np.testing.assert_allclose(slots["act", -1].numbers[0], wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["uneven heads", "sharded", "tied columns", "tied columns, sharded", "one rank"])
def test_the_chosen_token_is_the_best_that_any_rank_offers(name):
    trace = run(**RUNS[name])
    reader = read(trace)
    chosen = []
    for k in range(reader.n):
        slots = reader.slots(k)
        if ("chosen", -1) in slots:
            best = np.concatenate([drawn.numbers for (slot, _), drawn in slots.items() if slot == "best"])
            assert slots["chosen", -1].numbers[0, 1] == best[:, 1].max()
            chosen.append(int(slots["chosen", -1].numbers[0, 0]))
    tokens = trace.run["tokens"][0]
    assert chosen in (tokens, [token for token in tokens for _ in range(2)])      # sharded: at the head and the sample
    assert all(reader.play["pieces"][str(token)] == f" w{token}" for token in tokens)


def test_words_of_passes_are_what_they_read_and_wrote():
    reader = read(run(**RUNS["batch"]))
    words = [reader.pass_words(i)[2:] for i in range(3)]
    made = [made for made, _ in words]
    assert [read for _, read in words] == [" p3", *made[:2]] and reader.play["prompt"] == [" p3"]
    assert any("3 texts ran in one batch" in note for note in reader.play["run"]["notes"])


# --- weights --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["uneven heads", "columns", "tied columns", "parallel", "no values"])
def test_the_pieces_of_the_ranks_cover_every_matrix(name):
    reader = read(run(**RUNS[name]))
    covered = {}
    for entry in reader.play["weights"]:
        for part in entry.get("parts", []):
            mask = covered.setdefault(part["name"], np.zeros(part["shape"], int))
            mask[tuple(slice(*at) for at in part["at"])] += 1
    assert covered and all((mask >= 1).all() for mask in covered.values())
    assert all((mask == 1).all() for part, mask in covered.items() if ".k." not in part and ".v." not in part)
    cuts = {entry["name"]: entry["cut"] for entry in reader.play["weights"] if "cut" in entry}
    assert cuts["layers.*.mlp.down.weight"] == "rows" and cuts["layers.*.attention.qkv.weight"] == "heads"
    assert cuts["embedding.weight"] == reader.play["run"]["embedding"]


def test_weights_are_those_of_the_model():
    reader = read(run(**RUNS["columns"]))
    whole = plain_weights(source_of("llama"))
    down = [reader.weights["layers.1.mlp.down.weight", rank].numbers for rank in range(3)]
    np.testing.assert_allclose(np.concatenate(down, axis=1), whole["layers.1.mlp.down.weight"], rtol=1e-5)
    loaded = next(k for k in range(reader.n) if reader.word("site", k) == "layers.1.mlp.down.weight")
    slots = reader.slots(loaded)
    np.testing.assert_array_equal(slots["out", 1].numbers, down[1])
    assert slots["out", 1].axis == "rows 4–7 of 11" and FAMILIES["llama"].ffn == 11


# --- what is shown of it --------------------------------------------------------------------------------------------

def test_a_window_is_what_the_whole_play_has_there():
    trace = run(**RUNS["uneven heads"])
    whole, some = read(trace), read(trace, first=2, count=1)
    assert some.play["run"]["window"] == {"first": 2, "count": 1, "of": 4}
    assert "Passes 3–3 of 4 are shown." in some.play["run"]["notes"]
    start = whole.play["passes"]["first"][2]
    assert some.n == whole.play["passes"]["count"][2]
    for k in range(some.n):
        mine, other = some.sync(k), whole.sync(start + k)
        assert (mine.site, mine.last, mine.waits, mine.payload) == (other.site, other.last, other.waits, other.payload)
        for key, drawn in some.slots(k).items():
            np.testing.assert_array_equal(drawn.numbers, whole.slots(start + k)[key].numbers)


@pytest.mark.parametrize(("first", "count", "shown"), [(None, None, (0, 3)), (-5, 0, (0, 1)), (99, 99, (2, 1)),
                                                       (1, 99, (1, 2))])
def test_a_window_is_clamped(first, count, shown):
    window = play(run(**RUNS["no values"]), first=first, count=count)["run"]["window"]
    assert (window["first"], window["count"]) == shown


def test_a_long_run_fits_a_page_and_says_what_is_left_out():
    made = play(long_run(ranks=8, tokens=60, layers=30))
    window = made["run"]["window"]
    assert window["of"] == 60 and 30 < window["count"] < 60
    assert f"Passes 1–{window['count']} of 60 are shown." in made["run"]["notes"]
    assert 800_000 < len(json.dumps(made, separators=(",", ":"))) <= 1_000_000


@pytest.mark.slow
@pytest.mark.smollm2
def test_twenty_tokens_of_smollm2_on_four_ranks_with_values_fit_a_page(tmp_path, smollm2_path):
    file = tmp_path / "run.json"
    words = ["generate", "The Eiffel Tower is in", "--ranks", "4", "--world", "threads", "--max-tokens", "20",
             "--ignore-end", "--values", "--trace", str(file)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    made = play(Trace.read(file))
    assert made["run"]["window"] == {"first": 0, "count": 20, "of": 20} and made["run"]["values"] == "maxima"
    assert len(made["syncs"]["pass"]) == 20 * 62 and min(made["syncs"]["layout"]) >= 0
    assert len(json.dumps(made, separators=(",", ":"))) <= 1_000_000


def test_it_is_plain_json_and_every_note_is_said_once():
    for options in RUNS.values():
        made = play(run(**options))
        json.dumps(made, allow_nan=False)
        assert len(set(made["run"]["notes"])) == len(made["run"]["notes"])
    assert any("kept no arrays" in note for note in play(run(**RUNS["no values"]))["run"]["notes"])


@every_run
def test_a_pass_has_one_number_on_every_page(name):
    """Watch numbers the passes by their syncs, the other pages by phase and step: an address means the same on both."""
    timeline = Timeline.of(run(**RUNS[name]))
    steps, passes = Steps.of(timeline), Passes(timeline)
    assert len(steps.passes) == len(passes.rows)
    assert passes.of_event[steps.event].tolist() == steps.pass_of.tolist()
