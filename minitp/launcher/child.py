"""A child process that is watched, can be stopped from anywhere, and never outlives this process."""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minitp.launcher.output import Write, standard_sinks
from minitp.launcher.telling import OUT_OF_TIME

GRACE = 2.0                         # seconds that a child has to end after SIGTERM; then it is killed


class ChildJob:
    """`command` as a child of this process, which ends with it, be that by kill -9.

      timeout   seconds until it is stopped
      out, err  take its output as bytes, from threads; this process's stdout and stderr by default
      stdin     whether it may read what this process may
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, timeout: float | None = None,
                 out: Write | None = None, err: Write | None = None, stdin: bool = True):
        self.command, self.environment, self.timeout = list(command), dict(environment), timeout
        standard = standard_sinks()
        self._out, self._err, self._stdin = out or standard[0], err or standard[1], stdin
        self._process: subprocess.Popen | None = None
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._started = threading.Event()
        self._refused: OSError | None = None
        self._stopped: tuple[int, str] | None = None             # exit code and the words for it

    def start(self) -> None:
        """Start the child and return. OSError where it can't be run."""
        self._keeper.start()
        self._started.wait()
        if self._refused is not None:
            raise self._refused

    def stop(self, code: int = 128 + signal.SIGTERM, words: str = "minitp: stopped") -> None:
        """Let wait() end the job and return `code`, within seconds. From any thread or a signal handler."""
        if self._stopped is None:
            self._stopped = code, words

    @property
    def was_stopped(self) -> bool:
        return self._stopped is not None

    def wait(self) -> int:
        """Until no process of the job is left; its exit code. What it failed of has been said once."""
        process = self._process
        if process is None:
            raise RuntimeError("wait() needs a job that start() has started")
        end = float("inf") if self.timeout is None else time.monotonic() + self.timeout
        kill_at = float("inf")
        while self._keeper.is_alive():
            self._keeper.join(0.05)
            if time.monotonic() > end + self._more_time():
                self.stop(OUT_OF_TIME, f"minitp: error: the run has taken longer than its {self.timeout:g} s")
            if self._stopped is not None and kill_at == float("inf"):
                process.terminate()
                kill_at = time.monotonic() + GRACE
            if time.monotonic() > kill_at:
                process.kill()
        return self._conclude(process.returncode)

    # --- what a kind of job does its own way ----------------------------------------------------------------------

    def _readers(self) -> list[tuple[Callable[[bytes], None], Callable[[], None]]]:
        """For stdout and stderr: what takes their bytes, and what is called at their end."""
        return [(self._out, _nothing), (self._err, _nothing)]

    def _more_time(self) -> float:
        """Seconds beyond its time that the child has by now shown a need of."""
        return 0.0

    def _failed(self) -> None:
        """The child has ended with another code than 0; its output may not be read to the end yet."""

    def _conclude(self, code: int) -> int:
        """The exit code, and the words for it where the child itself has had none."""
        words = ""
        if self._stopped is not None:
            code, words = self._stopped
        elif code < 0:
            code, words = 128 - code, f"minitp: error: the process was ended by signal {-code}"
        if words:
            self._say(words)
        return code

    # --- the same for all -----------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._err((text + "\n").encode())

    def _keep(self) -> None:
        """Start the child and wait for its end. A thread of its own, for to Linux the thread that forks is the parent
        with which the child ends; a notebook's or an app's own threads come and go."""
        try:
            stdin = _stdin() if self._stdin else subprocess.DEVNULL
            self._process = subprocess.Popen(self.command, env=self.environment, stdin=stdin, stdout=subprocess.PIPE,
                                             stderr=subprocess.PIPE, **apart())
        except OSError as error:
            self._refused = error
            return
        finally:
            self._started.set()
        readers = [threading.Thread(target=self._read, args=(pipe, *reader), daemon=True)
                   for pipe, reader in zip((self._process.stdout, self._process.stderr), self._readers(), strict=True)]
        if self._process.stdin is not None:
            threading.Thread(target=_pass_terminal_on, args=(self._process.stdin,), daemon=True).start()
        for thread in readers:
            thread.start()
        if self._process.wait():
            self._failed()
        for thread in readers:
            thread.join(1.0)

    def _read(self, pipe: Any, feed: Callable[[bytes], None], close: Callable[[], None]) -> None:
        """Pass a stream on to its end; where nobody takes it any more (`| head`), stop the job and go on reading."""
        try:
            while data := os.read(pipe.fileno(), 1 << 16):
                feed(data)
            close()
        except OSError:
            self.stop(128 + 13, "")                              # as the shell calls an end by SIGPIPE
            while os.read(pipe.fileno(), 1 << 16):
                pass
        finally:
            pipe.close()


def _nothing() -> None:
    pass


def _stdin() -> int | None:
    """A pipe where a terminal is to be passed on; the file or pipe this process has; nothing.

    The child is a process group of its own: reading the terminal itself would suspend it.
    """
    try:
        if not os.isatty(0):
            os.fstat(0)
            return None
        return subprocess.PIPE if os.tcgetpgrp(0) == os.getpgrp() else subprocess.DEVNULL
    except (OSError, AttributeError):
        return subprocess.DEVNULL


def _pass_terminal_on(pipe: Any) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 4096):
            pipe.write(data)
            pipe.flush()
        pipe.close()


def apart() -> dict[str, Any]:
    """How a child is forked: a process group of its own, so that Ctrl-C reaches this process alone."""
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
