"""Inside an MPI process: open the world, fail together, keep the deadlines.

Python's own behavior under MPI is to hang: a rank that raises leaves the others waiting in their collective, and
Ctrl-C reaches only ranks that run Python code at that moment. Opening the job mends both. Nothing happens on import.
"""
import atexit
import faulthandler
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from minitp.environment import settle_blas_threads
from minitp.errors import LaunchError
from minitp.launcher.hotline import ANSWER, ASK, FAILED, FETCH, RECORDING, Hotline
from minitp.launcher.marks import write_mark
from minitp.launcher.rescue import FETCH_SECONDS, WRITE_SECONDS, Rescued, handed_over, recording_of
from minitp.launcher.telling import OUT_OF_TIME, USER_ERROR, Failure, failed_at, position, positions
from minitp.launcher.world import Options, as_rank, wrong_number

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

_PATIENCE = {True: 1.0, False: 0.3}     # seconds to wait for the others' account, by whether the error is a known one
_LOOK = 0.25                            # seconds between two looks of the watchdog
_NO_WATCHDOG = "this MPI lets only one thread call it (it lacks MPI_THREAD_MULTIPLE), so nothing can watch the time"
_START = 120.0                          # seconds that all ranks may take to start
_job: "Job | None" = None


def current_job() -> "Job | None":
    return _job


def open_job() -> "Job":
    """This process's part in the MPI job; the first call is collective and opens the world.

    Raises LaunchError where mpi4py is missing, or the launcher belongs to another MPI.
    """
    global _job
    if _job is None:
        settle_blas_threads()
        _mend_python()                              # first: the world may refuse to open
        from minitp.comm.mpi import open_mpi_world
        # A rank that ended before this line leaves the others in MPI's start, with Python locked: only C can end that.
        faulthandler.dump_traceback_later(_START, exit=True, file=2)
        _job = Job(open_mpi_world())
        faulthandler.cancel_dump_traceback_later()
    return _job


