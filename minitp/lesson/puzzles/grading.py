"""A file's puzzles, graded in a child process that may hang, crash, exit or print as it likes.

Each cell and each attempt is a step with a limit. A step that doesn't end, or with which the process ends, is noted and
left out, and a new child does the rest: so the loss is that step's alone.
"""
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from minitp.errors import LaunchError
from minitp.launcher.child import apart
from minitp.launcher.threads import GRACE
from minitp.lesson.puzzles import puzzles
from minitp.lesson.puzzles.cells import Cell
from minitp.lesson.puzzles.judge import FULL
from minitp.trace.wording import duration

STATUSES = ("missing", "blank", "failed", "wrong", "over", "solved")         # the worst of several seeds counts
_START = 60.0                                    # seconds to start Python and import minitp
_MARGIN = 3.0                                    # seconds beyond a step's time in which the child may end it itself
_MOST_LINE = 1 << 20                             # bytes of a line on the channel
_PACKAGE = Path(__file__).parents[3]             # where `minitp` is imported from


@dataclass
class Grade:
    """errors: of cells, by number; verdicts: of a puzzle, by name, one for each seed, as student.py tells them."""
    errors: dict[int, str] = field(default_factory=dict)
    verdicts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def worst(self, name: str) -> dict[str, Any]:
        """A solution must hold for every seed: the one with the fewest points counts."""
        return min(self.verdicts[name], key=lambda verdict: (verdict["points"], STATUSES.index(verdict["status"])))

    @property
    def points(self) -> int:
        return sum(self.worst(name)["points"] for name in self.verdicts)


def graded(file: Path, cells: Sequence[Cell], seeds: Sequence[int], timeout: float) -> Grade:
    """timeout: seconds for each cell, and for each attempt at a puzzle."""
    made, skip, still = Grade(), list[int](), list(puzzles())
    while still:
        for name in still:
            made.verdicts[name] = []
        work = {"file": file.name, "folder": str(file.parent.resolve()), "cells": [list(cell) for cell in cells],
                "skip": skip, "puzzles": still, "seeds": list(seeds), "timeout": timeout}
        stopped = _Child(work, made).run()
        if stopped is None:
            break
        step, why = stopped
        if step["step"] == "cell":
            skip.append(step["number"])
            made.errors[step["number"]] = why
        elif step["step"] == "puzzle":
            still.remove(step["name"])
            made.verdicts[step["name"]].append({"seed": step["seed"], "status": "failed", "points": 0, "words": [why],
                                                "spent": None})
        still = [name for name in still if len(made.verdicts[name]) < len(seeds)]
    return made


class _Child:
    """One process that does `work` and notes in `made` what it finds."""

    def __init__(self, work: dict[str, Any], made: Grade):
        self.work, self.made, self.token = work, made, secrets.token_hex(16)
        self.step: dict[str, Any] | None = None
        self.until = time.monotonic() + _START

    def run(self) -> tuple[dict[str, Any], str] | None:
        """The step it didn't survive, and why; None where it came to its end."""
        reading, writing = os.pipe()
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen([sys.executable, "-m", "minitp.lesson.puzzles.student", str(writing)],
                                       cwd=folder, env=_environment(), stdin=subprocess.PIPE,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[writing],
                                       **apart())
            os.close(writing)
            try:
                self._hand_over(process)
                return self._follow(process, reading)
            finally:
                os.close(reading)
                with suppress(OSError):          # its process group: what the cells started ends, too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _hand_over(self, process: subprocess.Popen) -> None:
        with suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(json.dumps(self.work | {"token": self.token}).encode())
            process.stdin.close()

    def _follow(self, process: subprocess.Popen, reading: int) -> tuple[dict[str, Any], str] | None:
        for line in self._lines(reading):
            found = _parsed(line, self.token)
            if found is None:
                continue
            if found["step"] == "end":
                return None
            if found["step"] == "again":
                return found, ""
            self.note(found)
        overdue = time.monotonic() > self.until
        if self.step is None:
            raise LaunchError("the process that is to run the cells didn't start; `python -c 'import minitp.lesson'` "
                              "tells why")
        if overdue:
            return self.step, f"stopped: not ended after {duration(self._limit() * 1e9)}"
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        how = "" if process.returncode is None else f" (code {process.returncode})"
        return self.step, f"the process ended in the middle of it{how}"

    def note(self, found: dict[str, Any]) -> None:
        """A step that begins, or what came of it. What isn't of this work is nobody's finding."""
        if found["step"] == "cell" and found.get("number") in range(len(self.work["cells"])):
            if "error" in found:
                self.made.errors[found["number"]] = str(found["error"])
        elif found["step"] == "puzzle" and found.get("name") in self.work["puzzles"] and _is_verdict_or_begin(found):
            if "status" in found:
                self.made.verdicts[found["name"]].append(
                    {key: found.get(key) for key in ("seed", "status", "points", "words", "spent")})
        else:
            return
        self.step = found
        self.until = time.monotonic() + self._limit()

    def _limit(self) -> float:
        """Seconds that the step may take: an attempt runs twice, and its ranks have time to be stopped."""
        timeout = self.work["timeout"]
        assert self.step is not None
        return _MARGIN + (timeout if self.step["step"] == "cell" else 2 * (timeout + GRACE))

    def _lines(self, reading: int) -> Iterator[bytes]:
        """What the child writes, line by line, until it ends or a step is overdue."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(reading, selectors.EVENT_READ)
            while selector.select(max(self.until - time.monotonic(), 0)):
                data = os.read(reading, 1 << 16)
                if not data or time.monotonic() > self.until:
                    return
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-_MOST_LINE:]
                yield from lines


def _environment() -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return os.environ | {"OPENBLAS_NUM_THREADS": "1",
                         "PYTHONPATH": os.pathsep.join([str(_PACKAGE), *([before] if before else [])])}


def _parsed(line: bytes, token: str) -> dict[str, Any] | None:
    """A finding; None for what the cells wrote."""
    if token.encode() not in line:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.get("token") == token and isinstance(found.get("step"), str) \
        else None


def _is_verdict_or_begin(found: dict[str, Any]) -> bool:
    if not isinstance(found.get("seed"), int):
        return False
    return "status" not in found or (found["status"] in STATUSES and found.get("points") in range(FULL + 1)
                                     and isinstance(found.get("words"), list))
