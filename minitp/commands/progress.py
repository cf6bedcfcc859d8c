"""A progress bar that appears only where the work takes over a second, on standard error."""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER = 1.0                   # seconds


@contextmanager
def bytes_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with (done, total) as often as it is known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    console = Console(stderr=True)
    bar = Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
                   console=console, transient=True)
    task = bar.add_task(what, total=None)
    begun, shown = time.monotonic(), False

    def step(done: int, total: int) -> None:
        nonlocal shown
        bar.update(task, completed=done, total=total)
        if not shown and console.is_terminal and time.monotonic() - begun > SHOWN_AFTER:
            bar.start()
            shown = True

    try:
        yield step
    finally:
        if shown:
            bar.stop()


@contextmanager
def no_bar() -> Iterator[Callable[[Any, Any], None]]:
    """What the ranks that don't print use."""
    yield lambda _done, _total: None
