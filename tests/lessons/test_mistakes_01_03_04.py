"""What a reader of lessons 01, 03 and 04 may get wrong, and the word that each mistake is answered with."""
import numpy as np
import pytest

import minitp
from minitp.lesson.exercises import judged

WHY = {"site": "try", "reason": "a reader's attempt"}


def added(tp, term):
    return tp.all_reduce(minitp.Partial(np.array(term), tp), **WHY)


def silu(a):
    return a / (1 + np.exp(-a))


def softmax(scores):
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True)


def mlp(bend):
    return lambda tp, x, gate, up, down: added(tp, bend(x @ gate.T, x @ up.T) @ down.T)


def mean_of_means(tp, x_p, n):
    return added(tp, x_p.mean(keepdims=True) if len(x_p) else np.zeros(1)) / tp.size


def gathered_first(tp, x, gate, up, down):
    cut = minitp.Cut(64, tp.size)
    h = tp.all_gather(silu(x @ gate.T) * (x @ up.T), axis=0, cut=cut, **WHY)
    mine = cut.of(tp.rank)
    return added(tp, h[mine.start:mine.stop] @ down.T)


MISTAKES = {
    "1.1": [(7 * 3 * 576 * 4, "too high"), (3 * 576, "too low"), ("6912", "a number is asked for")],
    "1.2": [
        (lambda tp, x_p, n: added(tp, x_p.sum(keepdims=True)), "divided by n"),
        (lambda tp, x_p, n: added(tp, x_p.sum(keepdims=True)) / tp.size, "number of ranks"),
        (mean_of_means, "mean of means"),
        (lambda tp, x_p, n: added(tp, [x_p.sum() / len(x_p) if len(x_p) else np.nan]), "has no mean"),
        (lambda tp, x_p, n: tp.all_gather(x_p, axis=0, cut=minitp.Cut(n, tp.size), **WHY), "need but one number"),
        (lambda tp, x_p, n: x_p.sum(keepdims=True) / n, "own part"),
        (lambda tp, x_p, n: added(tp, added(tp, x_p.sum(keepdims=True)) / n), "added again"),
        (lambda tp, x_p, n: float(added(tp, x_p.sum(keepdims=True))[0]) / n, "shape (1,)"),
        (lambda tp, x_p, n: minitp.Partial(x_p.sum(keepdims=True), tp) + 1, "can't be added to a partial sum"),
        (lambda tp, x_p, n: added(tp, x_p.sum(keepdims=True)) / added(tp, [float(len(x_p))]), "2 sync points"),
    ],
    "1.3": [
        (lambda tp, a, b: a + 2 * b, "still a partial sum"),
        (lambda tp, a, b: tp.all_reduce(a, **WHY) + 2 * tp.all_reduce(b, **WHY), "2 sync points"),
        (lambda tp, a, b: tp.all_reduce(a + b, **WHY), "the whole a + 2 b is"),
    ],
    "3.1": [(576 * 4, "too low"), (62 * 576 * 4, "too high")],
    "3.2": [
        (mlp(lambda gate, up: gate * up), "activation is missing"),
        (mlp(lambda gate, up: gate * silu(up)), "belongs to gate"),
        (mlp(lambda gate, up: silu(gate * up)), "before it meets up"),
        (mlp(lambda gate, up: silu(gate) * silu(up)), "gate · x only"),
        (mlp(lambda gate, up: silu(gate)), "up is missing"),
        (lambda tp, x, gate, up, down: (silu(x @ gate.T) * (x @ up.T)) @ down.T, "own term"),
        (mlp(lambda gate, up: np.maximum(gate, 0) * up), "on this rank's slices"),
        (lambda tp, x, gate, up, down: silu(x @ gate.T), "the whole y has shape"),
        (gathered_first, "2 sync points"),
    ],
    "4.1": [(9 * 8192 * 4, "too low")],
    "4.2": [
        (lambda tp, found, W_o: found.reshape(len(found), W_o.shape[1]) @ W_o.T, "the others' are missing"),
        (lambda tp, found, W_o: added(tp, found.sum((1, 2)).reshape(-1, 1) * np.ones((1, len(W_o)))), "side by side"),
        (lambda tp, found, W_o: added(tp, found @ W_o.T), "H_p is 1, 1, 1, 0"),
    ],
    "4.3": [
        (lambda tp, q, k, E: added(tp, softmax(q @ k.T / np.sqrt(E))), "before the sum"),
        (lambda tp, q, k, E: added(tp, softmax(q @ k.T / np.sqrt(E))) / tp.size, "mean of the softmaxes"),
        (lambda tp, q, k, E: softmax(q @ k.T / np.sqrt(E)), "own term"),
        (lambda tp, q, k, E: added(tp, q @ k.T / np.sqrt(E)), "softmax is missing"),
        (lambda tp, q, k, E: softmax(added(tp, q @ k.T)), "divided by √E"),
        (lambda tp, q, k, E: softmax(added(tp, q @ k.T / np.sqrt(q.shape[1]))), "is wrong"),
    ],
}


@pytest.mark.parametrize("number, answer, words", [(number, answer, words) for number, tries in MISTAKES.items()
                                                   for answer, words in tries])
def test_a_mistake_is_named(number, answer, words):
    verdict = judged(number, answer)
    assert verdict.passed is False
    assert words in verdict.words


def test_an_optional_exercise_without_its_model_says_so_and_takes_another(monkeypatch, tmp_path):
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path))
    verdict = judged("3.3", mlp(lambda gate, up: silu(gate) * up))
    assert verdict.passed and "tiny was taken" in verdict.words
    assert judged("3.3", lambda *_: None).passed is None
