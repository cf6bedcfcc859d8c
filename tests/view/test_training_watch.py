"""The play of a training run: its loss, gradients and norm are those of the step, and the words say them."""
import json
import re

import numpy as np
import pytest

from minitp.launcher import launch
from minitp.placement import Placement
from minitp.trace import Recorder, Trace, align_clocks
from minitp.trace.wording import size
from minitp.view.text import caption, pass_name, place
from minitp.view.watch import play
from tests.families import FAMILIES
from tests.train.training_runs import traced
from tests.view.test_text import TRACES
from tests.view.view_runs import read

RUNS = {
    "one rank": {"ranks": 1, "micro_batches": ((1, 3),)},
    "uneven heads": {"ranks": 5, "recompute": "selective", "micro_batches": ((2, 4),)},  # kv heads are held twice
    "recomputed": {"ranks": 3, "recompute": "full", "micro_batches": ((2, 5), (1, 3))},
    "tied columns": {"family": "llama-tied", "ranks": 3, "embedding": "hidden", "between": True,
                     "micro_batches": ((1, 3),)},
    "gpt2": {"family": "gpt2", "ranks": 3, "micro_batches": ((2, 4),)},
    "parallel": {"family": "parallel", "ranks": 3, "micro_batches": ((2, 4),)},
    "ranks without heads": {"family": "mqa", "ranks": 5, "micro_batches": ((1, 4),)},
}
every_run = pytest.mark.parametrize("name", RUNS)
_made: dict[str, Trace] = {}


def run(name: str) -> Trace:
    """A trace with values, made once; not to be changed."""
    if name not in _made:
        options = dict(RUNS[name])
        ranks = options.pop("ranks")

        def recorded(comm):
            align_clocks(comm)
            return traced(comm, **options)

        _made[name] = launch(recorded, ranks, world="threads",
                             recorder=lambda rank: Recorder(rank, keep_values=True))[0]
    return _made[name]


def syncs(reader, *parts):
    return [sync for sync in map(reader.sync, range(reader.n)) if sync.part in parts]


@every_run
def test_every_sync_belongs_to_a_part_of_the_step(name):
    reader = read(run(name))
    parallel, tied = name == "parallel", name == "tied columns"
    forward = {"embedding", "loss", "block"} if parallel else {"embedding", "loss", "attention", "mlp"}
    parts = {phase: {sync.part for sync in map(reader.sync, range(reader.n)) if sync.phase == phase}
             for phase in ("forward", "backward", "optimizer")}
    assert parts["forward"] == forward | ({"head"} if tied else set())
    back = {"d_head", "d_block"} if parallel else {"d_head", "d_mlp", "d_attention"}
    assert parts["backward"] == back | ({"attention", "mlp"} if name == "recomputed" else set())
    assert parts["optimizer"] - {"copies"} == {"norm"}


@every_run
def test_terms_add_up_to_what_every_rank_gets(name):
    reader, seen = read(run(name)), 0
    for sync in syncs(reader, "d_mlp", "d_attention", "d_block", "d_head", "loss", "norm", "copies"):
        slots = reader.slots(sync.index)
        terms = [slots["in", rank].numbers[-1] for rank in range(reader.ranks) if ("in", rank) in slots]
        if sync.phase == "evaluate":                                         # of which no inner arrays are kept
            continue
        if sync.op == "all_gather":
            np.testing.assert_array_equal(np.concatenate(terms), slots["out", -1].numbers[-1])
        elif slots["out", -1].exact:
            added = np.max(terms, axis=0) if sync.op == "all_reduce_max" else np.sum(terms, axis=0)
            np.testing.assert_allclose(added, slots["out", -1].numbers[-1], rtol=1e-4, atol=1e-5)
            seen += 1
    assert seen >= 5


@every_run
def test_the_loss_that_is_shown_is_made_of_the_numbers_beside_it(name):
    """And the gradient of the logits behind it is softmax − target, over the tokens of the step."""
    trace, checked = run(name), 0
    reader, cut = read(trace), Placement(FAMILIES[RUNS[name].get("family", "llama")], RUNS[name]["ranks"]).vocab
    for sync in syncs(reader, "loss"):
        slots = reader.slots(sync.index)
        if sync.site != "loss.target" or sync.phase != "forward" or ("loss", -1) not in slots:
            continue
        exps = np.concatenate([slots["exps", rank].numbers[0] for rank in range(reader.ranks)
                               if ("exps", rank) in slots])
        total, target = slots["total", -1].numbers[0, 0], int(slots["token", -1].numbers[0, 0])
        assert exps.sum() == pytest.approx(total, rel=1e-4)
        assert slots["out", -1].numbers[0, 0] == pytest.approx(np.log(exps[target]), rel=1e-3, abs=1e-4)
        assert slots["loss", -1].numbers[0, 0] == pytest.approx(np.log(total / exps[target]), rel=1e-3, abs=1e-4)
        assert target in cut.of(int(slots["owner", -1].numbers[0, 0]))
        assert f"log Z − (z − m) ({slots['loss', -1].numbers[0, 0]:.3g} at" in caption(reader, sync.index, 3)
        head = next(s for s in syncs(reader, "d_head") if s.index > sync.index)
        gradient = np.concatenate([drawn.numbers[0] for (slot, _), drawn in reader.slots(head.index).items()
                                   if slot == "dlogits"])
        softmax = exps / total
        softmax[target] -= 1
        np.testing.assert_allclose(gradient / np.abs(gradient).sum(), softmax / np.abs(softmax).sum(), atol=1e-4)
        checked += 1
    assert checked


