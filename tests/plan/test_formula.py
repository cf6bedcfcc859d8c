"""A formula's text, its numbers and its value are one thing."""
import gc
import sys
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan import formula
from minitp.plan.formula import letters, literal, numbers, row, value


def test_a_row_from_a_formula():
    made = row("activations", "scores", "L · B · H_p · T² · s", {"L": 2, "B": 3, "H_p": 5, "T": 1024, "s": 4}, "here")
    assert made.bytes == 2 * 3 * 5 * 1024 ** 2 * 4
    assert made.numbers == "2 · 3 · 5 · 1,024² · 4"
    assert letters(made.formula) == ["L", "B", "H_p", "T", "s"]


@pytest.mark.parametrize("text", ["B / 2", "X", "B @ 2", "⌈B⌉ / 2", "B // 2", "B.real", "f(B)", "-B", "B[0]", "'a'",
                                     "B**2", "B**3", "B²²", "B²3", "2²B"])
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ConfigError, match="known symbols"):
        value(text, {"B": 2})


def test_bytes_that_are_not_whole_are_rounded_up():
    assert value("1.0625 · B", {"B": 17}) == 19 and value("1.0625 · B", {"B": 32}) == 34
    assert (literal(2.0), literal(34 / 32), literal(4)) == ("2", "1.0625", "4")


@given(st.integers(0, 10**30), st.integers(1, 10**9))
def test_a_division_is_rounded_up(a, b):
    assert value("2 · ⌈A · 3/B⌉", {"A": a, "B": b}) == 2 * (3 * a // b + (3 * a % b > 0))


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, 10**15))
def test_the_numbers_put_in_come_to_the_same(a, b, c):
    formula, symbols = "2 · (A + B_p) · C² − A", {"A": a, "B_p": b, "C": c}
    assert value(formula, symbols) == 2 * (a + b) * c * c - a == value(numbers(formula, symbols).replace(",", ""), {})


def test_threads_read_formulas_at_the_same_time():
    """Ranks are threads, and so are the app's sessions."""
    wrong, interval, threshold = [], sys.getswitchinterval(), gc.get_threshold()

    def reads(number: int) -> None:
        for k in range(100):
            text = " · ".join(f"({number} + {k} · B · (T + {i}))" for i in range(12))
            try:
                formula._compiled.__wrapped__(text)
            except SystemError as error:
                wrong.append(error)

    threads = [Thread(target=reads, args=(number,)) for number in range(6)]
    busy = lambda *_: [None for _ in range(50)]                              # noqa: E731  (a thread may be left here)
    try:
        sys.setswitchinterval(1e-6)
        gc.set_threshold(5, 1, 1)
        gc.callbacks.append(busy)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.callbacks.remove(busy)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
    assert not wrong
