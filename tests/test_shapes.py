"""The checks of shapes: a call of a kind that was right is checked once, whatever differs from it is checked anew."""
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError

from tests import shapes

Row = Float[np.ndarray, "T D"]


def checked(function):
    return shapes.jaxtyped(typechecker=shapes.checker)(function)


class Layer:
    size = 3

    @checked
    def forward(self, x: Float[np.ndarray, "T {self.size}"], y: Any, n: int = 0) -> Float[np.ndarray, "T {self.size}"]:
        return y


@checked
def joined(x: Row, y: Row, names: dict[str, Row] | None = None, words: list[int] | None = None) -> tuple[Row, int]:
    return (x if words is None else x[:, :len(words)]), 1


SHORT, LONG = np.ones((2, 3)), np.ones((2, 4))


def test_what_differs_from_a_right_call_is_checked():
    for _ in range(2):
        assert joined(SHORT, SHORT)[1] == 1 and joined(LONG, y=LONG, names={"a": LONG})[1] == 1
        for wrong in ((SHORT, LONG), (SHORT, SHORT.astype(int)), (SHORT, SHORT[0]), (SHORT, None)):
            with pytest.raises(TypeCheckError):
                joined(*wrong)
        with pytest.raises(TypeCheckError):
            joined(SHORT, SHORT, names={"a": LONG})
        with pytest.raises(TypeCheckError):
            joined(SHORT, SHORT, names={1: SHORT})
        with pytest.raises(TypeCheckError):
            joined(SHORT, SHORT, words=[2.5])


def test_results_are_checked_where_the_arguments_are_known():
    layer = Layer()
    for _ in range(2):
        assert layer.forward(SHORT, SHORT) is SHORT and layer.forward(SHORT, n=5, y=SHORT) is SHORT
        assert joined(SHORT, SHORT, words=list(range(3)))[0].shape == (2, 3)
        for wrong in (LONG, SHORT[:1], SHORT.astype(int), None, [SHORT] * 30):
            with pytest.raises(TypeCheckError):
                layer.forward(SHORT, wrong)
        with pytest.raises(TypeCheckError):
            joined(SHORT, SHORT, words=list(range(2)))


def test_sizes_of_the_object_count():
    layer = Layer()
    layer.forward(SHORT, SHORT)
    layer.size = 4
    with pytest.raises(TypeCheckError):
        layer.forward(SHORT, SHORT)
    assert layer.forward(LONG, LONG) is LONG


def test_a_call_of_a_known_kind_is_not_checked_again(monkeypatch):
    joined(SHORT, SHORT)
    looked = []
    monkeypatch.setattr(type(Row), "__instancecheck__", lambda row, value: looked.append(value) is None)
    assert joined(2 * SHORT, SHORT)[1] == 1 and not looked
    assert joined(SHORT[:1], SHORT[:1])[1] == 1 and looked
