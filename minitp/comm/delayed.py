"""A communicator on a slower link: each collective and each message really waits `delay` seconds longer.

    group.delay = 0.002                                  # from now on, on this rank: set it on all of them

A trace of such a run says so in its header (minitp.trace.emulated), and views of its times do.

A collective of the world counts as one message, whatever lies inside it. One that is built from messages
(minitp.comm.algorithms) waits once for each of its rounds, so Hockney's α · rounds can be measured. Control messages
are the program's own and stay as quick as they are.

What it is not: bytes take no longer, nobody queues, every delay is the same, and nothing is done meanwhile. A sleep
ends late by what the system's timer allows itself (tens of µs), and the more so with more ranks than cores: choose
delays of a millisecond and more.
"""
import time
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from minitp.comm.communicator import Communicator
from minitp.comm.messages import Half
from minitp.comm.states import State
from minitp.errors import ConfigError

MOST = 10.0                                              # seconds: a run waits hundreds of times


class DelayedCommunicator(Communicator):
    """Moves as ever, then waits. The wait lies inside the event, as a link's does: the trace counts it as moving."""

    _delay = 0.0

    @property
    def delay(self) -> float:
        """Seconds that each collective and message takes longer."""
        return self._delay

    @delay.setter
    def delay(self, seconds: float) -> None:
        if not (isfinite(seconds) and 0 <= seconds <= MOST):
            raise ConfigError(f"a delay is a time from 0 to {MOST:g} s for each message, got {seconds!r}")
        self._delay = seconds

    def _run(self, op: str, site: str, reason: str, plane: str, shape: tuple[int, ...], dtype: np.dtype, payload: int,
             move: Callable[[], Any], **more: Any) -> Any:
        return super()._run(op, site, reason, plane, shape, dtype, payload, self._late(move, plane), **more)

    def _message(self, halves: list[Half], site: str, reason: str, plane: str, state: State,
                 move: Callable[[], None]) -> None:
        super()._message(halves, site, reason, plane, state, self._late(move, plane))

    def _late(self, move: Callable[[], Any], plane: str) -> Callable[[], Any]:
        """`move`, and the delay after it: not before, or a rank that comes early would have waited it out already."""
        def moved() -> Any:
            result = move()
            if plane != "control":
                self.recorder.held_up(self._delay)
                if self._delay:
                    time.sleep(self._delay)
            return result
        return moved
