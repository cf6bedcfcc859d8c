"""A file's puzzles, graded in a child process that may hang, crash, exit or print as it likes.

Each cell and each attempt is a step with a limit. A step that doesn't end, or with which the process ends, is noted and
left out, and a new child does the rest: so the loss is that step's alone. What steps there are is known before, so of
what a child tells only that is taken whose turn it is. Otherwise its step failed, and its verdicts count for nothing.
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
from typing import Any, NamedTuple

from minitp.errors import LaunchError
from minitp.launcher.child import apart
from minitp.launcher.threads import GRACE
from minitp.lesson.puzzles import puzzles
from minitp.lesson.puzzles.cells import Cell
from minitp.lesson.puzzles.judge import FULL, MOST_RUNS
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
    made = Grade(errors={number: cell.left_out for number, cell in enumerate(cells) if cell.left_out})
    skip, still = list(made.errors), list(puzzles())
    while still:
        for name in still:
            made.verdicts[name] = []
        work = {"file": file.name, "folder": str(file.parent.resolve()), "skip": skip, "puzzles": still,
                "cells": [[cell.where, cell.source] for cell in cells], "seeds": list(seeds), "timeout": timeout}
        if (stopped := _Child(work, made).run()) is not None:
            if stopped.step["step"] == "cell":
                skip.append(stopped.step["number"])
                made.errors[stopped.step["number"]] = stopped.why
            if not stopped.honest:
                made.verdicts.update({name: [] for name in still})
            if stopped.step["step"] == "puzzle":
                still.remove(stopped.step["name"])
                _note_failed(made, stopped)
        still = [name for name in still if len(made.verdicts[name]) < len(seeds)]
    return made


class _Stopped(NamedTuple):
    """The step that a child didn't survive, and why. honest: nobody else has told in its name."""
    step: dict[str, Any]
    why: str
    honest: bool = True


class _Turn(NamedTuple):
    """What a child must tell next; ends: the outcome of that step comes with it. may_stop: or "again"."""
    says: dict[str, Any]
    ends: bool = False
    may_stop: bool = False


def _turns(work: dict[str, Any]) -> Iterator[_Turn]:
    """All that a child tells, in order. It may stop between two puzzles: one at least is done then."""
    for number in range(len(work["cells"])):
        if number not in work["skip"]:
            yield from (_Turn({"step": "cell", "number": number}, ends) for ends in (False, True))
    for done, name in enumerate(work["puzzles"]):
        for place, seed in enumerate(work["seeds"]):
            says = {"step": "puzzle", "name": name, "seed": seed}
            yield _Turn(says, may_stop=bool(done) and not place)
            yield _Turn(says, ends=True)
    yield _Turn({"step": "end"}, may_stop=bool(work["puzzles"]))


class _OutOfTurnError(Exception):
    """A line that the grading itself doesn't write, or not then."""


class _Child:
    """One process that does `work` and notes in `made` what it finds."""

    def __init__(self, work: dict[str, Any], made: Grade):
        self.work, self.made, self.token = work, made, secrets.token_hex(16)
        self.turns = _turns(work)
        self.step: dict[str, Any] | None = None                      # that has begun last
        self.until = time.monotonic() + _START

    def run(self) -> _Stopped | None:
        """None where it came to its end, or to where another must go on."""
        reading, writing = os.pipe()
        given, giving = os.pipe()
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            process = subprocess.Popen([sys.executable, "-m", "minitp.lesson.puzzles.student", str(writing)],
                                       cwd=folder, env=_environment() | {"TMPDIR": folder}, stdin=given,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[writing],
                                       **apart())
            os.close(writing)
            os.close(given)
            try:
                with suppress(BrokenPipeError), os.fdopen(giving, "wb") as pipe:
                    pipe.write(json.dumps(self.work | {"token": self.token}).encode())
                return self._follow(process, reading)
            finally:
                os.close(reading)
                with suppress(OSError):          # its process group: what the cells started ends, too
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _follow(self, process: subprocess.Popen, reading: int) -> _Stopped | None:
        try:
            for line in self._lines(reading):
                found = _parsed(line, self.token)
                if found is not None and self._is_last(found):
                    return None
        except _OutOfTurnError:
            return _Stopped(self._begun(), "stopped: in the name of the grading something was told that it doesn't "
                            "tell, or not then", honest=False)
        if time.monotonic() > self.until:
            return _Stopped(self._begun(), f"stopped: not ended after {duration(self._limit() * 1e9)}")
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        how = "" if process.returncode is None else f" (code {process.returncode})"
        return _Stopped(self._begun(), f"the process ended in the middle of it{how}")

    def _begun(self) -> dict[str, Any]:
        """The step that has begun last."""
        if self.step is None:
            raise LaunchError("the process that is to run the cells didn't start; `python -c 'import minitp.lesson'` "
                              "tells why")
        return self.step

    def _is_last(self, found: dict[str, Any]) -> bool:
        """Note what comes in its turn: a step that begins, or its outcome. _OutOfTurnError for anything else."""
        turn = next(self.turns)
        if found["step"] == "again" and turn.may_stop:
            return True
        if any(found.get(key) != value for key, value in turn.says.items()) or turn.ends != ("outcome" in found):
            raise _OutOfTurnError
        if found["step"] == "end":
            return True
        if not turn.ends:
            self.step = turn.says
            self.until = time.monotonic() + self._limit()
        elif found["step"] == "cell":
            _note_cell(self.made, turn.says["number"], found["outcome"])
        else:
            self.made.verdicts[turn.says["name"]].append(_verdict(turn.says["seed"], found["outcome"]))
        return False

    def _limit(self) -> float:
        """Seconds that the step may take: an attempt has several runs, and their ranks have time to be stopped."""
        timeout = self.work["timeout"]
        return _MARGIN + (timeout if self._begun()["step"] == "cell" else MOST_RUNS * (timeout + GRACE))

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


def _note_failed(made: Grade, stopped: _Stopped) -> None:
    """A puzzle's verdict where its attempt gave none; what was told of it before, of this seed, is none."""
    name, seed = stopped.step["name"], stopped.step["seed"]
    before = [verdict for verdict in made.verdicts[name] if verdict["seed"] != seed]
    made.verdicts[name] = [*before, {"seed": seed, "status": "failed", "points": 0, "words": [stopped.why],
                                     "spent": None}]


def _note_cell(made: Grade, number: int, outcome: Any) -> None:
    error = outcome.get("error") if isinstance(outcome, dict) else outcome
    if error is not None:
        made.errors[number] = str(error)


def _verdict(seed: int, outcome: Any) -> dict[str, Any]:
    """As student.py tells it. _OutOfTurnError where it is none."""
    if not isinstance(outcome, dict):
        raise _OutOfTurnError
    status, points, words, spent = (outcome.get(key) for key in ("status", "points", "words", "spent"))
    if not (status in STATUSES and type(points) is int and 0 <= points <= FULL and isinstance(words, list)
            and all(isinstance(line, str) for line in words) and (spent is None or _is_spent(spent))):
        raise _OutOfTurnError
    return {"seed": seed, "status": status, "points": points, "words": words, "spent": spent}


def _is_spent(spent: Any) -> bool:
    return isinstance(spent, dict) and all(isinstance(value, int) for value in spent.values())
