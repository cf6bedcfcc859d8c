"""The world of MPI: ranks that are processes, on one machine or many, by mpi4py.

Upper-case (buffer) calls only: nothing is pickled. mpi4py is imported when a world is opened, never before.
"""
import warnings
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from minitp.comm.transport import Call, check_agreement
from minitp.environment import launcher_environment, launcher_kind
from minitp.errors import CollectiveError, LaunchError

_DIGEST, _KEY = 16, 256                # checked mode compares a digest of the call and shows the text behind it


def open_mpi_world():
    """mpi4py's COMM_WORLD, refused where it can't be what the launcher started.

    Another MPI's launcher shows in one of two ways: this library refuses to start under it (so it is asked who it is
    before it is started), or every process finds itself rank 0 of 1.
    """
    try:
        import mpi4py
        mpi4py.rc(initialize=False, finalize=True)
        from mpi4py import MPI
    except ImportError as error:
        raise LaunchError("MPI ranks need mpi4py and an MPI library: pip install 'minitp[mpi]'. "
                          "Without them use ranks that are threads: --world threads") from error
    from minitp.launcher.mpiexec import fits, kind_of
    announced, library = launcher_environment(), MPI.Get_library_version()
    if announced and not fits(launcher_kind(), kind_of(library)):
        raise _foreign(announced[1], f"mpi4py uses {_name(library)}", launcher_kind())
    if not MPI.Is_initialized():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "suspicious MPI execution environment")     # refused below, with a cure
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    world = MPI.COMM_WORLD
    if announced and announced[1] != world.size:
        raise _foreign(announced[1], f"{_name(library)} says rank {world.rank} of {world.size}", "another MPI")
    return world


def _foreign(processes: int, here: str, launcher: str) -> LaunchError:
    return LaunchError(f"the launcher started {processes} processes, but here {here}: this mpirun belongs to "
                       f"{launcher}. Start it with the mpiexec beside this Python: `minitp run -n N …` and `--ranks N` "
                       "find it, `minitp doctor` shows which one it is")


def _name(library: str) -> str:
    """The first words of what an MPI library says of itself: "MPICH Version: 5.0.2", "Open MPI v5.0.11"."""
    return " ".join(library.split("\n")[0].split(",")[0].strip("\0 ").split())


class MPITransport:
    """One process's end of an MPI communicator."""

    world = "mpi"

    def __init__(self, comm):
        from mpi4py import MPI
        self._mpi, self._comm = MPI, comm
        self.rank, self.size, self.patient = comm.rank, comm.size, False

    def announce(self, call: Call, checked: bool) -> int:
        if not checked or self.size == 1:
            return 0
        text = str(call).encode()
        key = (blake2b(text, digest_size=_DIGEST).digest() + text)[:_KEY].ljust(_KEY)
        keys = np.empty((self.size, _KEY), np.uint8)
        self._comm.Allgather(np.frombuffer(key, np.uint8), keys)
        if (keys != keys[0]).any():
            check_agreement([bytes(row[:_DIGEST]) for row in keys],
                            [bytes(row[_DIGEST:]).decode(errors="replace").rstrip() for row in keys])
        return keys.nbytes

    # --- sums: of numbers ---------------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, in_place: bool) -> np.ndarray:
        if in_place and array.flags.writeable:
            self._comm.Allreduce(self._mpi.IN_PLACE, array)
            return array
        total = np.empty_like(array)
        self._comm.Allreduce(array, total)
        return total

    def all_reduce_max(self, array: np.ndarray) -> np.ndarray:
        largest = np.empty_like(array)
        self._comm.Allreduce(array, largest, op=self._mpi.MAX)
        return largest

    def reduce(self, array: np.ndarray, root: int) -> np.ndarray | None:
        total = np.empty_like(array) if self.rank == root else None
        self._comm.Reduce(array, total, root=root)
        return total

    def reduce_scatter(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        mine = np.empty(counts[self.rank], array.dtype)
        self._comm.Reduce_scatter(array, mine, list(counts))
        return mine

    # --- movement: of bytes, so any dtype -----------------------------------------------------------------------

    def all_gather(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        gathered = np.empty(sum(counts), array.dtype)
        self._comm.Allgatherv(_bytes(array), [_bytes(gathered), _sizes(counts, array.dtype)])
        return gathered

    def gather(self, array: np.ndarray, counts: Sequence[int], root: int) -> np.ndarray | None:
        if self.rank != root:
            self._comm.Gatherv(_bytes(array), None, root=root)
            return None
        gathered = np.empty(sum(counts), array.dtype)
        self._comm.Gatherv(_bytes(array), [_bytes(gathered), _sizes(counts, array.dtype)], root=root)
        return gathered

    def scatter(self, array: np.ndarray | None, counts: Sequence[int], dtype: np.dtype, root: int) -> np.ndarray:
        mine = np.empty(counts[self.rank], dtype)
        send = None if array is None else [_bytes(array), _sizes(counts, dtype)]
        self._comm.Scatterv(send, _bytes(mine), root=root)
        return mine

    def broadcast(self, array: np.ndarray, root: int) -> None:
        self._comm.Bcast(_bytes(array), root=root)

    def all_to_all(self, array: np.ndarray, send: Sequence[int], receive: Sequence[int]) -> np.ndarray:
        received = np.empty(sum(receive), array.dtype)
        self._comm.Alltoallv([_bytes(array), _sizes(send, array.dtype)],
                             [_bytes(received), _sizes(receive, array.dtype)])
        return received

    def send(self, array: np.ndarray, to: int) -> None:
        self._comm.Send(_bytes(array), dest=to)

    def receive(self, array: np.ndarray, source: int) -> None:
        status = self._mpi.Status()
        self._comm.Recv(_bytes(array), source=source, status=status)
        self._check_size(array, source, status.count)

    def exchange(self, array: np.ndarray, to: int, into: np.ndarray, source: int) -> None:
        status = self._mpi.Status()
        self._comm.Sendrecv(_bytes(array), dest=to, recvbuf=_bytes(into), source=source, status=status)
        self._check_size(into, source, status.count)

    def _check_size(self, array: np.ndarray, source: int, came: int) -> None:
        if came != array.nbytes:                             # a longer one MPI refuses itself, a shorter one it takes
            raise CollectiveError(f"rank {self.rank} expects {array.nbytes} bytes ({array.size} × {array.dtype}) from "
                                  f"rank {source}, which sent {came}")

    def barrier(self) -> None:
        self._comm.Barrier()


def _bytes(array: np.ndarray) -> np.ndarray:
    """The same memory as bytes, also of an empty array."""
    return array.reshape(-1).view(np.uint8)


def _sizes(counts: Sequence[int], dtype: np.dtype) -> list[int]:
    return [count * dtype.itemsize for count in counts]
