"""`--show-comm`: every sync point as it happens, one line each.

    comm.recorder.listener = ShowComm()                   # on rank 0
    …
    comm.recorder.listener.finish(trace)                  # the collected trace: how much of the time was waiting
"""
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minitp.trace.schema import Event
from minitp.trace.wording import WIDTH, TextStream, count, dimensions, duration, plain, share, short_type, size

if TYPE_CHECKING:
    from minitp.trace.file import Trace

_SHAPE, _STATES, _PAYLOAD = 14, 28, 8      # columns; a longer cell takes from the reason, the last one
_SITE = {"load": 31}                       # layers.10.attention_norm.weight; else layers.10.attention.o


class ShowComm:
    """A recorder's listener that prints the events of its rank; `planes`: which ones.

    Printing takes time on this rank, and the others wait for it at the next sync: `finish` says how much.
    """

    def __init__(self, stream: TextStream | None = None, planes: Sequence[str] = ("data", "sample")):
        self.stream: TextStream = stream if stream is not None else sys.stdout
        self.planes = planes
        self.lines, self.spent = 0, 0
        self._heading: tuple[str, int | None] | None = None

    def __call__(self, event: Event) -> None:
        if event.plane not in self.planes:
            return
        begin = time.perf_counter_ns()
        if (event.phase, event.step) != self._heading:
            self._heading = event.phase, event.step
            self._print(heading(event))
        self._print(line(event))
        self.lines += 1
        self.spent += time.perf_counter_ns() - begin

    def finish(self, trace: "Trace | None" = None) -> None:
        """The last line; `trace` is what `collect` returned on this rank."""
        if trace is None or not len(trace):
            return
        from minitp.trace.show import crowded, share_line
        from minitp.trace.summary import total, working_phases
        from minitp.trace.timeline import Timeline
        timeline, mine = Timeline.of(trace), trace.ranks[0]
        said = share_line(timeline)
        if crowded(trace):
            said += f" {count(trace.run['ranks'], 'rank')} share {count(trace.run['cores'], 'core')}: that is the " \
                    "scheduler, too."
        self._print(said)
        if self.lines:
            whole = total(timeline, mine, working_phases(timeline)).time
            self._print(f"Printing {count(self.lines, 'line')} took {duration(self.spent)}, "
                        f"{share(self.spent, whole)} of rank {mine}'s time; the others waited for it.")

    def _print(self, text: str) -> None:
        try:
            self.stream.write(text + "\n")
        except UnicodeEncodeError:                       # a terminal without × and → must not end the run
            self.stream.write(text.encode("ascii", "replace").decode() + "\n")
        self.stream.flush()


def heading(event: Event) -> str:
    """decode, token 3 ─────── over the lines of one step."""
    step = "" if event.step is None else f" {event.step}"
    return f"── {plain(event.phase, 40) or 'no phase'}{step} ".ljust(WIDTH, "─")


def line(event: Event) -> str:
    """One event in at most WIDTH columns: site, shape, before ─op→ after, payload, as much of the reason as fits."""
    op = "skipped" if event.broken else event.op
    cells = (plain(event.site, 40).ljust(_SITE.get(event.phase, 23)),
             f"{dimensions(event.shape)} {short_type(event.dtype)}".ljust(_SHAPE),
             f"{event.before} ─{op}→ {event.after}".ljust(_STATES), size(event.payload).rjust(_PAYLOAD), "")
    begin = "  ".join(cells)
    room = WIDTH - len(begin)
    return begin + plain(event.reason, room) if room > 8 else begin.rstrip()[:WIDTH]
