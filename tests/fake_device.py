"""Arrays that live on a device which isn't there: NumPy inside, and CuPy's manners, or stricter ones, outside.

CuPy refuses to turn a device array into a host array unasked, and to mix the two in an operation. Where it would
convert in silence (a NumPy index or value, `float(x)`, which waits for the device), these arrays refuse too: model code
has no reason for it. Only what CuPy has is here, under its names; `empty` is full of NaN, as reused memory may be.
"""
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from minitp.arrays import Array, CupyArrays
from minitp.comm.threads import ThreadTransport

SCALARS = (int, float, bool, np.generic)


def host_of(value: Any, where: str) -> Any:
    """The NumPy array inside, or a plain scalar; a host array is refused as CuPy refuses it."""
    if isinstance(value, FakeDeviceArray):
        return value._memory
    if isinstance(value, SCALARS):
        return value
    raise TypeError(f"Unsupported type {type(value)} in {where} of device arrays")


def on_device(result: Any) -> "FakeDeviceArray":
    made = object.__new__(FakeDeviceArray)
    made._memory = np.asarray(result)                    # also what NumPy makes a scalar is an array on a device
    return made


class _Flags:
    def __init__(self, flags: Any):
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous


class FakeDeviceArray:
    """What the model may do with a `cupy.ndarray`."""
    __slots__ = ("_memory",)
    __hash__ = None

    shape = property(lambda self: self._memory.shape)
    dtype = property(lambda self: self._memory.dtype)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    nbytes = property(lambda self: self._memory.nbytes)
    flags = property(lambda self: _Flags(self._memory.flags))
    T = property(lambda self: on_device(self._memory.T))

    def __len__(self) -> int:
        return len(self._memory)

    def reshape(self, *shape: Any) -> "FakeDeviceArray":
        return on_device(self._memory.reshape(*shape))

    def swapaxes(self, a: int, b: int) -> "FakeDeviceArray":
        return on_device(self._memory.swapaxes(a, b))

    def astype(self, dtype: Any) -> "FakeDeviceArray":
        return on_device(self._memory.astype(dtype))

    def copy(self) -> "FakeDeviceArray":
        return on_device(self._memory.copy())

    def sum(self, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> "FakeDeviceArray":
        return on_device(self._memory.sum(axis, keepdims=keepdims))

    def mean(self, axis: int, keepdims: bool = False) -> "FakeDeviceArray":
        return on_device(self._memory.mean(axis, keepdims=keepdims))

    def max(self, axis: int, keepdims: bool = False) -> "FakeDeviceArray":
        return on_device(self._memory.max(axis, keepdims=keepdims))

    def __getitem__(self, index: Any) -> "FakeDeviceArray":
        return on_device(self._memory[index_of(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._memory[index_of(index)] = host_of(value, "an assignment")

    def __array__(self, *_args: Any, **_kwargs: Any):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. "
                        "Please use `.get()` to construct a NumPy array explicitly.")

    def __array_ufunc__(self, ufunc: Any, *_args: Any, **_kwargs: Any):
        raise TypeError(f"numpy.{ufunc.__name__} was given a device array: take the function from xp")

    def __array_function__(self, function: Any, *_args: Any, **_kwargs: Any):
        raise TypeError(f"numpy.{function.__name__} was given a device array: take the function from xp")

    def _waits(self, *_args: Any):
        raise TypeError("this waits for the device to fetch a number: use to_host")

    __float__ = __int__ = __index__ = __bool__ = __iter__ = __bytes__ = __complex__ = __contains__ = _waits


def index_of(index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    for part in parts:
        if not (part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer, FakeDeviceArray))):
            raise TypeError(f"a device array indexed by a {type(part)}: it would be sent to the device in silence")
    whole = tuple(part._memory if isinstance(part, FakeDeviceArray) else part for part in parts)
    return whole if isinstance(index, tuple) else whole[0]


def _operators() -> None:
    def binary(name: str, swapped: bool) -> Callable:
        function = getattr(np.ndarray, f"__{name}__")

        def operate(self: FakeDeviceArray, other: Any) -> FakeDeviceArray:
            mine, theirs = self._memory, host_of(other, f"__{name}__")
            first, second = (np.asarray(theirs, _weak(mine, theirs)), mine) if swapped else (mine, theirs)
            return on_device(function(first, second))
        return operate

    def in_place(name: str) -> Callable:
        function = getattr(np.ndarray, f"__i{name}__")

        def operate(self: FakeDeviceArray, other: Any) -> FakeDeviceArray:
            function(self._memory, host_of(other, f"__i{name}__"))
            return self
        return operate

    for name in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        setattr(FakeDeviceArray, f"__{name}__", binary(name, False))
        setattr(FakeDeviceArray, f"__r{name}__", binary(name, True))
        setattr(FakeDeviceArray, f"__i{name}__", in_place(name))
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or"):
        setattr(FakeDeviceArray, f"__{name}__", binary(name, False))
    FakeDeviceArray.__neg__ = lambda self: on_device(-self._memory)
    FakeDeviceArray.__invert__ = lambda self: on_device(~self._memory)


def _weak(array: np.ndarray, scalar: Any) -> Any:
    """A Python number takes the dtype of the array it meets."""
    return array.dtype if isinstance(scalar, (int, float)) and array.dtype.kind == "f" else None


_operators()
Array.register(FakeDeviceArray)


class FakeModule:
    """The functions of `cupy` that a model may use; any other name is an AttributeError."""
    ndarray = FakeDeviceArray

    @staticmethod
    def empty(shape: Any, dtype: Any) -> FakeDeviceArray:
        return on_device(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 85, dtype))

    @staticmethod
    def zeros(shape: Any, dtype: Any) -> FakeDeviceArray:
        return on_device(np.zeros(shape, dtype))

    @staticmethod
    def concatenate(arrays: Any, axis: int = 0) -> FakeDeviceArray:
        return on_device(np.concatenate([host_of(array, "concatenate") for array in arrays], axis=axis))


    @staticmethod
    def full(shape: Any, value: Any, dtype: Any) -> FakeDeviceArray:
        return on_device(np.full(shape, value, dtype))

    @staticmethod
    def stack(arrays: Any, axis: int = 0) -> FakeDeviceArray:
        return on_device(np.stack([host_of(array, "stack") for array in arrays], axis))

    @staticmethod
    def einsum(how: str, *arrays: Any) -> FakeDeviceArray:
        return on_device(np.einsum(how, *(host_of(array, "einsum") for array in arrays)))

    @staticmethod
    def copyto(into: FakeDeviceArray, value: Any, where: FakeDeviceArray) -> None:
        np.copyto(into._memory, host_of(value, "copyto"), where=where._memory)

    class add:                                                                      # noqa: N801  (CuPy's name)
        @staticmethod
        def at(into: FakeDeviceArray, index: Any, values: FakeDeviceArray) -> None:
            np.add.at(into._memory, index_of(index), values._memory)


def _function(name: str) -> Callable:
    def call(*arguments: Any, out: FakeDeviceArray | None = None) -> FakeDeviceArray:
        if not any(isinstance(argument, FakeDeviceArray) for argument in arguments):
            raise TypeError(f"{name} of the device was given no device array: {[type(a) for a in arguments]}")
        result = getattr(np, name)(*(host_of(argument, name) for argument in arguments))
        if out is None:
            return on_device(result)
        out._memory[...] = result
        return out
    return call


for _name in ("zeros_like", "sqrt", "multiply", "where", "exp", "log", "tanh", "minimum", "maximum", "abs", "sign",
              "ascontiguousarray"):
    setattr(FakeModule, _name, staticmethod(_function(_name)))


class FakeArrays(CupyArrays):
    """The two doors, counted."""
    name = "fake"

    def __init__(self):
        self.xp, self.to_host_count, self.from_host_count = FakeModule, 0, 0

    def is_device(self, array: Any) -> bool:
        return isinstance(array, FakeDeviceArray)

    def to_host(self, array: FakeDeviceArray) -> np.ndarray:
        self.to_host_count += 1
        if not isinstance(array, FakeDeviceArray):
            raise TypeError(f"to_host was given a {type(array)}, which is on the host already")
        return array._memory.copy()

    def from_host(self, array: np.ndarray) -> FakeDeviceArray:
        self.from_host_count += 1
        if not isinstance(array, np.ndarray):
            raise TypeError(f"from_host was given a {type(array)}")
        return on_device(np.array(array))


class HostOnlyTransport(ThreadTransport):
    """MPI libraries that pip installs crash on a device pointer; this one says so."""

    def _exchange(self, array: np.ndarray | None) -> list:
        if not (array is None or type(array) is np.ndarray):
            raise TypeError(f"a {type(array)} reached the transport")
        return super()._exchange(array)

    def _post(self, array: np.ndarray, to: int) -> threading.Event:
        if type(array) is not np.ndarray:
            raise TypeError(f"a {type(array)} reached the transport")
        return super()._post(array, to)
