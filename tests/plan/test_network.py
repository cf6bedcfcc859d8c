"""Prices of collectives: published cases, and what must hold for any machine."""
from dataclasses import replace
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.catalogue import machine as in_catalogue
from minitp.plan.links import LINKS
from minitp.plan.network import Price
from minitp.plan.network import price as priced
from minitp.plan.network.busbw import two_levels
from minitp.plan.network.collectives import ALGORITHMS, best, seconds
from minitp.plan.network.hierarchy import plans
from minitp.plan.network.policies import HALVES, mpich
from tests.plan.networks import boxes, device, link, machine

GIB = 2**30
OPS = (*ALGORITHMS, "all_reduce_max", "send")
HDR = LINKS[1]


def price(*asked, policy: str = "best", **more) -> Price:
    """By α and β, where a test doesn't ask for a rule."""
    return priced(*asked, policy=policy, **more)


# --- published ------------------------------------------------------------------------------------------------------

def test_worked_case_of_two_levels():
    """4 × 8 B200, 4 GiB: 16.1 ms overlapped, 26.25 serial, 22.05 measured; the whole of it on one card 85.9."""
    shards = price("all_reduce", 4 * GIB, (8, 4), boxes())
    assert (shards.algorithm, len(shards.stages)) == ("shards", 3)
    assert shards.seconds == pytest.approx(26.25e-3, rel=1e-3)
    assert shards.overlapped_s == pytest.approx(16.1e-3, rel=1e-3)
    assert (shards.overlapped_s, shards.seconds) == pytest.approx(two_levels(4 * GIB, 8, 4, 740.64e9, 50e9))
    assert shards.overlapped_s < 22.05e-3 < shards.seconds
    assert price("send", 4 * GIB, (1, 2), boxes()).seconds == pytest.approx(85.9e-3, rel=1e-3)


def test_one_level_is_the_model_of_its_link():
    for algorithm in ALGORITHMS["all_reduce"]:
        one = price("all_reduce", 16384, (8,), machine((8, HDR)), policy=algorithm, gamma=1e-10)
        assert one.seconds == pytest.approx(seconds("all_reduce", algorithm, 8, 16384, HDR, 1e-10))
        assert one.algorithm == algorithm and one.reduction_s > 0
    chosen = price("all_reduce", 16384, (8,), machine((8, HDR)))
    assert (chosen.algorithm, chosen.seconds) == best("all_reduce", 8, 16384, HDR)
    assert {offer.algorithm for offer in chosen.alternatives} == set(ALGORITHMS["all_reduce"])


@pytest.mark.parametrize(("op", "ranks", "payload", "algorithm"), [
    ("all_reduce", 8, 2048, "doubling"), ("all_reduce", 8, 2049, "halving"), ("reduce", 8, 2048, "tree"),
    ("reduce", 8, 4096, "doubling"), ("all_gather", 8, 512 * 1024 - 1, "doubling"), ("all_gather", 8, 2**19, "ring"),
    ("all_gather", 7, 81_919, "doubling"), ("all_gather", 7, 81_920, "ring"), ("reduce_scatter", 8, 2**19, "ring"),
    ("reduce_scatter", 8, 2**19 - 1, "doubling"), ("broadcast", 8, 12_287, "tree"), ("broadcast", 7, 2**20, "tree"),
    ("broadcast", 8, 12_288, "doubling"), ("broadcast", 9, 12_288, "ring"), ("broadcast", 8, 2**19, "ring"),
    ("all_to_all", 8, 256 * 64, "doubling"), ("all_to_all", 8, 257 * 64, "pairwise"),
    ("all_to_all", 7, 49, "pairwise"), ("scatter", 8, 2**30, "tree"), ("gather", 8, 4, "tree")])
def test_switch_points_of_mpich(op, ranks, payload, algorithm):
    assert mpich(op, ranks, payload) == algorithm
    assert price(op, payload, (ranks,), machine((ranks, HDR)), policy="mpich").algorithm == algorithm


