"""Progress bars, in bytes or in steps, where the work takes so long that one asks oneself whether it goes on."""
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def bytes_bar(console: "Console | None", what: str, *, after: float = 1.0, stays: bool = False
              ) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with (bytes done, in all) as often as it is known; without a console it does nothing.

    after  seconds before the bar is shown
    stays  whether the last state is left on the screen (and is a line of its own where there is no terminal)
    """
    if console is None:
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    begun = time.monotonic()
    bar = Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                   console=console, transient=not stays)
    task = bar.add_task(what, total=None)

    def step(done: int, total: int) -> None:
        bar.update(task, completed=min(done, total), total=total)
        if not bar.live.is_started and time.monotonic() - begun >= after:
            bar.start()

    try:
        yield step
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def steps_bar(console: "Console | None", what: str, total: int, *, after: float = 1.0
              ) -> Iterator[Callable[[int, str], None]]:
    """Gives a function to call with (steps done, what is done now); without a console it does nothing.

    It shows by itself after so many seconds, also where no step comes to an end.
    """
    if console is None:
        yield lambda _done, _now: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    bar = Progress(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn(), console=console, transient=True)
    task, timer = bar.add_task(what, total=total), threading.Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, now: bar.update(task, completed=done, description=f"{what} {now}")
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
