"""What an answer says follows its numbers: what-ifs that turn each sentence which has a direction."""
import pytest

from minitp.commands.plan.ask import plain
from minitp.plan import catalogue
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import WhatIf, named
from minitp.plan.questions.networks import own_switch
from minitp.plan.questions.runs import plain as plain_1f1b
from minitp.plan.speed import step, traffic
from tests.plan.asking import asked, numbers, text_of

GB = 10**9

TURNS = [
    ("biggest-llama", {}, "Yes, the model is partitioned", "No, it needn't be", {"model": "gpt2"}),
    ("biggest-llama", {}, "two counts are right: 11 and 10", "By either size it is 1 card", {"model": "gpt2"}),
    ("biggest-llama", {}, "by bytes fewer would do", "by bytes it takes 14", {"memory": 10 * GB}),
    ("biggest-llama", {}, "no card holds it", "its bytes alone would fit a card", {"model": "llama-65b",
                                                                                 "memory": 131 * GB}),
    ("one-machine", {}, "up to llama-33b", "gpt2 fits", {"model": "gpt2"}),
    ("one-machine", {"model": "gpt2"}, "gpt2 fits", "mt-nlg-530b does not fit", {"model": "mt-nlg-530b"}),
    ("one-machine", {}, "8 × a100-80", "16 × a100-80", {"devices": 16}),
    ("two-machines", {}, "and not enough", "Two machines do;", {"model": "llama-2-7b"}),
    ("two-machines", {}, "698.4 GB (650.5 GiB) is right", "llama-2-7b: 27.0 GB", {"model": "llama-2-7b"}),
    ("two-machines", {}, "5 machines of 8 do", "learned table of 2,048 positions", {"seq": 8192}),
    ("train-on-one-machine", {}, "No, and slow", "One fits, one doesn't", {"devices": 16}),
    ("train-on-one-machine", {}, "No, and slow", "Its states fit, and it would take less than a year",
     {"model": "llama-2-7b", "tokens": 1e9}),
    ("gpt-3", {}, "By memory it could have been", "Its states fit the A100 alone", {"devices": 40}),
    ("gpt-3", {}, "By memory it could have been", "No, so few", {"devices": 8}),
    ("thousand-gpus", {}, "since then they have grown", "More than these runs took", {"devices": 20_000}),
    ("bloom", {}, "Not hard to draw", "It does not fit such cards", {"memory": 40 * GB}),
    ("zero", {}, "takes as long as stage 1's", "1.5 times as long", {"between": "ethernet-1g"}),
    ("terabyte-gpu", {}, "would be slow", "It is less than a100-80 has", {"memory": 40 * GB}),
    ("terabyte-gpu", {}, "12.6 times as fast", "times as long", {"memory": 40 * GB}),
    ("terabyte-gpu", {}, "also spares all sync points", "without sync points", {"memory": 40 * GB}),
    ("memory-kind", {}, "on 7 of these 7 cards", "on 0 of these 7 cards", {"batch": 4096}),
    ("wafer", {}, "They trade it for speed", "Here it has more of both", {"machine": "laptop"}),
    ("wafer", {}, "from wafer to wafer takes", "nothing passes", {"model": "gpt2"}),
    ("sync-points", {}, "two a layer, not one", "one a layer", {"model": "gpt-neox-20b"}),
    ("what-moves", {}, "sends less than ZeRO-3", "sends more than ZeRO-3", {"seq": 8192}),
    ("embedding-or-time", {}, "without copies just as well", "ranks hold copies", {"devices": 16}),
    ("longest-context", {}, "8 kv heads share", "a key and a value of its own", {"model": "llama-2-7b"}),
    ("experts", {}, "All experts must be there", "more sequences share the same reading", {"model": "gpt2"}),
    ("sync-cost", {}, "It waits", "It carries more", {"batch": 4096}),
    ("inside-a-machine", {}, "Right:", "Not by these links", {"link": "ethernet-1g"}),
    ("inside-a-machine", {}, "1 GbE between machines", "on ethernet-100g between machines",
     {"between": "ethernet-100g"}),
    ("inside-a-machine", {}, "two sums a layer", "one sum a layer", {"model": "gpt-neox-20b"}),
    ("switch", {}, "No: infiniband-switch", "No: ethernet-switch", {"link": "ethernet-100g"}),
    ("switch", {}, "What makes toast of it is software", "Over TCP (ethernet-10g) it is", {"link": "ethernet-1g"}),
    ("switch", {}, "Right is that latency decides", "bandwidth decides", {"link": "ethernet-1g"}),
    ("raspberry-pis", {}, "Because every byte passes the root", "They don't here", {"weights": "int8"}),
    ("raspberry-pis", {}, "Summed as minitp does it, 8", "on devices of 8xa100-80", {"machine": "8xa100-80"}),
]