@every_run
def test_the_gradient_of_the_stream_goes_on_from_sync_to_sync(name):
    reader, stream, joined = read(run(name)), None, 0
    for k in range(reader.n):
        sync, slots = reader.sync(k), reader.slots(k)
        if sync.part == "d_head":
            stream = None
        if sync.part in ("d_mlp", "d_attention", "d_block"):
            if stream is not None:
                np.testing.assert_array_equal(slots["dy", -1].numbers, stream)
                joined += 1
            stream = slots["next", -1].numbers
    assert joined


def test_each_rank_goes_back_through_its_own_part():
    reader = read(run("uneven heads"))
    mlp, attention = syncs(reader, "d_mlp")[0], syncs(reader, "d_attention")[0]
    trace, slots = run("uneven heads"), reader.slots(mlp.index)
    for rank, columns in enumerate((3, 2, 2, 2, 2)):
        assert slots["dh", rank].shape == slots["dgate", rank].shape == slots["dup", rank].shape == (columns,)
        down = trace.weight(rank, "layers.1.mlp.down.weight").cells
        np.testing.assert_allclose(slots["dy", -1].numbers @ down, slots["dh", rank].numbers, rtol=1e-3, atol=1e-6)
        up = [trace.weight(rank, f"layers.1.mlp.{name}.weight").cells for name in ("gate", "up")]
        term = slots["dgate", rank].numbers @ up[0] + slots["dup", rank].numbers @ up[1]
        np.testing.assert_allclose(term, slots["in", rank].numbers, rtol=1e-3, atol=1e-6)
        assert slots["dW down", rank].shape == (10, columns) and slots["dW gate", rank].shape == (columns, 10)
    assert slots["dh", 1].axis == "columns 3–4 of 11"
    slots = reader.slots(attention.index)
    assert [slots["dheads", rank].shape for rank in (0, 4)] == [(2, 2), (1, 2)]
    assert slots["dk", 0].shape == (1, 2) and slots["dq", 4].axis == "head 8 of 9"


def test_the_norm_is_that_of_every_gradient_once():
    trace = run("uneven heads")
    reader = read(trace)
    sync = syncs(reader, "norm")[0]
    total = reader.slots(sync.index)["sum", -1].numbers[0, 0]
    assert f"({np.sqrt(total):.3g})" in caption(reader, sync.index, 3)
    slots = reader.slots(sync.index)
    assert {"dW q", "dW down", "first moment", "second moment", "change"} <= {name for name, _ in slots}
    copies = syncs(reader, "copies")[0]
    assert copies.index == sync.index - 1 and "zeros where it holds none" in caption(reader, copies.index, 0)


@every_run
def test_captions_say_who_sends_nothing(name):
    reader = read(run(name))
    for k in range(reader.n):
        sync, said = reader.sync(k), [caption(reader, k, phase) for phase in range(4)]
        assert all(said) and not re.search(r"\bnan\b|None", " ".join(said))
        if sync.part in ("d_mlp", "d_attention", "d_block"):
            assert "behind the row cut (g) nothing is sent" in said[0]
            assert ("dx[0] = " in said[2]) == (reader.ranks > 1)
            assert ("the embedding" in said[3]) == (sync.layer == 0 and sync.part != "d_mlp")
        if sync.phase == "backward" and sync.part in ("attention", "mlp"):
            assert "forward again (recomputed)" in said[0] and "forward again (recomputed)" in place(reader, k)
            assert "the same y again" in said[3]
        assert place(reader, k).endswith(f"sync point {sync.number} of {sync.of}")