def test_mpich_goes_by_nodes():
    """Leaders for what it sums and broadcasts, flat for the rest."""
    assert price("all_reduce", 1e6, (8, 4), boxes(), policy="mpich").algorithm == "leaders"
    flat = price("all_gather", 1e6, (8, 4), boxes(), policy="mpich")
    assert flat.algorithm == "flat ring" and "switch points of MPICH" in flat.source and "unknown" in flat.source


# --- levels, ports, tables ------------------------------------------------------------------------------------------

def test_ports_are_shared_when_all_talk():
    """p4d: 8 GPUs, 4 ports of 12.5 GB/s. A rail of a data parallel group has half a port; a group alone a whole one."""
    p4d = machine((8, link(0, 235e9)), (4, link(0, 12.5e9, "EFA"), 4))
    together = price("all_reduce", 1e9, (1, 4), p4d, policy="ring")
    alone = price("all_reduce", 1e9, (1, 4), p4d, policy="ring", sharing="alone")
    assert together.seconds == pytest.approx(2 * alone.seconds) == pytest.approx(2 * 1.5e9 / 12.5e9)
    assert (together.stages[0].sharing, alone.stages[0].sharing) == (2, 1)
    whole = price("all_reduce", 1e9, (8, 4), p4d, policy="shards")
    assert whole.levels["level 1"] == pytest.approx(1.5e9 / 8 / 6.25e9)     # eight rails through four ports: 50 GB/s
    own = machine((8, link(0, 235e9)), (4, link(0, 12.5e9, "EFA")))
    assert price("all_reduce", 1e9, (1, 4), own, policy="ring").seconds == pytest.approx(alone.seconds)


def test_a_flat_algorithm_goes_at_the_pace_of_the_slowest_link():
    two = machine((8, link(1e-6, 100e9)), (2, link(5e-6, 10e9)))
    flat = next(offer for offer in price("all_reduce", 1e6, (8, 2), two).alternatives if offer.algorithm == "flat ring")
    assert flat.seconds == pytest.approx(30 * 5e-6 + 2 * 15 / 16 * 1e6 / 10e9)
    assert price("all_reduce", 1e6, (8, 1), two, policy="ring").seconds == pytest.approx(14e-6 + 1.75e6 / 100e9)
    assert price("all_reduce", 1e6, (8, 2), two, policy="ring") == replace(flat, alternatives=(flat,))


def test_a_small_message_goes_in_turn_a_large_one_by_shards():
    assert price("all_reduce", 16384, (8, 4), boxes(1e-6)).algorithm == "in turn"
    assert price("all_reduce", 1e9, (8, 4), boxes(1e-6)).algorithm == "shards"


def test_three_levels():
    """8 · 4 · 2: a reduce-scatter at each of two levels, all-reduces of n/32 on top, and back."""
    racks = machine((8, link(0, 100e9)), (4, link(0, 10e9)), (2, link(0, 1e9)))
    one = price("all_reduce", 3.2e9, (8, 4, 2), racks, policy="shards")
    assert [(stage.op, stage.payload) for stage in one.stages] == [
        ("reduce_scatter", 3.2e9), ("reduce_scatter", 0.4e9), ("all_reduce", 0.1e9), ("all_gather", 0.4e9),
        ("all_gather", 3.2e9)]
    assert one.seconds == pytest.approx(1.75 * 3.2e9 / 100e9 + 1.5 * 0.4e9 / 10e9 + 0.1e9 / 1e9)
    assert price("all_reduce", 3.2e9, (8, 4), racks).meeting == (8, 4)


