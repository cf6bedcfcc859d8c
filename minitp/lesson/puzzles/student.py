"""`python -m minitp.lesson.puzzles.student FD`: somebody's cells, run, and the puzzles' functions in them, judged.

What to do comes as JSON on stdin; what is found goes as JSON lines to FD, which nothing that prints can reach:

    {"step": "cell", "number": 3}                                 begins; {…, "error": "NameError: …"} where it fails
    {"step": "puzzle", "name": …, "seed": …}                      begins; {…, "status": …, "points": …, …} its verdict
    {"step": "again"}                                             ranks of an attempt can't be stopped: go on in a new
                                                                  process, where they don't disturb the other puzzles
    {"step": "end"}

Every line carries the token that came with the work, so that a line written by the cells counts for nothing. That
keeps mistakes and simple tricks out. It is no sandbox: the cells run with the rights of whoever grades.
"""
import json
import linecache
import os
import resource
import signal
import sys
import threading
import types
from dataclasses import asdict
from typing import Any, NoReturn

from minitp import lesson
from minitp.launcher.threads import RANK
from minitp.lesson.puzzles import puzzle_named
from minitp.lesson.puzzles.base import Puzzle
from minitp.lesson.puzzles.judge import judged

MOST_MEMORY, MOST_FILE = 8 << 30, 100 << 20      # bytes that the cells may allocate, and write into one file
_LONGEST = 2_000                                 # characters of an error


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


def main(descriptor: int) -> NoReturn:
    work = json.loads(sys.stdin.read())
    channel = _Channel(descriptor, work["token"])
    sys.stdin = open(os.devnull)                                             # noqa: SIM115 (until the end)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE, MOST_FILE))
    sys.argv, found = [work["file"]], _run_cells(work, channel)
    _judge(work, found, channel)
    channel.tell("end")
    os._exit(0)                                  # what the cells left running isn't waited for


def _run_cells(work: dict[str, Any], channel: _Channel) -> dict[str, Any]:
    """What the cells defined."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path.append(work["folder"])
    vars(lesson)["puzzle"] = _later
    vars(module)["display"] = print              # a notebook has it
    signal.signal(signal.SIGALRM, _out_of_time)
    for number, (where, source) in enumerate(work["cells"]):
        if number in work["skip"]:
            continue
        channel.tell("cell", number=number)
        try:
            signal.setitimer(signal.ITIMER_REAL, work["timeout"])
            linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)
            exec(compile(source, where, "exec"), vars(module))
        except OutOfTimeError:
            channel.tell("cell", number=number, error=f"stopped: it ran longer than {work['timeout']:g} s")
        except BaseException as error:           # SystemExit too: the other cells go on
            channel.tell("cell", number=number, error=_told(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return vars(module)


def _later(_name: str, _fn: Any, _seed: int = 0) -> None:
    """In place of the lesson's `puzzle`: here the functions are judged once all cells have run."""


def _out_of_time(*_: Any) -> None:
    raise OutOfTimeError


def _judge(work: dict[str, Any], found: dict[str, Any], channel: _Channel) -> None:
    for name in work["puzzles"]:
        puzzle = puzzle_named(name)
        fn = found.get(puzzle.function)
        for number, seed in enumerate(work["seeds"]):
            channel.tell("puzzle", name=name, seed=seed)
            verdict = _verdict(puzzle, fn, seed, work["timeout"])
            channel.tell("puzzle", name=name, seed=seed, **verdict)
            if any(thread.name.startswith(RANK) for thread in threading.enumerate()):
                for other in work["seeds"][number + 1:]:
                    channel.tell("puzzle", name=name, seed=other, **verdict)
                channel.tell("again")
                os._exit(0)


def _verdict(puzzle: Puzzle, fn: Any, seed: int, timeout: float) -> dict[str, Any]:
    """What the channel tells of one attempt."""
    if not callable(fn):
        why = "there is no function" if fn is None else "this is no function"
        return {"status": "missing", "points": 0, "words": [f"{why}: {puzzle.function}."]}
    try:
        found = judged(puzzle, fn, seed, timeout)
    except BaseException as error:               # a KeyboardInterrupt that a rank raised, say
        return {"status": "failed", "points": 0, "words": [_told(error)]}
    return {"status": found.status, "points": found.points, "words": [words[:_LONGEST] for words in found.words],
            "spent": None if found.spent is None else asdict(found.spent)}


def _told(error: BaseException) -> str:
    """An error in one text; its own words may fail as well."""
    try:
        text = str(error)
    except BaseException:
        text = "(its text can't be made)"
    return f"{type(error).__name__}: {text}"[:_LONGEST]


if __name__ == "__main__":
    main(int(sys.argv[1]))
