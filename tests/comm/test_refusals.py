"""What a collective refuses before anything moves: on all ranks alike, recorded by none, with nothing consumed."""
import re

import ml_dtypes
import numpy as np
import pytest

from minitp.comm import Partial
from minitp.comm.checks import summable
from minitp.cut import Cut
from minitp.errors import CollectiveError, StateError
from tests.mpi_world import run_threads

WHY = {"site": "layers.3.mlp.down", "reason": "to see it refused"}
X, SHARD, CUT = np.ones((3, 4)), np.ones((2, 4)), Cut(6, 3)                  # each of three ranks brings 2 of 6 rows
ROWS = [(slice(r, r + 1), slice(0, 4)) for r in range(3)]
OF_X = {"shape": (3, 4), "dtype": X.dtype}


def ones(comm, dtype="float64"):
    return Partial(np.ones((3, 4), dtype), comm)


def gather(array, axis=0, cut=CUT, op="all_gather", **how):
    return lambda c: getattr(c, op)(array, axis=axis, cut=cut, **how, **WHY)


def scatter(axis, pieces=ROWS, **how):
    return lambda c: c.scatter(X, pieces=pieces, axis=axis, **OF_X, **how, **WHY)


def reduce_scatter(axis, cut, dtype="float64"):
    return lambda c: c.reduce_scatter(ones(c, dtype), axis=axis, cut=cut, **WHY)


def all_to_all(to_axis, to_cut, array=SHARD, cut=CUT):
    return gather(array, cut=cut, op="all_to_all", to_axis=to_axis, to_cut=to_cut)


MISFITS = {                                                # what is asked → what the message must say
    "axis past the last": (gather(SHARD, axis=2), "no axis 2"),
    "axis before the first": (gather(SHARD, axis=-3, op="gather"), "no axis -3"),
    "no axis at all": (gather(np.array(1.0)), "no axis 0"),
    "sum of no axis": (reduce_scatter(5, Cut(3, 3)), "no axis 5"),
    "all-to-all of no axis": (all_to_all(3, Cut(4, 3)), "no axis 3"),
    "all-to-all to where it is": (all_to_all(-2, Cut(3, 3), array=X, cut=Cut(9, 3)), "axis 0 already"),
    "scatter of no axis": (scatter(2), "no axis 2"),
    "more rows than the cut gives": (gather(X), "brings 3 .* should be 2"),
    "another group's cut": (gather(SHARD, cut=Cut(4, 2)), "over 2 ranks, the group has 3"),
    "a sum's cut that loses columns": (reduce_scatter(1, Cut(3, 3)), "brings 4 .* should be 3"),
    "all-to-all that loses columns": (all_to_all(1, Cut(3, 3)), "brings 4 .* should be 3"),
    "a piece too few": (scatter(0, ROWS[:2]), "2 pieces for 3 ranks"),
    "pieces along another axis": (scatter(1), "along axis 1 alone"),
    "pieces of another shape": (scatter(0, [(slice(0, 1),)] * 3), "not a slice of"),
    "broadcast from rank 3": (lambda c: c.broadcast(X, root=3, **OF_X, **WHY), "root 3 .*0…2"),
    "reduce to rank -1": (lambda c: c.reduce(ones(c), root=-1, **WHY), "root -1"),
    "gather to rank 7": (gather(SHARD, op="gather", root=7), "root 7"),
    "scatter from rank 3": (scatter(0, root=3), "root 3"),
    "share from rank 3": (lambda c: c.share(1, root=3, **WHY), "root 3"),
}
WRONG_STATES = {
    "gather of a partial": (lambda c: gather(ones(c))(c), "partial sum.*all_reduce"),
    "gather of a list": (gather([1, 2]), "not list"),
    "gather of objects": (gather(np.array([[None]])), "arrays of numbers"),
    "gather of structs with objects": (gather(np.zeros((2, 4), "O,i4")), "arrays of numbers"),
}
for _dtype in ("bool", "float16", ml_dtypes.bfloat16, ">f8", ">i2"):
    _says = f"can't sum {np.dtype(_dtype)}.*Cast the partial up"
    WRONG_STATES |= {
        f"all_reduce of {np.dtype(_dtype)}": (lambda c, d=_dtype: c.all_reduce(ones(c, d), **WHY), _says),
        f"reduce of {np.dtype(_dtype)}": (lambda c, d=_dtype: c.reduce(ones(c, d), **WHY), _says),
        f"reduce_scatter of {np.dtype(_dtype)}": (reduce_scatter(0, Cut(3, 3), _dtype), _says)}


def refused_on_this_rank(comm, call):
    with pytest.raises((CollectiveError, StateError)) as caught:
        call(comm)
    return [type(caught.value).__name__, str(caught.value), len(comm.recorder.events)]


@pytest.mark.parametrize("call, message", MISFITS.values(), ids=MISFITS)
def test_misfits_are_refused_on_every_rank(call, message):
    for kind, text, recorded in run_threads(refused_on_this_rank, 3, call=call):
        assert (kind, recorded) == ("CollectiveError", 0)
        assert "at layers.3.mlp.down" in text and re.search(message, text)


@pytest.mark.parametrize("call, message", WRONG_STATES.values(), ids=WRONG_STATES)
def test_wrong_states_are_refused_on_every_rank(call, message):
    for kind, text, recorded in run_threads(refused_on_this_rank, 3, call=call):
        assert (kind, recorded) == ("StateError", 0)
        assert re.search(message, text)


def reduced_after_a_refusal(comm):
    partial = ones(comm, "float32")
    with pytest.raises(CollectiveError):
        comm.reduce(partial, root=9, **WHY)
    with pytest.raises(CollectiveError):
        comm.reduce_scatter(partial, axis=0, cut=Cut(4, comm.size), **WHY)
    half = ones(comm, "float16")
    with pytest.raises(StateError):
        comm.all_reduce(half, **WHY)
    return [comm.all_reduce(partial, **WHY), comm.all_reduce(half.astype("float32"), **WHY)]


def test_a_refused_partial_is_not_consumed():
    for sums in run_threads(reduced_after_a_refusal, 3):
        assert all((total == 3).all() for total in sums)


def test_an_array_is_not_a_term_unless_someone_says_so():
    with pytest.raises(StateError, match=r"takes a Partial; this is a ndarray.*Partial\(array, group\)"):
        summable(X, "all_reduce")


def root_holds(comm, op, array):
    how = {"pieces": ROWS, "axis": 0} if op == "scatter" else {}
    getattr(comm, op)(array(comm) if comm.rank == 1 else None, **OF_X, root=1, **how, **WHY)


@pytest.mark.parametrize("op", ["scatter", "broadcast"])
@pytest.mark.parametrize("array, error, message", [
    (lambda c: X.T, CollectiveError, r"(?s)at layers.*\(4, 3\) float64.*announced was \(3, 4\)"),
    (lambda c: X.astype("float32"), CollectiveError, r"\(3, 4\) float32.*announced was \(3, 4\) float64"),
    (ones, StateError, "partial sum"),
    (lambda c: None, StateError, "not NoneType"),
], ids=["shape", "dtype", "partial", "nothing"])
def test_a_root_that_does_not_hold_what_it_announced_ends_all(op, array, error, message):
    with pytest.raises(error, match=message):
        run_threads(root_holds, 3, op=op, array=array)
