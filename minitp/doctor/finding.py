"""What a check returns, and the child process in which it tries what may hang or crash."""
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Literal

from minitp.environment import plain_environment

State = Literal["ok", "note", "warn", "bad"]


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    state  ok; note: worth knowing, nothing is wrong; warn: works, but not as it should; bad: ranks can't run
    mend   the command that mends it; for a note, the command that adds what is absent; "" where there is none
    """
    what: str
    state: State
    finding: str
    mend: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a child process said: the last JSON object it printed, why it failed ("" if it didn't), all its text."""
    data: dict[str, Any] | None
    error: str
    seconds: float = 0.0
    text: str = ""


def child(*command: str, seconds: float = 20.0, environment: dict[str, str] | None = None) -> Outcome:
    """Run a command in a process group of its own, which is ended when time is up: a broken MPI can hang or crash."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(command, env=environment or plain_environment(), stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        return Outcome(None, f"can't be started: {error.strerror}")
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return Outcome(None, f"no answer within {seconds:g} s", time.monotonic() - start)
    why = _why(process.returncode, output, errors)
    return Outcome(None if why else _last_object(output), why, time.monotonic() - start, output + errors)


def python(code: str, seconds: float = 20.0) -> Outcome:
    """Run `code`, which prints one JSON object, in this Python."""
    return child(sys.executable, "-P", "-c", code, seconds=seconds)


def _last_object(output: str) -> dict[str, Any] | None:
    for line in reversed(output.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def _why(code: int, output: str, errors: str) -> str:
    """The last line of what went wrong; "" where the process ended well."""
    if code == 0:
        return ""
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    lines = [line.strip() for line in (errors or output).splitlines() if line.strip()]
    return (lines[-1] if lines else f"it ended with exit code {code}")[:300]
