"""An MPI job as one child of this process: started, its output passed on, stopped with nothing left behind."""
import contextlib
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from minitp.launcher.child import ChildJob
from minitp.launcher.marks import JOB_VARIABLE
from minitp.launcher.mpiexec import Mpiexec, find_mpiexec, job_environment, python_command
from minitp.launcher.output import Demultiplexer, JobOutput, Notices, Write
from minitp.launcher.rescue import FETCH_SECONDS, WRITE_SECONDS
from minitp.launcher.telling import INTERRUPTED
from minitp.launcher.verdict import verdict

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class MPIJob(ChildJob):
    """`program` (a Python command line without the interpreter) on `ranks` MPI processes.

      timeout   seconds until the job is stopped
      verbose   print the command that is run
      out, err  take the job's output as bytes; this process's stdout and stderr by default
      stdin     whether rank 0 may read what this process may
    """

    def __init__(self, program: Sequence[str], ranks: int, *, timeout: float | None = None, verbose: bool = False,
                 out: Write | None = None, err: Write | None = None, mpiexec: Mpiexec | None = None,
                 stdin: bool = True):
        self.ranks, self.id = ranks, uuid4().hex[:12]
        found = mpiexec or find_mpiexec()
        self._kind = found.kind
        self._tag = f"<minitp-{self.id[:6]} %r>" if found.tags else ""
        environment, said = job_environment(ranks, self.id)
        if timeout is not None:                                  # should this process be gone by then
            environment["MPIEXEC_TIMEOUT"] = str(int(timeout + FETCH_SECONDS + WRITE_SECONDS) + 5)
        super().__init__(found.command(ranks, [*python_command(), *program], self._tag), environment, timeout=timeout,
                         out=out, err=err, stdin=stdin)
        self._output = JobOutput()
        for line in [f"minitp: running {shlex.join(self.command)}"] * verbose + [f"minitp: {said}"] * bool(said):
            self._say(line)

    def _readers(self) -> list[tuple[Callable[[bytes], None], Callable[[], None]]]:
        notices = Notices(self._err, self._output) if self._kind == "openmpi" else None
        out, err = (Demultiplexer(write, self._output, self._tag) for write in (self._out, notices or self._err))

        def close_err() -> None:
            err.close()
            if notices is not None:
                notices.close()
        return [(out.feed, out.close), (err.feed, close_err)]

    def _more_time(self) -> float:
        """A rank that has told what the run failed of may still be keeping its trace."""
        return 0.0 if self._output.told is None else FETCH_SECONDS + WRITE_SECONDS

    def _failed(self) -> None:
        """End the ranks that a killed mpiexec may have left: they are known by the job's name in their environment."""
        for pid in self._output.pids.values():
            with contextlib.suppress(OSError):
                if f"{JOB_VARIABLE}={self.id}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _conclude(self, code: int) -> int:
        """The exit code, and the cause where no rank has told it."""
        told, words = self._output.told, ""
        if self._stopped is not None:
            code, words = self._stopped
        elif told is not None:
            code = told
        elif code:
            code, words = verdict(code, self._output.launcher)
        if words and told is None:
            self._say(words)
        return code


def run_job(program: Sequence[str], ranks: int, *, timeout: float | None = None, verbose: bool = False) -> int:
    """Run `program` (`["script.py", "--option"]`, `["-m", "module"]`) on `ranks` MPI processes; the job's exit code.

    Ctrl-C and SIGTERM end the job, however often they come. LaunchError where MPI can't be had.
    """
    job = MPIJob(program, ranks, timeout=timeout, verbose=verbose)
    with _signals_stop(job):
        job.start()
        return job.wait()


@contextlib.contextmanager
def _signals_stop(job: MPIJob) -> Iterator[None]:
    """Ctrl-C and its like stop the job instead of this process, as long as it runs (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            job.stop(INTERRUPTED, "minitp: stopped by Ctrl-C")
        else:
            job.stop(128 + number, f"minitp: stopped by {signal.Signals(number).name}")

    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
