"""An MPI job as one child of this process: started, its output passed on, stopped with nothing left behind."""
import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from minitp.launcher.marks import JOB_VARIABLE
from minitp.launcher.mpiexec import Mpiexec, find_mpiexec, job_environment, python_command
from minitp.launcher.output import Demultiplexer, JobOutput, Notices, Write, standard_sinks
from minitp.launcher.telling import INTERRUPTED, OUT_OF_TIME
from minitp.launcher.verdict import verdict

GRACE = 2.0                         # seconds that mpiexec has to end its ranks after SIGTERM; then they are killed
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class MPIJob:
    """`program` (a Python command line without the interpreter) on `ranks` MPI processes.

      timeout   seconds until the job is stopped
      verbose   print the command that is run
      out, err  take the job's output as bytes; this process's stdout and stderr by default
    """

    def __init__(self, program: Sequence[str], ranks: int, *, timeout: float | None = None, verbose: bool = False,
                 out: Write | None = None, err: Write | None = None, mpiexec: Mpiexec | None = None):
        self.ranks, self.timeout = ranks, timeout
        self.id = uuid4().hex[:12]
        found = mpiexec or find_mpiexec()
        self._kind = found.kind
        tag = f"<minitp-{self.id[:6]} %r>" if found.tags else ""
        self.command = found.command(ranks, [*python_command(), *program], tag)
        self.environment, said = job_environment(ranks, self.id)
        if timeout is not None:                                  # should this process be gone by then
            self.environment["MPIEXEC_TIMEOUT"] = str(int(timeout) + 5)
        standard = standard_sinks()
        self._out, self._err = out or standard[0], err or standard[1]
        self._output, self._tag = JobOutput(), tag
        self._process: subprocess.Popen | None = None
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._started = threading.Event()
        self._refused: OSError | None = None
        self._stopped: tuple[int, str] | None = None             # exit code and the words for it
        for line in [f"minitp: running {shlex.join(self.command)}"] * verbose + [f"minitp: {said}"] * bool(said):
            self._say(line)

    def _say(self, text: str) -> None:
        self._err((text + "\n").encode())

    def start(self) -> None:
        """Start the job and return. OSError where mpiexec can't be run."""
        self._keeper.start()
        self._started.wait()
        if self._refused is not None:
            raise self._refused

    def _keep(self) -> None:
        """Start mpiexec and wait for its end. A thread of its own, for to Linux the thread that forks is the parent
        with which mpiexec ends; a notebook's or an app's own threads come and go."""
        try:
            self._process = subprocess.Popen(self.command, env=self.environment, stdin=_stdin(), stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE, **_apart())
        except OSError as error:
            self._refused = error
            return
        finally:
            self._started.set()
        notices = Notices(self._err, self._output) if self._kind == "openmpi" else None
        streams = ((self._process.stdout, self._out), (self._process.stderr, notices or self._err))
        readers = [threading.Thread(target=self._read, args=(pipe, Demultiplexer(write, self._output, self._tag)),
                                    daemon=True) for pipe, write in streams]
        if self._process.stdin is not None:
            threading.Thread(target=_pass_terminal_on, args=(self._process.stdin,), daemon=True).start()
        for reader in readers:
            reader.start()
        if self._process.wait():
            self._kill_ranks()
        for reader in readers:
            reader.join(1.0)
        if notices is not None:
            notices.close()

    def stop(self, code: int = 128 + signal.SIGTERM, words: str = "minitp: stopped") -> None:
        """Let wait() end the job and return `code`, within seconds. From any thread or a signal handler."""
        if self._stopped is None:
            self._stopped = code, words

    def wait(self) -> int:
        """Until no process of the job is left; its exit code. What it failed of has been said once."""
        process = self._process
        if process is None:
            raise RuntimeError("wait() needs a job that start() has started")
        end = float("inf") if self.timeout is None else time.monotonic() + self.timeout
        kill_at = float("inf")
        while self._keeper.is_alive():
            self._keeper.join(0.05)
            if time.monotonic() > end:
                self.stop(OUT_OF_TIME, f"minitp: error: the run has taken longer than its {self.timeout:g} s")
            if self._stopped is not None and kill_at == float("inf"):
                process.terminate()
                kill_at = time.monotonic() + GRACE
            if time.monotonic() > kill_at:
                process.kill()
        return self._conclude(process.returncode)

    def _read(self, pipe, demultiplexer: Demultiplexer) -> None:
        """Pass a stream on to its end; where nobody takes it any more (`| head`), stop the job and go on reading."""
        try:
            while data := os.read(pipe.fileno(), 1 << 16):
                demultiplexer.feed(data)
            demultiplexer.close()
        except OSError:
            self.stop(128 + 13, "")                              # as the shell calls an end by SIGPIPE
            while os.read(pipe.fileno(), 1 << 16):
                pass
        finally:
            pipe.close()

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

    def _kill_ranks(self) -> None:
        """End the ranks that a killed mpiexec may have left: they are known by the job's name in their environment."""
        for pid in self._output.pids.values():
            with contextlib.suppress(OSError):
                if f"{JOB_VARIABLE}={self.id}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)


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


def _stdin() -> int | None:
    """A pipe where a terminal is to be passed on; the file or pipe this process has; nothing.

    mpiexec is a process group of its own: reading the terminal itself would suspend it.
    """
    try:
        if not os.isatty(0):
            os.fstat(0)
            return None
        return subprocess.PIPE if os.tcgetpgrp(0) == os.getpgrp() else subprocess.DEVNULL
    except (OSError, AttributeError):
        return subprocess.DEVNULL


def _pass_terminal_on(pipe) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 4096):
            pipe.write(data)
            pipe.flush()
        pipe.close()


def _apart() -> dict[str, Any]:
    """How mpiexec is forked: a process group of its own, so that Ctrl-C reaches this process alone."""
    if os.name != "posix":
        return {}
    return {"process_group": 0, "preexec_fn": _end_with_parent()}


def _end_with_parent() -> Callable[[], None] | None:
    """For the child, between fork and exec: SIGTERM should its parent die, be it by kill -9. Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent, die = ctypes.CDLL(None).prctl, os.getpid(), 1          # PR_SET_PDEATHSIG

    def end_with_parent() -> None:
        prctl(die, signal.SIGTERM)
        if os.getppid() != parent:                                         # it died before the line above
            os.kill(os.getpid(), signal.SIGTERM)
    return end_with_parent