def test_a_table_is_taken_where_tables_are_asked_for():
    """Of the whole meeting: not where more share a port than measured, nor for an algorithm that is named."""
    table = {("all_reduce", 4): ((1024, 1e-3), (4096, 2e-3)), ("send", 2): ((1, 5e-6), (2048, 6e-6))}
    lone = machine((4, link(1e-6, 1e9)))
    lone = replace(lone, levels=(replace(lone.levels[0], tables=table),))
    one = price("all_reduce", 2048, (4,), lone, policy="tables")
    assert one.measured and one.algorithm == "measured" and one.seconds == pytest.approx(2**0.5 * 1e-3)
    assert "measured: all_reduce over 4 ranks" in one.source and "model" not in one.source
    assert price("all_reduce_max", 2048, (4,), lone, policy="tables").seconds == one.seconds
    message = price("send", 2048, (4,), lone, policy="tables")
    assert message.measured and message.seconds == pytest.approx(6e-6)
    assert one.latency_s + one.bandwidth_s == pytest.approx(one.seconds)
    assert not any(price("all_reduce", 2048, (4,), lone, policy=policy).measured
                   for policy in ("ring", "best", "nccl", "library"))
    assert not price("all_reduce", 2048, (3,), lone, policy="tables").measured
    shared = machine((8, link(1e-6, 1e9)), (4, link(1e-6, 1e9), 1))
    shared = replace(shared, levels=(shared.levels[0], replace(shared.levels[1], tables=table)))
    assert not price("all_reduce", 2048, (1, 4), shared, policy="tables").measured
    assert price("all_reduce", 2048, (1, 4), shared, policy="tables", sharing="alone").measured


def test_a_table_of_all_ranks_is_none_of_a_part():
    """Four machines with 32 cards: not what 32 machines take on one rail."""
    table = {("all_reduce", 32): ((1024, 1e-3), (2**30, 2e-3))}
    many = boxes(1e-6, 8).with_devices(256)
    many = replace(many, levels=(many.levels[0], replace(many.levels[1], tables=table)))
    assert price("all_reduce", 2**20, (8, 4), many, policy="tables").measured
    assert not any(stage.measured for stage in price("all_reduce", 2**20, (8, 32), many, policy="tables").stages)


def test_a_calibrated_machine_goes_by_its_tables_inside_a_box():
    table = {(op, 4): ((1024, 1e-3), (4096, 2e-3)) for op in ("all_reduce", "reduce_scatter", "all_gather")}
    cpu = replace(machine((4, link(1e-6, 1e9)), (2, link(1e-6, 1e9))), device=device("a rank", "cpu"),
                  measured={"world": "mpi"})
    cpu = replace(cpu, levels=(replace(cpu.levels[0], tables=table), cpu.levels[1]))
    assert price("all_reduce", 2048, (4, 1), cpu, policy="library").measured
    both = price("all_reduce", 2048, (4, 2), cpu, policy="library")
    assert both.stages[0].measured and both.seconds >= price("all_reduce", 2048, (4, 1), cpu, policy="library").seconds


@pytest.mark.parametrize(("name", "meeting", "size"), [
    ("laptop", (1, 6), 16384), ("raspberry-pi-cluster", (6,), 131072), ("tpu-v4-pods", (232, 1), 2**20)])
def test_two_halves_are_offered_as_a_whole(name, meeting, size):
    """Six ranks: by halving a fold takes everything along twice, a ring five hops where an all-gather needs three."""
    on = in_catalogue(name)
    whole = priced("all_reduce", size, meeting, on)
    halves = [price(op, size, meeting, on) for op in ("reduce_scatter", "all_gather")]
    assert whole.algorithm == HALVES and [stage.op for stage in whole.stages] == ["reduce_scatter", "all_gather"]
    assert whole.seconds == pytest.approx(sum(half.seconds - half.launch_s for half in halves) + whole.launch_s)
    assert whole.alternatives[1].seconds > whole.seconds and price(
        "all_reduce", size, meeting, on, policy=HALVES).stages == whole.stages
    assert HALVES not in {offer.algorithm for offer in priced("all_reduce", size, (8, *meeting[1:]), on).alternatives}


# --- what must hold -------------------------------------------------------------------------------------------------

RATES = st.sampled_from([0.1e9, 1e9, 25e9, 300e9])
ALPHAS = st.sampled_from([0.0, 1e-6, 30e-6])


@given(st.sampled_from(OPS), st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 3)),
       st.integers(0, 10**10), ALPHAS, RATES, st.integers(0, 8), st.sampled_from(("all", "alone")))
