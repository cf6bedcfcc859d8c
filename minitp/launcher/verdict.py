"""Why a job ended, where no rank could say: killed by a signal, left by os._exit, or mpiexec itself failed."""
import re
import signal
from collections.abc import Sequence

from minitp.launcher.telling import name_ranks

# MPICH names the signal, and, asked for it, each rank's status; Open MPI the rank that ended first.
_SIGNAL = re.compile(r"\(signal (\d+)\)")
_CODES = re.compile(r"Exit codes: \[[^\]]*\] ([\d,]+)$")
_DIED = re.compile(r"process rank (\d+) with PID .*exited on\s+signal (\d+)")                       # Open MPI
_LEFT = re.compile(r"Process name: \[[^\]]*,(\d+)\]\s+Exit code: +(\d+)")
_CRASHES = [getattr(signal, name) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
            if hasattr(signal, name)]


def verdict(code: int, launcher: Sequence[str]) -> tuple[int, str]:
    """(exit code, the words for it) of a job that ended with `code` and no word from a rank.

    launcher: what mpiexec itself printed. It kills the other ranks at once and then names any of them: of several that
    signal 9 ended nobody can say which was the first.
    """
    if code < 0:
        return 128 - code, f"minitp: error: mpiexec was killed by {_name(-code)}"
    statuses = _statuses(launcher)
    for rank, status in enumerate(statuses):
        if not _signal(status) and status >> 8:
            return status >> 8, f"minitp: error: rank {rank} ended with exit code {status >> 8}"
    for rank, status in enumerate(statuses):
        if _signal(status) not in (0, 9):
            return _killed([rank], _signal(status))
    said = "\n".join(launcher)
    if found := _LEFT.search(said):
        return int(found[2]), f"minitp: error: rank {found[1]} ended with exit code {found[2]}"
    if found := _DIED.search(said):
        return _killed([int(found[1])], int(found[2]))
    if found := _SIGNAL.search(said):
        return _killed([rank for rank, status in enumerate(statuses) if _signal(status)], int(found[1]))
    return code, "\n".join([*filter(str.strip, launcher), f"minitp: error: the job ended with exit code {code}"])


def _statuses(launcher: Sequence[str]) -> list[int]:
    """One per rank, as wait(2) gives them, where mpiexec printed them (MPICH)."""
    found = next(filter(None, map(_CODES.search, launcher)), None)
    return [] if found is None else [int(status) for status in found[1].split(",")]


def _signal(status: int) -> int:
    return status & 0x7F


def _killed(ranks: list[int], number: int) -> tuple[int, str]:
    who = f"one of {name_ranks(ranks)}" if len(ranks) > 1 else name_ranks(ranks) if ranks else "a rank"
    why = ": by hand, or by the system when memory ran out" if number == 9 else ""
    if number in _CRASHES:
        why = ": a crash in compiled code"
    return 128 + number, f"minitp: error: {who} was killed by {_name(number)}{why}"


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
