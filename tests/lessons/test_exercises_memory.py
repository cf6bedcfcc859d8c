"""The checkers of lessons 11 and 13: each typical mistake has its own words, and none of them passes."""
import numpy as np
import pytest

from minitp import Cut, Partial
from minitp.lesson import pictures
from minitp.lesson.exercises import judged
from minitp.view.lines import Lines
from minitp.view.plan import Asked


def gather(tp, array, rows):
    return tp.all_gather(array, axis=0, cut=Cut(rows, tp.size), site="s", reason="r")


def all_tokens(tp, x_p, W_p, rows):
    return gather(tp, x_p, 7) @ gather(tp, W_p, rows).T


def twice(tp, x_p, W_p, rows):
    gather(tp, W_p, rows)
    return x_p @ gather(tp, W_p, rows).T


@pytest.mark.parametrize("answer, word", [
    (lambda tp, x, W, rows: x @ W.T, "Is the weight whole"), (all_tokens, "all 7 tokens"), (twice, "once"),
    (lambda tp, x, W, rows: (1, 2), "a tuple"), (lambda tp, x, W, rows: x @ W, "ValueError")])
def test_linear_by_zero_3(answer, word):
    verdict = judged("11.3", answer)
    assert verdict.passed is False and word in verdict.words


def reduced(tp, x, dy):
    return tp.all_reduce(Partial(dy.T @ x, tp), site="s", reason="r")


def sliced(tp, whole):
    mine = Cut(len(whole), tp.size).of(tp.rank)
    return whole[mine.start:mine.stop]


@pytest.mark.parametrize("answer, word", [
    (reduced, "more than it"), (lambda tp, x, dy: dy.T @ x, "own"), (lambda tp, x, dy: sliced(tp, dy.T @ x), "own"),
    (lambda tp, x, dy: sliced(tp, reduced(tp, x, dy)), "half as much"), (lambda tp, x, dy: x.T @ dy, "all tokens")])
def test_gradient_of_a_weight(answer, word):
    verdict = judged("11.4", answer)
    assert verdict.passed is False and word in verdict.words


def meet(tp, array):
    return tp.all_reduce(Partial(array, tp), site="s", reason="r")


def in_bf16(tp, pieces):
    return meet(tp, sum(pieces[1:], pieces[0]).astype(np.float32))


def every_piece(tp, pieces):
    return sum(meet(tp, piece.astype(np.float32)) for piece in pieces)


@pytest.mark.parametrize("answer, word", [
    (in_bf16, "stops at 256"), (every_piece, "300 sync points"),
    (lambda tp, pieces: sum(piece.astype(np.float32) for piece in pieces), "its own micro-batches"),
    (lambda tp, pieces: meet(tp, sum(piece.astype(np.float64) for piece in pieces)), "float64"),
    (lambda tp, pieces: meet(tp, np.ones(5, np.float32)), "the sum is")])
def test_sum_of_bf16_gradients(answer, word):
    verdict = judged("13.3", answer)
    assert verdict.passed is False and word in verdict.words


def whole_gradient(tp, w, g, m):
    cut, mine = Cut(len(w), tp.size), Cut(len(w), tp.size).of(tp.rank)
    m = 0.9 * m + meet(tp, g)[mine.start:mine.stop]
    return gather(tp, w[mine.start:mine.stop] - 0.1 * m, cut.size), m


def own_gradient(tp, w, g, m):
    m = 0.9 * m + sliced(tp, g)
    return gather(tp, sliced(tp, w) - 0.1 * m, len(w)), m


def own_slice_alone(tp, w, g, m):
    m = 0.9 * m + sliced(tp, meet(tp, g))
    return sliced(tp, w) - 0.1 * m, m


def test_a_list_of_two_does_as_well():
    def in_a_list(tp, w, g, m):
        cut = Cut(len(w), tp.size)
        m = 0.9 * m + tp.reduce_scatter(Partial(g, tp), axis=0, cut=cut, site="s", reason="r")
        return [gather(tp, sliced(tp, w) - 0.1 * m, len(w)), m]

    assert judged("13.4", in_a_list).passed


def test_what_goes_over_another_plane_counts_too():
    def over_control(tp, x, dy):
        return sliced(tp, tp.all_reduce(Partial(dy.T @ x, tp), site="s", reason="r", plane="control"))

    assert "right, by all_reduce with 256 bytes" in judged("11.4", over_control).words


@pytest.mark.parametrize("answer, word", [
    (whole_gradient, "reduce-scatter"), (own_gradient, "its own tokens"), (own_slice_alone, "others' slices"),
    (lambda tp, w, g, m: w, "two arrays"), (lambda tp, w, g, m: (w, m), "slice of m must be")])
def test_zero_1(answer, word):
    verdict = judged("13.4", answer)
    assert verdict.passed is False and word in verdict.words


@pytest.mark.parametrize("number, wrong", [("11.1", 11008), ("11.2", 2 * 11008 * 4096), ("13.1", 1094), ("13.2", 14)])
def test_wrong_numbers_get_a_hint(number, wrong):
    verdict = judged(number, wrong)
    assert verdict.passed is False and "too low" in verdict.words


def test_a_script_prints_the_words_of_its_pictures(capsys):
    pictures.lines(Lines({"a": [(1, 2), (3, 4)]}, "tokens"))
    pictures.growing(Asked(task="train", model="llama-2-7b", tp=1, step=1, seq=2048, wider=1, more=3))
    first, second = capsys.readouterr().out.splitlines()
    assert first == "Picture: Bytes by tokens, both logarithmic. a: 2 B at 1, 4 B at 3."
    assert second.startswith("Picture: Stacked bars of memory: as it is, parameters × 3.92, sequences × 8, both. With")
