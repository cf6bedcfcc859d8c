"""`python -m minitp.lesson.puzzles.student FD`: somebody's cells, run, and the puzzles' functions in them, judged.

What to do comes as JSON on stdin; what is found goes as JSON lines to FD, which nothing that prints can reach. Every
step has two lines, one when it begins and one with what came of it:

    {"step": "cell", "number": 3}              {…, "outcome": {"error": null or "NameError: …"}}
    {"step": "puzzle", "name": …, "seed": …}   {…, "outcome": {"status": …, "points": …, "words": […], "spent": …}}
    {"step": "again"}                          ranks of an attempt can't be stopped: go on in a new process, where they
                                               don't disturb the other puzzles
    {"step": "end"}

The cells, in order, then each puzzle with each seed: whoever reads takes no line out of turn. Every line carries the
token that came with the work, so that a line written by the cells counts for nothing, and the thread that has the
channel isn't the one in whose frames foreign code runs. That keeps mistakes and simple tricks out. It is no sandbox:
whoever is out to deceive can search this process for the channel and tell a whole false story, and the cells run with
the rights of whoever grades.
"""
import __future__

import ast
import asyncio
import json
import linecache
import os
import resource
import signal
import sys
import threading
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn

from minitp import lesson
from minitp.launcher.threads import RANK
from minitp.lesson.attempt import told
from minitp.lesson.puzzles import puzzle_named
from minitp.lesson.puzzles.base import Puzzle
from minitp.lesson.puzzles.judge import judged

MOST_MEMORY, MOST_FILE = 8 << 30, 100 << 20      # bytes that the cells may allocate, and write into one file
_LONGEST = 2_000                                 # characters of an error


_FUTURES = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


class OutOfTimeError(BaseException):
    """A cell has had its time. No Exception: `except Exception` in a loop must not catch it."""


class _Channel:
    """Where findings go. A line begins anew: whatever else was written into it is a line of its own."""

    def __init__(self, descriptor: int, token: str):
        self._descriptor, self._token = descriptor, token
        os.set_inheritable(descriptor, False)

    def tell(self, step: str, **found: Any) -> None:
        line = "\n" + json.dumps({"token": self._token, "step": step, **found}) + "\n"
        data = line.encode()
        while data:
            data = data[os.write(self._descriptor, data):]


Errand = Callable[[], dict[str, Any]]


def main(descriptor: int) -> NoReturn:
    """Do, in this thread, what another asks for: signals and what a cell starts need the main thread, and the frames
    beneath the cells shouldn't hold the channel."""
    work = json.loads(sys.stdin.read())
    sys.stdin = open(os.devnull)                                             # noqa: SIM115 (until the end)
    _limit(resource.RLIMIT_AS, MOST_MEMORY)
    _limit(resource.RLIMIT_FSIZE, MOST_FILE)
    errands, outcomes = SimpleQueue[Errand](), SimpleQueue[dict[str, Any]]()
    student = _Student(work["file"], work["folder"], work["timeout"])
    threading.Thread(target=_grade, args=(work, descriptor, student, errands, outcomes), daemon=True).start()
    del work                                                                 # it has the token
    while True:
        outcomes.put(errands.get()())


def _limit(kind: int, most: int) -> None:
    """No more than `most`, nor than whoever grades may have: a limit can't be raised. macOS knows some by name alone;
    there the parent's clock must do."""
    with suppress(ValueError, OSError):
        limit = min([most, *(have for have in resource.getrlimit(kind) if have != resource.RLIM_INFINITY)])
        resource.setrlimit(kind, (limit, limit))


def _grade(work: dict[str, Any], descriptor: int, student: "_Student", errands: SimpleQueue[Errand],
           outcomes: SimpleQueue[dict[str, Any]]) -> None:
    """Tell each step, let the main thread do it, tell its outcome; then end the process, whatever it still does."""
    channel, code = _Channel(descriptor, work["token"]), 1

    def step(kind: str, errand: Errand, **which: Any) -> None:
        channel.tell(kind, **which)
        errands.put(errand)
        channel.tell(kind, **which, outcome=outcomes.get())

    try:
        for number, (where, source) in enumerate(work["cells"]):
            if number not in work["skip"]:
                step("cell", partial(student.run, where, source), number=number)
        for name in work["puzzles"]:
            for seed in work["seeds"]:
                step("puzzle", partial(student.verdict, name, seed), name=name, seed=seed)
            if student.runaway:
                break
        channel.tell("again" if student.runaway else "end")
        code = 0
    finally:                                     # a channel that a cell has closed, too
        os._exit(code)


class _Student:
    """The cells' module, and what is judged of it.

    runaway: the verdict on a puzzle one of whose attempts couldn't be stopped; it holds for its other seeds, too
    """

    def __init__(self, file: str, folder: str, timeout: float):
        self.timeout = timeout
        self.futures = 0                         # compiler flags: an import from __future__ holds for what comes after
        self.runaway: dict[str, Any] = {}
        module = types.ModuleType("__main__")
        self.names = vars(module)
        self.names |= {"display": print, "get_ipython": _Nothing} if file.endswith(".ipynb") else \
            {"__file__": os.path.join(folder, file)}
        sys.modules["__main__"] = module
        sys.argv = [file]
        sys.path.append(folder)
        vars(lesson)["puzzle"] = _later
        signal.signal(signal.SIGALRM, _out_of_time)

    def run(self, where: str, source: str) -> dict[str, Any]:
        """One cell; its error, or None."""
        try:
            signal.setitimer(signal.ITIMER_REAL, self.timeout)
            linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)
            code = compile(source, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self.futures, dont_inherit=True)
            self.futures |= code.co_flags & _FUTURES
            if isinstance(done := eval(code, self.names), types.CoroutineType):
                asyncio.run(done)
        except OutOfTimeError:
            return {"error": f"stopped: it ran longer than {self.timeout:g} s"}
        except BaseException as error:           # SystemExit too: the other cells go on
            return {"error": told(error)[:_LONGEST]}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return {"error": None}

    def verdict(self, name: str, seed: int) -> dict[str, Any]:
        if not self.runaway:
            puzzle = puzzle_named(name)
            found = _verdict(puzzle, self.names.get(puzzle.function), seed, self.timeout)
            if not any(thread.name.startswith(RANK) for thread in threading.enumerate()):
                return found
            self.runaway = found
        return self.runaway


class _Nothing:
    """In place of IPython's shell: whatever it is asked for, it does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_more: None


def _later(name: str, fn: Any, seed: int = 0) -> None:
    """In place of the lesson's `puzzle`: here the functions are judged once all cells have run."""


def _out_of_time(*_: Any) -> None:
    raise OutOfTimeError


def _verdict(puzzle: Puzzle, fn: Any, seed: int, timeout: float) -> dict[str, Any]:
    """What the channel tells of one attempt."""
    if not callable(fn):
        why = "there is no function" if fn is None else "this is no function"
        return {"status": "missing", "points": 0, "words": [f"{why}: {puzzle.function}."]}
    try:
        found = judged(puzzle, fn, seed, timeout)
    except BaseException as error:               # whatever else its code may raise, outside the ranks
        return {"status": "failed", "points": 0, "words": [told(error)[:_LONGEST]]}
    return {"status": found.status, "points": found.points, "words": [words[:_LONGEST] for words in found.words],
            "spent": None if found.spent is None else asdict(found.spent)}


if __name__ == "__main__":
    main(int(sys.argv[1]))
