"""Ranks that are threads of this process: started, watched, stopped.

Python can't kill a thread. A rank that waits in a collective is freed at once; one that computes in Python is
interrupted at its next bytecode; one inside a long C call (time.sleep, a large product) ends when the call does, and
being a daemon it never keeps the process alive.
"""
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from minitp.environment import threads_per_rank, threads_set_by_user
from minitp.errors import CollectiveError, MinitpError, OutOfTimeError
from minitp.launcher.rescue import handed_over, recording_of
from minitp.launcher.telling import (
    failed_at,
    in_short,
    is_about_the_request,
    is_silent,
    name_ranks,
    position,
    positions,
    words_of,
)
from minitp.launcher.world import Options, as_rank

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

GRACE = 3.0                     # seconds that ranks have to end once the run is stopped
RANK = "rank "                  # and its number: the name of a rank's thread
_LOOK, _STUCK = 0.1, 1.0        # seconds between looks; seconds after which ranks that all wait are taken for stuck


class _Ranks:
    """The ranks of one launch and what became of them."""

    def __init__(self, fn: "Callable[[Communicator], Any]", size: int, options: Options):
        from minitp.comm.threads import ThreadTransport, ThreadWorld
        self.fn, self.size, self.options = fn, size, options
        self.world = ThreadWorld(size, options.deadline)
        self.transports = [ThreadTransport(self.world, rank) for rank in range(size)]
        self.results: list[Any] = [None] * size
        self.groups: list[Communicator | None] = [None] * size
        self.failures: list[tuple[int, BaseException]] = []            # in the order of time
        self.threads = [threading.Thread(target=self._run, args=(rank,), name=f"{RANK}{rank}", daemon=True)
                        for rank in range(size)]

    def _run(self, rank: int) -> None:
        from minitp.comm.threads import RankStoppedError
        try:
            with as_rank(rank):
                group = self.options.communicator(self.transports[rank], rank)
                self.groups[rank] = group
                self.results[rank] = self.fn(group)
                self.world.returned[rank] = True
        except RankStoppedError:
            pass
        except BaseException as error:           # SystemExit too: the caller's thread decides what it means
            if isinstance(error, SystemExit) and not error.code:
                return                           # sys.exit(0) is this rank's way to return; the others go on
            self.failures.append((rank, error))
            self.world.stop()

    def run(self) -> None:
        """Until every rank has ended, or one failed, or time is up."""
        end = None if self.options.run_deadline is None else time.monotonic() + self.options.run_deadline
        seen: str | None = None
        for thread in self.threads:
            thread.start()
        while alive := [thread for thread in self.threads if thread.is_alive()]:
            alive[0].join(_LOOK)
            if self.world.stopped:
                return
            if end is not None and time.monotonic() > end:
                raise OutOfTimeError(f"the run has taken longer than its {self.options.run_deadline:g} s\n"
                                     + self.where())
            if (stuck := self._stuck()) and stuck == seen:             # seen twice: not just a machine that slept
                raise CollectiveError("the ranks wait for each other and nothing can come\n" + stuck)
            seen = stuck

    def stop(self) -> None:
        """End every rank: those that wait at once, those that compute at their next bytecode."""
        from minitp.comm.threads import RankStoppedError
        self.world.stop()
        end, interrupt_at = time.monotonic() + GRACE, time.monotonic() + GRACE / 6
        interrupted = False
        while (left := [t for t in self.threads if t.is_alive()]) and time.monotonic() < end:
            if not interrupted and time.monotonic() > interrupt_at:
                interrupted = True
                for thread in left:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0),
                                                               ctypes.py_object(RankStoppedError))
            left[0].join(0.02)

    def rescue(self, failure: BaseException) -> None:
        """Hand the trace up to here to whoever wants it; what it says comes with the failure."""
        groups = [group for group in self.groups if group is not None]
        if self.options.rescued is not None and groups:
            parts = [recording_of(group) for group in self.groups]
            if words := handed_over(self.options.rescued, groups[0], parts, in_short(failure),
                                    is_about_the_request(failure)):
                failure.add_note(words)
                if is_silent(failure):               # nobody will say its notes
                    print(f"minitp: {words}", file=sys.stderr, flush=True)

    def where(self) -> str:
        """One line per position: who waits where, who computes, who has returned."""
        return positions({rank: position(group) if thread.is_alive() else "has returned"
                          for rank, (thread, group) in enumerate(zip(self.threads, self.groups, strict=True))})

    def _stuck(self) -> str | None:
        """Where the ranks are, if all that are left wait for another, and have for so long that none can come.

        A rank inside a collective that is adding up or copying doesn't wait: large arrays take seconds.
        """
        now = time.perf_counter_ns()
        for thread, since in zip(self.threads, self.world.waiting_since, strict=True):
            if thread.is_alive() and (since is None or now - since < _STUCK * 1e9):
                return None
        return self.where()


def run_in_threads(fn: "Callable[[Communicator], Any]", size: int, options: Options) -> list[Any]:
    """fn(communicator) on `size` ranks; all results, in rank order. The first failure is raised here."""
    ranks, ended = _Ranks(fn, size, options), None
    with _blas_threads(size):
        try:
            ranks.run()
        except MinitpError as error:            # they wait for each other, or their time is up
            ended = error
        finally:                                # also Ctrl-C, which reaches only the main thread
            ranks.stop()
    if ended is None and not ranks.failures:
        return ranks.results
    failure = ended if ended is not None else _told(ranks)
    ranks.rescue(failure)
    raise failure


def _told(ranks: _Ranks) -> BaseException:
    """The first failure, with notes: which ranks, where; without, where all ranks refused what was asked for."""
    first, error = ranks.failures[0]
    same = sorted(rank for rank, other in ranks.failures
                  if type(other) is type(error) and words_of(other) == words_of(error))
    if is_about_the_request(error) and len(same) == ranks.size:
        return error
    if ranks.size > 1 and not isinstance(error, CollectiveError):        # (that names its ranks itself)
        error.add_note(", ".join(filter(None, (f"on {name_ranks(same)}", failed_at(error, ranks.groups[first])))))
        for rank, other in ranks.failures:
            if rank not in same:
                error.add_note(f"rank {rank} failed too: {type(other).__name__}: {words_of(other)}")
    return error


_limit = threading.Lock()
_limited: list[Any] = [0, None]                 # launches that run now, and the limiter that the first of them set


@contextmanager
def _blas_threads(ranks: int) -> Iterator[None]:
    """cores // ranks BLAS threads while ranks compute side by side, unless the user set the number.

    The number is the process's: of several launches at once the first sets it and the last restores it.
    """
    if ranks == 1 or threads_set_by_user():
        yield
        return
    from threadpoolctl import threadpool_limits
    with _limit:
        if _limited[0] == 0:
            _limited[1] = threadpool_limits(threads_per_rank(ranks), user_api="blas")
        _limited[0] += 1
    try:
        yield
    finally:
        with _limit:
            _limited[0] -= 1
            if _limited[0] == 0:
                _limited[1].restore_original_limits()
