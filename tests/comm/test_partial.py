"""A partial sum admits what commutes with the sum over the ranks, and nothing else."""
import copy
import inspect
import math
import operator
import pickle
import re

import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Float, Int, TypeCheckError, jaxtyped

from minitp.arrays import Array
from minitp.comm import Communicator, Partial, concatenate
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.errors import StateError
from tests.comm.findings import numbers
from tests.mpi_world import run_threads

WHY = {"site": "here", "reason": "to see whether it commutes"}

# p and q are partial sums of (3, 4), u one of (4, 1), w and x whole; of single precision all but u and w.
ADMITTED = """
p + q  p - q  -p  p + p  p - p
p * 2  2 * p  p * -0.5  np.float64(2) * p  p * np.float32(3)  p * True
p / 4  p / np.float64(4)  p * (1 + 2j)  operator.iadd(u, u)
p @ w  p @ w[:, 0]  (p @ w) @ w.T  operator.iadd(p, q)  operator.iadd(u[:] + u[:], u)
p.reshape(12)  p.reshape(2, 6)  p.reshape((2, -1))  p.reshape([4, 3])  p[1:].reshape(-1)
p[1:]  p[:, ::2]  p[::-1]  p[-1]  p[1, 2]  p[...]  p[..., 1:3]  p[0:0]
p[-1, ...]  p[np.int64(1)]  p[:, -4:-1]  p[0][1:]
p.astype("float64")  p.astype(np.complex64)  p.astype(p.dtype)
concatenate([p, q])  concatenate([p, q], axis=0)  concatenate((p, q, p), 1)  concatenate([p])
"""
# Things with one answer on every rank, so that asking is harmless.
ASKED = ("p.shape", "p.dtype", "p.ndim", "repr(p)", "str(p)", "f'{p}'", "p is p", "bool([p])",
         "isinstance(p, Partial)", "callable(p)", "p.group.size")

REFUSED = """
p + x  x + p  p - x  x - p  p + 1  1 + p  sum([p, q])  p + None
operator.iadd(p, x)  operator.iadd(x, p)  operator.isub(x, p)  operator.imul(x, p)
np.add(p, x)  np.add(x, p)  np.add(p, p)  np.subtract(x, p)  np.add(x, x, out=p)
np.add.reduce(p)  np.add.at(x, 0, p)  np.add.outer(p, p)  np.negative(p)
p * x  x * p  p * p  p * np.array(2.0)  p * "2"  p * [1]  p * None
np.multiply(p, 2)  np.multiply(2.0, p, out=x)  np.multiply(x, p)
p / x  p / p  2 / p  x / p  p // 2  2 // p  p % 2  2 % p
divmod(p, 2)  divmod(2, p)  p ** 2  2 ** p  p ** p  abs(p)  +p  ~p
p & 1  1 & p  p | 1  1 | p  p ^ 1  1 ^ p  p << 1  p >> 1
p @ q  x @ p  np.matmul(x.T, p)  np.dot(p, w)  np.einsum("ij->", p)
p == 0  p != 0  p < 0  p <= 0  p > 0  p >= 0  p == p  p != q
0 == p  x == p  x < p  p in [q]  q in (p, q)  0 in p  max(p, q)  sorted([p, q])
bool(p)  not p  p or q  len(p)  float(u[0, 0])  int(u[0, 0])  complex(u[0, 0])
hash(p)  {p}  {p: 1}  iter(p)  list(p)  [*p]  reversed(p)  dict(p)
round(p)  math.floor(p)  math.ceil(p)  math.trunc(p)  math.sqrt(u[0, 0])  range(u[0, 0])
copy.copy(p)  copy.deepcopy(p)  copy.deepcopy([p])  pickle.dumps(p)
np.asarray(p)  np.array(p)  np.array([p, q])  np.array(p, dtype=object)  np.asarray(p, "float64")
x.__setitem__(0, p)  x[p]  np.float32(u[0, 0])  np.ascontiguousarray(p)
np.sum(p)  np.mean(p)  np.exp(p)  np.tanh(p)  np.maximum(p, 0)  np.sqrt(p)  np.square(p)
np.linalg.norm(p)  np.max(p)  np.argmax(p)  np.concatenate([p, q])  np.where(p, 1, 0)
np.zeros_like(p)  np.allclose(p, p)  np.array_equal(p, p)  np.isnan(p)  np.copy(p)
np.reshape(p, 12)  np.transpose(p)  np.shape(p)  np.round(p)  np.clip(p, 0, 1)
p.T  p.sum()  p.mean()  p.max()  p.std()  p.copy()  p.tolist()  p.item()
p.transpose()  p.ravel()  p.flatten()  p.data  p.nbytes  p.fill(0)  p.dot(w)  p.clip(0)
p.__setitem__(0, 1)  operator.setitem(p, slice(0, 1), q[0:1])  operator.delitem(p, 0)
p[[0, 1]]  p[np.array([0])]  p[x > 0]  p[None]  p[True]  p[True, 0]  p[:, [1]]
p["field"]  p[1.0]
p.astype("float16")  p.astype("int32")  p.astype("complex64").astype("float32")
operator.iadd(p[1:], q[1:])  operator.iadd(p.reshape(12), q.reshape(12))  operator.iadd(p, u[0:3])
operator.iadd(p, q.astype("float64"))  p[:, 1:].reshape(-1)  p[:, ::2].reshape(6)
p + q[1:]  p - p[:1]  Partial(p, p.group)  p + other  other - p  concatenate([p, other])
unchecked([p, x])  unchecked([x, p])  concatenate([])  unchecked([x])
"""
WAY_OUT = re.compile(r"[Rr]educe|write partial @ matrix|Write a = a \+ b|by slices and whole numbers|don't add up")


