"""Waiting for what another process or thread does: for as long as a busy machine may take, and no longer."""
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0                       # seconds: only a failure takes them


def until(true: Callable[[], Any]) -> Any:
    """What `true` returns, once that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found
