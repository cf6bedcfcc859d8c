"""A communicator that breaks the rule on purpose: chosen all-reduces don't happen, and nobody is told.

Each rank goes on with its own partial sum as if it were the whole: what a forgotten sync does to a model. Every other
collective works as ever, so the ranks still meet at the same places and draw the same tokens.
"""
import time
from collections.abc import Collection
from typing import Any

from minitp.comm.caller import caller
from minitp.comm.checks import summable
from minitp.comm.communicator import Communicator
from minitp.comm.messages import name_of
from minitp.comm.partial import Partial
from minitp.comm.states import state_names
from minitp.comm.transport import Call


class BrokenCommunicator(Communicator):
    """Skips the all-reduce at each site of `broken`. The event is recorded with broken=True: no bytes, no waiting."""

    broken: Collection[str] = ()

    def all_reduce(self, partial: Partial, *, site: str, reason: str, plane: str = "data") -> Any:
        if site not in self.broken or plane != "data":
            return super().all_reduce(partial, site=site, reason=reason, plane=plane)
        array, owned = summable(partial, "all_reduce").consume(self)
        taken = array if owned else array.copy()              # a view's memory still belongs to its partial
        host = self.stage(taken)[0]
        self.latest = call = Call(self._sequence, "all_reduce", site, name_of(host.dtype), host.shape)
        self._sequence += 1
        kept, now = self.recorder.snapshot(host, plane), time.perf_counter_ns()
        self.recorder.add(self, call, call.op, plane, reason, state_names(call.op, None, None), host.shape, call.dtype,
                          0, now, now, caller(), broken=True)
        self.recorder.keep(kept, host, plane)
        return taken
