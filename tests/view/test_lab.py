"""The lab's view model: what it shows is what was recorded, adds up, and ends in what the collective promises."""
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.comm.algorithms import ALGORITHMS
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.launcher.world import script_defaults
from minitp.plan.links import LINKS
from minitp.plan.network.collectives import best
from minitp.view import lab, lab_cost
from minitp.view.figures import lab as figures
from tests.comm.hockney import sent

PAIRS = [(op, algorithm) for op, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def expected(op: str, numbers: list[list[float]], ranks: int, root: int) -> list[list[float] | None]:
    """What each rank is given back, by NumPy alone."""
    table, cut = np.array(numbers), Cut(len(numbers[0]), ranks)
    held = [slice(cut.of(r).start, cut.of(r).stop) for r in range(ranks)]
    whole = {"broadcast": lambda: table[0], "reduce": lambda: table.sum(0), "all_reduce": lambda: table.sum(0),
             "gather": lambda: table.reshape(-1), "all_gather": lambda: table.reshape(-1)}
    if op in whole:
        everyone = op not in ("reduce", "gather")
        return [whole[op]().tolist() if everyone or rank == root else None for rank in range(ranks)]
    cut_one = {"scatter": lambda h: table[0][h], "reduce_scatter": lambda h: table.sum(0)[h],
               "all_to_all": lambda h: table[:, h].reshape(-1)}
    return [cut_one[op](h).tolist() for h in held]


@settings(deadline=None, max_examples=12)
@given(st.sampled_from(PAIRS), st.integers(2, 6), st.integers(1, 7), st.data())
def test_rounds_are_what_was_sent_and_end_in_the_result(pair, ranks, elements, data):
    op, algorithm = pair
    root = data.draw(st.integers(0, ranks - 1)) if op in lab.ROOTED else 0
    elements = min(elements, lab.most_elements(op, ranks))
    numbers = lab.example(op, ranks, elements, root)
    play = lab.run(op, algorithm, numbers, ranks, root)
    assert [None if r is None else list(r) for r in play.result] == expected(op, numbers, ranks, root)
    assert len([m for m in play.messages if m.source == root]) == sent(op, algorithm, root, ranks, root)[0]
    holds = play.start
    for round in play.rounds:
        assert round.before == holds and round.messages
        for message in round.messages:
            mine = {piece: [cell.number for cell in round.before[message.source] if cell.piece == piece]
                    for piece in message.pieces}
            assert list(message.numbers) == list(chain.from_iterable(mine[piece] for piece in message.pieces))
            assert message.bytes == 8 * message.elements
        holds = round.after
    assert sum(play.sent) == sum(m.bytes for m in play.messages)


def test_the_lab_has_its_own_number_of_ranks_in_a_script_that_was_given_another():
    with script_defaults(5, None):
        assert lab.run("all_reduce", "ring", lab.example("all_reduce", 3, 3)).ranks == 3


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_bytes_of_each_rank_are_the_closed_form(op, algorithm):
    """On 4 ranks with 4 numbers: all pieces are one number, of all-to-all's parts as well; a gathered piece is 4."""
    play = lab.run(op, algorithm, lab.example(op, 4, 4), 4)
    piece = 8 * (4 if op in ("gather", "all_gather") else 1)
    assert play.sent == tuple(piece * sent(op, algorithm, rank, 4, 0)[1] for rank in range(4))


def test_terms_say_whose_numbers_are_in_a_sum():
    play = lab.run("all_reduce", "ring", [[1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [0.5, 0.5, 0.5]])
    for round in play.rounds:
        for cells in (*round.before, *round.after):
            for cell in cells:
                values = {0: cell.row + 1.0, 1: 10.0 * (cell.row + 1), 2: 0.5}
                assert cell.number == sum(values[rank] for rank in cell.terms)
    assert all(cell.terms == (0, 1, 2) for lane in play.rounds[-1].after for cell in lane)
    first = lab.round_rows(play, 0)
    assert {"round": 1, "what": "rank 0 → rank 1", "pieces": "piece 2", "numbers": "3", "bytes": "8 B"} in first
    assert first[3]["what"] == "rank 0 holds" and first[3]["numbers"] == "1 (of 0), 2.5 (of 0+2)"


def test_one_rank_has_no_rounds():
    play = lab.run("all_reduce", "doubling", [[1.0, 2.0]])
    assert play.rounds == () and play.result == ((1.0, 2.0),) and play.sent == (0,)


@pytest.mark.parametrize(("given", "made"), [(None, 0), ("x", 0), (float("nan"), 0), (float("inf"), 0), (1e300, 9999),
                                             (-1e5, -9999), (10**400, 0), ("12", 12)])
def test_numbers_are_clamped(given, made):
    assert lab.cleaned([[given, 1.5]]) == (((made, 1.5),), True)
    assert lab.cleaned([[2, 1.5]]) == (((2.0, 1.5),), False)


def test_refusals_teach():
    for arguments, says in ((("all_reduce", "tower", [[1.0]] * 2), "ring, tree, doubling"),
                            (("all_reduce", "ring", [[1.0]] * 9), "1 to 8 ranks"),
                            (("scatter", "ring", [[1.0]], 4, 4), "root 4"),
                            (("all_reduce", "ring", [[1.0], [1.0, 2.0]]), "one length"),
                            (("scatter", "ring", [[1.0]] * 2, 2), "1 rows"),
                            (("all_gather", "ring", [[1.0] * 5] * 4), "up to 4 numbers")):
        with pytest.raises(ConfigError, match=says):
            lab.run(*arguments)


def test_the_picture_has_an_arrow_a_message_and_few_bars():
    """The heaviest there is: 8 ranks, 16 numbers."""
    for op, algorithm in (("all_reduce", "doubling"), ("all_to_all", "star"), ("reduce", "tree")):
        play = lab.run(op, algorithm, lab.example(op, 8, 16), 8)
        for round in {0, len(play.rounds) - 1}:
            shown = play.rounds[round]
            figure = figures.round_figure(play, round)
            arrows = [note for note in figure.layout.annotations if note.showarrow]
            assert [(note.ax - 0.5, note.x - 0.5) for note in arrows] == [(m.source, m.target) for m in shown.messages]
            assert sum(len(trace.x) for trace in figure.data if trace.type == "bar") <= 5000
            texts = " ".join(str(text) for trace in figure.data for text in trace.text or ())
            assert op == "all_to_all" or all(lab.number_text(cell.number) in texts for lane in shown.after
                                             for cell in lane)
            assert lab.round_alt(play, round).count(" sends ") == len(shown.messages)


def test_the_verdict_is_the_models():
    for op in ALGORITHMS:
        for ranks in (5, 8):
            for link in LINKS[1:3]:
                reigns = lab_cost.reigns(op, ranks, link)
                assert (reigns[0].first, reigns[-1].last) == (lab_cost.PAYLOADS[0], lab_cost.PAYLOADS[-1])
                for reign in reigns:
                    assert {best(op, ranks, n, link)[0] for n in (reign.first, reign.last)} == {reign.algorithm}
                assert all(f"{reign.algorithm} up to {lab_cost.binary(reign.last)}" in lab_cost.verdict(op, ranks, link)
                           for reign in reigns[:-1])
    rows = lab_cost.cost_rows("all_reduce", 8, 16_384)
    assert rows[2] == {"link": "10 GbE", "star (model)": "604 µs", "ring (model)": "443 µs", "tree (model)": "259 µs",
                       "doubling (model)": "129 µs", "halving (model)": "203 µs", "cheapest": "doubling"}
    assert {row["algorithm"]: row["hops"] for row in lab_cost.formula_rows("all_reduce", 8)} == {
        "star": 14, "ring": 14, "tree": 6, "doubling": 3, "halving": 6}
    assert [lab_cost.binary(n) for n in (8, 1024, 2**20, 2**30)] == ["8 B", "1 KiB", "1 MiB", "1 GiB"]
    lines = figures.cost_figure("all_reduce", 8, LINKS[0], "ring", 1024).data
    assert [line.name for line in lines] == list(ALGORITHMS["all_reduce"])
    assert {algorithm for algorithms in ALGORITHMS.values() for algorithm in algorithms} == set(lab_cost.WHY)
