"""Why a job ended, where no rank could say: killed by a signal, left by os._exit, or mpiexec itself failed."""
import re
import signal

from minitp.launcher.output import JobOutput

_PID = re.compile(r"=\s+PID (\d+) RUNNING AT")
_SIGNAL = re.compile(r"\(signal (\d+)\)")
_CODES = re.compile(r"Exit codes: \[[^\]]*\] ([\d,]+)$")


def verdict(code: int, output: JobOutput) -> tuple[int, str]:
    """(exit code, the words for it: '' where a rank has told the cause or all is well)."""
    if code == 0:
        return 0, ""
    if code < 0:
        return 128 - code, "" if output.told else f"minitp: error: mpiexec was killed by {_name(-code)}"
    if output.told:
        return code, ""
    said = "\n".join(output.launcher)
    if found := _SIGNAL.search(said):
        number = int(found[1])
        return 128 + number, f"minitp: error: {_killed(said, output)} was killed by {_name(number)}{_maybe(number)}"
    for line in output.launcher:
        if found := _CODES.search(line):
            statuses = [int(status) for status in found[1].split(",")]
            for rank, status in enumerate(statuses):
                if status & 0x7F == 0 and status >> 8 == code:             # as wait(2) gives them
                    return code, f"minitp: error: rank {rank} ended with exit code {code}"
    return code, "\n".join([*filter(str.strip, output.launcher), f"minitp: error: the job ended with exit code {code}"])


def _killed(said: str, output: JobOutput) -> str:
    """The rank whose process mpiexec names."""
    if found := _PID.search(said):
        for rank, pid in output.pids.items():
            if pid == int(found[1]):
                return f"rank {rank}"
        return f"a rank (process {found[1]})"
    return "a rank"


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _maybe(number: int) -> str:
    if number == 9:
        return ": by hand, or by the system when memory ran out"
    return ": a crash in compiled code" if number in (4, 6, 7, 8, 11) else ""
