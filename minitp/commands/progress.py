"""A progress bar that appears only where the work takes over a second, on standard error."""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER = 1.0                   # seconds


@contextmanager
def delayed_bar(what: str, total: int) -> Iterator[Callable[[Any], None]]:
    """Gives a function to call once per finished part; its argument is ignored."""
    from rich.console import Console
    from rich.progress import Progress
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True)
    task = bar.add_task(what, total=total)
    begun, shown = time.monotonic(), False

    def step(_part: Any) -> None:
        nonlocal shown
        bar.advance(task)
        if not shown and console.is_terminal and time.monotonic() - begun > SHOWN_AFTER:
            bar.start()
            shown = True

    try:
        yield step
    finally:
        if shown:
            bar.stop()


@contextmanager
def no_bar() -> Iterator[Callable[[Any], None]]:
    """What the ranks that don't print use."""
    yield lambda _part: None
