"""One run at a time, started for somebody who may go away: kept, watched, stopped, never left behind.

    run = manager().start(RunRequest(prompt="The capital of France is", ranks=3), owner="…")
    run.state, run.text, run.sync_points …       any thread may look
    manager().stop()
"""
import atexit
import json
import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from minitp.errors import ConfigError, LaunchError
from minitp.launcher.child import ChildJob
from minitp.launcher.job import MPIJob
from minitp.launcher.mpiexec import python_command
from minitp.launcher.rescue import WRITE_SECONDS
from minitp.models import CATALOG
from minitp.runs import runs_folder

MOST_RANKS, MOST_TOKENS, LONGEST_PROMPT = 8, 400, 20_000
LONGEST_RUN = 86_400                           # seconds
_MARGIN = 10.0                                 # seconds for a run that is out of time to say where it was, and end
_LOG, _LINE = 20_000, 1 << 22                  # characters of log that are kept; bytes after which a line is no line

State = Literal["loading", "running", "writing", "done", "failed", "stopped"]


@dataclass(frozen=True)
class RunRequest:
    """What `minitp generate` is to be asked, in its own words. `seconds`: until it is stopped."""
    prompt: str
    model: str = "tiny"
    ranks: int = 2
    world: Literal["mpi", "threads"] = "mpi"
    max_tokens: int = 16
    temperature: float = 0.0
    seed: int = 0
    values: bool = True
    embedding: Literal["vocab", "hidden"] = "vocab"
    load: Literal["slice", "scatter"] = "slice"
    broken: str = ""                           # pattern of the sites whose all-reduce is left out
    seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.model not in CATALOG:
            raise ConfigError(f"no model {self.model[:60]!r} here; there are {', '.join(CATALOG)}")
        for name, value, most in (("ranks", self.ranks, MOST_RANKS), ("new tokens", self.max_tokens, MOST_TOKENS)):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} must be from 1 to {most}, not {value}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0 and self.seed >= 0):
            raise ConfigError(f"temperature and seed must be 0 or more, not {self.temperature} and {self.seed}")
        if not 0 < self.seconds <= LONGEST_RUN:
            raise ConfigError(f"a run may take up to {LONGEST_RUN:,} seconds, not {self.seconds}")
        if not self.prompt or len(self.prompt) > LONGEST_PROMPT:
            raise ConfigError(f"a prompt has 1 to {LONGEST_PROMPT:,} characters, this one {len(self.prompt):,}")

    def prompt_text(self) -> bytes:
        """What the prompt's file holds: `--file` takes one line's end off."""
        return (self.prompt + "\n").encode(errors="replace")

    def program(self, prompt_file: Path, trace_file: Path) -> list[str]:
        """The command line, without the interpreter. The prompt is in a file: as a word it might be an option."""
        words = ["-m", "minitp", "generate", "--json-lines", f"--model={self.model}", f"--ranks={self.ranks}",
                 f"--world={self.world}", f"--max-tokens={self.max_tokens}", f"--temperature={self.temperature}",
                 f"--seed={self.seed}", f"--embedding={self.embedding}", f"--load={self.load}",
                 f"--timeout={self.seconds}", f"--file={prompt_file}", f"--trace={trace_file}"]
        return words + ["--values"] * self.values + [f"--break={self.broken}"] * bool(self.broken)


class Run:
    """A run and how far it is. Written to by its own threads alone.

    sync_points, payload   since loading, in all; bytes
    log                    the end of what the program said besides
    trace                  the name of the file in the runs folder, once it is there
    """

    def __init__(self, request: RunRequest, owner: str):
        self.request, self.owner = request, owner
        self.state: State = "loading"
        self.text, self.log = "", ""
        self.tokens = self.sync_points = self.payload = self.prompt_tokens = 0
        self.code: int | None = None
        self.trace: str | None = None
        self.began, self._clock = datetime.now(), time.monotonic()
        self._ended: float | None = None
        self._unread = b""

    @property
    def going_on(self) -> bool:
        return self.state in ("loading", "running", "writing")

    @property
    def elapsed(self) -> float:
        """Seconds since the start, or from start to end."""
        return (time.monotonic() if self._ended is None else self._ended) - self._clock

    def feed(self, data: bytes) -> None:
        """Of the program's stdout: JSON lines, in pieces."""
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > _LINE:
            lines, self._unread = [*lines, self._unread], b""
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if isinstance(row, dict):
                self._take(row)
            else:
                self.say(line + b"\n")

    def say(self, data: bytes) -> None:
        self.log = (self.log + data.decode(errors="replace"))[-_LOG:]

    def end(self, state: State, code: int) -> None:
        self._ended, self.code, self.state = time.monotonic(), code, state

    def _take(self, row: dict[str, Any]) -> None:
        if "loaded" in row:
            self.prompt_tokens, self.state = row["loaded"]["prompt_tokens"][0], "running"
        elif "step" in row:
            self.tokens += 1
            self.text += row["texts"][0]
            self.sync_points, self.payload = row["sync_points"], row["payload"]
        elif "generated" in row:
            self.state = "writing"
        elif "text" in row:
            self.text = row["text"]