def _mend_python() -> None:
    """Let Ctrl-C and errors end this process at once, and lines be written whole."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)              # Python's handler would wait for the collective's end
    sys.excepthook = lambda _kind, error, _trace: _fail_for_good(error)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)               # a rank's line is written as one piece, and at once


def _fail_for_good(error: BaseException) -> NoReturn:
    from minitp.launcher.failures import fail
    try:
        fail(error)
    except SystemExit as end:                       # no job was opened; an excepthook can't set the exit code
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


class Job:
    """One process among the ranks of an MPI job."""

    def __init__(self, world: Any):
        self.rank, self.size = world.rank, world.size
        self.data = world.Dup()                     # the ranks' collectives, apart from what a script does with WORLD
        self.leaving = world.Dup()                  # their good-bye: in `data` it would answer another's barrier
        self.hotline = Hotline(world, self.where, lambda: self._recording() or "")
        self.rescued: Rescued | None = None         # who wants the trace of a run that fails
        self.doing: str | None = None               # in words, where no communicator can tell
        self.groups: list[Communicator] = []
        self.deadline, self.end, self.seconds = float("inf"), float("inf"), 0.0
        self._ending = threading.Lock()             # taken once, by whoever ends the job
        self._closed = threading.Event()
        write_mark(f"pid {self.rank} {os.getpid()}")
        self._watchdog: threading.Thread | None = None
        if _any_thread_may_call():
            self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._watchdog.start()
        elif self.rank == 0:
            os.write(2, f"minitp: {_NO_WATCHDOG}: a run that hangs has to be ended by hand\n".encode())
        atexit.register(self._close)                # before MPI is finalized: no call may come after

    # --- who is where --------------------------------------------------------------------------------------------

    def where(self) -> str:
        waiting = next((group for group in self.groups if group.pending is not None), None)
        if waiting is None and self.doing is not None:
            return self.doing
        return position(waiting if waiting is not None else self.groups[0] if self.groups else None)

    @contextmanager
    def limit(self, run_deadline: float | None) -> Iterator[None]:
        """What happens inside may take this many seconds; None adds no limit to one that holds already."""
        before = self.seconds, self.end
        if run_deadline is not None and self._watchdog is None:
            raise LaunchError(f"the run can't be ended after {run_deadline:g} s: {_NO_WATCHDOG}. Leave the limit out, "
                              "use an MPI with MPI_THREAD_MULTIPLE, or ranks that are threads (--world threads)")
        if run_deadline is not None:
            self.seconds, self.end = run_deadline, time.monotonic() + run_deadline
        try:
            yield
        finally:
            self.seconds, self.end = before

    # --- the watchdog --------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK):
            self.hotline.listen()
            if overdue := self._overdue():
                self._out_of_time(*overdue)

    def _overdue(self) -> tuple[int, str] | None:
        if time.monotonic() > self.end:
            return OUT_OF_TIME, f"the run has taken longer than its {self.seconds:g} s"
        for group in self.groups:
            pending = None if group.transport.patient else group.pending
            if pending is not None and time.perf_counter_ns() - pending[1] > self.deadline * 1e9:
                return USER_ERROR, f"not every rank came within {self.deadline:g} s to {pending[0]}"
        return None

    def _out_of_time(self, code: int, headline: str) -> None:
        """Ask the others where they are, tell it once (who asks first, of several at once the lowest), end the job.

        A rank that has failed tells more: why it doesn't come.
        """
        if not self._ending.acquire(blocking=False):
            return                                  # the main thread is already telling what it failed of
        if not self._heard(FAILED, FETCH, ASK):
            self.hotline.tell(ASK, headline)
            where = self.hotline.wait_for_all(ANSWER, 4 * _LOOK)
            mine = self.where()                     # as late as the others say it: where nothing hangs, ranks go on
            if not self._heard(FAILED, FETCH) and min(self.hotline.heard[ASK], default=self.size) > self.rank:
                silent = dict.fromkeys(range(self.size), "no answer: it has left, or is stopped")
                account = f"{headline}\n" + positions(silent | where | {self.rank: mine})
                if self.rescued is not None:
                    _mute(1)                        # the ranks go on until their recordings have come
                _write(f"minitp: error: {account}", code)
                self._rescue(account, False, code)
                self.abort(code)
        self._leave_to_others(5.0)
        self.abort(code)

    def _heard(self, *kinds: int) -> bool:
        """Whether another rank has said one of these: that it failed, that its time is up, that it keeps the trace."""
        return any(self.hotline.heard[kind] for kind in kinds)

    def _leave_to_others(self, seconds: float) -> None:
        """Answer those who ask, for so long: another rank tells what has happened, keeps the trace, and aborts."""
        end = time.monotonic() + seconds + (FETCH_SECONDS + WRITE_SECONDS if self.rescued is not None else 0.0)
        while time.monotonic() < end:
            self.hotline.listen()
            time.sleep(0.01)

    # --- what was recorded ---------------------------------------------------------------------------------------

    def _recording(self) -> str | None:
        """What this rank has recorded. From now on it prints nothing: it may go on computing, but the end is told."""
        _mute(1)
        return recording_of(self.groups[0] if self.groups else None)

    def _rescue(self, why: str, refusal: bool, code: int) -> None:
        """Hand what the ranks have recorded, as far as they answer, to whoever wants it, and pass on what it says."""
        if self.rescued is None or not self.groups:
            return
        self.hotline.tell(FETCH, "")
        mine = self._recording()                    # while the others pack theirs, and not after a wait for one of them
        others = self.hotline.wait_for_all(RECORDING, FETCH_SECONDS)
        if min(self.hotline.heard[FETCH], default=self.rank) < self.rank:
            self._leave_to_others(5.0)              # both asked at once, and of one trace there is one writer
            return
        parts = [mine if rank == self.rank else others.get(rank) or None for rank in range(self.size)]
        if words := handed_over(self.rescued, self.groups[0], parts, why, refusal):
            _write(f"minitp: {words}", code)

    # --- ends ----------------------------------------------------------------------------------------------------

    def fail(self, failure: Failure) -> NoReturn:
        """Tell it once over all ranks that failed of the same, and end the job on all ranks."""
        if not self._ending.acquire(blocking=False):
            self._leave_to_others(5.0)              # the watchdog ends the job
        self.hotline.tell(FAILED, failure.key)
        others = self.hotline.wait_for_all(FAILED, _PATIENCE[failure.known])
        failed = others | {self.rank: failure.key}
        same = sorted(rank for rank, key in failed.items() if key == failure.key)
        code = max(int(key.split()[0]) for key in failed.values())
        if self.rank == same[0] and not any(rank in self.hotline.heard[FETCH] for rank in same):   # that one told it
            _write(failure.said_by(same, self.size), code)
        if self.rank != min(failed) or self._heard(FETCH):             # who asked first keeps the trace
            self._leave_to_others(2.0)              # an error of its own is told by now
        else:
            self._rescue(failure.short_by(same, self.size), bool(failure.alike), code)
        time.sleep(0.1 if len(same) == len(failed) else 0.5)           # let the others, if they differ, speak too
        self.abort(code)

    def abort(self, code: int) -> NoReturn:
        """End every rank of the job now. The cause has been told: what MPI would add to it goes nowhere."""
        from mpi4py import MPI
        _wait_until_read()
        _mute(1, 2)
        if threading.current_thread() is threading.main_thread() or _any_thread_may_call():
            MPI.COMM_WORLD.Abort(code)
        os._exit(code)                              # the launcher ends the others when one rank leaves like this

    def _close(self) -> None:
        self._closed.set()
        if self._watchdog is not None and threading.current_thread() is not self._watchdog:
            self._watchdog.join(1.0)


def _any_thread_may_call() -> bool:
    """Whether another thread may call MPI while the main one is in a collective: the watchdog does."""
    from mpi4py import MPI
    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def _mute(*streams: int) -> None:
    """What is written to these descriptors goes nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _write(text: str, code: int) -> None:
    """Onto stderr in one piece, past all buffers, and tell minitp's launcher that the cause is known, and the code."""
    if threading.current_thread() is threading.main_thread():
        sys.stdout.flush()
        sys.stderr.flush()
    write_mark("speaks")
    if text:
        os.write(2, (text + "\n").encode(errors="replace"))
    write_mark(f"told {code}")