def test_passes_are_named_by_step_and_micro_batch():
    reader = read(run("recomputed"))
    names = [pass_name(reader, i) for i in range(len(reader.play["passes"]["first"]))]
    assert names == ["step 1, forward of micro-batch 1", "step 1, backward of micro-batch 1",
                     "step 1, forward of micro-batch 2", "step 1, backward of micro-batch 2", "step 1, optimizer"]
    assert pass_name(read(run("gpt2")), 1) == "step 1, backward"
    assert pass_name(read(run("tied columns")), 3) == "evaluation after step 1"


@every_run
def test_a_step_fits_a_page(name):
    made = play(run(name))
    assert len(json.dumps(made, allow_nan=False, separators=(",", ":"))) < 300_000
    assert len(set(made["run"]["notes"])) == len(made["run"]["notes"])


@pytest.mark.parametrize("site", ["x.mlp.up", "layers.9999999.mlp.up", "layers.-1.attention.qkv", "layers.0.mlp.qkv",
                                  "layers.77.mlp.up", "loss.max", "head.input", "gradients.norm", ""])
def test_any_site_of_a_stranger_s_step_is_shown(site):
    """In every phase, with every array that the step kept, whatever they mean there."""
    plain = run("gpt2").to_plain()
    renamed = "layers.1.mlp.up", "layers.0.attention.qkv", "loss.sum", "gradients.norm", "head"
    strings = [site if word in renamed else word for word in plain["strings"]]
    reader = read(Trace.from_plain(plain | {"strings": strings}))
    assert all(caption(reader, k, phase) for k in range(reader.n) for phase in range(4))


# --- the tour -------------------------------------------------------------------------------------------------------

@every_run
def test_the_tour_stands_at_places_that_are_there(name):
    reader = read(run(name))
    tour = reader.play["tour"]
    assert len({card["title"] for card in tour}) == len(tour) >= (4 if name == "one rank" else 11)
    for i, card in enumerate(tour):
        assert 0 <= card["sync"] < reader.n and 20 < len(card["text"]) < 420 and len(card["title"]) < 60
        if card["question"]:
            assert 0 <= card["answer"] < len(card["choices"]) == len(set(card["choices"])) and card["reveal"]
        if (card["question"] or "").startswith("Which rank"):
            assert card["phase"] == 0 and all(before["sync"] != card["sync"] or before["phase"] == 0
                                              for before in tour[:i])


def test_cards_say_the_numbers_of_the_run():
    reader = read(run("uneven heads"))
    cards = {card["title"]: card for card in reader.play["tour"]}
    assert "8 sync points. Backward, from the last layer to the first: 5. Then once a step the optimizer: 2." in cards[
        "A step is three passes"]["text"]
    loss = [sync for sync in syncs(reader, "loss") if sync.pass_index == 0]
    said = cards["The loss, without gathering the logits"]["text"]
    assert size(sum(sync.payload for sync in loss)) in said and size(loss[0].payload * 23) in said
    assert cards["Two, not five"]["choices"][cards["Two, not five"]["answer"]] == "2"
    beads = cards["Count the beads of the backward"]
    assert beads["choices"][beads["answer"]] == "5" and "2 per layer and one at the head" in beads["reveal"]
    assert "dx[0] = " in cards["f: the sum is in front of the column cut"]["text"]
    assert "3 kv heads on 5 ranks" in cards["Copies owe each other a sum"]["text"]
    last = cards["The gate opens when the last rank is there"]
    assert last["choices"][last["answer"]] == f"rank {reader.sync(last['sync']).last}"


def test_the_recomputed_syncs_are_counted_among_the_backward_s():
    beads = next(card for card in read(run("recomputed")).play["tour"] if card["focus"] == "beads")
    assert "; its 2 micro-batches each take both" in read(run("recomputed")).play["tour"][0]["text"]
    assert beads["choices"][beads["answer"]] == "9" and "the forward's again" in beads["reveal"]


def test_each_pass_knows_its_steps_loss_and_the_words_shown():
    made = play(Trace.read(TRACES / "tiny-training-4-ranks.json.gz"))
    first, second = Trace.read(TRACES / "tiny-training-4-ranks.json.gz").run["losses"]
    assert made["passes"]["loss"] == [first] * 3 + [second] * 3
    said = [made["strings"][i] for i in made["passes"]["learns"]]
    assert all(re.fullmatch("“.+” → “.+”", text) for text in said[::3]) and said[1] == said[2] == ""
    assert set(play(run("recomputed"))["passes"]["loss"]) == {None}             # a trace without losses


def test_copies_show_a_sum_of_several_terms_or_none():
    reader = read(run("uneven heads"))
    slots = reader.slots(syncs(reader, "copies")[0].index)
    terms = [slots["first", rank].numbers[0, 0] for rank in range(reader.ranks) if ("first", rank) in slots]
    assert not terms or np.count_nonzero(terms) > 1