class RunManager:
    """The runs of this process: at most one goes on. `folder` says where traces go, asked at each start."""

    def __init__(self, folder: Callable[[], Path] = runs_folder):
        self._folder = folder
        self._lock = threading.Lock()
        self._job: ChildJob | None = None
        self._thread: threading.Thread | None = None
        self.run: Run | None = None            # the latest one

    def start(self, request: RunRequest, owner: str = "") -> Run:
        """LaunchError while another run goes on, or where this one can't be started."""
        with self._lock:
            if self.run is not None and self.run.going_on:
                raise LaunchError("a run is going on: one at a time, else each would slow the other; watch it, or stop "
                                  "it")
            run, work = Run(request, owner), self._work_folder()
            try:
                prompt, trace = work / "prompt.txt", work / "trace.json.gz"
                prompt.write_bytes(request.prompt_text())
                job = _job(request, request.program(prompt, trace), run)
                job.start()
            except OSError as error:
                shutil.rmtree(work, ignore_errors=True)
                raise LaunchError(f"the run can't be started: {error}") from error
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise
            self.run, self._job = run, job
            self._thread = threading.Thread(target=self._watch, args=(run, job, work), name="run", daemon=True)
            self._thread.start()
            return run

    def stop(self) -> None:
        """End the run that goes on, if any: within seconds, no process of it is left."""
        job = self._job
        if job is not None and self.run is not None and self.run.going_on:
            job.stop()

    def wait(self, seconds: float | None = None) -> bool:
        """Until nothing runs; whether that came within `seconds`."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def close(self) -> None:
        """Before this process ends."""
        self.stop()
        self.wait(10.0)

    def _watch(self, run: Run, job: ChildJob, work: Path) -> None:
        code = 1
        try:
            code, trace = job.wait(), work / "trace.json.gz"     # 0: it was through before a stop could reach it
            if code == 0 or trace.exists():                      # a run that fails writes what there is
                run.trace = _keep(trace, run, "" if code == 0 else f"-{_end(job, code)}")
        except OSError as error:
            code = code or 1
            run.say(f"minitp: error: the trace can't be kept: {error}\n".encode())
        finally:
            shutil.rmtree(work, ignore_errors=True)
            run.end(_end(job, code), code)

    def _work_folder(self) -> Path:
        """A hidden folder in the runs folder: from there a trace is moved in one step. Those of dead processes go."""
        try:
            folder = self._folder()
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob(".job-*-*"):
                if not _is_alive(old.name.split("-")[1]):
                    shutil.rmtree(old, ignore_errors=True)
            work = folder / f".job-{os.getpid()}-{secrets.token_hex(4)}"
            work.mkdir(mode=0o700)
        except OSError as error:
            raise LaunchError(f"the runs folder can't be written to: {error}. MINITP_RUNS, or `minitp app --runs`, "
                              "names another") from error
        return work


def _job(request: RunRequest, program: list[str], run: Run) -> ChildJob:
    seconds = request.seconds + _MARGIN
    if request.world == "mpi":                                   # which gives one that keeps its trace more time itself
        return MPIJob(program, request.ranks, timeout=seconds, out=run.feed, err=run.say, stdin=False)
    return ChildJob([*python_command(), *program], os.environ, timeout=seconds + WRITE_SECONDS, out=run.feed,
                    err=run.say, stdin=False)


def _end(job: ChildJob, code: int) -> State:
    return "done" if code == 0 else "stopped" if job.was_stopped else "failed"


def _keep(trace: Path, run: Run, mark: str) -> str:
    """Move the trace of a run that has ended to the runs folder; its name there, with `mark` in it."""
    stem = f"{run.began:%Y-%m-%d-%H%M%S}-{run.request.model}-{run.request.ranks}{mark}"
    folder = trace.parent.parent
    names = (f"{stem}{end}.json.gz" for end in ("", *(f"-{n}" for n in range(2, 1000))))
    name = next(name for name in names if not (folder / name).exists())
    os.replace(trace, folder / name)
    return name


def _is_alive(pid: str) -> bool:
    if not pid.isdigit():
        return False
    with suppress(PermissionError):
        try:
            os.kill(int(pid), 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True


@cache
def manager() -> RunManager:
    """The one of this process; what it runs ends with the process."""
    made = RunManager()
    atexit.register(made.close)
    return made
