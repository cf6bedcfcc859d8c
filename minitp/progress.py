"""Progress bars, in bytes or in steps, where the work takes so long that one asks oneself whether it goes on."""
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


@contextmanager
def bytes_bar(console: "Console | None", what: str, *, after: float = 1.0, stays: bool = False
              ) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with (bytes done, in all) as often as it is known; without a console it does nothing.

    after  seconds before the bar is shown, also where no byte comes; a spinner turns as long as the work goes on
    stays  whether the last state is left on the screen (and is a line of its own where there is no terminal)
    """
    if console is None:
        yield lambda _done, _total: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        RenderableColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.spinner import Spinner
    turning = [] if stays else [RenderableColumn(Spinner("line"))]          # it turns on when all bytes are read, too
    bar = Progress(*turning, TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
                   TimeRemainingColumn(), console=console, transient=not stays)
    task = bar.add_task(what, total=None)
    with _shown(bar, after):
        yield lambda done, total: bar.update(task, completed=min(done, total), total=total)


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
    task = bar.add_task(what, total=total)
    with _shown(bar, after):
        yield lambda done, now: bar.update(task, completed=done, description=f"{what} {now}")


@contextmanager
def _shown(bar: "Progress", after: float) -> Iterator[None]:
    """Inside, the bar shows by itself after so many seconds."""
    timer = threading.Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
