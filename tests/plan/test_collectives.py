"""Cost models of collectives: against hand-computed values, published tables, and what must hold for any of them."""
from math import ceil, floor, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.links import LINKS, Link
from minitp.plan.network.collectives import ALGORITHMS, MODELS, best, cost, has_model, seconds

NVLINK, HDR, TEN, ONE = LINKS
PAIRS = [(op, algorithm) for op, algorithms in ALGORITHMS.items() for algorithm in algorithms]

# One all-reduce of 16 KiB (Llama 70B, one token): link, ranks, µs by ring, µs by doubling; then 160 of them in ms.
PLANNER = [(NVLINK, 8, 21, 4.7, 3.4, 0.75), (HDR, 8, 71, 17, 11, 2.7),
           (TEN, 2, 73, 43, 12, 6.9), (TEN, 4, 200, 86, 32, 14), (TEN, 8, 443, 129, 71, 21),
           (ONE, 2, 259, 199, 41, 32), (ONE, 4, 568, 398, 91, 64), (ONE, 8, 1083, 597, 173, 95)]


def as_printed(value: float, printed: float) -> float:
    """`value` with as many digits as the table gives."""
    return float(f"{value:.{len(str(printed).lstrip('0.').replace('.', ''))}g}")


@pytest.mark.parametrize(("link", "ranks", "ring", "doubling", "ring_160", "doubling_160"), PLANNER)
def test_planner_table(link, ranks, ring, doubling, ring_160, doubling_160):
    for algorithm, once, many in (("ring", ring, ring_160), ("doubling", doubling, doubling_160)):
        each = seconds("all_reduce", algorithm, ranks, 16 * 1024, link)
        assert as_printed(each * 1e6, once) == once
        assert as_printed(160 * each * 1e3, many) == many


def test_mpich_row_of_recursive_doubling():
    link = Link("case mpich_recdbl", 10e-6, 1e9, "planner_cases.csv")
    assert seconds("all_reduce", "doubling", 8, 1e6, link) == pytest.approx(3.03e-3, rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 7, 8, 9, 12, 64, 1000])
def test_formulas_of_the_literature(ranks):
    """planner.md §6 written out with floating-point logarithms, at α = 3 and nβ = 5."""
    link, p = Link("α = 3, β = 1", 3.0, 1.0, "made up"), ranks
    a, n, up, down, power = 3.0, 5.0, ceil(log2(p)), floor(log2(p)), p & (p - 1) == 0
    wanted = {
        ("all_reduce", "ring"): 2 * (p - 1) * a + 2 * (p - 1) / p * n,
        ("all_reduce", "star"): 2 * (p - 1) * (a + n),
        ("all_reduce", "tree"): 2 * up * (a + n),
        ("all_reduce", "doubling"): (down + 2 * (not power)) * (a + n),
        ("all_gather", "ring"): (p - 1) * a + (p - 1) / p * n,
        ("all_gather", "doubling"): up * a + (p - 1) / p * n,
        ("reduce_scatter", "ring"): (p - 1) * a + (p - 1) / p * n,
        ("broadcast", "tree"): up * (a + n),
        ("broadcast", "doubling"): 2 * up * a + 2 * (p - 1) / p * n,
        ("reduce", "tree"): up * (a + n),
        ("scatter", "tree"): up * a + (p - 1) / p * n,
        ("gather", "tree"): up * a + (p - 1) / p * n,
        ("all_to_all", "pairwise"): (p - 1) * a + (p - 1) / p**2 * n,
    }
    if power:
        wanted |= {("all_reduce", "halving"): 2 * up * a + 2 * (p - 1) / p * n,
                   ("reduce_scatter", "doubling"): up * a + (p - 1) / p * n,
                   ("reduce", "doubling"): 2 * up * a + 2 * (p - 1) / p * n,
                   ("all_to_all", "doubling"): up * a + up / (2 * p) * n}
    else:
        q = 2**down
        wanted["all_reduce", "halving"] = (2 * down + 2) * a + (2 * (q - 1) / q + 2) * n
    for (op, algorithm), time in wanted.items():
        assert seconds(op, algorithm, p, n, link) == pytest.approx(time, rel=1e-12), (op, algorithm)