@pytest.mark.parametrize(("name", "before", "said", "turned", "what"), TURNS)
def test_a_what_if_turns_what_is_said(name, before, said, turned, what):
    first, other = text_of(name, **before), text_of(name, **what)
    assert said in first and turned not in first
    assert turned in other and said not in other


def test_a_title_names_what_is_asked():
    question = named(QUESTIONS, "two-machines")
    assert question.title() == question.title(WhatIf()) == question.text
    title = question.title(WhatIf(model="llama-2-7b", memory=40 * GB, seq=128))
    assert "700" not in title and "model llama-2-7b, 40.0 GB (37.3 GiB) a device, 128 tokens a sequence" in title
    assert plain(question, asked("two-machines", model="gpt2"), WhatIf(model="gpt2"))["question"].endswith("model gpt2")
    for one in QUESTIONS:                                        # a number of the usual values isn't said of others
        assert not any(sign in one.title(WhatIf(**{one.options[0]: "x" if one.options[0] in ("model", "machine") else
                                                   GB})).split("Asked with")[0]
                       for sign in ("640", "175B", "80 GB", "24 GB", "400 GPUs"))


def test_what_was_published_stands_beside_the_same_only():
    assert len(asked("gpt-3").tables) == 2 and "The paper says V100" in asked("gpt-3").short
    for other in ({"model": "gpt2"}, {"tokens": 1e9}):
        assert len(asked("gpt-3", **other).tables) == 1 and "published: 84" not in text_of("gpt-3", **other)
    assert "Least alike" in text_of("thousand-gpus")
    assert "Least alike" not in text_of("thousand-gpus", between="ethernet-1g")
    assert "changed as asked" in asked("thousand-gpus", memory=60 * GB).tables[1].title


def test_measured_and_modeled_are_of_one_machine():
    theirs, ours = asked("raspberry-pis", machine="8xa100-80").tables[1:]
    assert "RasPi4B" in theirs.title and "8xa100-80" in ours.title
    assert not {head for head in theirs.heads if "minitp" in head} and not {head for head in ours.heads
                                                                            if "fitted" in head}
    assert len(asked("raspberry-pis").tables) == 2


def test_trainings_of_both_questions_agree():
    """A published layout that is faster than the best that fits is told, and why it isn't among those."""
    told, one = text_of("train-biggest"), numbers("thousand-gpus")
    assert not one["llama-3.1-405b-8192 fits"]
    assert one["llama-3.1-405b-8192 days"] < numbers("train-biggest")["8192 days"]
    assert f"would take {one['llama-3.1-405b-8192 days']:.0f} days, but is" in told and "into the reserve" in told
    assert numbers("train-biggest")["16384 days"] == pytest.approx(one["llama-3.1-405b-16384 days"])
    assert "0 days" not in asked("train-biggest", model="llama-2-13b").short


def test_plain_1f1b_is_cut_as_well_as_can_be():
    run = catalogue.run("llama-3.1-405b-16384")
    even = Layout(tp=8, pp=16, dp=128, sequence=True, zero=2)
    best = plain_1f1b(run.model, run.layout, run.training, run.machine).seconds
    assert best < step.training_step(run.model, even, run.training, run.machine).seconds


