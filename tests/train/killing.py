"""One launch of `minitp train` that is to be killed: its processes, the moment, and what must hold afterwards."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

MARK = "MINITP_KILL_POINT"
LONGEST, LINGER = 300.0, 40.0          # seconds for a launch; seconds in which all processes of a killed run must end
CHECKPOINT = re.compile(r"step-(\d{8,})")


class PointFailedError(AssertionError):
    """A run that was killed did not go on as if it hadn't been; the run's folder is kept."""


@dataclass
class Launch:
    """One start of `minitp train` in a run's folder, and whatever processes it started."""
    folder: Path
    world: str
    ranks: int
    cache: Path
    mark: str = field(default_factory=lambda: os.urandom(8).hex())

    def __post_init__(self):
        self.resumes = (self.folder / "train.toml").exists()
        self.expected = newest(self.folder)
        self.starts = sum(row["kind"] in ("start", "resume") for row in log_of(self.folder))
        self.left = partials(self.folder)
        self.told = self.folder.with_suffix(f".{self.mark}.output")
        command = [sys.executable, "-m", "minitp", "train", "--out", str(self.folder), "--ranks", str(self.ranks),
                   "--world", self.world, "--lines"]
        command += ["--resume"] if self.resumes else ["--config", str(self.cache.parent / "settings.toml")]
        with open(self.told, "wb") as told:
            self.process = subprocess.Popen(
                command, stdout=told, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | {
                    MARK: self.mark, "MINITP_CACHE": str(self.cache), "OPENBLAS_NUM_THREADS": "1",
                    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"})
        self.begin = time.monotonic()

    def ended(self) -> bool:
        if time.monotonic() - self.begin > LONGEST:
            raise PointFailedError(f"{self.folder}: still running after {LONGEST:g} s\n{self.output()}")
        return self.process.poll() is not None

    def at_step(self) -> int:
        """How many steps this launch has brought the run to; 0 until it has begun (the log is that of the one before).
        """
        rows = log_of(self.folder)
        begun = sum(row["kind"] in ("start", "resume") for row in rows) > self.starts
        return max((row["step"] for row in rows if row["kind"] == "step"), default=0) if begun else 0

    def writing(self) -> set[str]:
        """The checkpoints that this launch has begun and not finished."""
        return partials(self.folder) - self.left

    def output(self) -> str:
        return self.told.read_text(errors="replace")

    def processes(self) -> list[tuple[int, str]]:
        """(process id, what it is: launcher, mpiexec, proxy or rank) of all that this launch started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        words = (entry / "cmdline").read_bytes()
                        kind = ("launcher" if int(entry.name) == self.process.pid else "mpiexec" if b"mpiexec" in words
                                else "proxy" if b"hydra" in words else "rank")
                        found.append((int(entry.name), kind))
                except OSError:
                    continue                               # it has just ended
        return found

    def kill(self, rng: Random) -> tuple[str, float]:
        """Kill one of its processes; returns which kind, and the seconds until all the others had ended too."""
        kind, victims = "launcher", [self.process.pid]
        if self.world == "mpi":
            running = self.processes()
            kind = rng.choice(sorted({kind for _, kind in running} - {"proxy"}) or ["launcher"])
            victims = [pid for pid, of in running if of == kind] or victims
        killed = time.monotonic()
        try:
            os.kill(rng.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            kind = "none"                                  # it ended by itself in that very moment
        while left := self._running():
            if time.monotonic() - killed > LINGER:
                for pid, _ in left:
                    os.kill(pid, signal.SIGKILL)
                raise PointFailedError(f"{self.folder}: {left} outlived the kill of the {kind} by {LINGER:g} s")
            time.sleep(0.01)
        return kind, time.monotonic() - killed

    def _running(self) -> list[tuple[int, str]]:
        self.process.poll()                                # a zombie is gone once somebody has asked for it
        return self.processes()


def newest(folder: Path) -> int:
    """The step of the newest checkpoint that has its name; 0 where there is none."""
    steps = [int(match[1]) for path in folder.glob("step-*") if (match := CHECKPOINT.fullmatch(path.name))]
    return max(steps, default=0)


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log."""
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def partials(folder: Path) -> set[str]:
    """Checkpoints that are being written, or were when their writer was killed."""
    return {path.name for path in folder.glob(".step-*.partial")}


# --- when to kill -----------------------------------------------------------------------------------------------------

def moment(launch: Launch, kind: str, rng: Random, startup: float) -> bool:
    """Wait for the moment to kill `launch`; False where it has ended before that."""
    if kind == "start":
        until = rng.uniform(0.0, startup)
        while time.monotonic() - launch.begin < until and not launch.ended():
            time.sleep(0.005)
    elif kind == "step":
        wanted = launch.expected + rng.randint(1, 5)
        while not launch.ended() and launch.at_step() < wanted:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.03))
    else:
        seen, count = set[str](), rng.randint(1, 2)
        while not launch.ended() and len(seen) < count:
            seen |= launch.writing()
            time.sleep(0.0005)
        time.sleep(rng.choice((0.0, rng.uniform(0.0, 0.02), rng.uniform(0.0, 0.1))))
    return not launch.ended()


# --- what must hold ---------------------------------------------------------------------------------------------------

def check(launch: Launch, losses: dict[int, float], exact: bool) -> int:
    """What the log says after a launch: where it went on, and all losses. Returns how many of them it added."""
    rows = log_of(launch.folder)
    starts = [row["step"] for row in rows if row["kind"] in ("start", "resume")]
    if len(starts) > launch.starts and starts[-1] != launch.expected:
        raise PointFailedError(f"{launch.folder}: went on from {starts[-1]}, not from checkpoint {launch.expected}")
    if "damaged" in launch.output():
        raise PointFailedError(f"{launch.folder}: a damaged checkpoint\n{launch.output()}")
    if newest(launch.folder) < launch.expected:
        raise PointFailedError(f"{launch.folder}: checkpoint {launch.expected} was lost")
    steps = [row for row in rows if row["kind"] == "step"]
    for row in steps:
        true = losses[row["step"]]
        if row["loss"] != true and (exact or abs(row["loss"] - true) > 1e-10 * abs(true)):
            raise PointFailedError(f"{launch.folder}: step {row['step']} has loss {row['loss']!r}, not {true!r}")
    return sum(row["step"] > launch.expected for row in steps) if len(starts) > launch.starts else 0


def check_end(launch: Launch, losses: dict[int, float]) -> None:
    """A run that was left alone in the end: it ended well, and every step is in its log, once and in order."""
    if launch.process.returncode != 0:
        raise PointFailedError(f"{launch.folder}: exit code {launch.process.returncode}\n{launch.output()}")
    steps = [row["step"] for row in log_of(launch.folder) if row["kind"] == "step"]
    if steps != sorted(losses):
        raise PointFailedError(f"{launch.folder}: the steps of the log are {steps}")
    if litter := [path.name for path in launch.folder.iterdir() if path.name.endswith(".partial")]:
        raise PointFailedError(f"{launch.folder}: left behind: {litter}")