def expressions(table: str) -> list[str]:
    """Columns are set apart by two spaces at least."""
    return [cell for line in table.splitlines() for cell in re.split(r"\s{2,}", line.strip()) if cell]


def terms(rank: int) -> dict:
    return {"p": numbers((3, 4), "float32", rank), "q": numbers((3, 4), "float32", rank + 7),
            "u": numbers((4, 1), "float64", rank + 3)}


def namespace(**more) -> dict:
    return {"np": np, "math": math, "copy": copy, "pickle": pickle, "operator": operator, "Partial": Partial,
            "x": numbers((3, 4), "float32", 1), "w": numbers((4, 4), "float64", 2), **more}


def partials(comm: Communicator) -> dict:
    return namespace(concatenate=concatenate, unchecked=inspect.unwrap(concatenate),
                     **{name: Partial(term, comm) for name, term in terms(comm.rank).items()})


def sums_of_admitted(comm: Communicator) -> list[np.ndarray]:
    return [comm.all_reduce(eval(text, partials(comm)), **WHY) for text in expressions(ADMITTED)]


def concatenate_arrays(arrays, axis=-1):
    return np.concatenate(arrays, axis)


def test_what_is_admitted_commutes_with_the_sum():
    """f(a) + f(b) + f(c) = f(a + b + c): the sum of what the ranks computed is what one rank computes of the sums."""
    of_sums = {name: np.sum([terms(rank)[name] for rank in range(3)], axis=0) for name in ("p", "q", "u")}
    for sums in run_threads(sums_of_admitted, 3):
        for text, got in zip(expressions(ADMITTED), sums, strict=True):
            wanted = np.asarray(eval(text, namespace(concatenate=concatenate_arrays,
                                                     **{name: total.copy() for name, total in of_sums.items()})))
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, text
            assert np.array_equal(got, wanted), text


@pytest.fixture
def alone() -> Communicator:
    return Communicator(ThreadTransport(ThreadWorld(1), 0))


@pytest.mark.parametrize("text", expressions(REFUSED))
def test_what_is_refused_says_what_to_do(alone, text):
    elsewhere = Communicator(ThreadTransport(ThreadWorld(1), 0))
    given = partials(alone) | {"other": Partial(terms(0)["p"], elsewhere)}
    before = {name: array.copy() for name, array in given.items() if isinstance(array, np.ndarray)}
    with pytest.raises(StateError) as caught:
        eval(text, given)
    assert WAY_OUT.search(str(caught.value)), caught.value
    assert all(np.array_equal(given[name], array) for name, array in before.items()), "a whole array was changed"
    kept = {name: alone.all_reduce(given[name], **WHY) for name in ("p", "q", "u")}
    assert all(np.array_equal(kept[name], terms(0)[name]) for name in kept), "a partial was changed"


