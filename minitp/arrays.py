"""Which array library a rank computes with: NumPy, or CuPy on a GPU.

Model code takes `xp` from here and never imports NumPy, so the same lines run on both. CuPy refuses to turn a device
array into a host array by accident; the two methods below are the only doors.
"""
from abc import ABC
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.errors import ConfigError

if TYPE_CHECKING:
    Array = Any
else:
    class Array(ABC):
        """A whole array or a shard, of whichever library. A partial sum is deliberately not one."""

        shape: tuple[int, ...]
        dtype: Any

    Array.register(np.ndarray)


class NumpyArrays:
    """Arrays in the memory of the host."""

    name = "numpy"
    xp: Any = np

    def is_device(self, array: Any) -> bool:
        """Whether a collective has to stage `array` through host memory first."""
        return False

    def to_host(self, array: Any) -> np.ndarray:
        return array

    def from_host(self, array: np.ndarray) -> Any:
        return array


class CupyArrays:
    """Arrays in the memory of one GPU; every passage goes through pinned host memory after a stream synchronize.

    The MPI libraries that pip installs can't take a device pointer (they crash), so minitp never hands them one.
    """

    name = "cupy"

    def __init__(self, local_rank: int = 0):
        try:
            import cupy
            import cupyx
        except ImportError as error:
            raise ConfigError("--backend cupy needs CuPy: pip install 'minitp[cuda12]' or 'minitp[cuda13]', "
                              "by the CUDA version of your driver") from error
        if not cupy.cuda.is_available():
            raise ConfigError("--backend cupy was asked for but no CUDA device was found: `nvidia-smi` must list one; "
                              "without a GPU leave the option out (NumPy)")
        cupy.cuda.Device(local_rank % cupy.cuda.runtime.getDeviceCount()).use()
        Array.register(cupy.ndarray)
        self.xp, self._pinned = cupy, cupyx.empty_pinned

    def is_device(self, array: Any) -> bool:
        return isinstance(array, self.xp.ndarray)

    def to_host(self, array: Any) -> np.ndarray:
        if array.size == 0:                     # of a rank that holds nothing: there is no memory to pin
            return np.empty(array.shape, array.dtype)
        stream = self.xp.cuda.get_current_stream()
        host = self._pinned(array.shape, array.dtype)
        packed = self.xp.ascontiguousarray(array).reshape(array.shape)          # (it makes 0-d 1-d)
        packed.get(out=host, stream=stream, blocking=False)
        stream.synchronize()                    # the kernel that fills `array` has ended before MPI reads it
        return host

    def from_host(self, array: np.ndarray) -> Any:
        """A copy in one piece, complete on return: the caller may write into `array` at once."""
        return self.xp.array(np.asarray(array, order="C"), blocking=True)


Arrays = NumpyArrays | CupyArrays
NUMPY = NumpyArrays()


def choose_arrays(backend: str, local_rank: int = 0) -> Arrays:
    """The arrays of `--backend numpy|cupy`; a missing GPU is a ConfigError that says what to do."""
    if backend == "numpy":
        return NUMPY
    if backend == "cupy":
        return CupyArrays(local_rank)
    raise ConfigError(f"backend {backend!r} is not known; minitp has numpy and cupy")
