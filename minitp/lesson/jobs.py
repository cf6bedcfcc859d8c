"""A script of a lesson's own as real processes: what they printed, and the exit code they ended with.

    job = start(script, "minitp", "run", "-n", "2", "trouble.py")     # goes on while the lesson does
    job.tell()                                                        # waits for its end

    job = start_twin("02_two_cuts.py", "minitp", "run", "-n", "4", "02_two_cuts.py")     # the script beside a notebook

Under mpirun nothing is started: a job of ranks inside a rank of another is no place to learn from.
"""
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import minitp
from minitp.environment import plain_environment
from minitp.errors import LaunchError
from minitp.launcher.child import GRACE, apart
from minitp.launcher.mpiexec import find_mpiexec, no_mpi
from minitp.lesson.stage import in_notebook, mpi_ranks
from minitp.trace.wording import count

SECONDS = 60.0                       # after which a job is ended, whatever it does
_NAMES = {"openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "mpich": ("PMI_RANK", "PMI_SIZE")}
_NOTICE = re.compile(r"minitp: \d+ ranks on \d+ cores?: .*\n")
_FRAME = re.compile(r'^(?P<rank>rank \d+: )?  File "(?P<file>[^"]+)".*\n(?:(?P=rank)?    .*\n)*', re.M)


@dataclass(frozen=True)
class Ended:
    """How a job ended, and what its processes printed, without minitp's own lines of a traceback."""
    code: int
    out: str
    err: str


class Job:
    """Processes that were started, and the folder that they run in. None of them: `left_out` says why."""

    def __init__(self, process: "subprocess.Popen[str] | None", words: str, folder: "TemporaryDirectory[str]",
                 left_out: str = ""):
        self._process, self._folder, self.words, self.left_out = process, folder, words, left_out
        self._ended: Ended | None = None

    def ended(self) -> Ended | None:
        """Wait for it. None where nothing was started."""
        if self._process is not None and self._ended is None:
            try:
                out, err = self._process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                out, err = _put_an_end_to(self._process)
            except BaseException:                                # Ctrl-C reaches this process alone
                _put_an_end_to(self._process)
                raise
            self._ended = Ended(self._process.returncode, out, own_frames(_NOTICE.sub("", err)))
            self._folder.cleanup()
        return self._ended

    def tell(self, first: int | None = None) -> None:
        """Print the command, what it printed (of stdout only the `first` lines; None: all), and the exit code."""
        print(f"$ {self.words}")
        ended = self.ended()
        if ended is None:
            print(f"(left out: {self.left_out})")
            return
        lines = ended.out.splitlines(keepends=True)
        shown = lines[:first]
        more = f"… and {count(len(lines) - len(shown), 'more line')}\n" if len(shown) < len(lines) else ""
        print(f"{''.join(shown)}{more}{ended.err}[exit code {ended.code}]")


def _put_an_end_to(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it printed on stdout and stderr; nothing, where something that has left its group keeps them open."""
    process.terminate()                                          # not killed: `minitp run` takes its ranks along
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=2 * GRACE)            # it has children to end, for GRACE
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=GRACE)
    process.wait()
    return "", ""


def start(script: str, *words: str, environment: Mapping[str, str] | None = None, needs_mpi: bool = False) -> Job:
    """Run `words` (minitp … or python …) in a new folder that has `script` as trouble.py; don't wait for it.

    `environment` is added to this process's. No launcher's variables are inherited. needs_mpi: where there is no MPI
    the job is left out.
    """
    return _started({"trouble.py": script}, words, environment or {}, _left_out(needs_mpi))


def start_twin(file: str, *words: str) -> Job:
    """From a notebook, run `words` in a new folder that has a copy of the script `file`, which lies beside it.

    Left out without an MPI, or without the file; and in the script itself, which would start itself forever.
    """
    if not in_notebook():
        return _started({}, words, {}, f"this is {file} itself, which its notebook starts here")
    if not Path(file).is_file():
        return _started({}, words, {}, f"there is no {file} beside this notebook; `minitp lessons` brings both")
    return _started({file: Path(file).read_text("utf-8")}, words, {}, _left_out(needs_mpi=True))


def _started(files: Mapping[str, str], words: tuple[str, ...], environment: Mapping[str, str], left_out: str) -> Job:
    folder, process = TemporaryDirectory(prefix="minitp-lesson-"), None
    if not left_out:
        for name, text in files.items():
            Path(folder.name, name).write_text(text, encoding="utf-8")
        program = ["-m", "minitp", *words[1:]] if words[0] == "minitp" else list(words[1:])
        process = subprocess.Popen([sys.executable, *program], cwd=folder.name, env=_environment(environment),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   encoding="utf-8", errors="replace", **apart())
    set_here = "".join(f"{name}={value} " for name, value in environment.items())
    return Job(process, set_here + " ".join(words), folder, left_out)


def _left_out(needs_mpi: bool) -> str:
    """Why a job can't be started here; empty where it can."""
    if mpi_ranks() is not None:
        return "mpirun has started this script, and a rank starts no job of its own"
    if needs_mpi and (why := no_mpi()):
        return f"{why}; pip install 'minitp[mpi]' brings one. The notebook as it came shows what it prints"
    return ""


def foreign_launcher(rank: int, size: int) -> dict[str, str]:
    """What the mpirun of another MPI than mpi4py's tells the processes that it starts."""
    try:
        own = find_mpiexec().kind
    except LaunchError:
        own = "unknown"
    rank_name, size_name = _NAMES["mpich" if own == "openmpi" else "openmpi"]
    return {rank_name: str(rank), size_name: str(size)}


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    environment = plain_environment()
    root = str(Path(minitp.__file__).parents[1])                 # a source folder need not be installed
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{root}{os.pathsep}{before}" if before else root
    return environment | {"PYTHONIOENCODING": "utf-8"} | dict(more)


def own_frames(text: str) -> str:
    """Tracebacks with the reader's own frames: those of minitp and Python are left out."""
    def kept(frame: re.Match[str]) -> str:
        return "" if Path(frame["file"]).is_absolute() or frame["file"].startswith("<") else frame[0]
    return _FRAME.sub(kept, text)