@pytest.mark.parametrize("text", ASKED)
def test_what_may_be_asked(alone, text):
    assert eval(text, partials(alone)) is not None


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__", "__dlpack__", "__cuda_array_interface__",
                                  "__buffer__", "__len_hint__"])
def test_no_back_door_to_its_memory(alone, name):
    """Protocols by which other libraries look for an array are absent, as Python expects: not a message of ours."""
    assert not hasattr(partials(alone)["p"], name)
    with pytest.raises(TypeError):
        memoryview(partials(alone)["p"])


@pytest.mark.parametrize("text, says", [
    ("p + x", "on several ranks the sum would hold it several times"),
    ("p @ q", r"\(a \+ b\)\(c \+ d\) ≠ ac \+ bd"),
    ("p.mean()", r"asked for .mean.*f\(a \+ b\) ≠ f\(a\) \+ f\(b\)"),
    ("np.exp(p)", "given to numpy.exp"),
    ("np.linalg.norm(p)", "given to numpy.norm"),
    ("p == 0", "compared"),
    ("p + other", "over different groups"),
    ("p.astype('float16')", "from float32 down to float16"),
    ("p[[0]]", "picking by an array copies"),
    ("p[:, 1:].reshape(9)", "Reshape before slicing"),
])
def test_messages_name_the_rule(alone, text, says):
    elsewhere = Communicator(ThreadTransport(ThreadWorld(1), 0))
    with pytest.raises(StateError, match=says):
        eval(text, partials(alone) | {"other": Partial(terms(0)["p"], elsewhere)})


# --- consumption -----------------------------------------------------------------------------------------------------

AFTER = ("p + q", "q + p", "p - q", "-p", "p * 2", "p / 2", "p @ w", "p[0]", "p.reshape(12)", "p.astype('float64')",
         "operator.iadd(p, q)", "operator.iadd(q, p)", "concatenate([q, p])", "reduce(p)")


def used_after_a_reduce(comm, text, how):
    given = partials(comm) | {"reduce": lambda p: comm.all_reduce(p, **WHY)}
    given["reduce"](given["p"] if how == "itself" else given["p"][2:, :1])
    with pytest.raises(StateError, match=r"reduced already.*Use what the collective returned"):
        eval(text, given)
    return comm.all_reduce(given["q"], **WHY)


@pytest.mark.parametrize("how", ["itself", "a view of it"])
@pytest.mark.parametrize("text", AFTER)
def test_a_consumed_partial_is_of_no_use_and_harms_no_other(text, how):
    for q in run_threads(used_after_a_reduce, 2, text=text, how=how):
        assert np.array_equal(q, terms(0)["q"] + terms(1)["q"])


def test_another_groups_collective_refuses_it(alone):
    elsewhere = Communicator(ThreadTransport(ThreadWorld(1), 0), axis="dp")
    with pytest.raises(StateError, match=r"over another group.*tp group of 1.*not over dp group"):
        elsewhere.all_reduce(partials(alone)["p"], **WHY)


# --- annotations -----------------------------------------------------------------------------------------------------

@jaxtyped(typechecker=beartype)
def takes_a_partial(x: Float[Partial, "B T D"], y: Float[Partial, "B T D"]) -> Float[Partial, "B D"]:
    return (x + y)[:, 0]


@jaxtyped(typechecker=beartype)
def takes_an_array(x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    return x


def test_shapes_of_partials_are_checked(alone):
    def partial(*shape, dtype="float32"):
        return Partial(np.ones(shape, dtype), alone)
    assert takes_a_partial(partial(2, 3, 4), partial(2, 3, 4)).shape == (2, 4)
    for wrong in ((partial(2, 3), partial(2, 3)), (partial(2, 3, 4), partial(2, 3, 5)),
                  (partial(2, 3, 4, dtype="int32"),) * 2, (np.ones((2, 3, 4), "float32"),) * 2):
        with pytest.raises(TypeCheckError):
            takes_a_partial(*wrong)
    assert isinstance(partial(2, 3, dtype="int32"), Int[Partial, "a b"])


def test_a_partial_is_no_array(alone):
    assert takes_an_array(np.ones((1, 2, 3))).shape == (1, 2, 3)
    assert not isinstance(partials(alone)["p"], (Array, np.ndarray))
    with pytest.raises(TypeCheckError):
        takes_an_array(Partial(np.ones((1, 2, 3)), alone))
