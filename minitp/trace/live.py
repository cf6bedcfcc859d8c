"""`--show-comm`: every sync point as it happens, one line each; in training one line for every pass.

    comm.recorder.listener = ShowComm()                   # on rank 0; ShowPasses() in training
    …
    comm.recorder.listener.finish(trace)                  # the collected trace: how much of the time was waiting
"""
import sys
import time
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from minitp.trace.schema import Event
from minitp.trace.wording import (
    WIDTH,
    TextStream,
    count,
    dimensions,
    duration,
    pass_name,
    plain,
    share,
    short_type,
    size,
)

if TYPE_CHECKING:
    from minitp.trace.file import Trace

_SHAPE, _STATES, _PAYLOAD = 14, 28, 8      # columns; a longer cell takes from the reason, the last one
COLUMNS = 80                               # of a line for a pass, of which these are some
_PASS, _POINTS, _SHARE = 26, 14, 12
_SITE = {"load": 31}                       # layers.10.attention_norm.weight; else layers.10.attention.o


class ShowComm:
    """A recorder's listener that prints the events of its rank; `planes`: which ones.

    Printing takes time on this rank, and the others wait for it at the next sync: `finish` says how much.
    """

    def __init__(self, stream: TextStream | None = None, planes: Sequence[str] = ("data", "sample")):
        self.stream: TextStream = stream if stream is not None else sys.stdout
        self.planes = planes
        self.lines, self.spent = 0, 0
        self._heading: tuple[str, int | None, int | None] | None = None

    def __call__(self, event: Event) -> None:
        if event.plane not in self.planes:
            return
        begin = time.perf_counter_ns()
        self._show(event)
        self.spent += time.perf_counter_ns() - begin

    def _show(self, event: Event) -> None:
        if (place := place_of(event)) != self._heading:
            self._heading = place
            self._print(heading(event))
        self._say(line(event))

    def _say(self, text: str) -> None:
        self._print(text)
        self.lines += 1

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


class ShowPasses(ShowComm):
    """The same in short: one line for a pass, when the next one begins (the last one: at `finish`)."""

    def __init__(self, stream: TextStream | None = None, planes: Sequence[str] = ("data", "sample")):
        super().__init__(stream, planes)
        self._events: list[Event] = []                   # of the pass that is running
        self._since: int | None = None                   # ns: when the one before it had its last result

    def _show(self, event: Event) -> None:
        if self._events and place_of(event) != place_of(self._events[0]):
            self._say_pass()
        self._events.append(event)

    def finish(self, trace: "Trace | None" = None) -> None:
        if self._events:
            self._say_pass()
        super().finish(trace)

    def _print(self, text: str) -> None:
        super()._print(fill(text, COLUMNS))

    def _say_pass(self) -> None:
        self._say(pass_line(self._events, self._since))
        self._events, self._since = [], self._events[-1].leave


def place_of(event: Event) -> tuple[str, int | None, int | None]:
    return event.phase, event.step, event.micro_batch


def heading(event: Event) -> str:
    """decode 3 ─────── over the lines of one pass."""
    return f"── {pass_name(*place_of(event))} ".ljust(WIDTH, "─")


def pass_line(events: Sequence[Event], since: int | None) -> str:
    """forward 1 · micro-batch 2   8 sync points   12.3 kB   1.2 ms   43 % in them

    Times are from the last result of the pass before, `since`, to this one's.
    """
    data = [event for event in events if event.plane == "data" and not event.broken]
    points, payload = len(data), sum(event.payload for event in data)
    inside = sum(event.leave - event.enter for event in events)
    whole = events[-1].leave - (events[0].enter if since is None else since)
    cells = (pass_name(*place_of(events[0])).ljust(_PASS), count(points, "sync point").rjust(_POINTS),
             size(payload).rjust(_PAYLOAD), duration(whole).rjust(_PAYLOAD),
             f"{share(inside, whole)} in them".rjust(_SHARE))
    return "  ".join(cells)


def line(event: Event) -> str:
    """One event in at most WIDTH columns: site, shape, before ─op→ after, payload, as much of the reason as fits."""
    op = "skipped" if event.broken else event.op
    cells = (plain(event.site, 40).ljust(_SITE.get(event.phase, 23)),
             f"{dimensions(event.shape)} {short_type(event.dtype)}".ljust(_SHAPE),
             f"{event.before} ─{op}→ {event.after}".ljust(_STATES), size(event.payload).rjust(_PAYLOAD), "")
    begin = "  ".join(cells)
    room = WIDTH - len(begin)
    return begin + plain(event.reason, room) if room > 8 else begin.rstrip()[:WIDTH]