def test_bytes_that_move_are_counted_without_recomputation():
    found, model = numbers("what-moves"), catalogue.model("llama-2-70b")
    payload = 2048 * 8192 * 2
    layers = 8 * 80 * 4 * payload * 2 * 7 / 8                                       # 4 a layer, 8 micro-batches
    assert layers < found["tensor parallel sent"] < 1.02 * layers
    assert 4 < found["tensor parallel collectives a layer"] < 4.1
    assert "8 sequences of 2,048 tokens, nothing computed again" in asked("what-moves").tables[0].title
    full = traffic.step(model, Layout(tp=8), Training(8, 2048, 1, recompute="full"), catalogue.machine("8xa100-80"))
    assert sum(row.sent for row in full) > 1.45 * found["tensor parallel sent"]
    assert numbers("embedding-or-time")["training tensor"] == pytest.approx(
        8 * 80 * 4 * 131072 * 8192 * 2 * 2 * 7 / 8, rel=0.02)
    assert "In a step of 8 sequences of 131,072 tokens" in text_of("embedding-or-time")


def test_counts_by_bytes_say_that_no_reserve_is_kept():
    for name in ("wafer", "memory-kind", "terabyte-gpu"):
        assert any("by bytes, no reserve" in head for head in asked(name).tables[0].heads)
        assert "no reserve kept" in text_of(name)
    job = named(QUESTIONS, "wafer").ask().numbers
    h200 = catalogue.machine("h200").device
    assert job["h200 devices"] == 1 and Capacity.of(h200).usable < 2 * 68_976_648_192


def test_what_hides_sending_is_told():
    found = numbers("zero")
    assert found["stage 3 step s"] == pytest.approx(found["stage 1 step s"], rel=0.01)
    assert found["stage 3 sent"] > 1.4 * found["stage 1 sent"]
    assert found["stage 3 hidden s"] > found["stage 1 hidden s"] > found["stage 1 bare s"]
    table = asked("zero").tables[0]
    assert [head for head in table.heads if "sending" in head] == ["sending beside the passes",
                                                                    "sending that takes time of its own"]
    assert all("GB (GiB)" in head for head in table.heads[1:5])


@pytest.mark.parametrize(("link", "kind"), [
    ("ib-ndr", "infiniband-switch"), ("roce", "ethernet-switch"), ("ethernet-100g", "ethernet-switch"),
    ("ethernet-1g", "ethernet-1g-switch"), ("nvlink4", "nvswitch"), ("efa", "infiniband-switch"),
    ("5us,25GB/s", "ethernet-switch"), ("5us,100MB/s", "ethernet-1g-switch")])
def test_a_link_has_its_own_kind_of_switch(link, kind):
    assert own_switch(catalogue.link(link)).name == kind


def test_tensor_parallelism_stays_in_a_machine_of_eight():
    two = asked("inside-a-machine", devices=16).tables[2]
    assert [row[0] for row in two.rows] == ["TP8 × PP2", "TP16"]
    found = numbers("inside-a-machine", devices=16)
    assert found["TP8 × PP2 between"] < found["TP16 between"] / 100


def test_a_link_alone_is_the_one_asked_about():
    found, told = numbers("sync-cost", link="ethernet-100g"), text_of("sync-cost", link="ethernet-100g")
    assert f"a plan reckons with {found['library s'] / found['ethernet-100g 8 doubling']:.1f} times as much" in told


def test_times_are_among_the_numbers():
    assert numbers("experts", batch=7)["step 7 s"] > 0
    for name in ("one-machine", "biggest-llama"):
        usual, slow = numbers(name), numbers(name, link="pcie3")
        times = [key for key in usual if key.endswith("token s") and usual[key]]
        assert times and all(slow[key] > usual[key] for key in times), name


def test_a_layout_told_not_to_fit_does_not():
    run = catalogue.run("llama-3.1-405b-8192")
    assert not verdict(run.model, run.layout, run.training, Capacity.of(run.machine.device)).fits