def _wait_until_read(seconds: float = 1.0) -> None:
    """Until the launcher has read what this rank wrote: an abort overtakes what still lies in the pipe."""
    try:
        from fcntl import ioctl
        from termios import FIONREAD
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(any(ioctl(stream, FIONREAD, bytes(4))) for stream in (1, 2)):
            time.sleep(0.01)
    except (ImportError, OSError):                  # no pipe, or not a system that could tell
        pass
    time.sleep(0.1)                                 # and passed it on


def run_in_mpi(fn: "Callable[[Communicator], Any]", ranks: int | None, options: Options) -> list[Any]:
    """fn(communicator) on this process's rank; [its result], once every rank has returned."""
    job = open_job()
    if ranks is not None and ranks != job.size:
        raise wrong_number(ranks, job.size)
    from minitp.comm.mpi import MPITransport
    group = options.communicator(MPITransport(job.data), _local_rank(job) if options.arrays != "numpy" else 0)
    job.groups, job.deadline, job.doing, job.rescued = [group], options.deadline, None, options.rescued
    try:
        with as_rank(job.rank), job.limit(options.run_deadline):
            result = fn(group)
            job.doing = "has returned"
            job.leaving.Barrier()                   # a rank that waits for one that has returned can still be told so
    except BaseException as error:
        if place := failed_at(error, group):
            error.add_note(place)
        if isinstance(error, SystemExit) and error.code:
            from minitp.launcher.failures import fail
            fail(error)                             # sys.exit on one rank must not leave the others waiting
        raise
    job.doing, job.rescued = "past its launch", None
    return [result]


def _local_rank(job: Job) -> int:
    """This rank's number on its machine: which GPU is its."""
    from mpi4py import MPI
    return job.data.Split_type(MPI.COMM_TYPE_SHARED).rank
