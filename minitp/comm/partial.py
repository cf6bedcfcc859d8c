"""A partial sum is its own type, not an array: what doesn't commute with the sum over ranks can't be written.

act(a + b) ≠ act(a) + act(b): a norm, an activation or a bias applied to one rank's term gives a wrong answer with no
error. So `Partial` admits what commutes with the sum and refuses the rest with a message that says what to do. It can't
see everything (a partial times a *shard*, a whole array declared partial): finite differences find those.
"""
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.errors import StateError

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator


class _Buffer:
    """The memory behind a partial and all its views: what of it a reduce has taken already.

    A boolean per element, made only when the first view is: a partial without views needs its own flag alone.
    """
    __slots__ = ("taken",)

    def __init__(self):
        self.taken: np.ndarray | None = None


class Partial:
    """This rank's term of a sum over the ranks of `group`; the array is handed over to it.

    Admitted: adding another partial of the same group, scaling by a number, a product with a whole matrix, reshape,
    slice, `concatenate`, casting up. Reshape and slice are views. A reduce consumes its partial: afterwards it, what it
    is a view of, and every view that shares an element with it are refused; disjoint slices may each be reduced.
    """
    __slots__ = ("_array", "_buffer", "_region", "_spent", "_view", "group")

    def __init__(self, array: Any, group: "Communicator"):
        if isinstance(array, Partial):
            raise StateError("this is a partial sum already: a partial of a partial would be summed twice. "
                             "Use it as it is, or reduce it first")
        self._array = np.asarray(array) if isinstance(array, np.generic) else array     # a sum of 0-d arrays is one
        self.group = group
        self._buffer, self._view, self._spent = _Buffer(), False, False
        self._region: np.ndarray | None = None            # this view's part of _buffer.taken

    # --- what it is ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> Any:
        return self._array.dtype

    @property
    def ndim(self) -> int:
        return len(self._array.shape)

    def __repr__(self) -> str:
        return f"Partial(shape={tuple(self.shape)}, dtype={self.dtype}, one term of a sum over {self.group.size} ranks)"

    # --- what commutes with the sum -----------------------------------------------------------------------------

    def __add__(self, other: Any) -> "Partial":
        return Partial(self._live() + self._same_group(other), self.group)

    def __iadd__(self, other: Any) -> "Partial":
        term = self._same_group(other)
        if self._view:
            raise StateError("this partial sum is a view of another: adding in place would change that one too. "
                             "Write a = a + b")
        if not np.can_cast(term.dtype, self.dtype, "safe"):
            raise StateError(f"adding {term.dtype} into a partial sum of {self.dtype} rounds every rank's term before "
                             "the sum. Write a = a + b, or cast a up first")
        self._live()[...] += term
        return self

    def __sub__(self, other: Any) -> "Partial":
        return Partial(self._live() - self._same_group(other), self.group)

    def __neg__(self) -> "Partial":
        return Partial(-self._live(), self.group)

    def __mul__(self, factor: Any) -> "Partial":
        if isinstance(factor, Partial) or not np.isscalar(factor) or isinstance(factor, (str, bytes)):
            raise StateError("a partial sum may be scaled by a plain number; a product with an array is not checked "
                             "to commute with the sum over ranks. Reduce it first (all_reduce)")
        return Partial(self._live() * factor, self.group)

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> "Partial":
        if isinstance(factor, Partial) or not np.isscalar(factor):
            raise StateError("a partial sum may be divided by a plain number only; reduce it first (all_reduce)")
        return Partial(self._live() / factor, self.group)

    def __matmul__(self, whole: Any) -> "Partial":
        """partial · whole matrix → partial: a matrix commutes with the sum."""
        if isinstance(whole, Partial):
            raise StateError("the product of two partial sums is not the product of the sums: "
                             "(a + b)(c + d) ≠ ac + bd. Reduce one of them first (all_reduce)")
        return Partial(self._live() @ whole, self.group)

    def astype(self, dtype: Any) -> "Partial":
        """Cast up, for a sum in higher precision; casting down rounds each term and is refused."""
        if not np.can_cast(np.dtype(self.dtype), np.dtype(dtype), "safe"):
            raise StateError(f"casting a partial sum from {self.dtype} down to {np.dtype(dtype)} rounds every rank's "
                             "term before the sum. Reduce first, then cast")
        return Partial(self._live().astype(dtype), self.group)

    def reshape(self, *shape: Any) -> "Partial":
        """A view of the same memory; refused where it would have to copy."""
        shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        if not (self._live().flags.c_contiguous and self._taken_region().flags.c_contiguous):
            raise StateError("this slice of a partial sum does not lie in one piece, so a reshape would copy it and "
                             "the copy could be reduced a second time. Reshape before slicing")
        return self._derive(lambda array: array.reshape(shape))

    def __getitem__(self, index: Any) -> "Partial":
        """A view, by slices and whole numbers."""
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is Ellipsis or (isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool))
                   for part in parts):
            raise StateError("a partial sum is sliced by slices and whole numbers only: picking by an array copies, "
                             "and the copy could be reduced a second time")
        whole_ndim = tuple(slice(p, p + 1 or None) if isinstance(p, (int, np.integer)) else p for p in parts)
        if not any(part is Ellipsis for part in parts):
            whole_ndim += (Ellipsis,)                          # without it a 0-d array gives a number, not a view
        view = self._derive(lambda array: array[whole_ndim])
        dropped = self._live()[index].shape if any(isinstance(p, (int, np.integer)) for p in parts) else None
        return view if dropped is None else view._derive(lambda array: array.reshape(dropped), checked=False)

    # --- consumption --------------------------------------------------------------------------------------------

    def consume(self, group: "Communicator") -> tuple[Any, bool]:
        """Hand the term to a collective of `group`: (array, whether it may be summed in place). Called once."""
        if group is not self.group:
            raise StateError(f"this is a partial sum over another group ({self.group}), not over {group}")
        array, self._spent = self._live(), True
        if self._region is not None:
            self._region[...] = True
        return array, not self._view

    def _live(self) -> Any:
        """The array, unless a reduce has taken any of it."""
        if self._spent or (self._buffer.taken is not None and self._taken_region().any()):
            raise StateError("this partial sum, or one that shares memory with it, has been reduced already: a second "
                             "use would count it twice. Use what the collective returned; to reduce it slice by slice, "
                             "take all slices before the first reduce")
        return self._array

    def _taken_region(self) -> np.ndarray:
        if self._buffer.taken is None:
            self._buffer.taken = np.zeros(self.shape, bool)
        if self._region is None:                               # this is the partial that owns the buffer
            self._region = self._buffer.taken
        return self._region

    def _derive(self, view: Any, checked: bool = True) -> "Partial":
        if checked:
            self._live()
        made = object.__new__(Partial)
        made._array, made.group, made._buffer = view(self._array), self.group, self._buffer
        made._view, made._spent = True, False
        made._region = view(self._taken_region())
        return made

    def _same_group(self, other: Any) -> Any:
        if not isinstance(other, Partial):
            n = self.group.size
            wrong = (f"each of the {n} ranks would add it, so the sum would hold it {n} times" if n > 1 else
                     "each rank would add it, so on several ranks the sum would hold it several times")
            raise StateError(f"a whole array (a bias, the residual) can't be added to a partial sum: {wrong}. "
                             "Reduce the partial first, then add")
        if other.group is not self.group:
            raise StateError("these are partial sums over different groups of ranks; reduce one of them first")
        if other.shape != self.shape:
            raise StateError(f"partial sums of shapes {tuple(self.shape)} and {tuple(other.shape)} don't add up")
        return other._live()

    # --- everything else teaches --------------------------------------------------------------------------------

    def __array__(self, *_args: Any, **_kwargs: Any):
        raise _refusal("turned into an array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any):
        others = [x for x in inputs if not isinstance(x, Partial)]
        if ufunc in (np.add, np.subtract) and others and len(others) < len(inputs):
            self._same_group(others[0])
        if ufunc is np.matmul and inputs[0] is not self:
            raise StateError("a matrix from the left is a product this type doesn't track; write partial @ matrix")
        if ufunc is np.multiply and method == "__call__" and not kwargs and np.isscalar(inputs[0]):
            return self * inputs[0]                              # numpy.float64(2) * partial
        raise _refusal(f"given to numpy.{ufunc.__name__}")

    def __array_function__(self, func: Any, *_args: Any, **_kwargs: Any):
        raise _refusal(f"given to numpy.{func.__name__}")

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        raise _refusal(f"asked for .{name}")

    __radd__ = __rsub__ = _same_group


_REFUSED = {
    "compared": "eq ne lt le gt ge",
    "hashed": "hash",
    "copied or pickled": "copy deepcopy reduce",
    "iterated, counted or searched": "iter len contains reversed",
    "converted or rounded": "bool float int complex index round trunc floor ceil abs pos invert",
    "written into": "setitem delitem",
    "raised to a power or divided into": "pow rpow rtruediv floordiv rfloordiv mod rmod divmod rdivmod",
    "multiplied from the left": "rmatmul",
    "combined bit by bit": "and rand or ror xor rxor lshift rlshift rshift rrshift",
}


def _refuse(what: str):
    def refused(self: Partial, *_args: Any, **_kwargs: Any):
        raise _refusal(what)
    return refused


for _what, _names in _REFUSED.items():          # not by __getattr__: Python looks operators up in the class
    for _name in _names.split():
        setattr(Partial, f"__{_name}__", _refuse(_what))


def _refusal(what: str) -> StateError:
    return StateError(f"a partial sum can't be {what}: this rank holds one term of the sum, not the answer, and "
                      "f(a + b) ≠ f(a) + f(b). Make it whole first (all_reduce) or a shard (reduce_scatter)")


def concatenate(partials: Sequence[Partial], axis: int = -1) -> Partial:
    """Partial sums side by side are a partial sum; copies, so the parts stay usable."""
    if not partials or not all(isinstance(p, Partial) for p in partials):
        raise StateError("concatenate puts partial sums side by side, one at least; a whole array or a shard beside "
                         "them would be summed over the ranks too. Reduce first, then put the results side by side")
    first = partials[0]
    if any(p.group is not first.group for p in partials):
        raise StateError("partial sums over different groups of ranks can't stand side by side: reduce them first")
    arrays = [p._live() for p in partials]
    return Partial(first.group.arrays.xp.concatenate(arrays, axis=axis), first.group)
