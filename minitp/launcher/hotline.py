"""A communicator of its own for ranks in trouble: who has failed, who waits, where is everybody, what has it recorded.

The ranks' data never travels here, so a message gets through while the main thread of a rank is stuck in a collective.
Nothing is sent until there is trouble.
"""
import threading
import time
from collections.abc import Callable
from typing import Any

FAILED, ASK, ANSWER, FETCH, RECORDING = range(1, 6)
_SHORT = 512                                     # bytes of a message, but for a recording
_REPLY = {ASK: ANSWER, FETCH: RECORDING}


class Hotline:
    """One rank's end. `where` answers what this rank is doing, `recording` what it has recorded."""

    def __init__(self, world: Any, where: Callable[[], str], recording: Callable[[], str]):
        self._comm, self._answers = world.Dup(), {ASK: where, FETCH: recording}
        self.rank, self.size = world.rank, world.size
        self.heard: dict[int, dict[int, str]] = {                                         # kind → rank → text
            kind: {} for kind in (FAILED, ASK, ANSWER, FETCH, RECORDING)}
        self._sent: list[Any] = []               # requests and their buffers live until the process ends
        self._one_at_a_time = threading.Lock()   # the main thread and the watchdog both listen

    def tell(self, kind: int, text: str) -> None:
        """Send `text` to every other rank."""
        for rank in range(self.size):
            if rank != self.rank:
                self._send(rank, kind, text)

    def _send(self, to: int, kind: int, text: str) -> None:
        data = text.encode(errors="replace")     # a script's own words may be none that can be encoded
        buffer = bytearray(data if kind == RECORDING else data[:_SHORT])
        self._sent.append((self._comm.Isend(buffer, dest=to, tag=kind), buffer))

    def listen(self) -> None:
        """Take in what has come and answer those who ask. Doesn't wait."""
        from mpi4py import MPI
        with self._one_at_a_time:
            status = MPI.Status()
            while (message := self._comm.Improbe(status=status)) is not None:
                buffer = bytearray(status.Get_count())
                source, kind = status.Get_source(), status.Get_tag()
                message.Recv(buffer)
                self.heard[kind][source] = buffer.decode(errors="replace")
                if kind in _REPLY:
                    self._send(source, _REPLY[kind], self._answers[kind]())

    def wait_for_all(self, kind: int, seconds: float) -> dict[int, str]:
        """What the other ranks said, as soon as all have or the time is up."""
        end = time.monotonic() + seconds
        while True:
            self.listen()
            if len(self.heard[kind]) == self.size - 1 or time.monotonic() > end:
                return dict(self.heard[kind])
            time.sleep(0.01)
