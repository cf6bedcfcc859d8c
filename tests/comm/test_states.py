"""What is free and what must be paid: the rules that products, steps and changes keep."""
from itertools import product as every

import pytest

from minitp.comm.states import ADMITS, CHANGES, PRODUCTS, SLICE, TRANSITIONS, WHOLE, State, admits, product, shard
from minitp.errors import StateError

SPLITS = ("columns", "rows", "whole")


def test_the_free_rules_are_those_of_the_design():
    assert product(WHOLE, "columns") == shard(-1)
    assert product(shard(-1), "rows") == State("partial")
    assert product(WHOLE, "whole") == WHOLE and product(State("partial"), "whole") == State("partial")


@pytest.mark.parametrize(("kind", "split"), [pair for pair in every(("whole", "shard", "partial", "on root"), SPLITS)
                                             if pair not in PRODUCTS])
def test_a_product_that_is_none_is_refused_and_says_what_would_do(kind, split):
    state = shard(-1) if kind == "shard" else State(kind)
    with pytest.raises(StateError, match="takes an x that is"):
        product(state, split)


def test_a_shard_along_tokens_is_not_a_shard_along_the_inputs():
    with pytest.raises(StateError):
        product(shard(-2), "rows")


def test_changes_are_the_collectives_and_the_free_slice():
    assert CHANGES["whole", "shard"] == SLICE
    assert all(TRANSITIONS[op] == kinds for kinds, op in CHANGES.items() if op != SLICE)
    assert not admits("activation", State("partial")) and admits("activation", shard(-1))
    assert {step for step in ADMITS if admits(step, shard(-1))} == {"activation", "heads"}
