"""The tour's cards hold for the run they are made from: places, answers, numbers."""
import re

import pytest

from minitp.trace import Timeline
from minitp.trace.summary import stragglers
from minitp.trace.wording import duration, size
from minitp.view.cards import Guide
from tests.view.test_text import broken
from tests.view.view_runs import RUNS, read, run

every_run = pytest.mark.parametrize("name", RUNS)
FOCUS = {"gate", "partial", "weights", "x", "equation", "scrubber", "beads", "inset", "tokens", "toggle", ""}


def cards(trace):
    reader = read(trace)
    return reader, {card["title"]: card for card in reader.play["tour"]}


@every_run
def test_cards_stand_at_places_that_are_there(name):
    reader, tour = cards(run(**RUNS[name]))
    assert len(tour) == len(reader.play["tour"])
    for card in tour.values():
        assert 0 <= card["sync"] < reader.n and card["phase"] in range(4) and card["focus"] in FOCUS
        assert card["cut"] in (0, 1, None) and card["clock"] in ("steps", "measured", None)
        assert 20 < len(card["text"]) < 420 and len(card["title"]) < 60
        if card["question"]:
            assert 0 <= card["answer"] < len(card["choices"]) == len(set(card["choices"])) and card["reveal"]


@pytest.mark.parametrize(("name", "least"), [("uneven heads", 14), ("columns", 14), ("sharded", 13), ("parallel", 13),
                                             ("no values", 11), ("one rank", 6)])
def test_a_run_gets_the_cards_that_it_can_support(name, least):
    _, tour = cards(run(**RUNS[name]))
    assert least <= len(tour) <= 14
    assert ("Why the sum can't wait" in tour) == (name not in ("no values", "one rank"))
    assert ("The gate opens when the last rank is there" in tour) == (name != "one rank")
    assert ("The weights move once" in tour) == (RUNS[name].get("load") == "scatter")


@pytest.mark.parametrize("name", ["uneven heads", "columns", "no values", "ranks without heads"])
def test_who_was_last_is_who_the_trace_says(name):
    trace = run(**RUNS[name])
    reader, tour = cards(trace)
    card = tour["The gate opens when the last rank is there"]
    sync = reader.sync(card["sync"])
    assert card["choices"][card["answer"]] == f"rank {sync.last}"
    assert card["phase"] == 0                                          # the picture must not answer before the reader
    assert card["reveal"].startswith(f"Rank {sync.last} came last.")
    for rank, ns in sync.waits.items():
        assert rank == sync.last or f"rank {rank}: {duration(ns)}" in card["reveal"]
    alone = Timeline.of(trace)
    events = [i for i in range(len(trace)) if trace.event(i).site == sync.site and trace.event(i).step == 1]
    assert alone.sync_of(events[0]).last_rank == sync.last and sum(stragglers(alone).values()) > 0


@pytest.mark.parametrize(("name", "beads"), [("uneven heads", "6 = 2L + 2"), ("sharded", "5 = 2L + 1"),
                                             ("parallel", "4 = L + 2"), ("one rank", "6 = 2L + 2"),
                                             ("tied columns, sharded", "6 = 2L + 2")])
def test_beads_are_counted_in_the_run(name, beads):
    _, tour = cards(run(**RUNS[name]))
    card = tour["Count the beads"]
    assert card["reveal"].startswith(f"{beads}. The prompt of 4 tokens took the same")
    assert card["choices"][card["answer"]] == beads.split(" ")[0]


@pytest.mark.parametrize("name", ["uneven heads", "parallel", "sharded"])
def test_the_sum_that_came_too_late_is_another_number(name):
    reader, tour = cards(run(**RUNS[name]))
    card = tour["Why the sum can't wait"]
    late, right = reader.slots(card["sync"])["act", -1].numbers[0, -2:]
    told = [float(number) for number in re.findall(r"(?:is|be) (-?[\d.e-]+\d)", card["reveal"].replace("−", "-"))]
    assert told == pytest.approx([right, late], rel=0.006)
    assert card["choices"][card["answer"]] == "no"


def test_the_rank_that_answers_holds_the_row():
    trace = run(**RUNS["uneven heads"])
    reader, tour = cards(trace)
    card = tour["One rank answers, the others add zeros"]
    slots = reader.slots(card["sync"])
    others = [rank for rank in range(5) if not slots["in", rank].numbers.any()]
    assert len(others) == 4 and f"rank {card['answer']}" == card["choices"][card["answer"]]
    assert card["answer"] not in others


@pytest.mark.parametrize("name", RUNS)
def test_no_card_answers_a_later_question(name):
    reader = read(run(**RUNS[name]))
    tour = reader.play["tour"]
    for i, card in enumerate(tour):
        if not (card["question"] or "").startswith("Which rank"):
            continue
        assert card["phase"] == 0 and (card["t"] == 0 or "last" in card["question"])
        assert all(before["sync"] != card["sync"] or before["phase"] == 0 for before in tour[:i])


@pytest.mark.parametrize(("there", "answer"), [(8, 7), (9, 8), (20, 3), (20, 17), (3, 0)])
def test_the_ranks_offered_do_not_give_the_answer_away(there, answer):
    guide = Guide(read(run(**RUNS["uneven heads"])))
    offered = guide.rank_choices(answer, [*range(there)])
    assert answer in offered and offered == [*range(offered[0], offered[0] + min(there, 8))]


def test_numbers_on_cards_are_those_of_the_run():
    trace = run(**RUNS["uneven heads"])
    reader, tour = cards(trace)
    loaded = sum(reader.sync(k).payload for k in range(reader.n) if reader.word("part", k) == "load")
    assert size(loaded) in tour["The weights move once"]["text"]
    assert "rank 0: 0–2; rank 1: 3–4" in tour["A column cut gives shards for free"]["text"]
    assert "rank 0: heads 0–1" in tour["Heads don't need each other"]["text"]
    assert "rank 4: head 8" in tour["Heads don't need each other"]["text"]
    assert "10 × 11 each, 220 numbers" in tour["First, the whole matrix"]["text"]
    shares = [int(n) for n in re.findall(r"(\d+) %", tour["Where did the time go?"]["text"])]
    assert 98 <= sum(shares) <= 102


def test_a_broken_run_ends_with_what_became_of_its_text():
    trace = broken(run(**RUNS["uneven heads"]), "layers.1.mlp.down")
    reader, tour = cards(trace)
    card = tour["What a missing sum does"]
    assert reader.sync(card["sync"]).broken and "layers.1.mlp.down" in card["text"]
    assert "".join(f" w{token}" for token in trace.run["tokens"][0]).strip() in card["text"]
    assert "Break it" not in tour and "skipped on purpose" in tour["Count the beads"]["reveal"]