def test_halving_with_a_fold_by_hand():
    """3 ranks: rank 0 gives its term to 1 (n); 1 and 2 exchange, 1 takes the two pieces of 0 and 1 (2n/3); 1 gives
    0 its piece back (n/3). 6 ranks: 0 and 2 fold into 1 and 3, so 1, 3, 4, 5 go on with 2 + 2 + 1 + 1 pieces."""
    assert (cost("reduce_scatter", "doubling", 3).hops, cost("reduce_scatter", "doubling", 3).volume) == (3, 2)
    assert cost("reduce_scatter", "doubling", 6).hops == 4
    assert cost("reduce_scatter", "doubling", 6).volume * 6 == 6 + 4 + 2 + 1


def test_all_to_all_by_hand():
    """4 ranks, parts of n/16. Ring: 3 + 2 + 1 parts. Bruck: 2 steps of the 2 parts with that bit."""
    assert cost("all_to_all", "ring", 4).volume * 16 == 6
    assert cost("all_to_all", "doubling", 4).volume * 16 == 4
    assert cost("all_to_all", "doubling", 5).volume * 25 == 2 + 2 + 1


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_one_rank_moves_nothing(op, algorithm):
    assert seconds(op, algorithm, 1, 1e9, ONE) == 0


@given(st.sampled_from(PAIRS), st.integers(2, 300), st.integers(0, 10**12), st.sampled_from(LINKS))
def test_bounds(pair, ranks, payload, link):
    """No algorithm beats one latency per doubling of who knows, and the best is one of them at its own time."""
    op, algorithm = pair
    path, time = cost(op, algorithm, ranks), seconds(op, algorithm, ranks, payload, link)
    assert path.hops >= ceil(log2(ranks)) and path.volume > 0
    assert time >= path.hops * link.latency_s
    assert seconds(op, algorithm, ranks, payload + 1000, link) > time
    winner, quickest = best(op, ranks, payload, link)
    assert quickest == seconds(op, winner, ranks, payload, link) <= time


def test_who_wins():
    """A decode payload is on the latency side, a gradient on the bandwidth side; the two cross at about 330 KB."""
    assert best("all_reduce", 8, 16 * 1024, TEN)[0] == "doubling"
    assert best("all_reduce", 7, 10**9, TEN)[0] == "ring"
    assert best("all_reduce", 8, 10**9, TEN)[0] == "halving"
    assert (seconds("all_reduce", "ring", 8, 300_000, TEN) > seconds("all_reduce", "doubling", 8, 300_000, TEN))
    assert (seconds("all_reduce", "ring", 8, 340_000, TEN) < seconds("all_reduce", "doubling", 8, 340_000, TEN))


def test_refusals_teach():
    for wrong, says in (((("all_reduce", "tower", 2, 1, TEN)), "star, ring, tree, doubling, halving"),
                        (("all_add", "ring", 2, 1, TEN), "scatter"), (("reduce", "ring", 0, 1, TEN), "1 rank or more"),
                        (("reduce", "ring", 2, -1, TEN), "0 bytes or more")):
        with pytest.raises(ConfigError, match=says):
            seconds(*wrong)
    with pytest.raises(ConfigError, match="all_gather"):
        best("all_add", 2, 1, TEN)


def test_every_model_and_link_says_where_it_is_from():
    assert all(model.formula and model.source for models in MODELS.values() for model in models.values())
    assert [link.name for link in LINKS] and all(link.source for link in LINKS)
    assert sorted(LINKS, key=lambda link: link.seconds(16_384)) == list(LINKS)


def test_a_maximum_costs_what_a_sum_does():
    assert best("all_reduce_max", 5, 4000, TEN) == best("all_reduce", 5, 4000, TEN)
    assert cost("all_reduce_max", "ring", 3) == cost("all_reduce", "ring", 3)
    assert has_model("all_reduce_max") and not has_model("all_reduce_min")
    with pytest.raises(ConfigError, match="no cost model of 'all_reduce_min'"):
        best("all_reduce_min", 5, 4000, TEN)
