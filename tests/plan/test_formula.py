"""A formula's text, its numbers and its value are one thing."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.formula import letters, literal, numbers, row, value


def test_a_row_from_a_formula():
    made = row("activations", "scores", "L · B · H_p · T² · s", {"L": 2, "B": 3, "H_p": 5, "T": 1024, "s": 4}, "here")
    assert made.bytes == 2 * 3 * 5 * 1024 ** 2 * 4
    assert made.numbers == "2 · 3 · 5 · 1,024² · 4"
    assert letters(made.formula) == ["L", "B", "H_p", "T", "s"]


@pytest.mark.parametrize("formula", ["B / 2", "X", "B @ 2", "⌈B⌉ / 2", "B // 2", "B.real", "f(B)", "-B", "B[0]", "'a'",
                                     "B**2", "B**3", "B²²", "B²3", "2²B"])
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(ConfigError, match="known symbols"):
        value(formula, {"B": 2})


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
