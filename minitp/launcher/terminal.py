"""Whether what this process prints is read on a terminal, which under an MPI launcher it can't tell by itself.

A rank writes into a pipe of its launcher, who passes it on. On Linux the launcher is found among the process's parents,
and with it where its own output goes; `mpirun … | tee log` is a pipe there too, and no terminal.
"""
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from minitp.environment import launcher_environment
from minitp.launcher.marks import JOB_VARIABLE

_LAUNCHERS = ("mpiexec", "mpirun", "hydra_", "pmi_proxy", "prte", "orte")
_MOST = 8                          # parents to look at


def terminal_columns() -> int | None:
    """How wide the terminal is on which this process's stdout is read; None where it isn't."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    if launcher_environment() is None:
        return None
    with suppress(OSError, ValueError):                     # not Linux, or another user's process: no terminal, then
        return _of_launcher()
    return None


def _of_launcher() -> int | None:
    pid, ours = os.getppid(), bool(os.environ.get(JOB_VARIABLE))
    for _ in range(_MOST):
        name, parent = _process(pid)
        launches = name.startswith(_LAUNCHERS)
        if not launches and not ours:                       # the shell, say: its own output is another matter
            return None
        output = os.readlink(f"/proc/{pid}/fd/1")
        if output.startswith(("/dev/pts/", "/dev/tty")):
            return _columns(output)
        if not launches:                                    # minitp itself, which has started the launcher
            return None
        pid = parent
    return None


def _process(pid: int) -> tuple[str, int]:
    """Its name, and the number of its parent."""
    text = Path(f"/proc/{pid}/stat").read_text()
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:]
    return name, int(rest.split()[1])


def _columns(device: str) -> int:
    terminal = os.open(device, os.O_RDONLY | os.O_NOCTTY)
    try:
        return os.get_terminal_size(terminal).columns
    finally:
        os.close(terminal)
