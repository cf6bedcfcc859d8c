"""Latency against bytes: crossovers, marks, and the cost of a token's syncs on different links."""
import pytest

from minitp.plan.links import LINKS, switches
from minitp.plan.network import price
from minitp.plan.network.curve import SIZES, curve, sync_point, sync_points
from minitp.plan.network.sync_cost import on_links, switch_hop
from tests.plan.networks import boxes, carrying, link, machine, published
from tests.plan.plan_models import LLAMA2_70B, LLAMA31_405B

NVLINK, HDR, TEN, ONE = LINKS
# planner.md, end of section 6: link, ranks, µs by ring and by doubling, 160 of them in ms.
TABLE = [(NVLINK, 8, 21, 4.7, 3.4, 0.75), (HDR, 8, 71, 17, 11, 2.7), (TEN, 2, 73, 43, 12, 6.9),
         (TEN, 4, 200, 86, 32, 14), (TEN, 8, 443, 129, 71, 21), (ONE, 2, 259, 199, 41, 32), (ONE, 4, 568, 398, 91, 64),
         (ONE, 8, 1083, 597, 173, 95)]


def test_crossovers_of_one_link():
    """10 GbE, 8 ranks: n½ of doubling is α/β = 37.5 kB; of a ring 8 times that; the two cross at about 330 kB."""
    drawn = curve(machine((8, TEN)), "all_reduce", 8, policy="best")
    halves = {line.algorithm: line.half for line in drawn.lines}
    assert halves["doubling"] == pytest.approx(37_500, rel=2e-3) and halves["ring"] == pytest.approx(300_000, rel=2e-3)
    (switch,) = drawn.switches
    assert (switch.before, switch.after) == ("doubling", "halving")
    lines = {line.algorithm: line.seconds for line in drawn.lines}
    quicker = [size for size, ring, doubling in zip(SIZES, lines["ring"], lines["doubling"], strict=True)
               if ring < doubling]
    assert quicker[0] == 2**19 and quicker == [size for size in SIZES if size >= 2**19]
    assert drawn.seconds == tuple(min(times) for times in zip(*lines.values(), strict=True))


def test_where_a_models_syncs_lie():
    """Llama-2-70B: 162 syncs a token of 16 KiB, latency bound on all links but the slowest; a prompt's never."""
    assert (sync_points(LLAMA2_70B), sync_points(LLAMA31_405B)) == (162, 254)
    token, prompt = sync_point(LLAMA2_70B), sync_point(LLAMA2_70B, 4096)
    assert token == ("llama-80x8192, 1 token", 16384) and prompt[1] == 4096 * 16384
    assert sync_point(LLAMA31_405B, bytes_each=1)[1] == 16384
    for of in LINKS:
        marks = curve(machine((8, of)), "all_reduce", 8, marks=(token, prompt), sizes=(1, 2), policy="best").marks
        assert [mark.bound for mark in marks] == ["bandwidth" if of == ONE else "latency", "bandwidth"]
        assert marks[0].seconds == price("all_reduce", 16384, (8,), machine((8, of)), policy="best").seconds


def test_lines_of_two_levels_and_measured_points():
    measured = carrying(boxes(1e-6), 1, "all_reduce", 32, published("p6-b200", 32))
    drawn = curve(measured, "all_reduce", 32, sizes=(2**15, 2**24, 2**33), policy="best")
    assert {"shards", "in turn", "flat ring"} <= {line.algorithm for line in drawn.lines}
    assert "measured" not in drawn.chosen and len(drawn.measured) == 20 and drawn.meeting == (8, 4)
    assert [row["bytes"] for row in drawn.to_plain()] == [2**15, 2**24, 2**33] and "unknown" in drawn.note
    shards = next(line for line in drawn.lines if line.algorithm == "shards")
    assert drawn.to_plain()[0]["shards"] == shards.seconds[0]


def test_a_curve_by_nccls_rules_changes_protocol():
    drawn = curve(machine((8, link(1e-6, 235e9))), "all_reduce", 8, policy="nccl")
    assert [drawn.switches[0].before, drawn.switches[-1].after] == ["ring, LL", "ring, Simple"]


def test_no_crossover_without_latency():
    assert curve(machine((8, link(0, 1e9))), "all_reduce", 8, policy="best").half is None
    assert curve(machine((8, TEN)), "all_reduce", 1, marks=(("one rank", 8.0),)).marks[0].seconds == 0


@pytest.mark.parametrize(("of", "ranks", "ring", "doubling", "ring_160", "doubling_160"), TABLE)
def test_a_tokens_syncs_on_links(of, ranks, ring, doubling, ring_160, doubling_160):
    for row, once, token in zip(on_links(16384, 160, [ranks], [of]), (ring, doubling), (ring_160, doubling_160),
                                strict=True):
        assert row.once_s * 1e6 == pytest.approx(once, rel=0.02) and row.token_s * 1e3 == pytest.approx(token, rel=0.04)


def test_a_switch_is_not_what_makes_toast():
    """162 syncs of 3 messages: 1 µs more a message is half a millisecond a token, TCP is 18 ms (C17)."""
    assert len(switch_hop(16384, 162, 8, HDR, TEN)) == 2 + len(switches())
    direct, quick, slow, tcp = switch_hop(16384, 162, 8, HDR, TEN, (0.3e-6, 1e-6))
    assert (quick.token_s - direct.token_s, slow.token_s - direct.token_s) == pytest.approx(
        (162 * 3 * 0.3e-6, 162 * 3 * 1e-6))
    assert slow.token_s / direct.token_s < 1.2 and tcp.token_s / direct.token_s > 7
    assert "switch of 0.3 µs" in quick.link