@settings(max_examples=60)
def test_bounds(op, meeting, payload, alpha, rate, ports, sharing):
    """The chosen is the cheapest; it never falls with bytes, nor rises with a faster link; one rank moves nothing."""
    slow = machine((9, link(alpha, rate)), (5, link(3 * alpha, rate / 4), ports), (3, link(4 * alpha, rate / 5)))
    one = price(op, payload, meeting, slow, sharing=sharing)
    ranks = meeting[0] * meeting[1] * meeting[2]
    assert all(one.seconds <= offer.seconds for offer in one.alternatives)
    assert one.seconds == pytest.approx(one.latency_s + one.bandwidth_s + one.reduction_s)
    assert one.overlapped_s <= one.seconds * (1 + 1e-12)
    assert (one.seconds == 0) == (ranks == 1 or (payload == 0 and alpha == 0))
    assert price(op, payload + 1000, meeting, slow, sharing=sharing).seconds >= one.seconds
    assert price(op, payload, meeting, slow, sharing="alone").seconds <= price(op, payload, meeting, slow).seconds
    fast = machine(*((level.size, link(alpha, rate)) for level in slow.levels))
    assert price(op, payload, meeting, fast, sharing=sharing).seconds <= one.seconds * (1 + 1e-12)
    if op == "all_reduce":
        assert one.seconds <= sum(price(half, payload, meeting, slow, sharing=sharing).seconds
                                  for half in ("reduce_scatter", "all_gather")) * (1 + 1e-9)
    if op == "all_reduce" and ranks > 1:                   # however it is done, on the fastest link of all
        assert one.seconds >= max(ceil(log2(ranks)) * alpha, 2 * (ranks - 1) / ranks * payload / rate) * (1 - 1e-9)


@given(st.sampled_from(list(ALGORITHMS)), st.integers(2, 9), st.integers(2, 5), st.integers(2, 3))
@settings(max_examples=40)
def test_every_way_over_levels_moves_the_whole_array(op, inner, middle, outer):
    """What crosses the outermost level is, over its rails, what the op moves there at the least."""
    for name, plan in plans(op, ((0, inner), (1, middle), (2, outer))).items():
        across = [part for part in plan if part.level == 2]
        assert len(across) == 1 and (across[0].op, across[0].ranks) == (op, outer)
        rails = inner * middle if name == "shards" else 1
        assert across[0].share * rails == 1 and across[0].crossing == (1 if name == "leaders" else inner * middle)
        assert all(part.share <= 1 for part in plan)


def test_refusals_teach():
    two = boxes()
    for wrong, says in ((("all_add", 1, (2,), two), "there is one of scatter"), (("reduce", -1, (2,), two), "0 bytes"),
                        (("reduce", 1, (2, 2, 2), two), "2 levels"), (("reduce", 1, (0, 2), two), "1 member or more"),
                        (("reduce", float("nan"), (2,), two), "0 bytes or more")):
        with pytest.raises(ConfigError, match=says):
            price(*wrong)
    with pytest.raises(ConfigError, match="there are library, tables, best"):
        price("reduce", 1, (2,), two, policy="luck")
    with pytest.raises(ConfigError, match="has no 'halving'; it has shards"):
        price("all_gather", 1, (2, 2), two, policy="halving")
    with pytest.raises(ConfigError, match="γ 0 s per byte"):
        price("reduce", 1, (2,), two, gamma=-1)
    with pytest.raises(ConfigError, match="NCCL runs on GPUs"):
        price("all_reduce", 1, (2,), replace(two, device=device("Pi", "cpu")), policy="nccl")


def test_a_price_says_that_it_is_a_model():
    """8 bytes over 8 ranks: latency of three hops, not a ring's share of the bytes; what MPI did is unknown (G14)."""
    one = price("all_reduce", 8, (8,), machine((8, HDR)))
    assert one.latency_s == pytest.approx(15e-6) and "unknown" in one.source and HDR.source in one.source
    plain = one.to_plain()
    assert plain["algorithm"] == "doubling" and plain["alternatives"]["ring"] > plain["seconds"]
    assert "p = 8, n = 8 B" in one.numbers and one.formula == "lg p·(α + nβ)" and not one.measured
    assert price("all_reduce", 8, (7,), machine((8, HDR))).formula == "(⌊lg p⌋+2)(α + nβ)"
    assert price("broadcast", 8, (1,), machine((8, HDR))).formula == "one rank: nothing moves"
