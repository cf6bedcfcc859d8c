"""The output of a job, told apart by rank: rank 0's at once, the others' in whole lines, the launcher's not at all."""
import re
import sys
from collections.abc import Callable
from typing import Any

from minitp.launcher.marks import MARK

Write = Callable[[bytes], None]

_STATUSES = re.compile(rb"\[mpiexec@[^\]\s]*\] Exit codes: ")       # MPICH's: it may come into a line that has no end

def sink(stream: Any) -> Write:
    """A function that writes bytes to a text stream at once; notebooks' streams have no bytes beneath."""
    def write(data: bytes) -> None:
        if hasattr(stream, "buffer"):
            stream.flush()
            stream.buffer.write(data)
        else:
            stream.write(data.decode(errors="replace"))
        stream.flush()
    return write


class JobOutput:
    """What both streams of a job have told besides the ranks' own words."""

    def __init__(self) -> None:
        self.told: int | None = None             # the exit code, once a rank has told what the job failed of
        self.speaking: set[int | None] = set()   # ranks that are about to, in words that name the ranks themselves
        self.pids: dict[int, int] = {}           # rank → process
        self.launcher: list[str] = []            # lines of mpiexec's own

    def mark(self, rank: int | None, text: str) -> None:
        word, *values = text.split()
        if word == "speaks":
            self.speaking.add(rank)
        elif word == "told":
            self.speaking.discard(rank)
            self.told = max(int(values[0]), self.told or 0)
        elif word == "pid":
            self.pids[int(values[0])] = int(values[1])


class Notices:
    """Stands before stderr where Open MPI launches: keeps back its paragraphs, between two rules, on a job's end."""

    _RULE, _OWN = b"-" * 74, (b"prterun", b"MPI_ABORT was invoked")

    def __init__(self, write: Write, job: JobOutput):
        self._write, self._job = write, job
        self._begun, self._paragraph = b"", b""

    def __call__(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        rule = line.strip() == self._RULE
        if not self._paragraph and not rule:
            self._write(line + b"\n")
            return
        ends = rule and bool(self._paragraph)
        self._paragraph += line + b"\n"
        if ends and any(word in self._paragraph for word in self._OWN):
            self._job.launcher += self._paragraph.decode(errors="replace").splitlines()
            self._paragraph = b""
        elif ends:
            self.close()

    def close(self) -> None:
        if self._paragraph + self._begun:
            self._write(self._paragraph + self._begun)
        self._begun = self._paragraph = b""


class Demultiplexer:
    """One stream of a job. `tag` (%r: the rank) stands before each piece of a rank's output; '' means no tags come.

    Rank 0's output goes on as it comes, so that a text can be watched as it grows. Other ranks' lines are passed on
    whole, with their rank in front, and never into the middle of a line of rank 0.
    """

    def __init__(self, write: Write, job: JobOutput, tag: str):
        self._write, self._job, self._tagged = write, job, bool(tag)
        before, _, after = tag.partition("%r")
        self._tag = re.compile(re.escape(before.encode()) + rb"(\d+)" + re.escape(after.encode()))
        self._before, self._longest = before.encode(), len(tag) + 8
        self._unread = b""                       # the end of what came: maybe the first half of a tag
        self._rank: int | None = None if tag else 0
        self._lines: dict[int | None, bytes] = {}        # rank → the line it has begun
        self._midline, self._held = False, b""   # rank 0 has begun a line; whole lines of others that wait for its end

    def feed(self, data: bytes) -> None:
        data = self._unread + data
        self._unread = b""
        if self._tagged and (cut := data.rfind(self._before[:1], -self._longest)) >= 0 and self._may_grow(data[cut:]):
            data, self._unread = data[:cut], data[cut:]
        self._take_all(data)

    def _may_grow(self, end: bytes) -> bool:
        """Whether this is a tag of which the rest has yet to come."""
        rank = end.removeprefix(self._before)
        return self._before.startswith(end) or (rank != end and (not rank or rank.isdigit()))

    def close(self) -> None:
        self._take_all(self._unread)
        for rank, line in sorted(self._lines.items(), key=lambda item: item[0] or 0):
            if line:
                self._pass_on(rank, line + b"\n")
        if self._held:                           # rank 0 has left its last line without an end
            self._emit(b"\n" + self._held)

    def _take_all(self, data: bytes) -> None:
        if not self._tagged:
            self._take(0, data)
            return
        at = 0
        for found in self._tag.finditer(data):
            self._untagged(data[at:found.start()])
            self._rank, at = int(found[1]), found.end()
        self._untagged(data[at:])

    def _untagged(self, data: bytes) -> None:
        """Up to the line's end it is the last tag's rank that speaks; lines without a tag are the launcher's own."""
        if self._rank is not None and (own := _STATUSES.search(data)):
            self._take(self._rank, data[:own.start()])
            self._rank, data = None, data[own.start():]
        if self._rank is not None and b"\n" in data:
            mine, end, data = data.partition(b"\n")
            self._take(self._rank, mine + end)
            self._rank = None
        if data:
            self._take(self._rank, data)

    def _take(self, rank: int | None, data: bytes) -> None:
        """A piece of one rank's output: pass on its whole lines, and of rank 0 also the line it has begun."""
        *whole, rest = (self._lines.pop(rank, b"") + data).split(b"\n")
        for line in whole:
            self._pass_on(rank, line + b"\n")
        if rank == 0 and rest and b"\x1e" not in rest:           # (a mark is taken out when its line is complete)
            self._emit(rest)
            self._midline, rest = True, b""
        self._lines[rank] = rest

    def _pass_on(self, rank: int | None, line: bytes) -> None:
        for mark in MARK.finditer(line):
            self._job.mark(rank, mark[1].decode())
        line, marks = MARK.subn(b"", line)
        if marks and not line:
            return
        if rank is None:
            self._job.launcher.append(line.decode(errors="replace").rstrip())
        elif rank == 0:
            self._emit(line + self._held)
            self._midline, self._held = False, b""
        else:
            if rank not in self._job.speaking:
                line = b"[rank %d] " % rank + line
            if self._midline:
                self._held += line
            else:
                self._emit(line)

    def _emit(self, data: bytes) -> None:
        if data:
            self._write(data)


def standard_sinks() -> tuple[Write, Write]:
    return sink(sys.stdout), sink(sys.stderr)
